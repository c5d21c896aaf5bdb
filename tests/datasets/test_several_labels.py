"""The column `labels` of --dataset csv: labels of a batch, what is relevant to a query, and bad tables."""

import numpy as np
import pytest
import torch

import datasets
from engine.loading import training_loader
from tests.datasets.test_csv import read, write
from tests.kit import tiny
from tests.kit.images import write_image
from tests.kit.refusals import refused

TRAIN = ["a", "a|b", "b", "c|a|d", "c", "a"]
VALIDATION = ["x|y", "y", "x", "z", "z|y|x"]


def table(folder, train=TRAIN, validation=VALIDATION, **columns):
    rows = []
    for split, cells in (("train", train), ("validation", validation)):
        for number, cell in enumerate(cells):
            path = f"images/{split}_{number}.png"
            write_image(folder / path, (number, len(split)), (12, 10))
            roles = {"is_query": True, "is_gallery": True}
            rows.append({"labels": cell, "path": path, "split": split, **roles, **columns})
    return rows


def test_training_images_have_all_of_their_labels(tmp_path):
    splits = read(tmp_path / "t.csv", table(tmp_path))
    training = splits["training"]
    assert training.counts["classes"] == len(training.image_dict) == 3 and training.n_classes == 4
    numbers = {name: label for label, name in training.class_names.items()}
    # No image has d as its first label
    assert set(numbers) == set("abcd") and numbers["d"] == 3
    cells = {f"train_{number}.png": cell for number, cell in enumerate(TRAIN)}
    rows = training.label_rows(range(len(training)))
    for row, (path, label) in enumerate(training.image_list):
        cell = cells[path.rpartition("/")[2]].split("|")
        assert label == numbers[cell[0]]
        assert rows[row].nonzero().squeeze(1).tolist() == sorted(numbers[name] for name in cell)
    assert splits["evaluation"].label_rows(range(3)) is None
    assert any("2 of 11 images" not in note and "have several of 7 labels" in note for note in training.notes)


def test_what_is_relevant_shares_a_label(tmp_path):
    test = read(tmp_path / "t.csv", table(tmp_path))["testing"]
    cells = {f"validation_{number}.png": set(cell.split("|")) for number, cell in enumerate(VALIDATION)}
    labels = [cells[path.rpartition("/")[2]] for path in test.paths]
    positives, junk = test.lists[""]
    for row, found_rows in enumerate(positives):
        expected = [column for column in range(5) if column != row and labels[row] & labels[column]]
        assert np.asarray(found_rows).tolist() == expected
    assert not any(junk)


def test_roles_and_distractors(tmp_path):
    rows = table(tmp_path)
    rows[-1] |= {"is_query": False}
    rows[-2] |= {"labels": "", "is_query": False}
    test = read(tmp_path / "t.csv", rows)["testing"]
    positives, _ = test.lists[""]
    assert len(positives) == test.is_query.sum() == 3 and test.is_distractor.sum() == 1
    assert all(not test.is_distractor[rows_of].any() and len(rows_of) for rows_of in positives)


def test_one_label_in_each_cell_is_as_without_the_column(tmp_path):
    cells = {"train": ["a", "b", "b"], "validation": ["x", "y", "x"]}
    rows = table(tmp_path, **cells)
    splits = read(tmp_path / "t.csv", rows)
    for row in rows:
        row["label"] = row.pop("labels")
    plain = read(tmp_path / "plain.csv", rows)
    for split in ("training", "testing"):
        assert splits[split].image_list == plain[split].image_list and splits[split].lists is None
        assert splits[split].notes == plain[split].notes and splits[split].n_classes == plain[split].n_classes
    assert splits["training"].label_rows([0]) is None


def test_a_label_beside_labels_comes_first(tmp_path):
    rows = table(tmp_path)
    rows[1]["label"] = "b"
    for row in rows:
        row.setdefault("label", row["labels"].split("|")[0])
    training = read(tmp_path / "t.csv", rows)["training"]
    label = dict(training.image_list)[str(tmp_path / "images/train_1.png")]
    assert training.class_names[label] == "b"
    rows[1]["label"] = ""
    training = read(tmp_path / "t.csv", rows)["training"]
    assert training.class_names[dict(training.image_list)[str(tmp_path / "images/train_1.png")]] == "a"
    rows[1]["label"] = "e"
    with refused(r"row 3: label 'e' is not among its labels 'a\|b'"):
        read(tmp_path / "t.csv", rows)


@pytest.mark.parametrize("cell", ["a||b", "a|", "|", "a|nan|b"])
def test_an_empty_label_is_refused(tmp_path, cell):
    rows = table(tmp_path)
    rows[2]["labels"] = cell
    with refused(r"t.csv, row 4: labels '.*': an empty label; expected names between \|"):
        read(tmp_path / "t.csv", rows)


def test_a_row_without_any_label_is_refused(tmp_path):
    rows = table(tmp_path)
    rows[2]["labels"] = ""
    with refused("row 4: no label"):
        read(tmp_path / "t.csv", rows)


@pytest.mark.parametrize(
    ("flags", "columns", "message"),
    [
        ({"dataset_unknown_label": ["z"]}, {}, "leave out --dataset_unknown_label"),
        ({"label_level_train": 1}, {"category": "k"}, "leave out --label_level_train"),
        ({}, {"sequence": "s"}, "leave out the column sequence"),
    ],
)
def test_what_goes_by_one_label_is_refused(tmp_path, flags, columns, message):
    with refused(f"images have several labels: {message}"):
        read(tmp_path / "t.csv", table(tmp_path, **columns), **flags)


def test_a_union_refuses_them(tmp_path):
    path = write(tmp_path / "t.csv", table(tmp_path))
    plain = write(tmp_path / "u.csv", table(tmp_path, ["a", "b"], ["x", "y"]))
    with refused("--union t: its images have several labels"):
        datasets.select("union", union=[f"csv:{path}", f"csv:{plain}"], source_path=str(tmp_path), input_size=8)


def test_batches_carry_them(tmp_path):
    """Also of several views, and the whole batch where a process loads a part of it."""
    training = read(tmp_path / "t.csv", table(tmp_path))["training"]
    opt = tiny.resolve("--dataset", "glyphs", "--bs", "6", "--samples_per_class", "2").but(kernels=0, bs=6)

    class Ranks:
        size = 2
        rank = 1
        writes = False

        def cuts(self, total):
            return True

        def part(self, total):
            return slice(total // 2, total)

    for ranks, views in ((None, 2), (Ranks(), 1)):
        (batch,) = training_loader(training, [[0, 1, 2, 3, 4, 5]], opt, views, ranks)
        assert batch.indices.tolist() == [*range(6)] * views
        assert torch.equal(batch.relevance, training.label_rows(batch.indices.tolist()))
        assert len(batch.labels) == 6 * views // (1 if ranks is None else 2)
    training.label_numbers = None
    (batch,) = training_loader(training, [[0, 1]], opt)
    assert batch.relevance is None and len([*batch]) == 3
