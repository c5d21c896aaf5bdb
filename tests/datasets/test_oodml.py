"""ooDML splits: files are read without running them, FID, the paper's swaps, records of runs."""

import pickle
import shlex
from collections import Counter, OrderedDict

import numpy as np
import pytest
import yaml
from scipy import linalg

import main
import parameters
from datasets import _oodml, _shift
from tests.datasets.layouts import names, partial, read_folder
from tests.kit.data_sets import make_folder, make_online_products
from tests.kit.refusals import refused
from tests.kit.runs import run_words
from tools import oodml


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("six") / "data", n_images=1)


def write(path, content, protocol=2):
    path.write_bytes(pickle.dumps(content, protocol))
    return path


def select(path, split, source, **flags):
    return read_folder(source, split_scheme="oodml", oodml_file=str(path), oodml_id=split, **flags)


@pytest.mark.parametrize("of_numpy", [False, True])
def test_the_published_form_is_read(tmp_path, six, of_numpy):
    text, number = (np.str_, np.float64) if of_numpy else (str, float)
    lists = {"train": [text(f"class_{c}") for c in (5, 0, 2)], "test": [text("class_1"), text("class_4")]}
    lists["test_episodes"] = {2: {1: {text("class_1"): [text("000.jpg")]}}}
    lists["split_train"] = (text("class_5"),)
    content = {i: {**lists, "fid": number(19.25 * i)} for i in (1, 2)}
    for protocol in range(5):
        path = write(tmp_path / "splits.pkl", content, protocol)
        read = _oodml.read(path)
        assert read == content and type(read[1]["fid"]) is float and type(read[1]["train"][0]) is str
    splits = select(path, 2, six)
    cut = select(path, 2, six, use_tv_split=True, tv_split_perc=0.7)
    # class_3 is in neither
    testing = ["class_1", "class_4"]
    assert names(splits) == {"training": ["class_0", "class_2", "class_5"], "testing": testing}
    assert any("ooDML split 2" in note and "38.5 by the file" in note for note in splits["training"].notes)
    assert names(cut) == {"training": ["class_0", "class_2"], "validation": ["class_5"], "testing": testing}


class Harmful:
    """What a pickle must not run."""

    def __reduce__(self):
        return exec, ("raise SystemExit('it ran')",)


def test_files_that_do_not_fit_or_cannot_be_read(tmp_path, six):
    path = tmp_path / "splits.pkl"
    train = {"train": ["class_0"]}
    for content, words in (
        ({1: Harmful()}, "no pickle of class lists .*it holds .*no code"),
        ({1: {"train": OrderedDict(a=1)}}, "no pickle of class lists .*it holds .*no code"),
        ({1: np.array(["a"])}, "no pickle of class lists .*it holds .*no code"),
        ({1: Counter("a")}, "no pickle of class lists .*it holds .*no code"),
        ({3: {**train, "test": ["class_1"]}}, "--oodml_id 1: .* has the splits 3"),
        ([1], "found list"),
        ({1: train}, "split 1 has no lists"),
        ({1: {**train, "test": []}}, "split 1 has no lists"),
        ({1: {**train, "test": "class_1"}}, "split 1 has no lists"),
        ({1: {**train, "test": ["clas_1"]}}, "names 'clas_1', no class of --dataset folder. Did you mean 'class_1'"),
        ({1: {**train, "test": ["class_0"]}}, "the class 'class_0' in train and in test"),
        ({1: {"train": ["class_0", "class_0"], "test": ["class_1"]}}, "the class 'class_0' twice in train"),
    ):
        with refused(words):
            select(write(path, content), 1, six)
    for damaged in (b"", b"no pickle", pickle.dumps({1: "x"})[:-4]):
        path.write_bytes(damaged)
        with refused(f"--oodml_file {path}: "):
            _oodml.read(path)


def test_products_go_by_the_beginning_of_their_files(tmp_path):
    make_online_products(tmp_path)
    ids = [str(111000000000 + c) for c in range(1, 13)]
    path = write(tmp_path / "splits.pkl", {1: {"train": ids[1::2], "test": ids[::2]}})
    splits = partial("online_products", tmp_path, split_scheme="oodml", oodml_file=str(path), oodml_id=1)
    assert [name[:5] for name in names(splits)["training"]] == [f"{c:05d}" for c in range(2, 13, 2)]


