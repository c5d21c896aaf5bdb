"""`python -m evaluation decide`: roles, set-aside classes, thresholds and promises, fusion, and what is refused."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from datasets._image_set import ImageSet
from datasets._images import Image
from evaluation import __main__ as command
from evaluation import outputs, promise, thresholds
from evaluation.task import Embedded
from metrics._answers import Answers
from tests.kit.refusals import refused
from tools import _calibration, _command
from utilities.hyperbolic import Ball

N_CLASSES = 130
EACH = 6


def arrays_of(seed: int = 0, n_classes: int = N_CLASSES, noise: float = 0.6) -> dict:
    """Embeddings of classes around random centres, with names and paths."""
    centres = np.random.default_rng(0).normal(size=(n_classes, 16))
    labels = np.repeat(np.arange(n_classes), EACH)
    features = centres[labels] + noise * np.random.default_rng(seed + 1).normal(size=(len(labels), 16))
    names = np.array([f"id{label:03d}" for label in labels])
    return {
        "features": features / np.linalg.norm(features, axis=1, keepdims=True),
        "labels": labels,
        "class_names": names,
        "paths": np.array([f"photos/{name}/{row}.jpg" for row, name in enumerate(names)]),
    }


def decided(folder, arrays: dict, *words, name: str = "a") -> dict:
    """What `decide` returns for a file of these arrays."""
    path = folder / f"{name}.npz"
    np.savez(path, **arrays)
    return command.main(["decide", str(path), *map(str, words)])


def on_a_line(positions, classes) -> dict:
    """A gallery of class g at 0, and queries of other classes at positions; one query of g at .1."""
    n = len(positions)
    features = np.zeros((n + 2, 1))
    features[1] = 0.1
    features[2:, 0] = positions
    is_gallery = np.arange(n + 2) == 0
    return {
        "features": features,
        "labels": np.array(["g", "g", *classes]),
        "is_gallery": is_gallery,
        "is_query": ~is_gallery,
    }


def test_pinned_average(tmp_path):
    places = np.arange(19)
    positions = np.concatenate([0.5 + 0.01 * places, 0.6 + 0.01 * places])
    arrays = on_a_line(positions, [f"c{i}" for i in np.tile(places, 2)])
    content = decided(tmp_path, arrays, "--promise", "average", "--rate", 0.1)
    assert content["threshold"] == pytest.approx(0.52)
    assert (content["n"], content["needed"], content["k"], content["d"]) == (19, 9, None, None)
    assert decided(tmp_path, arrays, "--promise", "average")["threshold"] == 0.5
    with refused("Impossible with 19 individuals: 5 % with 95 % confidence needs 59. 19 give 15 %, or 5 % on average"):
        decided(tmp_path, arrays)
    with refused("4 % on average over repetitions needs 24. 19 give 5.0 %"):
        decided(tmp_path, arrays, "--promise", "average", "--rate", 0.04)


def test_a_confident_threshold_is_that_of_one_image_per_class(tmp_path, capsys):
    arrays = arrays_of()
    content = decided(tmp_path, arrays, "--open_set", 3, "--out", tmp_path / "f.json")
    assert json.loads((tmp_path / "f.json").read_text()) == json.loads(json.dumps(content))
    assert (content["n"], content["needed"], content["k"], content["a"], content["d"]) == (65, 59, 1, 0.05, 0.05)
    assert content["gallery"] == {"classes": 65, "images": 65 * EACH // 2}
    assert content["growth"] == 2
    assert content["network"]["dimensions"] == 16 and content["network"]["unit_length"]
    assert len(content["network"]["probes"][0]["vector"]) == 16
    output = capsys.readouterr().out
    assert content["sentence"] in output
    assert "from 65 set aside." in content["sentence"]
    assert "2.00 times as high" in output
    order = np.random.default_rng(0).permutation(len(arrays["labels"]))
    shuffled = {key: array[order] for key, array in arrays.items()}
    assert decided(tmp_path, shuffled, "--open_set", 3)["threshold"] == content["threshold"]


def _roles(arrays: dict, n_known: int = 60) -> dict:
    """The first classes are known, with the first half of their images as gallery."""
    is_known = arrays["labels"] < n_known
    is_gallery = is_known & (np.arange(len(is_known)) % EACH < EACH // 2)
    return {**arrays, "is_gallery": is_gallery, "is_query": ~is_gallery}


def _answers_by_loop(arrays: dict):
    """Distance, class index of the nearest gallery image, and rows of the queries."""
    gallery = np.flatnonzero(arrays["is_gallery"])
    rows = np.flatnonzero(arrays["is_query"])
    distance = np.linalg.norm(arrays["features"][rows][:, None] - arrays["features"][gallery], axis=2)
    return distance.min(1), arrays["labels"][gallery[distance.argmin(1)]], rows


def test_thresholds_and_rates_by_loops(tmp_path):
    arrays = _roles(arrays_of())
    distance, named, rows = _answers_by_loop(arrays)
    labels = arrays["labels"][rows]
    right = named == labels
    is_new = labels >= 60
    new_names = arrays["class_names"][rows][is_new]
    files = np.array([path.rpartition("/")[2] for path in arrays["paths"][rows][is_new]])
    places = promise.one_per_unit(new_names, new_names, files)
    expected = {
        "confident": np.sort(distance[is_new][places])[promise.rank(70, 0.05, 0.05) - 1],
        "whole": np.sort([distance[labels == label].min() for label in range(60, 130)])[0],
        "average": promise.on_average(distance[is_new], labels[is_new], 0.05),
        "far": thresholds.far(distance[is_new], 0.05),
        "eer": thresholds.eer(distance, right)[0],
        "f1": thresholds.f1(distance, right)[0],
        "balanced": thresholds.balanced(distance, right)[0],
    }
    for name, threshold in expected.items():
        words = ["--promise", name] if name in promise.PROMISES else ["--threshold_by", name]
        content = decided(tmp_path, arrays, *words)
        assert content["threshold"] == pytest.approx(threshold), name
        accepted = distance < content["threshold"]
        rates = {key: rate["value"] for key, rate in content["rates"].items()}
        assert rates["named"] == pytest.approx((accepted & right)[~is_new].mean())
        assert rates["fpir"] == pytest.approx(accepted[is_new].mean())
        shares = [(accepted & right)[labels == label].mean() for label in range(60)]
        assert rates["baks"] == pytest.approx(np.mean(shares))
        refusals = [1 - accepted[labels == label].mean() for label in range(60, 130)]
        assert rates["baus"] == pytest.approx(np.mean(refusals))
        assert rates["normalized_accuracy"] == pytest.approx((rates["named"] + 1 - rates["fpir"]) / 2)
        if name == "whole":
            assert content["high_rate"] == {"above": 0.1, "classes": promise.rate_of_class(0.05, 0.1, EACH)}
        else:
            assert content["high_rate"] is None
        low, high = content["rates"]["baks"]["interval_95"]
        assert low <= rates["baks"] <= high


def test_set_aside_classes_choose_and_the_others_report(tmp_path):
    arrays = _roles(arrays_of())
    everything = decided(tmp_path, arrays, "--rate", 0.1)
    half = decided(tmp_path, arrays, "--rate", 0.1, "--set_aside", 0.5)
    assert (everything["n"], half["n"]) == (70, 35)
    (tmp_path / "list.json").write_text(json.dumps([f"id{i}" for i in range(100, 130)]))
    listed = decided(tmp_path, arrays, "--rate", 0.1, "--set_aside", tmp_path / "list.json")
    is_listed = arrays["labels"] >= 100
    set_aside = {key: array[is_listed] for key, array in arrays.items() if not key.startswith("is_")}
    remaining = {key: array[~is_listed] for key, array in arrays.items()}
    np.savez(tmp_path / "further.npz", **set_aside)
    of_file = decided(tmp_path, remaining, "--rate", 0.1, "--set_aside", tmp_path / "further.npz")
    assert listed["n"] == of_file["n"] == 30
    assert listed["threshold"] == of_file["threshold"]
    assert listed["rates"] == of_file["rates"]
    newest = decided(tmp_path, {**arrays, "time": arrays["labels"] * 10.0}, "--rate", 0.1, "--set_aside", "newest")
    (tmp_path / "list.txt").write_text("\n".join(f"id{i:03d}" for i in range(95, 130)))
    assert (
        newest["threshold"]
        == decided(tmp_path, arrays, "--rate", 0.1, "--set_aside", tmp_path / "list.txt")["threshold"]
    )
    years = {**arrays, "time": (1900 + arrays["labels"]).astype(str)}
    assert decided(tmp_path, years, "--rate", 0.1, "--set_aside", "newest")["threshold"] == newest["threshold"]


def test_pairs_of_new_classes(tmp_path):
    arrays = arrays_of()
    content = decided(tmp_path, arrays, "--promise", "pairs")
    files = np.array([path.rpartition("/")[2] for path in arrays["paths"]])
    rows = promise.one_per_unit(arrays["class_names"], arrays["class_names"], files)
    pairs = rows[promise.disjoint_pairs(np.unique(arrays["class_names"]).tolist())]
    between = np.linalg.norm(arrays["features"][pairs[:, 0]] - arrays["features"][pairs[:, 1]], axis=1)
    assert content["threshold"] == pytest.approx(np.sort(between)[promise.rank(65, 0.05, 0.05) - 1])
    assert (content["n"], content["needed"], content["answer"]) == (130, 118, "pairs")
    assert set(content["rates"]) == {"matched", "false_matched"}
    verified = decided(tmp_path, arrays, "--verify", "--threshold_by", "eer", "--set_aside", 0.5)
    assert verified["rates"]["matched"]["value"] > 0.9 > 0.1 > verified["rates"]["false_matched"]["value"]


def test_one_individual_under_two_names_is_one_unit(tmp_path, capsys):
    arrays = _roles(arrays_of())
    group = np.full(len(arrays["labels"]), "", dtype="U9")
    group[np.isin(arrays["labels"], [100, 101])] = "same day"
    # as a table writes a missing one
    group[arrays["labels"] > 125] = "nan"
    # known under another name: not new
    group[np.isin(arrays["labels"], [3, 120])] = "copy"
    content = decided(tmp_path, {**arrays, "group": group}, "--rate", 0.1)
    assert content["n"] == 68
    output = capsys.readouterr().out
    assert "2 classes counted with another" in output
    assert f"{EACH} queries left out" in output


def test_embeddings_of_a_data_set_keep_groups_and_times():
    images = [Image("/data/a/1.png", "a", group="burst", time=3.0), Image("/data/b/2.png", "b")]
    settings = SimpleNamespace(eval_pca=None, eval_whiten=None)
    arrays = outputs._arrays(Embedded({}, np.arange(2), 0.0, ImageSet(images, None)), settings)
    assert arrays["group"].tolist() == ["burst", ""]
    assert arrays["time"].tolist() == [3.0, pytest.approx(np.nan, nan_ok=True)]
    plain = outputs._arrays(Embedded({}, np.arange(1), 0.0, ImageSet(images[1:], None)), settings)
    assert not {"group", "time"} & plain.keys()


def test_super_classes_as_units(tmp_path):
    arrays = arrays_of()
    arrays["super_names"] = np.array([f"s{label // 2}" for label in arrays["labels"]])
    content = decided(tmp_path, arrays, "--open_set", 0, "--unit", "super", "--rate", 0.1)
    assert content["n"] == 33
    assert "super-classes not in this gallery (32 super-classes, " in content["sentence"]
    levels = {**arrays, "labels": np.stack([arrays["labels"], arrays["labels"] // 2], 1)}
    del levels["super_names"]
    assert decided(tmp_path, levels, "--open_set", 0, "--unit", "super", "--rate", 0.1)["n"] == 33


def test_distractors_are_left_out(tmp_path, capsys):
    arrays = _roles(arrays_of())
    expected = decided(tmp_path, arrays)
    nobody = {key: array[:7] for key, array in arrays.items()}
    nobody["class_names"] = np.full(7, "")
    nobody |= {"is_query": np.zeros(7, dtype=bool), "is_gallery": np.ones(7, dtype=bool)}
    joined = {key: np.concatenate([array, nobody[key]]) for key, array in arrays.items()}
    joined["is_distractor"] = np.arange(len(joined["labels"])) >= len(arrays["labels"])
    content = decided(tmp_path, joined)
    assert "7 images of no class left out of the gallery" in capsys.readouterr().out
    assert content == expected


def test_calibration_and_its_diagram(tmp_path, capsys):
    arrays = _roles(arrays_of(noise=1.0))
    words = ["--calibrate", "logistic", "--reliability", tmp_path / "r.png", "--bins", 8]
    content = decided(tmp_path, arrays, *words)["calibration"]
    distance, named, rows = _answers_by_loop(arrays)
    names = arrays["class_names"][rows]
    fit = thresholds.fitted("logistic", distance, named == arrays["labels"][rows], thresholds.class_weights(names))
    assert content["networks"][0]["slope"] == pytest.approx(fit.slope)
    assert content["ece"]["low"] <= content["ece"]["high"] < 0.5
    assert (tmp_path / "r.png").stat().st_size > 5000
    assert "8 bins of equal width, on held-out classes" in capsys.readouterr().out
    rare = decided(tmp_path, arrays, "--calibrate", "isotonic", "--prior", 0.01)["calibration"]
    common = decided(tmp_path, arrays, "--calibrate", "isotonic")["calibration"]
    assert rare["ece"] == common["ece"]
    assert rare["probability_at_threshold"] <= common["probability_at_threshold"]


def test_held_out_probabilities_know_nothing_of_their_own_class():
    generator = np.random.default_rng(3)
    classes = np.repeat(np.arange(20), 5)
    right = generator.random(100) < 0.5
    answers = Answers(generator.uniform(0, 1, 100), right, right, classes)
    queries = SimpleNamespace(images=SimpleNamespace(units=classes))
    held_out = _calibration.held_out("isotonic", queries, [answers]).probabilities
    has_changed = np.zeros((20, 20), dtype=bool)
    for name in range(20):
        changed = answers._replace(right=right ^ (classes == name))
        repeated = _calibration.held_out("isotonic", queries, [changed]).probabilities
        has_changed[name] = (repeated != held_out).reshape(20, 5).any(1)
    assert not has_changed.diagonal().any()
    assert ((~has_changed).sum(1) >= 4).all(), "the four classes of a fold are fitted without each other"
    assert has_changed.sum() > 200
    weights = thresholds.class_weights(classes)
    on_itself = thresholds.fitted("isotonic", answers.distance, right, weights)(answers.distance)
    assert thresholds.ece(on_itself, right, weights) < thresholds.ece(held_out, right, weights)


def test_fused_networks(tmp_path):
    arrays = _roles(arrays_of(noise=1.0))
    second = {**arrays, "features": _roles(arrays_of(7, noise=1.0))["features"]}
    np.savez(tmp_path / "b.npz", **second)
    words = ["--calibrate", "logistic", "--threshold_by", "far"]
    single = decided(tmp_path, arrays, *words)
    fused = decided(tmp_path, arrays, tmp_path / "b.npz", *words)
    assert fused["rates"]["dir@0.05"]["value"] > single["rates"]["dir@0.05"]["value"]
    assert 0 < fused["threshold"] < 1
    assert (single["answer"], fused["answer"]) == ("nearest", "fused")
    twice = decided(tmp_path, arrays, tmp_path / "a.npz", *words)
    assert twice["rates"] == single["rates"]
    np.savez(tmp_path / "b.npz", **{**second, "paths": second["paths"][::-1]})
    with refused("its paths differ"):
        decided(tmp_path, arrays, tmp_path / "b.npz", *words)
    with refused("add --calibrate"):
        decided(tmp_path, arrays, tmp_path / "b.npz")


def test_distances_and_pairs_of_hyperbolic_embeddings(tmp_path):
    arrays = _roles(arrays_of())
    flags = np.array(json.dumps({"eval_space": "hyperbolic", "eval_space_c": 0.3, "eval_space_clip_r": 2.3}))
    content = decided(tmp_path, {**arrays, "flags": flags})
    gallery = np.flatnonzero(arrays["is_gallery"])
    rows = np.flatnonzero(arrays["is_query"])
    ball = Ball(0.3, 2.3)
    queries = torch.from_numpy(arrays["features"][rows])
    images = torch.from_numpy(arrays["features"][gallery])
    distance = np.array([ball.paired(query.expand_as(images), images).min().item() for query in queries])
    is_new = arrays["labels"][rows] >= 60
    names = arrays["class_names"][rows][is_new]
    files = np.array([path.rpartition("/")[2] for path in arrays["paths"][rows][is_new]])
    places = promise.one_per_unit(names, names, files)
    assert content["threshold"] == pytest.approx(np.sort(distance[is_new][places])[0])
    assert content["network"]["eval_space"] == "hyperbolic"
    pairs = decided(tmp_path, {**arrays, "flags": flags}, "--promise", "pairs")
    assert pairs["threshold"] > content["threshold"]
    with refused("these are hyperbolic"):
        decided(tmp_path, {**arrays, "flags": flags}, "--answer", "mean")


def test_without_known_or_without_new_queries(tmp_path):
    arrays = arrays_of()
    everyone_new = {**_roles(arrays), "is_query": arrays["labels"] >= 60}
    content = decided(tmp_path, everyone_new)
    assert np.isnan(content["rates"]["named"]["value"]) and np.isnan(content["rates"]["root"]["value"])
    assert content["sentence"].endswith("from 70 set aside.")
    with refused("needs both", "--threshold_by eer", "0 right"):
        decided(tmp_path, everyone_new, "--threshold_by", "eer")
    nobody_new = _roles(arrays, N_CLASSES)
    with refused("Impossible with 0 individuals: 5 % with 95 % confidence needs 59. 0 give nothing"):
        decided(tmp_path, nobody_new)
    with refused("no query is of a new class, and at least 1 is needed"):
        decided(tmp_path, nobody_new, "--threshold_by", "far")
    assert np.isnan(decided(tmp_path, nobody_new, "--threshold_by", "f1")["rates"]["baus"]["value"])


def test_classes_that_selected_the_epoch_promise_nothing(tmp_path, capsys):
    arrays = _roles(arrays_of())
    for split, selected_on, use in (("test", "test", "selected the epoch"), ("train", "val", "trained the network")):
        flags = np.array(json.dumps({"split": split, "selected_on": selected_on}))
        with refused(use, "59"):
            decided(tmp_path, {**arrays, "flags": flags})
        decided(tmp_path, {**arrays, "flags": flags}, "--threshold_by", "far")
        assert f"its classes {use}" in capsys.readouterr().out
    for selected_on in ("val", None):
        flags = np.array(json.dumps({"split": "test", "selected_on": selected_on}))
        assert decided(tmp_path, {**arrays, "flags": flags})["n"] == 70


def test_what_is_refused(tmp_path):
    arrays = arrays_of()
    roles = _roles(arrays)
    size = len(arrays["labels"])
    lists = {"positive_indptr": np.arange(size + 1), "positive_indices": (np.arange(size) + 1) % size}
    draws = {"role_draws": np.stack([roles["is_gallery"]] * 2)}
    (tmp_path / "list.json").write_text('["nobody"]')
    np.savez(tmp_path / "plain.npz", **arrays)
    (tmp_path / "wrong.json").write_text('{"names": 3}')
    cases = (
        ({**arrays, **lists}, [], "lists say what is relevant"),
        ({**arrays, **draws}, [], "role_draws, 2 galleries"),
        ({**arrays, "time": np.zeros(3)}, [], "time has shape"),
        ({**arrays, "paths": np.array(["a"])}, ["--open_set", "0"], "paths has shape"),
        ({**roles, "time": np.full(size, "soon")}, ["--set_aside", "newest"], "something else than numbers and ISO"),
        (roles, ["--open_set", "0"], "which says what the gallery is"),
        (roles, ["--set_aside", "newest"], "has no time"),
        (roles, ["--set_aside", "1.5"], "a share between 0 and 1"),
        (roles, ["--set_aside", ".001"], "sets 0 aside"),
        (roles, ["--set_aside", tmp_path / "list.json"], "1 of its 1 names are of no query, such as nobody"),
        (roles, ["--set_aside", tmp_path / "wrong.json"], "a list of classes is expected"),
        (roles, ["--unit", "super"], "has no super-classes"),
        (roles, ["--set_aside", tmp_path / "a.npz"], "it has is_query"),
        (roles, ["--set_aside", tmp_path / "plain.npz"], "70 classes, such as id060, are also queries"),
        (roles, ["--out", tmp_path / "nowhere" / "f.json"], "there is no folder"),
        (roles, ["--calibrate", "logistic", "--reliability", tmp_path / "r.txt"], "a .png or .svg file"),
        (arrays, [], "--open_set SEED makes half of the classes new"),
        (on_a_line([0.5], "c"), ["--verify", "--threshold_by", "far", "--set_aside", ".5"], "sets 0 aside"),
        (roles, ["--answer", "best"], "nearest, mean or vote@k"),
        (roles, ["--prior", ".1"], "no effect without --calibrate"),
        (roles, ["--threshold_by", "far", "--promise", "whole"], "no effect with --threshold_by far"),
        (roles, ["--promise", "average", "--confidence", ".9"], "no effect with --promise average"),
        (roles, ["--verify", "--answer", "mean"], "leave it out"),
    )
    for content, words, message in cases:
        with refused(message):
            decided(tmp_path, content, *words)
    np.save(tmp_path / "a.npy", arrays["features"])
    with refused("an .npz file is expected"):
        command.main(["decide", str(tmp_path / "a.npy")])


@pytest.mark.parametrize("program", ["decide", "pairs", "compress", "whiten"])
def test_several_processes_are_refused(program, monkeypatch):
    monkeypatch.setattr(_command, "Ranks", lambda: SimpleNamespace(size=2))
    words = {"pairs": ["p.npz"], "whiten": ["--out", "w.npz"]}.get(program, [])
    with refused(f"python -m evaluation {program} runs in one process: leave out torchrun"):
        command.main([program, "a.npz", *words])


def test_open_set_divides_classes_and_keeps_sequences_whole(tmp_path, capsys):
    arrays = arrays_of()
    # three sequences of two images in each class
    arrays["sequence"] = arrays["labels"] * 10 + np.arange(len(arrays["labels"])) % EACH // 2
    content = decided(tmp_path, arrays, "--open_set", 1)
    # Two of three sequences of a known class are in the gallery
    assert content["gallery"] == {"classes": 65, "images": 65 * 4}
    output = capsys.readouterr().out
    assert f"{65 * 2} queries of 65 known classes, {65 * EACH} of 65 new classes" in output
