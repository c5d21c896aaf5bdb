"""--dataset csv: the format of open-metric-learning, its roles, boxes and sequences; what is said of a table that is none; and how quick it is."""

import csv
import json
import time

import numpy as np
import pytest
import torch

import datasets
import main
import metrics
import parameters
from evaluation import from_files
from tests import builders
from utilities.errors import UserError


def write(path, rows, fields=None):
    """A table of dictionaries, columns in the order in which they appear."""
    fields = fields or list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, fields, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def table(folder, labels=((2, 10), (3, 11)), n_images=3, **more):
    """Rows of training and validation labels, one image a row; every third validation image is in the gallery, the others ask."""
    rows = []
    for split, of_split in zip(("train", "validation"), labels, strict=True):
        for label in of_split:
            for i in range(n_images):
                path = f"images/{label}_{i}.png"
                if not (folder / path).exists():
                    builders.write_image(folder / path, (hash(label) % 1000, i), (12, 10))
                roles = {} if split == "train" else {"is_query": i > 0, "is_gallery": i == 0}
                rows.append({"label": label, "path": path, "split": split, "is_query": "", "is_gallery": "", **roles, **more})
    return rows


def read(path, **flags):
    return datasets.select("csv", dataset_csv=str(path), input_size=8, **flags)


def names(splits):
    return {split: list(splits[split].class_names.values()) for split in ("training", "validation", "testing") if splits[split] is not None}


