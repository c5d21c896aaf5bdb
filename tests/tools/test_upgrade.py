"""A new network on an old index: values by loops, the pin of the gain, intervals, files that do not serve."""

import json

import numpy as np
import pytest

from evaluation import __main__ as command
from tests.kit.plain_metrics import unit
from tests.kit.refusals import refused
from tests.kit.splits import save
from tools import upgrade
from utilities.intervals import class_interval, t_quantile

N = 40


def files(folder, **changes):
    """OLD, NEW and FREE of the same images; `changes`: file -> changed arrays."""
    draw = np.random.default_rng(4)
    labels = np.arange(N) % 8
    centres = draw.normal(size=(8, 6))
    arrays = {"labels": labels, "paths": np.array([f"/photos/{label}/{row}.png" for row, label in enumerate(labels)])}
    saved = {}
    for name, noise, width in (("old", 1.2, 4), ("new", 0.9, 6), ("free", 0.5, 5)):
        features = centres[labels][:, :width] + noise * draw.normal(size=(N, width))
        saved[name] = {"features": features, **arrays, **changes.get(name, {})}
    return save(folder, **saved), saved


def measured(paths, *words):
    """What `python -m evaluation upgrade` finds."""
    old, new, *free = paths
    flags = ["--free", free[0]] if free else []
    return command.main(["upgrade", old, new, *flags, *map(str, words)])


def hits(queries, gallery, labels):
    """1 for each query whose nearest other row is of its class, by loops."""
    queries = unit(queries)
    gallery = unit(gallery)
    right = []
    for q in range(len(labels)):
        cosines = [queries[q] @ row for row in gallery]
        cosines[q] = -2
        nearest = int(np.argmax(cosines))
        right.append(float(labels[nearest] == labels[q]))
    return np.array(right)


def test_values_are_those_of_loops(tmp_path, capsys):
    paths, saved = files(tmp_path)
    values = measured(paths, "--out", tmp_path / "values.json", "--plot", tmp_path / "curve.png")
    old, new, free = (saved[name]["features"] for name in ("old", "new", "free"))
    labels = saved["old"]["labels"]
    expected = {
        "self_old": hits(old, old, labels),
        "self_new": hits(new, new, labels),
        "self_free": hits(free, free, labels),
        "cross": hits(new[:, :4], old, labels),
    }
    for name, right in expected.items():
        assert values[name]["e_recall@1"]["value"] == pytest.approx(right.mean()), name
    means = {name: right.mean() for name, right in expected.items()}
    share = (means["cross"] - means["self_old"]) / (means["self_free"] - means["self_old"])
    assert values["gain"]["e_recall@1"]["value"] == pytest.approx(share)
    flips = (expected["self_old"] * (1 - expected["cross"])).mean()
    assert values["negative_flips"]["cross"]["value"] == pytest.approx(flips)
    assert values["compatible"] == (means["cross"] > means["self_old"])
    order = np.random.default_rng(0).permutation(np.arange(N))
    mixed = unit(old)
    mixed[order[:10]] = unit(new[:, :4])[order[:10]]
    curve = values["curve"]
    assert [(row["share"], row["rows"], len(row["draws"])) for row in curve] == [
        (0, 0, 1),
        (0.25, 10, 5),
        (0.5, 20, 5),
        (0.75, 30, 5),
        (1, 40, 1),
    ]
    assert curve[1]["draws"][0] == pytest.approx(hits(new[:, :4], mixed, labels).mean())
    assert curve[1]["e_recall@1"]["value"] == pytest.approx(np.mean(curve[1]["draws"]))
    assert curve[4]["e_recall@1"]["value"] == pytest.approx(hits(new[:, :4], new[:, :4], labels).mean())
    assert json.loads((tmp_path / "values.json").read_text()) == values
    assert (tmp_path / "curve.png").stat().st_size > 10_000
    output = capsys.readouterr().out
    assert "of its 6 dimensions the first 4 are compared" in output and "cross: new queries, old gallery" in output


def test_the_gain_and_its_pin():
    assert upgrade.gain(0.45, 0.4, 0.66) == pytest.approx(0.1923077, abs=1e-7)
    assert np.isnan(upgrade.gain(0.45, 0.4, 0.4))


def test_an_incompatible_network_is_named(tmp_path, capsys):
    noise = np.random.default_rng(5).normal(size=(N, 4))
    paths, _ = files(tmp_path, new={"features": noise})
    values = measured(paths[:2])
    assert not values["compatible"] and "gain" not in values
    assert "not compatible: cross" in capsys.readouterr().out


def test_rows_in_another_order_and_folder_are_joined(tmp_path):
    paths, saved = files(tmp_path)
    expected = measured(paths)
    turned = {name: values[::-1] for name, values in saved["new"].items()}
    turned["paths"] = np.char.replace(turned["paths"], "/photos", "/elsewhere/photos")
    paths, _ = files(tmp_path, new=turned)
    assert measured(paths) == expected


def test_queries_and_gallery_of_the_files(tmp_path):
    is_query = np.arange(N) < 16
    roles = {"is_query": is_query, "is_gallery": ~is_query}
    paths, saved = files(tmp_path, **dict.fromkeys(("old", "new", "free"), roles))
    values = measured(paths)
    queries = unit(saved["new"]["features"][:16, :4])
    gallery = unit(saved["old"]["features"][16:])
    labels = saved["old"]["labels"]
    right = labels[16:][(queries @ gallery.T).argmax(1)] == labels[:16]
    assert values["cross"]["e_recall@1"]["value"] == pytest.approx(right.mean())
    assert [row["rows"] for row in values["curve"]] == [0, 6, 12, 18, 24]


def test_the_interval_is_that_of_classes():
    draw = np.random.default_rng(2)
    classes = draw.integers(6, size=50)
    top = draw.random(50)
    bottom = 1 + draw.random(50)
    interval = class_interval(top, bottom, classes)
    value = top.sum() / bottom.sum()
    parts = [(top[classes == c].sum() - value * bottom[classes == c].sum()) / bottom.sum() for c in range(6)]
    half = t_quantile(5) * np.sqrt(6 / 5 * sum(part**2 for part in parts))
    assert [interval[name] for name in ("value", "low", "high")] == pytest.approx([value, value - half, value + half])
    assert class_interval([1, 0], 1, [3, 3]) == {"value": 0.5, "low": None, "high": None}


def test_files_that_do_not_serve(tmp_path):
    plain, saved = files(tmp_path)
    new = saved["new"]
    cases = [
        ({"paths": np.char.add(new["paths"], "x")}, "it has other images than .*40 of 40 are missing"),
        ({"features": np.where(np.eye(N, 6), np.nan, 1)}, "row 0 of features holds NaN"),
        ({"features": new["features"][:, :3]}, "embeddings of 3 dimensions cannot search an index of 4"),
        ({"labels": new["labels"][::-1]}, "its labels differ"),
        ({"paths": new["paths"][:-1]}, "expected \\(N, D\\) and \\(N,\\)"),
    ]
    for changes, message in cases:
        paths, _ = files(tmp_path, new=changes)
        with refused(message):
            measured(paths)
    fewer = {name: values[:30] for name, values in new.items()}
    paths, _ = files(tmp_path, new=fewer)
    with refused("10 of 40 are missing"):
        measured(paths)
    paths, _ = files(tmp_path, old={name: values[:30] for name, values in saved["old"].items()})
    with refused("other images than .*40, not 30"):
        measured(paths)
    no_paths = {name: values for name, values in saved["old"].items() if name != "paths"}
    (file,) = save(tmp_path, without=no_paths)
    with refused("has no paths"):
        measured([file, plain[1]])
