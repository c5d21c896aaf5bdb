"""Verification by pairs: pins of InsightFace's protocol, plain loops, LFW in small, what cannot be pairs."""

import numpy as np
import pytest
import torch

from evaluation import __main__ as command
from tests.kit.plain_metrics import random_space, unit
from tests.kit.refusals import refused
from tests.kit.splits import save
from tools import pair_lists, pairs

PROTOCOL = ("verification_accuracy", "verification_accuracy_deviation")


def verified(features, *words):
    """What `python -m evaluation pairs` finds."""
    return command.main(["pairs", features, *map(str, words)])


def test_thresholds_come_from_the_other_folds():
    """The first best threshold, not the middle of the plateau."""
    distances = np.array([0.5, 1.5, 0.58, 1.2, 0.6, 1.0, 1.1, 1.6])
    is_same = np.array([1, 0, 1, 0] * 2, dtype=bool)
    accuracy = pairs.verification_accuracy(distances, is_same, 2)
    assert (accuracy.mean, accuracy.deviation) == (0.75, 0.25) and accuracy.thresholds.tolist() == [0.61, 0.59]


def test_the_rate_is_not_above_the_one_that_was_asked_for():
    scores = {True: [0.9, 0.7, 0.4], False: [0.8, 0.6, 0.3, 0.2, 0.1]}
    rates = pairs.roc(-np.array(scores[True] + scores[False]), np.array([True] * 3 + [False] * 5))
    assert [pairs.tar_at(far, rates) for far in (0, 0.1, 0.2, 0.4, 1)] == pytest.approx([1 / 3, 1 / 3, 2 / 3, 1, 1])
    tied = pairs.roc(np.array([0.5, 0.5, 0.5, 0.7]), np.array([True, False, False, True]))
    assert pairs.tar_at(0.5, tied) == 0 and pairs.tar_at(1, tied) == 1, "equal distances are accepted together"


def test_random_pairs_by_loops(tmp_path):
    features, labels = random_space(n=40, classes=6, seed=0)
    first, second = np.random.default_rng(0).integers(0, 40, (2, 90))
    is_same = labels[first] == labels[second]
    distances = np.square(unit(features)[first] - unit(features)[second]).sum(1)
    accuracies = []
    for fold in range(9):
        mine = range(10 * fold, 10 * fold + 10)
        fitted = [i for i in range(90) if i not in mine]
        counts = [sum((distances[i] < t / 100) == is_same[i] for i in fitted) for t in range(400)]
        threshold = counts.index(max(counts)) / 100
        accuracies.append(np.mean([(distances[i] < threshold) == is_same[i] for i in mine]))
    tar = 0.0
    for limit in [-1.0, *distances]:
        accepted = distances <= limit
        if (accepted & ~is_same).sum() <= 0.1 * (~is_same).sum():
            tar = max(tar, (accepted & is_same).sum() / is_same.sum())
    files = save(tmp_path, features={"features": features}, pairs={"first": first, "second": second, "same": is_same})
    values = verified(*files, "--folds", 9, "--far", ".1", "--roc", tmp_path / "roc.png")
    expected = dict(zip((*PROTOCOL, "tar@0.1"), (np.mean(accuracies), np.std(accuracies), tar), strict=True))
    assert values == pytest.approx(expected, abs=1e-12) and (tmp_path / "roc.png").stat().st_size > 5000


def lfw(folder, folds=3, each=2):
    """pairs.txt of LFW and features of its images, in small: all pairs of one name are equal, all others orthogonal."""
    names = [f"Name_{letter}" for letter in "ABCD"]
    lines = [f"{folds}\t{each}"]
    for fold in range(folds):
        lines += [f"{names[(fold + i) % 4]}\t1\t{2 + i % 2}" for i in range(each)]
        lines += [f"{names[(fold + i) % 4]}\t1\t{names[(fold + i + 1) % 4]}\t2" for i in range(each)]
    (folder / "pairs.txt").write_text("\n".join(lines) + "\n")
    paths = [f"/data/lfw/{name}/{name}_{image:04d}.jpg" for name in names for image in (1, 2, 3)]
    (features,) = save(folder, features={"features": np.repeat(np.eye(4), 3, axis=0) * 3, "paths": paths})
    return features, folder / "pairs.txt"


