"""Many metrics in one call: variants, ranges, exact highest values, nothing computed twice or for nothing."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import metrics
from metrics import _kmeans, _space
from tests.metrics._plain import DISTS, random_space


def test_cosine_variants_are_the_plain_ones_on_normalised_features():
    features, labels = random_space(n=80, seed=11)
    features[3] = 0.0
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    normalised = features / np.where(norms > 0, norms, 1)
    names = ["e_recall@1", "map_r", "mAP_c", "mrr", "precision@1", "map@5", "nmi", "f1", "ami", "map_r_macro"]
    cosine = metrics.compute(["c_" + name.removeprefix("e_") for name in names], features, labels)
    assert list(cosine.values()) == pytest.approx(list(metrics.compute(names, normalised, labels).values()), abs=1e-9)
    assert cosine["c_map_r"] != metrics.compute(["map_r"], features, labels)["map_r"]


def test_what_is_not_asked_for_is_not_computed(monkeypatch):
    features, labels = random_space(n=40)
    monkeypatch.setattr(_space, "Search", None)
    monkeypatch.setattr(_kmeans, "kmeans", None)
    assert set(metrics.compute([*DISTS, "rho_spectrum@2"], features, labels)) == {*DISTS, "rho_spectrum@2"}
    metrics.compute(["nmi", "f1"], features, labels, clusters=labels)


def test_search_and_clusters_are_computed_once(monkeypatch):
    features, labels = random_space(n=40)
    calls = []
    for owner, name in ((_space.Search, "run"), (_kmeans, "kmeans")):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, _o=original, _n=name, **k: (calls.append(_n), _o(*a, **k))[1])
    metrics.compute(["e_recall@1", "mAP", "map_r_macro", "map_r", "nmi", "f1", "ami"], features, labels)
    assert sorted(calls) == ["kmeans", "run"]


def test_a_missing_gpu_is_one_line_and_the_cpu(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    features, labels = random_space(n=40)
    assert metrics.compute(["map_r"], features, labels, device="cuda:0") == metrics.compute(["map_r"], features, labels)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_perfect_space_has_exactly_its_highest_value():
    sizes = np.array([2, 3, 5, 7])
    labels = np.repeat(np.arange(4), sizes)
    features = np.eye(4)[labels] + 1e-3 * np.random.default_rng(0).standard_normal((17, 4))
    names = ["map_r", "r_precision", "mrr", "e_recall@1", "map@4", "mAP_c", "mAP_1000", "mAP", "nmi", "ami", "f1"]
    measured = metrics.compute(names, features, labels, clusters=100 - labels)
    for name in ("map_r", "r_precision", "mrr", "e_recall@1", "map@4"):
        assert measured[name] == 1.0, name
    for name in ("nmi", "ami", "f1"):
        assert measured[name] == 1.0, name
    for name in ("mAP_c", "mAP_1000", "mAP"):
        assert measured[name] == np.mean((sizes[labels] - 1) / sizes[labels]), name
    separated = np.repeat(np.eye(3), 2, axis=0)
    assert metrics.compute("mAP_c", separated, [0, 0, 1, 1, 2, 2])["mAP_c"] == 0.5


@pytest.mark.parametrize(("classes", "size"), [(6, 5), (7, 3), (30, 10), (11, 13)])
def test_equal_values_have_that_value_as_their_mean(classes, size):
    labels = np.repeat(np.arange(classes), size)
    names = ["mAP_c", "mAP", "mAP_c_macro", "map_r_macro", "nmi", "ami"]
    expected = dict.fromkeys(names[:3], (size - 1) / size) | dict.fromkeys(names[3:], 1.0)
    assert metrics.compute(names, np.eye(classes)[labels], labels, clusters=(labels + 3) % classes) == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12))
def test_values_stay_in_their_range(seed, n):
    rng = np.random.default_rng(seed)
    features, labels = rng.integers(-1, 2, (n, 2)).astype(float), rng.integers(0, 4, n)
    for name in ["e_recall@1", "map@2", "mAP", "mrr", "nmi", "ami", "f1", *DISTS, "rho_spectrum@1", "rho_spectrum@-1"]:
        head, _, parameter = name.partition("@")
        low, high = metrics._parse(name).metric.range
        value = metrics.compute([name], features, labels)[name]
        assert np.isnan(value) or low <= value <= high, (name, value)
