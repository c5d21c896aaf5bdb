"""NMI, AMI and pairwise F1 against scikit-learn and loops; k-means as faiss runs it, on torch, with empty clusters."""

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

import metrics
from metrics import _kmeans
from tests.kit.plain_metrics import random_space
from tests.kit.refusals import refused

ROUGH = random_space(n=200, classes=8, spread=1.5, seed=18)


def plain_f1(labels, clusters):
    pairs = [(labels[i] == labels[j], clusters[i] == clusters[j]) for i in range(len(labels)) for j in range(i)]
    together = sum(a and b for a, b in pairs)
    true = sum(a for a, _ in pairs)
    joined = sum(b for _, b in pairs)
    if not together:
        return float(not joined + true)
    return 2 * together / (joined + true)


def assert_as_scikit_learn(labels, clusters):
    measured = metrics.compute(["nmi", "ami", "f1"], np.ones((len(labels), 1)), labels, clusters=clusters)
    assert measured["nmi"] == pytest.approx(normalized_mutual_info_score(labels, clusters), abs=1e-10)
    assert measured["f1"] == pytest.approx(plain_f1(labels, clusters), abs=1e-12)
    expected = adjusted_mutual_info_score(labels, clusters)
    # where chance explains everything, both are a quotient of rounding errors
    if abs(expected) < 1e3:
        assert measured["ami"] == pytest.approx(expected, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 60), st.integers(1, 12), st.integers(1, 12))
def test_clustering_metrics_agree_with_scikit_learn(seed, n, classes, parts):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    assert_as_scikit_learn(labels, np.where(rng.random(n) < 0.4, labels, rng.integers(0, parts, n)))


@pytest.mark.parametrize("labels", [np.zeros(8, int), np.arange(8)], ids=str)
@pytest.mark.parametrize("clusters", [np.zeros(8, int), np.arange(8), np.arange(8) % 3], ids=str)
def test_clustering_limits(labels, clusters):
    assert_as_scikit_learn(labels, clusters)


@pytest.mark.parametrize("size", [2.0**60, 1.6e19, 1e30, 3e38, 1e300])
@pytest.mark.parametrize("mapped", [False, True])
def test_kmeans_of_huge_embeddings_is_that_of_small_ones(size, mapped, tmp_path):
    """Their squares overflow float32: faiss finds no centroid then. A power of two as factor changes no bit."""
    draws = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 10)
    features = draws.normal(size=(6, 5))[labels] + draws.normal(size=(60, 5)) / 9
    factor = 2.0 ** np.floor(np.log2(size / np.abs(features).max()))
    small = features.astype(np.float32).astype(np.float64)
    huge = features.astype(np.float32).astype(np.float64) * factor
    expected = metrics.compute("nmi", small, labels)
    if mapped:
        np.save(tmp_path / "features.npy", huge)
        huge = np.load(tmp_path / "features.npy", mmap_mode="r")
    assert metrics.compute("nmi", huge, labels) == expected
    assert (_kmeans.kmeans(np.asarray(huge), 6) == _kmeans.kmeans(small.astype(np.float32), 6)).all()


def test_of_several_kmeans_starts_the_measures_are_means():
    names = ["nmi", "ami", "f1", "c_nmi"]
    by_seed = [metrics.compute(names, *ROUGH, seed=seed) for seed in range(3)]
    means = {name: np.mean([of_seed[name] for of_seed in by_seed]) for name in names}
    assert metrics.compute(names, *ROUGH, seed=range(3)) == pytest.approx(means, abs=1e-12)
    assert metrics.compute(names, *ROUGH, seed=[2]) == by_seed[2] != by_seed[1]
    for seeds in ([], [0.5], "012"):
        with refused("no whole number"):
            metrics.compute(names, *ROUGH, seed=seeds)


@pytest.mark.parametrize(
    ("n", "k", "d", "spread"), [(1500, 280, 32, 1.2), (1500, 30, 8, 3.0), (500, 499, 4, 1.0), (900, 200, 2, 0.01)]
)
def test_kmeans_is_that_of_faiss_and_torch_can_do_it_too(monkeypatch, n, k, d, spread):
    features = random_space(n=n, d=d, classes=k // 8, spread=spread, seed=19)[0].astype(np.float32)
    bare = faiss.Kmeans(d, k, niter=20, seed=5, min_points_per_centroid=1, max_points_per_centroid=10**6)
    bare.train(features)
    expected = bare.index.search(features, 1)[1][:, 0]
    assert (_kmeans.kmeans(features, k, seed=5) == expected).mean() > 0.999

    def inertia(clusters):
        members = [features[clusters == c] for c in np.unique(clusters)]
        return sum(float(((rows - rows.mean(0)) ** 2).sum()) for rows in members)

    monkeypatch.setattr(_kmeans, "searcher", lambda device: (_kmeans.on_torch(device), _kmeans.tile_rows))
    assert inertia(_kmeans.kmeans(features, k, seed=5)) == pytest.approx(inertia(expected), rel=0.02)


def test_where_faiss_has_a_gpu_it_searches_there(monkeypatch):
    features = random_space(n=300, d=4, classes=10, spread=0.3, seed=19)[0].astype(np.float32)
    requested = set()

    def knn_gpu(resources, features, centroids, k, device):
        requested.add((resources, device))
        return faiss.knn(features, centroids, k)

    expected = _kmeans.kmeans(features, 10)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2, raising=False)
    monkeypatch.setattr(faiss, "StandardGpuResources", lambda: "resources", raising=False)
    monkeypatch.setattr(faiss, "knn_gpu", knn_gpu, raising=False)
    assert (_kmeans.kmeans(features, 10, device="cuda:1") == expected).all() and requested == {("resources", 1)}


def test_the_number_of_clusters_is_that_of_the_queries_classes_and_fewer_places_end():
    features, labels = random_space(n=200, classes=8, spread=0.05, seed=17)
    assert len(np.unique(metrics.EmbeddingSpace(features, labels * 3, *random_space(n=30, classes=20)).clusters)) == 8
    places = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    for k in (3, 5, 12):
        clusters = _kmeans.kmeans(places, k)
        assert all(len(set(clusters[i : i + 4])) == 1 for i in (0, 4, 8)), "duplicates stay together"