def test_pairs_of_lfw(tmp_path, capsys):
    values = verified(*lfw(tmp_path), "--out", tmp_path / "out.json")
    names = (*PROTOCOL, "tar@0.001", "tar@0.01", "tar@0.1")
    assert values == dict(zip(names, (1, 0, 1, 1, 1), strict=True))
    output = capsys.readouterr().out
    assert "12 pairs, 6 of two classes; 3 folds" in output and (tmp_path / "out.json").exists()
    assert "tar@0.001: 0.001 of 6 pairs are 0.006 false accepts" in output


def test_files_that_cannot_be_written_are_refused_first(tmp_path):
    files = lfw(tmp_path)
    for name in ("roc.txt", "roc"):
        with refused(f"--roc .*{name}: a .png or .svg file is expected"):
            verified(*files, "--roc", tmp_path / name)
    for flag in ("--roc", "--out"):
        with refused(f"{flag} .*: there is no folder"):
            verified(*files, flag, tmp_path / "nowhere" / "file.png")


def test_names_with_spaces(tmp_path):
    """With tabs, and without them where it is clear which images exist."""
    paths = [f"/lfw/{name}/{name}_{image:04d}.png" for name in ("Ann B Lee", "Bo", "Louis 14") for image in (1, 2)]
    features = save(tmp_path, features={"features": np.eye(3)[[0, 0, 1, 1, 2, 2]], "paths": paths})[0]
    text = tmp_path / "pairs.txt"
    fields = ["Ann B Lee|1|2", "Louis 14|2|1", "Bo|1|2"]
    fields += ["Ann B Lee|2|Bo|1", "Bo|2|Louis 14|1", "Louis 14|1|Ann B Lee|2"]
    for separator in ("\t", " "):
        text.write_text("\n".join(["3 1", *(line.replace("|", separator) for line in fields)]))
        listed = pair_lists.read(str(text), np.array(paths))
        assert listed.rows.tolist() == [[0, 1], [5, 4], [2, 3], [1, 2], [3, 4], [4, 1]] and listed.folds == 3
        assert listed.is_same.tolist() == [True, True, True, False, False, False]
    assert verified(features, text)["verification_accuracy"] == 1
    text.write_text("1 1\nAnn B Lee 1 x\nBo 1 2\n")
    with refused("pair 1 is 'Ann B Lee 1 x', expected .*with spaces, tabs"):
        verified(features, text)
    text.write_text("1 1\nBo 1 2\nBo 1 Bo 2\n")
    with refused("Bo/Bo_0001, the path of 2 rows"):
        pair_lists.read(str(text), np.array([*paths, "/lfw/Bo/Bo_0001.jpg"]))