def plain_fid(a, b):
    """The formula with the matrix root written out, in float64."""

    def covariance(rows):
        return np.cov(rows, rowvar=False) if len(rows) > 1 else np.zeros((rows.shape[1],) * 2)

    a, b = (rows.astype(np.float64) for rows in (a, b))
    difference = a.mean(axis=0) - b.mean(axis=0)
    root = linalg.sqrtm(covariance(a) @ covariance(b) + 1e-14 * np.eye(a.shape[1])).real
    return difference @ difference + np.trace(covariance(a) + covariance(b) - 2 * root)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_fid_is_the_formula_and_classes_have_means(kind):
    for n, m, width in ((40, 50, 6), (5, 60, 12), (6, 4, 20), (1, 7, 3), (1, 1, 4), (9000, 30, 3)):
        generator = np.random.default_rng(n + m)
        a = generator.normal(size=(n, width)).astype(kind)
        b = (generator.normal(size=(m, width)) @ generator.normal(size=(width, width)) + 0.5).astype(kind)
        assert _shift.fid(a, b) == pytest.approx(plain_fid(a, b), abs=1e-4, rel=1e-5)
        assert _shift.fid(a, b) == pytest.approx(_shift.fid(b, a), rel=1e-9)
        assert _shift.fid(a, a) == pytest.approx(0, abs=1e-9)
        assert _shift.fid(a, a + 2) == pytest.approx(4 * width, rel=1e-5)
    labels = np.array([1, 0, 1, 2, 1])
    features = np.arange(10, dtype=kind).reshape(5, 2)
    assert np.allclose(_shift.class_means(features, labels), [features[labels == c].mean(axis=0) for c in range(3)])


def plain_swaps(means, first, n_steps, swaps, sign=1, kept_out=5):
    """The training classes and the FID before each of the paper's greedy swaps, in plain loops.

    At first the `first` classes train.
    """
    train = list(range(first))
    test = list(range(first, len(means)))
    last = ([], [])
    steps = []

    def order(side, other_side):
        def distance(i):
            to_other, to_own = (np.linalg.norm(means[side[i]] - means[rows].mean(0)) for rows in (other_side, side))
            return sign * (to_other - to_own)

        return sorted(range(len(side)), key=distance)

    for _ in range(n_steps):
        steps.append((sorted(train), plain_fid(means[train], means[test])))
        order_train = order(train, test)
        order_test = order(test, train)
        for k in range(swaps):
            i = next(i for i in order_train[k:] if i not in last[0][-kept_out:])
            j = next(j for j in order_test[k:] if j not in last[1][-kept_out:])
            last[0].append(i)
            last[1].append(j)
            train[i], test[j] = test[j], train[i]
    return steps


def rising(steps):
    values = [step["fid"] for step in steps]
    return all(after > before for before, after in zip(values, values[1:], strict=False))


@pytest.mark.parametrize("swaps", [1, 2, 3])
def test_swaps_are_the_papers(swaps):
    means = np.random.default_rng(swaps).normal(size=(60, 5))
    steps = _shift.progression(means[:30], means[30:], swaps)
    assert len(steps) >= 3
    for number, (step, (train, value)) in enumerate(zip(steps, plain_swaps(means, 30, len(steps), swaps), strict=True)):
        assert step["train"] == train and step["fid"] == pytest.approx(value, rel=1e-5)
        assert sorted(step["train"] + step["test"]) == list(range(60))
        assert step["swapped"] == number * swaps and step["removed"] == 0
    means = np.random.default_rng(swaps).normal(size=(90, 4)) + np.repeat([0, 1.5], 45)[:, None]
    steps = _shift.easier(means[:45], means[45:], swaps)
    assert len(steps) > 2 and rising([*steps, _shift.progression(means[:45], means[45:], swaps)[0]])
    assert [step["swapped"] for step in steps] == [-swaps * i for i in range(len(steps), 0, -1)]
    expected = plain_swaps(means, 45, len(steps) + 1, swaps, sign=-1, kept_out=30)
    assert [step["train"] for step in steps] == [train for train, _ in expected[:0:-1]]


