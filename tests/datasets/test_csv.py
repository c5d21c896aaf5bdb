"""--dataset csv: the format of open-metric-learning, roles, boxes, sequences; damaged tables; speed."""

import csv
import itertools
import json

import numpy as np
import torch

import datasets
import parameters
from datasets import csv as of_tables
from retrieval import sources
from tests.datasets.layouts import names
from tests.kit.images import write_image
from tests.kit.refusals import refused
from utilities.reading import read_csv

COLUMNS = ("label", "path", "split", "is_query", "is_gallery")


def write(path, rows):
    """A table of dictionaries, columns in the order in which they appear."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def table(folder, labels=((2, 10), (3, 11)), n_images=3, distractors=0, **columns):
    """Rows of training and validation labels, one image per row.

    Every third validation image is in the gallery, the others are queries.
    """
    rows = []
    for split, split_labels in zip(("train", "validation"), labels, strict=True):
        for label, i in itertools.product(split_labels, range(n_images)):
            path = f"images/{label}_{i}.png"
            if not (folder / path).exists():
                write_image(folder / path, (hash(label) % 1000, i), (12, 10))
            roles = ("", "") if split == "train" else (i > 0, i == 0)
            rows.append(dict(zip(COLUMNS, (label, path, split, *roles), strict=True)) | columns)
    for i in range(distractors):
        path = f"images/none_{i}.png"
        write_image(folder / path, (7, i), (12, 10))
        rows.insert(2 * i, dict(zip(COLUMNS, ("", path, "validation", False, True), strict=True)))
    return rows


def read(path, rows=None, **flags):
    """The splits of the table, which is written first where `rows` are given."""
    if rows is not None:
        write(path, rows)
    return datasets.select("csv", dataset_csv=str(path), input_size=8, **flags)


def test_the_format_of_open_metric_learning_is_read_unchanged(tmp_path):
    box = {"x_1": 1, "x_2": 9, "y_1": 2, "y_2": 8}
    rows = table(tmp_path, **box, color="red", category_2="family", category_3="none", category_5="after a gap")
    for number, row in enumerate(rows):
        parity = row["label"] % 2
        row |= {"category": f"c{parity}", "category_int": parity, "sequence": number // 2}
    splits = read(tmp_path / "df.csv", rows)
    assert names(splits) == {"training": ["2", "10"], "testing": ["3", "11"]}
    training = splits["training"]
    testing = splits["testing"]
    assert training.roles == {} and testing.roles == {"query_images": 4, "gallery_images": 2}
    assert testing.is_gallery.tolist() == [True, False, False] * 2
    assert testing.is_query.tolist() == [False, True, True] * 2
    assert testing.super_labels == {0: "c1", 1: "c1"} and training.super_labels == {0: "c0", 1: "c0"}
    assert testing.lineages == {("3", "c1", "family", None), ("11", "c1", "family", None)}
    assert testing.sequences.tolist() == [0, 0, 1, 1, 2, 2] and testing.sequences.dtype == np.int64
    assert testing.original(0).shape == (3, 6, 8) and testing.boxes.tolist() == [[1, 2, 9, 8]] * 6
    uncropped = read(tmp_path / "whole.csv", table(tmp_path))["testing"]
    assert torch.equal(testing.original(0), uncropped.original(0)[:, 2:8, 1:9])
    assert uncropped.boxes is uncropped.sequences is None
    assert "6 images of 2 classes; 4 are queries, 2 are in the gallery" in datasets.describe(splits)


def test_what_a_row_may_lack_and_how_labels_are_read(tmp_path):
    rows = [{name: row[name] for name in COLUMNS[:3]} for row in table(tmp_path)]
    as_pandas_writes = table(tmp_path, sequence="nan", category="None", x_1="nan", y_1="NaN", x_2="", y_2="nan")
    for row in as_pandas_writes:
        row["path"] = row["path"].replace("/", "//")
    for lacking in (rows, as_pandas_writes):
        testing = read(tmp_path / "df.csv", lacking)["testing"]
        assert testing.sequences is testing.boxes is None
        assert set(testing.super_labels.values()) == {None} and len(testing) == 6
    assert read(tmp_path / "df.csv", rows)["testing"].roles == {}
    rows[-1] |= {"sequence": "s", "x_1": 0, "y_1": 0, "x_2": 4.4, "y_2": 5.6, "category": "c"}
    testing = read(tmp_path / "df.csv", rows)["testing"]
    assert testing.sequences.tolist() == [-1] * 5 + [0] and testing.super_labels == {0: None, 1: "c"}
    for index, size in ((5, (6, 4)), (4, (10, 12))):
        assert testing.original(index).shape[1:] == testing._size(index) == size
    for labels, expected in ((((10, 9), (2, 1)), ["9", "10"]), ((("007", "7"), ("x", "1")), ["007", "7"])):
        assert names(read(tmp_path / "df.csv", table(tmp_path, labels)))["training"] == expected


def test_two_boxes_of_one_image_are_two_images(tmp_path):
    rows = table(tmp_path, n_images=2, x_1=0, y_1=0, x_2=6, y_2=10)
    for number, row in enumerate(rows):
        row |= {"path": rows[0]["path"], "y_2": 10 - number / 10}
    splits = read(tmp_path / "df.csv", rows)
    assert not any("same images" in note or "copies" in note for note in splits["training"].notes)
    assert len(splits["training"]) == len(splits["testing"]) == 4 and splits["training"].fingerprint["files"] == 1
    (tmp_path / "split.json").write_text(json.dumps({"train": ["2", "11"], "test": ["10", "3"]}))
    divided = read(tmp_path / "df.csv", split_scheme="predefined", split_file=str(tmp_path / "split.json"))
    heights = []
    for part in (divided["training"], divided["testing"]):
        for (_, label), box in zip(part.image_list, part.boxes, strict=True):
            heights.append((part.class_names[label], round(float(box[3]), 3)))
    assert sorted(heights) == sorted((str(row["label"]), row["y_2"]) for row in rows)
    rows = table(tmp_path)
    rows.append({**rows[-1], "is_query": True, "is_gallery": False})
    rows.append({**rows[0], "label": 3, "split": "validation", "is_query": True, "is_gallery": True})
    (note,) = [note for note in read(tmp_path / "df.csv", rows)["training"].notes if "repeated images" in note]
    expected = "1 twice in one split, where they retrieve themselves, 1 both in test and in training or validation"
    assert expected in note


def test_validation_of_seen_labels_validates(tmp_path):
    rows = table(tmp_path, ((1, 2), (3, 4)))
    seen = [{**row, "split": "validation", "is_query": "True", "is_gallery": "1"} for row in rows if row["label"] == 2]
    splits = read(tmp_path / "both.csv", rows + seen)
    assert names(splits) == {"training": ["1", "2"], "validation": ["2"], "testing": ["3", "4"]}
    assert any("they validate, the other 6 test" in note for note in splits["training"].notes)
    splits = read(tmp_path / "alone.csv", [row for row in rows if row["split"] == "train"] + seen)
    assert names(splits) == {"training": ["1", "2"], "validation": ["2"], "testing": ["2"]}
    assert splits["testing"].image_list == splits["validation"].image_list
    write(tmp_path / "unseen.csv", rows)
    for file, validates in (("both.csv", True), ("unseen.csv", False)):
        opt = parameters.read(["--dataset", "csv", "--dataset_csv", str(tmp_path / file)])
        assert datasets.has_validation(opt) == validates
    assert names(read(tmp_path / "unseen.csv", use_tv_split=True, tv_split_perc=0.5))["validation"] == ["2"]


def test_where_images_lie_and_which_are_missing(tmp_path, capsys):
    folder = tmp_path / "images_here"
    rows = table(folder)
    path = write(tmp_path / "df.csv", rows)
    assert read(path, source_path=str(folder))["training"].root == str(folder)
    with refused("none of its images is there"):
        read(path)
    absolute = [{**row, "path": str(folder / row["path"])} for row in rows]
    assert read(tmp_path / "absolute.csv", absolute)["training"].paths[0] == absolute[0]["path"]
    (folder / rows[0]["path"]).unlink()
    with refused("1 listed files are missing, the first .*images/2_0.png"):
        read(folder / "df.csv", rows)
    training = read(folder / "df.csv", allow_partial_dataset=True)["training"]
    assert len(training) == 5 and training.partial and "WARNING" in capsys.readouterr().err


def test_paths_may_have_the_backslashes_of_windows(tmp_path):
    rows = table(tmp_path)
    # a name of its own on Linux
    (tmp_path / "images/2_0.png").rename(tmp_path / "images\\2_0.png")
    expected = [str(tmp_path / row["path"]) for row in rows if row["split"] == "train"]
    expected[0] = str(tmp_path / "images\\2_0.png")
    windows = [{**row, "path": row["path"].replace("/", "\\")} for row in rows]
    splits = read(tmp_path / "df.csv", windows)
    assert splits["training"].paths == expected
    assert sources.listed([str(tmp_path / "df.csv")])[:2] == expected[:2]
    lists = [
        {"query": "images/3_1.png", "kind": "positive", "path": "images\\3_0.png"},
        {"query": "images\\11_1.png", "kind": "junk", "path": "images/3_0.png"},
    ]
    by_lists = read(tmp_path / "df.csv", dataset_csv_lists=str(write(tmp_path / "lists.csv", lists)))
    positives, junk = by_lists["testing"].lists[""]
    assert sum(map(len, positives)) == sum(map(len, junk)) == 1


def test_bad_rows_and_what_is_no_such_table(tmp_path):
    path = tmp_path / "df.csv"
    box = {"x_1": 1, "x_2": 4, "y_1": 0, "y_2": 3}
    for row, change, words in (
        (13, {"split": "test"}, "split 'test'"),
        (13, {"label": ""}, "no label"),
        (13, {"path": " "}, "no path"),
        (13, {"is_query": "yes"}, "is_query 'yes'"),
        (13, box | {"x_1": 5}, "box"),
        (13, box | {"x_1": -1}, "box"),
        (13, box | {"x_1": "nan"}, "box"),
        (13, box | {"y_1": "a"}, "box"),
        (2, {"split": "train"}, "no label. Only a validation row"),
        (2, {"is_query": True}, "no label. Only a validation row"),
        (2, {"is_gallery": False}, "no label. Only a validation row"),
    ):
        rows = table(tmp_path, distractors=row == 2)
        rows[row - 2] |= change
        with refused(f"df.csv, row {row}: {words}"):
            read(path, rows)
    for content, words in (
        ("", "no table"),
        ("label,path\n1,a.png\n", "no column split"),
        ("label,path,split\n1,a,train\n", "1 rows, all of split train"),
        ("label,path,split\n1,a\n", "row 2: 2 fields"),
        ("\udc89PNG\udcff\n", "no table"),
        ("label,path,split,x_1,x_2\n1,a,train,1,4\n", "no column y_1, y_2"),
    ):
        path.write_text(content, errors="surrogateescape")
        with refused(words, path):
            read(path)


def test_distractors_are_in_the_gallery_and_in_no_class(tmp_path):
    splits = read(tmp_path / "df.csv", table(tmp_path, (range(4), range(4, 8)), n_images=4, distractors=5))
    testing = splits["testing"]
    assert names(splits) == {"training": [*"0123"], "testing": [*"4567"]} and testing.n_classes == 4
    assert testing.counts == {"images": 16, "classes": 4, "single_image_classes": 0, "distractors": 5}
    assert [label for _, label in testing.image_list[16:]] == [-1] * 5 and -1 not in testing.image_dict
    assert testing.is_distractor.tolist() == [False] * 16 + [True] * 5 and splits["training"].is_distractor is None
    assert testing.roles == {"query_images": 12, "gallery_images": 9}
    assert "5 distractors, without a class" in datasets.describe(splits)
    rows = table(tmp_path, (range(2), ()), distractors=2)
    roles = {"split": "validation", "is_query": "True", "is_gallery": "True"}
    seen = [{**row, **roles} for row in rows if row["label"] == 0]
    notes = read(tmp_path / "seen.csv", rows + seen)["training"].notes
    assert "are the test set too" in notes[0], "distractors make no test set"
    everything = read(tmp_path / "df.csv", evaluate_all=True)["testing"]
    assert everything.n_classes == 8 and everything.counts["distractors"] == 5 and not everything.is_query[-5:].any()


def test_a_table_is_read_once(tmp_path, monkeypatch):
    rows = table(tmp_path)
    reads = []
    monkeypatch.setattr(of_tables, "read_csv", lambda path: reads.append(path) or read_csv(path))
    read(tmp_path / "table.csv", rows)
    assert len(reads) == 1
    with refused("1 images of the list are missing|missing"):
        read(tmp_path / "long.csv", [{**rows[0], "path": "x" * 300 + ".png"}, *rows])


def wildlife(folder, rows):
    """A table of wildlife-datasets: rows of identity, split and bbox."""
    lines = []
    for number, (identity, split, box) in enumerate(rows):
        write_image(folder / f"images/{number}.png", number, (40, 30))
        lines.append(
            {"identity": identity, "path": f"images/{number}.png", "bbox": box, "species": "seal", "split": split}
        )
    return write(folder / "wildlife.csv", lines)


def test_tables_of_wildlife_datasets_are_read(tmp_path):
    box = "[5.0, 2, 10, 20]"
    trained = [("a", "train", box), ("a", "train", box), ("b", "train", ""), ("unknown", "train", "")]
    tested = [("c", "database", box), ("c", "query", box), ("d", "database", ""), ("d", "query", "")]
    path = wildlife(tmp_path, [*trained, *tested, ("Unknown", "database", ""), ("", "query", "")])
    splits = read(path)
    testing = splits["testing"]
    assert names(splits) == {"training": ["a", "b"], "testing": ["c", "d"]}
    assert testing.is_gallery.tolist() == [True, False, True, False, True] and testing.is_distractor.tolist()[-1]
    assert testing.is_query.tolist() == [False, True, False, True, False] and testing.super_labels[0] == "seal"
    assert testing.boxes[0].tolist() == [5, 2, 15, 22] and np.isnan(testing.boxes[2]).all()
    (note,) = [line for line in splits["training"].notes if "known identity" in line]
    assert note == "3 rows without a known identity: 1 are in the gallery without a class, 2 are left out"
    assert names(read(wildlife(tmp_path, [*trained, ("c", "test", ""), ("c", "test", "")])))["testing"] == ["c"]
    path = wildlife(tmp_path, tested)
    with refused("4 rows, all of split validation: it needs both, unless --evaluate_all"):
        read(path)
    testing = read(path, evaluate_all=True)["testing"]
    assert testing.roles == {"query_images": 2, "gallery_images": 2}


def test_what_is_no_table_of_wildlife_datasets(tmp_path):
    for row, words in (
        (("a", "train", "[1, 2, 3]"), r"row 3: bbox '\[1, 2, 3\]', expected \[x, y, width, height\]"),
        (("a", "train", "[1, 2, x, 4]"), "row 3: bbox"),
        (("a", "holdout", ""), "row 3: split 'holdout', expected train, validation, test, database, query"),
    ):
        with refused(words):
            read(wildlife(tmp_path, [("a", "train", ""), row, ("b", "test", "")]))
    rows = [row | {"identity": "none", "bbox": "x", "species": "seal"} for row in table(tmp_path)]
    splits = read(tmp_path / "df.csv", rows)
    assert names(splits)["testing"] == ["3", "11"] and splits["testing"].boxes is None, "label comes first"
