"""k-means: as faiss runs it, on torch where faiss has no GPU, with empty clusters."""

import numpy as np
import pytest

import metrics
from metrics import _kmeans, _space
from tests.metrics._plain import random_space


def inertia(features, clusters):
    return sum(float(((features[clusters == c] - features[clusters == c].mean(0)) ** 2).sum()) for c in np.unique(clusters))


def test_kmeans_has_as_many_clusters_as_the_queries_have_classes_and_follows_the_seed():
    features, labels = random_space(n=200, classes=8, spread=0.05, seed=17)
    reference, reference_labels = random_space(n=30, classes=20)
    space = _space.EmbeddingSpace(features, labels * 3, reference, reference_labels)
    assert len(np.unique(space.clusters)) == 8
    rough = random_space(n=200, classes=8, spread=1.5, seed=18)
    values = [metrics.compute(["nmi"], *rough, seed=seed)["nmi"] for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize(("n", "k", "d", "spread"), [(1500, 280, 32, 1.2), (1500, 30, 8, 3.0), (500, 499, 4, 1.0), (900, 200, 2, 0.01)])
def test_kmeans_is_that_of_faiss_and_torch_can_do_it_too(monkeypatch, n, k, d, spread):
    import faiss

    features = random_space(n=n, d=d, classes=k // 8, spread=spread, seed=19)[0].astype(np.float32)
    bare = faiss.Kmeans(d, k, niter=20, seed=5, min_points_per_centroid=1, max_points_per_centroid=10**6)
    bare.train(features)
    expected = bare.index.search(features, 1)[1][:, 0]
    assert (_kmeans.kmeans(features, k, seed=5) == expected).mean() > 0.999
    monkeypatch.setattr(_kmeans, "searcher", lambda device: (_kmeans.on_torch(device), _kmeans.tile_rows))
    assert inertia(features, _kmeans.kmeans(features, k, seed=5)) == pytest.approx(inertia(features, expected), rel=0.02)


def test_where_faiss_has_a_gpu_it_searches_there(monkeypatch):
    import faiss

    features, asked = random_space(n=300, d=4, classes=10, spread=0.3, seed=19)[0].astype(np.float32), []

    def knn_gpu(resources, features, centroids, k, device):
        asked.append((resources, device))
        return faiss.knn(features, centroids, k)

    expected = _kmeans.kmeans(features, 10)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2, raising=False)
    monkeypatch.setattr(faiss, "StandardGpuResources", lambda: "resources", raising=False)
    monkeypatch.setattr(faiss, "knn_gpu", knn_gpu, raising=False)
    assert (_kmeans.kmeans(features, 10, device="cuda:1") == expected).all()
    assert asked and set(asked) == {("resources", 1)}


def test_kmeans_of_fewer_places_than_clusters_ends():
    places = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    for k in (3, 5, 12):
        clusters = _kmeans.kmeans(places, k)
        assert clusters.shape == (12,)
        assert all(len(set(clusters[i : i + 4])) == 1 for i in (0, 4, 8))  # duplicates stay together
    assert metrics.compute(["nmi"], np.ones((6, 2)), np.arange(6))["nmi"] == 0.0
