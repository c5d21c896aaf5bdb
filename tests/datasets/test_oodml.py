"""ooDML splits: files are read without running them, the FID is the formula's, splits are made by the paper's swaps, runs record theirs."""

import pickle
from collections import Counter, OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from scipy import linalg

import datasets
import main
import parameters
from datasets import _oodml, _shift
from evaluation import oodml
from tests import builders
from utilities.errors import UserError


def write(path, content, protocol=2):
    path.write_bytes(pickle.dumps(content, protocol))
    return str(path)


def select(path, split, source, **flags):
    flags = {
        "dataset_folder_path": str(source),
        "split_scheme": "oodml",
        "oodml_file": str(path),
        "oodml_id": split,
        "input_size": 8,
        **flags,
    }
    return datasets.select("folder", **flags)


def names(splits):
    return {split: list(splits[split].class_names.values()) for split in ("training", "validation", "testing") if splits[split] is not None}


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("of_numpy", [False, True])
def test_the_published_form_is_read(tmp_path, protocol, of_numpy):
    text, number = (np.str_, np.float64) if of_numpy else (str, float)
    content = {
        i: {"train": [text(f"class_{c}") for c in (5, 0, 2)], "test": [text("class_1"), text("class_4")], "fid": number(19.25 * i),
            "test_episodes": {2: {1: {text("class_1"): [text("000.jpg")]}}}, "split_train": (text("class_5"),)}
        for i in (1, 2)
    }  # fmt: skip
    path = write(tmp_path / "splits.pkl", content, protocol)
    read = _oodml.read(tmp_path / "splits.pkl")
    assert read == content and type(read[1]["fid"]) is float and type(read[1]["train"][0]) is str
    splits = select(path, 2, builders.make_folder(tmp_path / "data"))
    assert names(splits) == {"training": ["class_0", "class_2", "class_5"], "testing": ["class_1", "class_4"]}  # class_3 is in neither
    assert any("ooDML split 2" in note and "38.5 by the file" in note for note in splits["training"].notes)
    cut = select(path, 2, tmp_path / "data", use_tv_split=True, tv_split_perc=0.7)
    assert names(cut) == {"training": ["class_0", "class_2"], "validation": ["class_5"], "testing": ["class_1", "class_4"]}


class Harmful:
    """What a pickle must not run."""

    def __reduce__(self):
        return exec, ("raise SystemExit('it ran')",)


@pytest.mark.parametrize("content", [
    {1: Harmful()}, {1: {"train": OrderedDict(a=1), "test": []}}, {1: np.array(["a", "b"])}, {1: np.array([None])[0:1]}, {1: Counter("a")}, {1: print},
])  # fmt: skip
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_names_more_is_refused_and_not_run(tmp_path, content, protocol):
    path = tmp_path / "splits.pkl"
    write(path, content, protocol)
    with pytest.raises(UserError, match="splits.pkl: no pickle of class lists .*it holds .*no code") as caught:
        _oodml.read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["O", "O8", "V8", "M8[s]", "U5,U5"])
def test_a_numpy_type_of_objects_is_refused(kind):
    with pytest.raises(pickle.UnpicklingError, match="NumPy's type"):
        _oodml._Kind(kind)


@pytest.mark.parametrize(("content", "split", "words"), [
    ({1: {"train": ["class_0"], "test": ["class_1"]}}, 3, "--oodml_id 3: .* has the splits 1"),
    ({1: {"train": ["class_0"]}}, 1, "split 1 has no lists train and test"),
    ({1: {"train": ["class_0"], "test": []}}, 1, "split 1 has no lists"),
    ({1: {"train": "class_0", "test": ["class_1"]}}, 1, "split 1 has no lists"),
    ({1: ["class_0"]}, 1, "split 1 has no lists"),
    ([1], 1, "found list"), ({}, 1, "found dict"),
    ({1: {"train": ["class_0"], "test": ["clas_1"]}}, 1, "names 'clas_1', no class of --dataset folder. Did you mean 'class_1'"),
    ({1: {"train": ["class_0"], "test": ["class_0"]}}, 1, "the class 'class_0' in train and in test"),
    ({1: {"train": ["class_0", "class_0"], "test": ["class_1"]}}, 1, "the class 'class_0' twice in train"),
])  # fmt: skip
def test_files_that_do_not_fit(tmp_path, content, split, words):
    path = write(tmp_path / "splits.pkl", content)
    with pytest.raises(UserError, match=words) as caught:
        select(path, split, builders.make_folder(tmp_path / "data", n_images=1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"no pickle", pickle.dumps({1: "x"})[:-4]])
