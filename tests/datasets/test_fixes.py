"""--dataset_fixes: corrected data equal files that are corrected by hand; rows that do not fit are refused."""

import shutil

import pytest

import datasets
from datasets import _fixes
from evaluation import feature_store
from retrieval import data
from runs import Embedder
from runs.folder import COPIES
from tests.datasets import layouts, test_csv
from tests.datasets.layouts import names
from tests.kit.data_sets import make_folder
from tests.kit.refusals import refused
from tests.kit.runs import content_of, resolve, run_main, run_words

HEAD = "path,problem,label,right_label"
ROWS = (
    "class_0/000.jpg,duplicate,class_0,",
    "class_1/001.jpg,wrong label,class_1,class_4",
    "class_4/002.jpg,wrong label,class_4,",
    "class_5/003.jpg,No class ,,",
)


def write(path, *rows, head=HEAD):
    layouts.write_lines(path, [head, *rows])
    return path


def images(splits):
    """Split -> class -> names of its images."""
    listed = {}
    for split in ("training", "testing"):
        classes = splits[split].class_names
        listed[split] = {}
        for path, label in splits[split].image_list:
            listed[split].setdefault(classes[label], set()).add("/".join(path.split("/")[-2:]))
    return listed


@pytest.fixture
def root(tmp_path):
    """Six classes of four images."""
    return make_folder(tmp_path / "things")


def test_a_corrected_folder_equals_one_that_is_corrected_by_hand(root, tmp_path, monkeypatch):
    fixes = write(tmp_path / "fixes.csv", *ROWS)
    splits = layouts.read_folder(root, dataset_fixes=str(fixes))
    expected = images(layouts.read_folder(root))
    for name in ("class_0/000.jpg", "class_1/001.jpg"):
        expected["training"][name[:7]].remove(name)
    for name in ("class_4/002.jpg", "class_5/003.jpg"):
        expected["testing"][name[:7]].remove(name)
    expected["testing"]["class_4"].add("class_1/001.jpg")
    assert images(splits) == expected and list(splits["testing"].image_dict) == [0, 1, 2]
    (note,) = (note for note in splits["training"].notes if "fixes" in note)
    assert note == (f"--dataset_fixes {fixes}: 1 image relabelled, 3 left out (1 wrong label, 1 duplicate, 1 no class)")
    # paths in full, and from the working folder
    monkeypatch.chdir(tmp_path)
    absolute = write(
        tmp_path / "absolute.csv", *(f"{root}/{row}" for row in ROWS[:2]), *(f"things/{r}" for r in ROWS[2:])
    )
    absolute_splits = layouts.read_folder("things", dataset_fixes=str(absolute))
    assert images(absolute_splits) == expected
    assert absolute_splits["testing"].fingerprint["sha256"] == splits["testing"].fingerprint["sha256"]
    before = feature_store.images_of(absolute_splits["testing"])
    write(absolute, ROWS[0], ROWS[1].replace("class_4", "class_2"), *ROWS[2:])
    after = feature_store.images_of(layouts.read_folder(root, dataset_fixes=str(absolute))["testing"])
    assert before["sha256"] != after["sha256"] and before["files"] == after["files"]
    assert {fix.path for fix in absolute_splits["testing"].fixes} == {row.split(",")[0] for row in ROWS}
    assert {fix.label for fix in absolute_splits["testing"].fixes} == {"class_0", "class_1", "class_4", "class_5"}


def test_an_image_goes_to_the_part_of_its_class_and_its_super_class(tmp_path):
    folders = "train/x/a train/x/b query/y/c query/y/d gallery/y/c gallery/y/d".split()
    root = make_folder(tmp_path / "parts", names=folders, n_images=2)
    fixes = write(
        tmp_path / "fixes.csv",
        "query/y/c/000.jpg,wrong label,y/c,x/a",
        "gallery/y/d/000.jpg,wrong label,y/d,y/c",
        "train/x/b/000.jpg,wrong label,,y/d",
    )
    splits = layouts.read_folder(root, dataset_fixes=str(fixes))
    training = splits["training"]
    testing = splits["testing"]
    assert names(splits) == {"training": ["x/a", "x/b"], "testing": ["y/c", "y/d"]}
    assert [len(training.image_dict[label]) for label in (0, 1)] == [3, 1]
    assert set(training.super_labels.values()) == {"x"} and set(testing.super_labels.values()) == {"y"}
    assert training.is_query.all() and training.is_gallery.all()
    roles = {}
    for (path, _), is_query, is_gallery in zip(testing.image_list, testing.is_query, testing.is_gallery, strict=True):
        roles[path.removeprefix(f"{root}/")] = (bool(is_query), bool(is_gallery))
    assert roles["gallery/y/d/000.jpg"] == (False, True) and roles["query/y/c/001.jpg"] == (True, False)
    assert roles["train/x/b/000.jpg"] == (True, True)
    assert "3 images relabelled, 0 left out; 2 relabelled images are in another split now" in str(training.notes)


