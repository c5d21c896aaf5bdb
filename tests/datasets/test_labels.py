"""Missing labels are no class, names that differ only in writing are told, a flag names the label of nobody."""

import math

import pytest

import datasets
import parameters
from datasets import _labels
from tests.datasets import layouts, test_csv
from tests.datasets.layouts import names
from tests.kit.data_sets import make_folder
from tests.kit.refusals import refused


def rows_of(folder, labels, split="train"):
    """A row of a table for each label, with an image of its own."""
    paths = [f"images/{split}_{number}.png" for number in range(len(labels))]
    layouts.write_images(folder, paths)
    return [{"label": label, "path": path, "split": split} for label, path in zip(labels, paths, strict=True)]


def read_shard(path, **flags):
    return datasets.select("shards", dataset_shards=str(path), input_size=8, **flags)


def notes_of(splits):
    return "\n".join(splits["training"].notes)


@pytest.mark.parametrize("missing", ["nan", "NaN", "None", "null", " NULL ", "<NA>", ""])
def test_a_missing_label_is_no_class_in_a_table_or_a_shard(missing, tmp_path):
    rows = [*rows_of(tmp_path, ["a", "b", missing, missing]), *rows_of(tmp_path, ["c", "d"], "validation")]
    with refused("df.csv, row 4: no label.* in all 2 rows lack one.*--allow_partial_dataset"):
        test_csv.read(tmp_path / "df.csv", rows)
    splits = test_csv.read(tmp_path / "df.csv", allow_partial_dataset=True)
    assert names(splits) == {"training": ["a", "b"], "testing": ["c", "d"]}
    assert "2 rows without a label are left out, the first is row 4" in notes_of(splits)
    with refused("df.csv, row 4: no label"):
        datasets.select("union", union=[f"csv:{tmp_path / 'df.csv'}", "glyphs"])
    without_class = [{"label": missing}, {"label": None, "cls": math.nan, "category": missing}]
    labels = ["a", missing, *without_class, {"label": missing, "class": "c"}, "d"]
    path = layouts.make_shard(tmp_path / "data.tar", {f"k{number}": label for number, label in enumerate(labels)})
    with refused("images without a class.*: 3, the first .*data.tar: k1"):
        read_shard(path)
    splits = read_shard(path, allow_partial_dataset=True)
    assert names(splits) == {"training": ["a"], "testing": ["c", "d"]}


def test_names_that_differ_only_in_writing_are_noted(tmp_path):
    for first, second in (("1", "1.0"), ("C1", "c1"), ("7", "007"), ("caf\u00e9", "cafe\u0301"), ("x/A b", "X/a  b")):
        message = _labels.alike_names([first, second, "z"], "classes")
        assert repr(first) in message and message.startswith("2 classes differ")
    assert _labels.alike_names(["1", "10", "1.5", "C 1", "C1", "a/b", "ab", "nan", "1_0", "inf"], "classes") is None
    long = "12345" * 8
    assert _labels.alike_names([f"{long}1", f"{long}2", f"{long}.5", f"-{long}1"], "classes") is None
    assert _labels.alike_names([f"{long}1", f"0{long}1.0"], "classes") is not None
    assert _labels.alike_names(["0", "-0.0", "+00"], "classes").startswith("3 classes differ")
    rows = [*rows_of(tmp_path, ["1", "C1"]), *rows_of(tmp_path, ["1.0", "c1"], "validation")]
    path = test_csv.write(tmp_path / "df.csv", [{**row, "category": row["label"]} for row in rows])
    head, *body = [f"{line},{line.split(',')[0]}" for line in path.read_text().splitlines()]
    layouts.write_lines(path, [f"{head},note,note", *(f"{line},a,b" for line in body)])
    notes = notes_of(test_csv.read(path))
    assert "4 classes differ from another only in writing, as '1' and '1.0'; 'C1' and 'c1'" in notes
    assert "4 super-classes differ" in notes
    assert "columns that the table has several times, of which the last is read: label" in notes
    root = make_folder(tmp_path / "things", names=["Cats", "cats", "None", "x"], n_images=1)
    notes = notes_of(layouts.read_folder(root))
    assert "2 classes differ from another only in writing, as 'Cats' and 'cats'" in notes
    assert "the folder None is a class; if it holds images of none, add --dataset_unknown_label None" in notes
    union = datasets.select("union", union=[f"folder:{root}", f"csv:{path}"], input_size=8)
    assert notes_of(union).count("differ from another") == 3