def test_files_that_cannot_be_read(tmp_path, content):
    path = tmp_path / "splits.pkl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"--oodml_file {path}: ") as caught:
        _oodml.read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("argv", "words"), [
    (["--split_scheme", "oodml"], "needs --oodml_file FILE and --oodml_id N"),
    (["--oodml_id", "1"], "--oodml_id is read by --split_scheme oodml alone"),
    (["--oodml_file", "x.pkl"], "--oodml_file is read by --split_scheme oodml alone"),
    (["--split_scheme", "oodml", "--oodml_file", "x.pkl", "--oodml_id", "1"], "--oodml_file x.pkl: No such file"),
])  # fmt: skip
def test_flags_that_do_not_go_together(capsys, argv, words):
    with pytest.raises(SystemExit) as stop:
        parameters.read(["--dataset", "glyphs", *argv])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and words in said and len(said.strip().splitlines()) == 1


def test_products_go_by_the_beginning_of_their_files_as_in_the_published_lists(tmp_path):
    builders.make_online_products(tmp_path)
    ids = [str(111000000000 + c) for c in range(1, 13)]
    path = write(tmp_path / "splits.pkl", {1: {"train": ids[1::2], "test": ids[::2]}})
    flags = {"split_scheme": "oodml", "oodml_file": path, "oodml_id": 1, "allow_partial_dataset": True}
    splits = datasets.select("online_products", None, tmp_path, **flags)
    assert [name[:5] for name in splits["training"].class_names.values()] == [f"{c:05d}" for c in range(2, 13, 2)]
    write(tmp_path / "splits.pkl", {1: {"train": ids[1:2], "test": ["bicycle_final"]}})  # the folder of two classes
    with pytest.raises(UserError, match="names 'bicycle_final', no class"):
        datasets.select("online_products", None, tmp_path, **flags)


def plain_fid(a, b):
    """The formula with the matrix root written out, in float64."""
    a, b = (np.atleast_2d(rows).astype(np.float64) for rows in (a, b))
    covariances = [np.atleast_2d(np.cov(rows, rowvar=False)) if len(rows) > 1 else np.zeros((rows.shape[1],) * 2) for rows in (a, b)]
    difference = a.mean(axis=0) - b.mean(axis=0)
    root = linalg.sqrtm(covariances[0] @ covariances[1] + 1e-14 * np.eye(a.shape[1])).real
    return difference @ difference + sum(map(np.trace, covariances)) - 2 * np.trace(root)