def test_a_table_and_shards_are_corrected(tmp_path):
    rows = test_csv.table(tmp_path, distractors=1)
    path = test_csv.write(tmp_path / "df.csv", rows)
    fixes = write(
        tmp_path / "fixes.csv",
        "images\\2_0.png,wrong label,2,10",
        "images/3_1.png,duplicate,3,",
        "images/none_0.png,wrong label,,11",
    )
    splits = test_csv.read(path, dataset_fixes=str(fixes))
    training = splits["training"]
    testing = splits["testing"]
    assert {training.class_names[label]: len(rows) for label, rows in training.image_dict.items()} == {"2": 2, "10": 4}
    assert {testing.class_names[label]: len(rows) for label, rows in testing.image_dict.items()} == {"3": 2, "11": 4}
    assert testing.roles == {"query_images": 3, "gallery_images": 3} and testing.is_distractor is None
    write(fixes, *(f"images/{label}_{i}.png,duplicate,," for label in (3, 11) for i in range(3)))
    with refused("no image is left in test"):
        test_csv.read(tmp_path / "plain.csv", rows[1:], dataset_fixes=str(fixes))
    layouts.write_lines(tmp_path / "lists.csv", ["query,kind,path", "images/3_1.png,positive,images/3_0.png"])
    with refused("lists, not labels"):
        test_csv.read(path, dataset_fixes=str(fixes), dataset_csv_lists=str(tmp_path / "lists.csv"))
    shard = layouts.make_shard(tmp_path / "data.tar", {"k": "a", "l": "a", "m": "b", "n": "c"})
    address = datasets.select("shards", dataset_shards=str(shard), input_size=8)["training"].paths[1]
    write(fixes, f"{address},wrong label,a,b")
    splits = datasets.select("shards", dataset_shards=str(shard), input_size=8, dataset_fixes=str(fixes))
    assert splits["training"].counts["images"] == 1 and splits["testing"].counts["images"] == 3


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["class_0/000.jpg,duplicate,,", "class_9/000.jpg,duplicate,,"], "row 3: class_9/000.jpg is no image of the"),
        (["class_0/000.jpg,wrong label,,clas_1"], "row 2: right label 'clas_1' is no class.* Did you mean 'class_1'?"),
        (["class_0/000.jpg,wrong label,,class_0"], "row 2: class_0/000.jpg is of class 'class_0' already"),
        (["class_0/000.jpg,wrong label,class_3,"], "was marked in class 'class_3', and is of class 'class_0' now"),
        (["class_0/000.jpg,duplicate,,class_1"], "row 2: problem 'duplicate' and a right label 'class_1'"),
        (["class_0/000.jpg,blurred,,"], "row 2: problem 'blurred', expected wrong label, duplicate or no class"),
        (["class_0/000.jpg,duplicate"], "row 2: 2 fields, its first row has 4"),
        (
            ["class_0/000.jpg,duplicate,,", "class_1/000.jpg,duplicate,,", "./class_0/000.jpg,wrong label,,class_1"],
            "row 4: class_0/000.jpg is marked otherwise in row 2: remove one of them",
        ),
        ([], "it names no image"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_number(root, tmp_path, rows, message):
    fixes = write(tmp_path / "fixes.csv", *rows)
    with refused(message, fixes):
        layouts.read_folder(root, dataset_fixes=str(fixes))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column path, problem among none"),
        ("path,label\n", "no column problem among path, label"),
        ("path,problem,righ_label\n", "column 'righ_label', expected each of path, problem, label, right_label once"),
        ("path,problem,path\n", "column 'path', expected each of"),
        ('path,problem\n"a', "no table of comma-separated values"),
        (None, "no table of comma-separated values .no such file"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused(root, tmp_path, text, message):
    fixes = tmp_path / "fixes.csv"
    if text is not None:
        fixes.write_text(text)
    with refused(message, fixes):
        layouts.read_folder(root, dataset_fixes=str(fixes))


def test_repeated_rows_and_images_that_are_missing_are_counted(root, tmp_path):
    fixes = write(tmp_path / "fixes.csv", *ROWS[:2], "gone/0.jpg,duplicate,,", *ROWS[:2], head=f"\ufeff{HEAD}")
    with refused("row 4: gone/0.jpg"):
        layouts.read_folder(root, dataset_fixes=str(fixes))
    splits = layouts.read_folder(root, dataset_fixes=str(fixes), allow_partial_dataset=True)
    (note,) = (note for note in splits["training"].notes if "fixes" in note)
    assert "rows without effect, of images that are missing: 1; rows without effect, repeated: 2" in note
    write(fixes, *(f"class_2/00{number}.jpg,no class" for number in range(4)), head="path,problem")
    splits = layouts.read_folder(root, dataset_fixes=str(fixes))
    assert "classes without an image now: class_2" in str(splits["training"].notes)


def test_other_data_sets_refuse_fixes_and_files_of_several_images_too(root, tmp_path):
    fixes = str(write(tmp_path / "fixes.csv", *ROWS))
    for name, flags in (("glyphs", {}), ("union", {"union": [f"folder:{root}", "glyphs"]})):
        with refused("only labels of --dataset folder, csv and shards are corrected"):
            datasets.select(name, dataset_fixes=fixes, **flags)
    rows = test_csv.table(tmp_path, x_1=0, y_1=0, x_2=6, y_2=10)
    test_csv.write(tmp_path / "df.csv", [*rows, {**rows[0], "y_2": 8}])
    write(tmp_path / "fixes.csv", "images/2_0.png,duplicate,2,")
    with refused("row 2: images/2_0.png is the file of 2 images of the data set"):
        test_csv.read(tmp_path / "df.csv", dataset_fixes=fixes)


def test_the_apostrophes_of_the_page_are_removed():
    for text in ("=1+1", "+1", "-a", "@x", "'=1", "''-a", "＝1"):
        assert _fixes._unguarded(f"'{text}") == text
    for text in ("a=1", "'a", "''", "", "1-a"):
        assert _fixes._unguarded(text) == text


def test_a_run_keeps_its_fixes_and_goes_on_with_them(root, tmp_path, capsys):
    fixes = write(tmp_path / "fixes.csv", *ROWS)
    words = run_words(root, tmp_path, "--n_epochs 1 --dataset_fixes", fixes)
    folder = run_main(*words).folder
    assert "1 image relabelled, 3 left out" in capsys.readouterr().out
    assert (folder / COPIES["dataset_fixes"]).read_bytes() == fixes.read_bytes()
    record = content_of(folder / "environment.yaml")["data"]
    assert record["counts"]["testing"]["images"] == 11 and len(record["fingerprint"]["fixes"]) == 64
    assert len(data.split(Embedder(folder), "test")) == 11
    resume = ["--resume_from", folder]
    plain = run_main(*run_words(root, tmp_path, "--n_epochs 1 --group Plain")).folder
    with refused("the images that train, validate and test"):
        resolve("--resume_from", plain, "--n_epochs 2 --dataset_fixes", fixes)
    write(fixes, *ROWS[:3])
    with refused("is gone, or no longer what .* began with. The run has a copy"):
        resolve(*resume, "--n_epochs 2")
    moved = shutil.copy(folder / COPIES["dataset_fixes"], tmp_path / "moved.csv")
    run_main(*resume, "--n_epochs 2 --dataset_fixes", moved)
    run_main(*resume, "--evaluate --dataset_folder_path", make_folder(tmp_path / "others"))
    assert "--dataset_fixes names its own images" in capsys.readouterr().out
    run_main(*resume, "--evaluate --dataset_fixes", fixes)
    (evaluation,) = (file for file in folder.glob("evaluation_*.json") if content_of(file)["data"]["root"] == str(root))
    assert content_of(evaluation)["data"]["counts"]["test"]["images"] == 12