def test_the_format_of_open_metric_learning_is_read_unchanged(tmp_path):
    rows = table(tmp_path)
    for number, row in enumerate(rows):
        row |= {"x_1": 1, "x_2": 9, "y_1": 2, "y_2": 8, "category": f"c{row['label'] % 2}", "category_int": row["label"] % 2,
                "sequence": number // 2, "color": "red"}  # fmt: skip
    splits = read(write(tmp_path / "df.csv", rows))
    assert names(splits) == {"training": ["2", "10"], "testing": ["3", "11"]}
    training, testing = splits["training"], splits["testing"]
    assert training.roles == {} and testing.roles == {"query_images": 4, "gallery_images": 2}
    assert testing.is_gallery.tolist() == [True, False, False] * 2 and testing.is_query.tolist() == [False, True, True] * 2
    assert testing.super_labels == {0: "c1", 1: "c1"} and training.super_labels == {0: "c0", 1: "c0"}
    assert testing.sequences.tolist() == [0, 0, 1, 1, 2, 2] and testing.sequences.dtype == np.int64
    assert testing.original(0).shape == (3, 6, 8) and testing.boxes.tolist() == [[1, 2, 9, 8]] * 6
    whole = read(write(tmp_path / "whole.csv", table(tmp_path)))["testing"]
    assert torch.equal(testing.original(0), whole.original(0)[:, 2:8, 1:9]) and whole.boxes is None and whole.sequences is None
    assert "6 images of 2 classes; 4 are queries, 2 are in the gallery" in datasets.describe(splits)


def test_rows_without_roles_boxes_categories_or_sequences(tmp_path):
    rows = [{name: row[name] for name in ("label", "path", "split")} for row in table(tmp_path)]
    testing = read(write(tmp_path / "df.csv", rows))["testing"]
    assert testing.roles == {} and testing.sequences is None and testing.boxes is None and set(testing.super_labels.values()) == {None}
    rows[-1] |= {"sequence": "s", "x_1": 0, "y_1": 0, "x_2": 4.4, "y_2": 5.6, "category": "c"}
    testing = read(write(tmp_path / "df.csv", rows))["testing"]
    assert testing.sequences.tolist() == [-1] * 5 + [0] and testing.super_labels == {0: None, 1: "c"}
    assert testing.original(5).shape == (3, 6, 4) and testing.original(4).shape == (3, 10, 12)
    assert testing._size(5) == (6, 4) and testing._size(4) == (10, 12)


def test_two_boxes_of_one_image_are_two_images(tmp_path):
    box = {"x_1": 0, "y_1": 0, "x_2": 6, "y_2": 10}
    rows = table(tmp_path, n_images=2, **box)
    for row in rows:
        row["path"] = rows[0]["path"]
    for number, row in enumerate(rows):
        row["y_2"] = 10 - number / 10
    rows[-1]["x_1"] = 3
    splits = read(write(tmp_path / "df.csv", rows))
    assert not any("same images" in note for note in splits["training"].notes)
    assert len(splits["training"]) == len(splits["testing"]) == 4 and splits["training"].fingerprint["files"] == 1
    assert not any("copies" in note for note in splits["training"].notes)
    assert splits["testing"].original(3).shape == (3, 9, 3)
    split = tmp_path / "split.json"
    split.write_text(json.dumps({"train": ["2", "11"], "test": ["10", "3"]}))
    divided = read(tmp_path / "df.csv", split_scheme="predefined", split_file=str(split))
    for part, labels in (("training", ("2", "11")), ("testing", ("10", "3"))):
        expected = {label: sorted(float(row["y_2"]) for row in rows if str(row["label"]) == label) for label in labels}
        found = {label: [] for label in labels}
        for (_, label), box in zip(divided[part].image_list, divided[part].boxes.tolist(), strict=True):
            found[divided[part].class_names[label]].append(box[3])
        assert {label: sorted(tops) for label, tops in found.items()} == {label: pytest.approx(tops) for label, tops in expected.items()}


def test_the_same_image_twice_is_told(tmp_path):
    rows = table(tmp_path)
    twice = [
        {**rows[-1], "is_query": True, "is_gallery": False},
        {**rows[0], "label": 3, "split": "validation", "is_query": True, "is_gallery": True},
    ]
    (note,) = [note for note in read(write(tmp_path / "df.csv", rows + twice))["training"].notes if "same images" in note]
    assert "twice in one split, so that they find themselves: 1; in test and in training or validation: 1, as" in note
    assert note.endswith(rows[0]["path"])


def test_missing_values_as_pandas_writes_them_and_untidy_paths(tmp_path):
    rows = table(tmp_path, sequence="nan", category="None", x_1="nan", y_1="NaN", x_2="", y_2="nan")
    for row in rows:
        row["path"] = row["path"].replace("/", "//")
    testing = read(write(tmp_path / "df.csv", rows))["testing"]
    assert testing.sequences is None and testing.boxes is None and set(testing.super_labels.values()) == {None} and len(testing) == 6


def test_labels_are_texts_and_come_by_number_or_by_name(tmp_path):
    assert names(read(write(tmp_path / "a.csv", table(tmp_path, ((10, 9), (2, 1))))))["training"] == ["9", "10"]
    assert names(read(write(tmp_path / "b.csv", table(tmp_path, (("007", "7"), ("x", "1"))))))["training"] == ["007", "7"]


def test_validation_of_seen_labels_validates(tmp_path):
    rows = table(tmp_path, ((1, 2), (3, 4)))
    seen = [{**row, "split": "validation", "is_query": "True", "is_gallery": "1"} for row in rows if row["label"] == 2]
    both = write(tmp_path / "both.csv", rows + seen)
    splits = read(both)
    assert names(splits) == {"training": ["1", "2"], "validation": ["2"], "testing": ["3", "4"]}
    assert any("they validate, the other 6 test" in note for note in splits["training"].notes)
    assert datasets.has_validation(parameters.read(["--dataset", "csv", "--dataset_csv", str(both)]))
    alone = write(tmp_path / "alone.csv", [row for row in rows if row["split"] == "train"] + seen)
    splits = read(alone)
    assert names(splits) == {"training": ["1", "2"], "validation": ["2"], "testing": ["2"]}
    assert splits["testing"].image_list == splits["validation"].image_list
    assert any("the test set too" in note for note in splits["training"].notes)
    unseen = write(tmp_path / "unseen.csv", rows)
    assert not datasets.has_validation(parameters.read(["--dataset", "csv", "--dataset_csv", str(unseen)]))
    assert names(read(unseen, use_tv_split=True, tv_split_perc=0.5))["validation"] == ["2"]


def test_paths_go_from_source_or_from_the_table_or_are_absolute(tmp_path):
    (tmp_path / "images_here").mkdir()
    rows = table(tmp_path / "images_here")
    elsewhere = write(tmp_path / "df.csv", rows)
    assert read(elsewhere, source_path=str(tmp_path / "images_here"))["training"].root == str(tmp_path / "images_here")
    with pytest.raises(UserError, match="none of its images is there"):
        read(elsewhere)
    absolute = [{**row, "path": str(tmp_path / "images_here" / row["path"])} for row in rows]
    assert read(write(tmp_path / "absolute.csv", absolute))["training"].paths[0] == absolute[0]["path"]


def test_missing_and_undecodable_images_are_named(tmp_path, capsys):
    rows = table(tmp_path)
    path = write(tmp_path / "df.csv", rows)
    (tmp_path / rows[0]["path"]).unlink()
    with pytest.raises(UserError, match="1 listed files are missing, the first .*images/2_0.png") as caught:
        read(path)
    assert "\n" not in str(caught.value)
    (tmp_path / rows[1]["path"]).write_text("no image")
    splits = read(path, allow_partial_dataset=True)
    assert len(splits["training"]) == 5 and splits["training"].partial and "WARNING" in capsys.readouterr().err
    with pytest.raises(UserError, match="images/2_1.png cannot be decoded"):
        splits["training"][0]


@pytest.mark.parametrize(("change", "words"), [
    ({"split": "test"}, "row 13: split 'test', expected train or validation"),
    ({"label": ""}, "row 13: no label"),
    ({"path": " "}, "row 13: no path"),
    ({"is_query": "yes"}, "row 13: is_query 'yes' of a validation row"),
    ({"is_gallery": ""}, "row 13: is_gallery ''"),
    ({"x_1": 5, "x_2": 4, "y_1": 0, "y_2": 3}, "row 13: box 5, 0, 4, 3"),
    ({"x_1": -1, "x_2": 4, "y_1": 0, "y_2": 3}, "row 13: box -1, 0, 4, 3"),
    ({"x_1": "a", "x_2": 4, "y_1": 0, "y_2": 3}, "row 13: box a"),
    ({"x_1": "nan", "x_2": 4, "y_1": 0, "y_2": 3}, "row 13: box nan"),
    ({"x_1": 1, "x_2": 4}, "no column y_1, y_2"),
])  # fmt: skip
def test_a_bad_row_is_named(tmp_path, change, words):
    rows = table(tmp_path)
    rows[-1] |= change
    with pytest.raises(UserError, match=words) as caught:
        read(write(tmp_path / "df.csv", rows))
    assert "df.csv" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("content", "words"), [
    (b"", "no table"), (b"label,path\n1,a.png\n", "no column split among label, path"), (b"label,path,split\n", "0 rows"),
    (b"label,path,split\n1,a,train\n", "1 rows, all of split train"), (b"label,path,split\n1,a\n", "row 2: 2 fields"),
    (b"\x89PNG\xff\xfe\n", "no table"), (None, "no such file"),
])  # fmt: skip
def test_what_is_no_such_table_is_refused(tmp_path, content, words):
    path = tmp_path / "df.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        read(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_the_flag_is_needed():
    with pytest.raises(UserError, match="--dataset csv needs --dataset_csv"):
        datasets.select("csv")