@pytest.mark.parametrize(("n", "m", "width"), [(40, 50, 6), (5, 60, 12), (6, 4, 20), (1, 7, 3), (1, 1, 4), (9000, 30, 3)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_fid_is_the_formula(n, m, width, kind):
    generator = np.random.default_rng(n + m)
    a = generator.normal(size=(n, width)).astype(kind)
    b = (generator.normal(size=(m, width)) @ generator.normal(size=(width, width)) + 0.5).astype(kind)
    assert _shift.fid(a, b) == pytest.approx(plain_fid(a, b), abs=1e-4, rel=1e-5)
    assert _shift.fid(a, b) == pytest.approx(_shift.fid(b, a), rel=1e-9)
    assert _shift.fid(a, a) == pytest.approx(0, abs=1e-9) and _shift.fid(a, a + 2) == pytest.approx(4 * width, rel=1e-5)


def test_class_means():
    labels = np.array([1, 0, 1, 2, 1])
    features = np.arange(10, dtype=np.float32).reshape(5, 2)
    expected = [np.mean([row for row, label in zip(features, labels, strict=True) if label == c], axis=0) for c in range(3)]
    assert np.allclose(_shift.class_means(features, labels), expected)


def plain_swaps(train, test, n_steps, swaps, sign=1, kept_out=5):
    """The paper's greedy swaps in plain loops: lists of (mean, name), and the FID before each step."""
    train, test = list(train), list(test)
    last = ([], [])
    found = []
    for _ in range(n_steps):
        found.append((sorted(name for _, name in train), plain_fid(np.array([x for x, _ in train]), np.array([x for x, _ in test]))))
        centre_train, centre_test = (sum(x for x, _ in side) / len(side) for side in (train, test))
        order_train = sorted(
            range(len(train)), key=lambda i: sign * (np.linalg.norm(train[i][0] - centre_test) - np.linalg.norm(train[i][0] - centre_train))
        )
        order_test = sorted(
            range(len(test)), key=lambda i: sign * (np.linalg.norm(test[i][0] - centre_train) - np.linalg.norm(test[i][0] - centre_test))
        )
        for k in range(swaps):
            i = next(i for i in order_train[k:] if i not in last[0][-kept_out:])
            j = next(j for j in order_test[k:] if j not in last[1][-kept_out:])
            last[0].append(i)
            last[1].append(j)
            train[i], test[j] = test[j], train[i]
    return found


@pytest.mark.parametrize("swaps", [1, 2, 3])
def test_swaps_are_the_papers(swaps):
    generator = np.random.default_rng(swaps)
    means = generator.normal(size=(60, 5))
    steps = _shift.progression(means[:30], means[30:], swaps)
    expected = plain_swaps([(means[i], i) for i in range(30)], [(means[i], i) for i in range(30, 60)], len(steps), swaps)
    assert len(steps) >= 3
    for number, (step, (train, value)) in enumerate(zip(steps, expected, strict=True)):
        assert step["train"] == train and step["fid"] == pytest.approx(value, rel=1e-5)
        assert sorted(step["train"] + step["test"]) == list(range(60)) and step["swapped"] == number * swaps and step["removed"] == 0


@pytest.mark.parametrize("swaps", [1, 3])
def test_easier_splits_are_the_swaps_turned_round(swaps):
    generator = np.random.default_rng(swaps)
    means = generator.normal(size=(90, 4)) + np.repeat([0, 1.5], 45)[:, None]
    steps = _shift.easier(means[:45], means[45:], swaps)
    own = _shift.progression(means[:45], means[45:], swaps)[0]
    values = [step["fid"] for step in steps] + [own["fid"]]
    assert len(steps) > 2 and all(after > before for before, after in zip(values, values[1:], strict=False))
    assert [step["swapped"] for step in steps] == [-swaps * i for i in range(len(steps), 0, -1)]
    expected = plain_swaps(
        [(means[i], i) for i in range(45)], [(means[i], i) for i in range(45, 90)], len(steps) + 1, swaps, sign=-1, kept_out=30
    )
    assert [step["train"] for step in steps] == [train for train, _ in expected[:0:-1]]


def test_progressions_become_harder_and_leave_out_no_more_than_is_allowed():
    generator = np.random.default_rng(0)
    means = generator.normal(size=(50, 4))
    steps = _shift.progression(means[:24], means[24:], 2, removed=0.4)
    values = [step["fid"] for step in steps]
    assert all(after > before for before, after in zip(values, values[1:], strict=False)) and values[-1] > 3 * values[0]
    last = steps[-1]
    assert (
        last["removed"] > 0 and len(last["train"]) == 24 - last["removed"] >= round(0.6 * 24) and len(last["test"]) == 26 - last["removed"]
    )
    assert not set(last["train"]) & set(last["test"])
    assert all(step["removed"] == 0 for step in _shift.progression(means[:24], means[24:], 2))


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (1, 5)])
def test_progressions_of_hardly_any_classes(shape):
    means = np.random.default_rng(1).normal(size=(sum(shape), 3))
    steps = _shift.progression(means[: shape[0]], means[shape[0] :], 1, removed=0.9)
    assert steps[0]["train"] == list(range(shape[0])) and all(step["train"] and step["test"] for step in steps)