def test_progressions_become_harder_and_are_evenly_spaced():
    means = np.random.default_rng(0).normal(size=(50, 4))
    steps = _shift.progression(means[:24], means[24:], 2, removed=0.4)
    last = steps[-1]
    removed = steps[-1]["removed"]
    assert rising(steps) and last["fid"] > 3 * steps[0]["fid"] and not set(last["train"]) & set(last["test"])
    assert removed > 0 and len(last["train"]) == 24 - removed >= round(0.6 * 24) and len(last["test"]) == 26 - removed
    assert all(step["removed"] == 0 for step in _shift.progression(means[:24], means[24:], 2))
    # hardly any classes
    for train, test in ((1, 1), (2, 2), (1, 5)):
        steps = _shift.progression(means[:train], means[train : train + test], 1, removed=0.9)
        assert steps[0]["train"] == list(range(train)) and all(step["train"] and step["test"] for step in steps)
    steps = [{"fid": value} for value in (1, 1.1, 1.2, 2, 2.9, 3, 3.1, 10)]
    assert [step["fid"] for step in _shift.evenly(steps, 3)] == [1, 3.1, 10]
    assert _shift.evenly(steps, 8) == _shift.evenly(steps, 20) == steps
    for count in range(2, 9):
        chosen = [step["fid"] for step in _shift.evenly(steps, count)]
        assert len(chosen) == count and chosen == sorted(set(chosen)) and chosen[0] == 1 and chosen[-1] == 10


def test_a_progression_is_made_read_and_recorded(tmp_path, capsys):
    data = make_folder(tmp_path / "data", n_classes=16, n_images=4)
    path = tmp_path / "new" / "splits.pkl"

    def making(*words, source=data, out=path, arch="conv4_normalize"):
        flags = f"--arch {arch} --resize_size 18 --crop_size 16 --eval_kernels 0 --out {out} --dataset_folder_path"
        return oodml.main(["--dataset", "folder", *flags.split(), str(source), *words])

    assert making("--easier", "--splits", "3") == path
    with refused("exists: name another file"):
        making()
    content = _oodml.read(path)
    output = capsys.readouterr().out
    assert list(content) == [1, 2, 3] and "split 3: FID" in output
    proposed = shlex.split(output.splitlines()[-1].removeprefix("next: python main.py"))
    opt = parameters.read(proposed)
    assert (opt.oodml_file, opt.oodml_id, opt.dataset_folder_path) == (str(path), 1, str(data))
    classes = [f"class_{c}" for c in range(16)]
    assert sorted(content[1]["train"] + content[1]["test"]) == sorted(classes) and content[1]["swapped"] <= 0
    assert content[1]["fid"] < content[2]["fid"] < content[3]["fid"] and not (tmp_path / "runs").exists()
    plain = making("--easier", "--splits", "3", out=tmp_path / "plain.pkl", arch="conv4")
    assert _oodml.read(plain) == content, "the FID is of the features as they are"
    parts = tmp_path / "parts"
    for part, names_of_part in (("train", classes[:6]), ("val", classes[6:9]), ("test", classes[9:15])):
        make_folder(parts / part, names=names_of_part)
    content_of_parts = _oodml.read(making("--splits", "2", source=parts, out=tmp_path / "own.pkl"))
    joined = content_of_parts[1]["train"] + content_of_parts[1]["test"]
    assert sorted(joined) == sorted(classes[:15]), "validation of its own is of training"
    with refused("take a data set that has both"):
        making("--evaluate_all", source=parts, out=tmp_path / "all.pkl")
    scheme = ["--split_scheme", "oodml", "--oodml_file", str(path), "--oodml_id", "2", "--use_tv_split"]
    run = main.main(parameters.read(run_words(data, tmp_path / "runs", *scheme, "--n_epochs", "1")))
    recorded = yaml.safe_load((run.folder / "environment.yaml").read_text())["data"]["oodml"]
    assert recorded["id"] == 2 and recorded["fid_images"] > 0
    assert recorded["fid"] == pytest.approx(content[2]["fid"], rel=1e-3) == recorded["fid_in_file"]
    assert "ooDML split 2: FID" in capsys.readouterr().out and run.folder.name == "Sample_Group_s1", "no folds"


@pytest.mark.long
def test_the_measure_draws_nothing_from_the_run(folder_data, tmp_path):
    """The same classes by the scheme and by half: the same run."""
    classes = [f"class_{c}" for c in range(8)]
    path = write(tmp_path / "splits.pkl", {1: {"train": classes[:4], "test": classes[4:]}})
    scheme = ["--split_scheme", "oodml", "--oodml_file", str(path), "--oodml_id", "1"]
    by_half, by_scheme = (
        main.main(parameters.read(run_words(folder_data, tmp_path / name, "--n_epochs", "1", *words)))
        for name, words in (("half", []), ("scheme", scheme))
    )
    assert by_half.state["last"] == by_scheme.state["last"]
    assert "oodml" not in yaml.safe_load((by_half.folder / "environment.yaml").read_text())["data"]