def test_a_run_on_a_table(tmp_path, capsys):
    path = write(tmp_path / "df.csv", table(tmp_path, (range(4), range(4, 8)), n_images=4))
    builders.dry_run(["--dataset", "csv", "--dataset_csv", str(path), *builders.SHORT_RUN[:8]], capsys)


def test_60_000_rows_are_loaded_in_less_than_two_seconds(tmp_path):
    for i in range(50):
        builders.write_image(tmp_path / f"images/{i}.png", i, (8, 8))
    rows = [
        {"label": i // 20, "path": f"images/{i % 50}.png", "split": "train" if i < 30000 else "validation", "is_query": i % 2 == 0,
         "is_gallery": i % 2 == 1, "x_1": 0, "y_1": 0, "x_2": 5, "y_2": 6, "category": i // 200, "sequence": i // 3}
        for i in range(60000)
    ]  # fmt: skip
    path = write(tmp_path / "df.csv", rows)
    read(write(tmp_path / "small.csv", rows[29990:30010]))  # what is imported once is not the table's
    began = time.process_time()  # not the clock: other work may share the machine
    splits = read(path)
    assert time.process_time() - began < 2
    assert len(splits["training"]) == len(splits["testing"]) == 30000


def with_distractors(folder, number=5):
    """A table whose test set has some images of no class in its gallery."""
    rows = table(folder, (range(4), range(4, 8)), n_images=4)
    for i in range(number):
        builders.write_image(folder / f"images/none_{i}.png", (7, i), (12, 10))
        rows.insert(2 * i, {"label": "", "path": f"images/none_{i}.png", "split": "validation", "is_query": False, "is_gallery": True})
    return rows


def test_distractors_are_in_the_gallery_and_in_no_class(tmp_path):
    splits = read(write(tmp_path / "df.csv", with_distractors(tmp_path)))
    testing = splits["testing"]
    assert names(splits) == {"training": ["0", "1", "2", "3"], "testing": ["4", "5", "6", "7"]} and testing.n_classes == 4
    assert testing.counts == {"images": 16, "classes": 4, "single_image_classes": 0, "distractors": 5} and len(testing) == 21
    assert [label for _, label in testing.image_list[16:]] == [-1] * 5 and -1 not in testing.image_dict
    assert testing.is_distractor.tolist() == [False] * 16 + [True] * 5 and splits["training"].is_distractor is None
    assert testing.roles == {"query_images": 12, "gallery_images": 9} and "5 distractors, of no class" in datasets.describe(splits)
    everything = read(tmp_path / "df.csv", evaluate_all=True)["testing"]
    assert everything.n_classes == 8 and everything.counts["distractors"] == 5 and not everything.is_query[-5:].any()


def test_metrics_with_distractors_by_loops(tmp_path):
    """Ranked lists hold them; numbers of classes are of the other images alone, by the run, and by its dumped file."""
    path = write(tmp_path / "df.csv", with_distractors(tmp_path))
    measured = ["e_recall@1", "mAP", "nmi", "dists@intra", "dists@inter", "rho_spectrum@1"]
    flags = [
        *builders.SHORT_RUN, "--dataset", "csv", "--dataset_csv", str(path), "--save_path", str(tmp_path), "--dump_embeddings", "--n_epochs", "1",
        "--evaluation_metrics", *measured, "--storage_metrics", "e_recall@1",
    ]  # fmt: skip
    run = main.main(parameters.read(flags))
    scores = run.state["selected"]["values"]["test"]
    with np.load(run.folder / "embeddings_test.npz") as file:
        found = dict(file)
    x, labels = found["features"].astype(np.float64), found["labels"]
    hits, precisions = [], []
    for query in np.flatnonzero(found["is_query"]):
        others = np.array([i for i in np.flatnonzero(found["is_gallery"]) if i != query])
        right = labels[others[np.argsort(((x[others] - x[query]) ** 2).sum(1), kind="stable")]] == labels[query]
        hits.append(right[0])
        precisions.append(np.mean([(right[: i + 1]).mean() for i in np.flatnonzero(right)]))
    assert scores["e_recall@1"] == pytest.approx(np.mean(hits)) and scores["mAP"] == pytest.approx(np.mean(precisions), rel=1e-6)
    of_class = labels >= 0
    alone = metrics.compute(measured[2:], x[of_class].astype(np.float32), labels[of_class], seed=run.opt.seed)
    assert {name: scores[name] for name in measured[2:]} == pytest.approx(alone, rel=1e-5)
    again = from_files.space("embeddings_test.npz", found)[0].compute(measured, seed=run.opt.seed)
    assert {name: float(value) for name, value in again.items()} == pytest.approx({name: scores[name] for name in measured}, rel=1e-5)
    found["is_query"] = np.ones(len(labels), bool)
    with pytest.raises(UserError, match="row 16 is_distractor and is_query"):
        from_files.space("embeddings_test.npz", found)


@pytest.mark.parametrize("change", [{"split": "train"}, {"is_query": True}, {"is_gallery": False}])
def test_only_a_gallery_row_may_have_no_label(tmp_path, change):
    rows = with_distractors(tmp_path, 1)
    rows[0] |= change
    with pytest.raises(UserError, match="row 2: no label. Only a validation row"):
        read(write(tmp_path / "df.csv", rows))