def test_evenly_spaced():
    steps = [{"fid": value} for value in (1, 1.1, 1.2, 2, 2.9, 3, 3.1, 10)]
    assert [step["fid"] for step in _shift.evenly(steps, 3)] == [1, 3.1, 10]
    assert [step["fid"] for step in _shift.evenly(steps, 2)] == [1, 10]
    assert _shift.evenly(steps, 8) == _shift.evenly(steps, 20) == steps
    for count in range(2, 9):
        chosen = [step["fid"] for step in _shift.evenly(steps, count)]
        assert len(chosen) == count and chosen == sorted(set(chosen)) and chosen[0] == 1 and chosen[-1] == 10


def test_a_progression_is_made_read_and_recorded(tmp_path, capsys):
    data = builders.make_folder(tmp_path / "data", n_classes=16, n_images=4)
    path = tmp_path / "new" / "splits.pkl"
    words = ["--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(tmp_path / "runs"), "--n_epochs", "1",
             *builders.SHORT_RUN]  # fmt: skip
    data_and_network = ["--dataset", "folder", "--dataset_folder_path", str(data), "--arch", "conv4_normalize", "--resize_size", "18", "--crop_size", "16"]
    making = [*data_and_network, "--eval_kernels", "0", "--out", str(path)]
    assert oodml.main([*making, "--easier", "--splits", "3"]) == path
    for more, said in (([], "exists: name another file"), (["--use_tv_split", "--out", "x.pkl"], "begins with the data set's own split")):
        with pytest.raises(UserError, match=said):
            oodml.main([*making, *more])
    said = capsys.readouterr().out
    content = _oodml.read(path)
    assert list(content) == [1, 2, 3] and f"written to {path}" in said and "split 3: FID" in said
    assert sorted(content[1]["train"] + content[1]["test"]) == sorted(f"class_{c}" for c in range(16)) and content[1]["swapped"] <= 0
    assert content[1]["fid"] < content[2]["fid"] < content[3]["fid"] and not (tmp_path / "runs").exists()
    run = main.main(parameters.read([*words, "--split_scheme", "oodml", "--oodml_file", str(path), "--oodml_id", "2", "--use_tv_split"]))
    recorded = yaml.safe_load((run.folder / "environment.yaml").read_text())["data"]["oodml"]
    assert recorded["id"] == 2 and recorded["fid"] == pytest.approx(content[2]["fid"], rel=1e-3) == recorded["fid_in_file"]
    assert recorded["fid_images"] > 0 and "ooDML split 2: FID" in capsys.readouterr().out
    assert run.folder.name == "Sample_Group_s1", "one run, no folds"


def test_the_measure_draws_nothing_from_the_run(tmp_path):
    """The same classes by the scheme and by half: the same run."""
    data = builders.make_folder(tmp_path / "data", n_classes=8, n_images=4)
    path = write(tmp_path / "splits.pkl", {1: {"train": [f"class_{c}" for c in range(4)], "test": [f"class_{c}" for c in range(4, 8)]}})
    words = ["--dataset", "folder", "--dataset_folder_path", str(data), "--n_epochs", "1",
             *builders.SHORT_RUN]  # fmt: skip
    runs = [main.main(parameters.read([*words, "--save_path", str(tmp_path / name), *more])) for name, more in
            (("a", []), ("b", ["--split_scheme", "oodml", "--oodml_file", path, "--oodml_id", "1"]))]  # fmt: skip
    assert runs[0].state["last"] == runs[1].state["last"]


def test_without_a_scheme_nothing_is_measured(tmp_path):
    splits = datasets.select("folder", dataset_folder_path=str(builders.make_folder(tmp_path / "data")), input_size=8)
    from evaluation import oodml

    assert oodml.recorded(splits, {}, None, SimpleNamespace(split_scheme="half"), None) == datasets.record(splits)