def test_the_unknown_label_makes_distractors(tmp_path):
    rows = [*rows_of(tmp_path, ["a", "b", "unknown", "new"]), *rows_of(tmp_path, ["c", "d", "unknown"], "validation")]
    path = test_csv.write(tmp_path / "df.csv", rows)
    assert "unknown" in names(test_csv.read(path))["training"]
    flags = {"dataset_unknown_label": ["unknown", "new"]}
    splits = test_csv.read(path, **flags)
    assert names(splits) == {"training": ["a", "b"], "testing": ["c", "d"]}, "and nothing validates"
    assert splits["testing"].counts["distractors"] == 1
    assert splits["testing"].roles == {"query_images": 2, "gallery_images": 3}
    note = "--dataset_unknown_label unknown new: 1 images are in the test set without a class, 2 are left out"
    assert note in notes_of(splits)
    for row in rows:
        row |= {"is_query": row["label"] in ("c", "unknown"), "is_gallery": row["label"] == "d"}
    splits = test_csv.read(tmp_path / "roles.csv", rows, **flags)
    assert "distractors" not in splits["testing"].counts and "3 are left out" in notes_of(splits)
    flags = {"dataset_unknown_label": ["unknown"]}
    root = make_folder(tmp_path / "things", names=["x/a", "x/unknown", "y/b", "y/c"], n_images=2)
    splits = layouts.read_folder(root, **flags)
    assert names(splits) == {"training": ["x/a"], "testing": ["y/b", "y/c"]}
    assert splits["testing"].counts["distractors"] == 2
    folders = "train/a query/b gallery/b train/unknown query/unknown gallery/unknown".split()
    splits = layouts.read_folder(make_folder(tmp_path / "parts", n_images=1, names=folders), **flags)
    assert splits["testing"].counts["distractors"] == 1 and len(splits["testing"]) == 3 and len(splits["training"]) == 1
    samples = {"k": "a", "l": "b", "m": "unknown", "n": "c"}
    splits = read_shard(layouts.make_shard(tmp_path / "data.tar", samples), **flags)
    assert splits["testing"].counts == {"images": 2, "classes": 2, "single_image_classes": 2, "distractors": 1}
    union = [f"folder:{root}", f"csv:{path}"]
    splits = datasets.select("union", union=union, input_size=8, dataset_unknown_label=["new"])
    assert "new" not in str(names(splits)) and "unknown" in str(names(splits))


def test_a_label_that_no_image_has_or_of_another_data_set_is_refused(tmp_path, capsys):
    root = make_folder(tmp_path / "things", names=["a", "b", "Unknown"], n_images=2)
    second_root = make_folder(tmp_path / "more", names=["a", "b"], n_images=2)
    words = ["--dataset", "folder", "--dataset_folder_path", str(root), "--dataset_unknown_label", "unknwon"]
    opt = parameters.read(words)
    with refused("--dataset_unknown_label unknwon: no image has this label. Did you mean Unknown?"):
        datasets.select("folder", opt)
    with refused("no image has this label"):
        datasets.select("union", union=[f"folder:{root}", f"folder:{second_root}"], dataset_unknown_label=["x"])
    with refused("only --dataset folder, csv, shards and a union of these have such labels"):
        datasets.select("glyphs", dataset_unknown_label=["x"])
    with pytest.raises(SystemExit):
        parameters.read(["--dataset", "cub200", "--dataset_unknown_label", "x"])
    assert "have such labels" in capsys.readouterr().err