FORMS = ["{}\t{}\t{}", "{} {} {}", "{},{},{}", '"{}","{}",{}', "{2} {0} {1}", "{2}\t{0}\t{1}"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("heading", ["", "first second same\n"])
def test_lists_of_paths(form, heading, tmp_path):
    listed = ["x/1.jpg", "x/2.jpg", "y/1.jpg", "/root/data/y/2.jpg", "z/1.jpg"]
    paths = np.array(["/data/x/1.jpg", "/data/x/2.jpg", "y/1.jpg", "data/y/2.jpg", "/data/z/1.jpg"])
    # tabs and commas leave spaces to the paths
    if " " not in form:
        listed = [name.replace("x/", "x x/") for name in listed]
        paths = np.char.replace(paths, "x/", "x x/")
    pairs = [(0, 1, 1), (1, 2, 0), (2, 3, "True"), (3, 4, "-1" if " " in form else "false")]
    lines = [form.format(listed[first], listed[second], is_same) for first, second, is_same in pairs]
    text = tmp_path / "pairs.csv"
    text.write_text(heading + "\n".join(lines) + "\n")
    read_pairs = pair_lists.read(str(text), paths)
    assert read_pairs.rows.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert read_pairs.is_same.tolist() == [True, False, True, False]
    features = save(tmp_path, features={"features": np.eye(3)[[0, 0, 1, 1, 2]], "paths": paths})[0]
    assert verified(features, text, "--folds", 2)["verification_accuracy"] == 1


LINES = {"first": np.array([0, 1]), "second": np.array([2, 3]), "same": np.array([1, 0])}


def test_a_path_that_is_not_there_or_of_several_images_is_named(tmp_path):
    paths = np.array(["/data/a/1.jpg", "/data/b/1.jpg", "/data/b/2.jpg"])
    (tmp_path / "pairs.txt").write_text("a\\1.jpg data\\b\\2.jpg 1\n")
    assert pair_lists.read(str(tmp_path / "pairs.txt"), paths).rows.tolist() == [[0, 2]], "as on Windows"
    for line, message in (
        ("a/1.jpg b/3.jpg 1", "pair 1 names b/3.jpg, which is not among the paths"),
        ("1.jpg b/2.jpg 1", "pair 1 names 1.jpg, the path of 2 rows: give more of its path"),
        ("other/b/2.jpg a/1.jpg 0", "pair 1 names other/b/2.jpg, which is not among"),
        ("a/1.jpg b/2.jpg 0\na/1.jpg b/2.jpg", "pair 2 is 'a/1.jpg b/2.jpg', expected two paths and 1 or 0"),
    ):
        (tmp_path / "pairs.txt").write_text(line + "\n")
        with refused(None, message):
            pair_lists.read(str(tmp_path / "pairs.txt"), paths)
    with refused("names images, and the features have no paths"):
        pair_lists.read(str(tmp_path / "pairs.txt"), None)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"first": np.array([0, 12])}, "row 12 is outside the features, which have 12"),
        ({"second": np.array([0, -1])}, "row -1 is outside"),
        ({"same": np.array([1, 1])}, "needs pairs of both kinds"),
        ({"same": np.array([1, 2])}, "same holds something else"),
        ({"second": np.array([0, 1, 2])}, "must be (P,)"),
        ({"same": None}, "has no same"),
        ({}, "cannot be cut into 10 folds"),
        ("3 2\nName_A 1 2\n", "1 pairs, but its first line says 3 folds of 2 of each kind: 12"),
        ("1 1\nName_A 1 9\nName_A 1 Name_B 1\n", "pair 1 names Name_A/Name_A_0009, which is not among the paths"),
        ("1 1\nName_A 1\nName_A 1 Name_B 1\n", "pair 1 is 'Name_A 1', expected"),
        ("hello\n", "neither an .npz file of pairs nor a text file"),
        ("", "neither an .npz file of pairs nor a text file"),
    ],
)
def test_what_cannot_be_pairs(changed, message, tmp_path):
    features, path = lfw(tmp_path)
    if isinstance(changed, str):
        path.write_text(changed)
    else:
        arrays = {name: array for name, array in {**LINES, **changed}.items() if array is not None}
        (path,) = save(tmp_path, wrong=arrays)
    with refused(None, message):
        verified(features, path)


def test_files_that_hold_no_pairs(tmp_path):
    features, _ = lfw(tmp_path)
    np.save(tmp_path / "rows.npy", np.arange(3))
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04cut")
    torch.save(torch.ones(3), tmp_path / "pairs.pt")
    with refused("pairs.pt: a file of torch.save, not an .npz file.*first=first, second=second, same=same"):
        verified(features, tmp_path / "pairs.pt")
    for name in ("rows.npy", "cut.npz"):
        with refused(None, "neither an .npz file of pairs nor a text file"):
            verified(features, tmp_path / name)
