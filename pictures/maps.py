"""Embeddings on a plane: t-SNE of their principal components.

Of many images a sample is arranged, and the others are placed among it.
"""

import numpy as np
import torch

# principal components that t-SNE is given
COMPONENTS = 50
PERPLEXITY = 30
BESIDE = 5  # sampled images among which another one is placed
START = 1e-4  # standard deviation of t-SNE's start, as in scikit-learn


def places(features: np.ndarray, how: str, size: int, seed: int) -> tuple[np.ndarray, str]:
    """Places `(N, 2)` of `features` `(N, D)`, and how they were found, as text.

    Args:
        how: `tsne` (van der Maaten & Hinton, JMLR 2008) or `pca`. size: the most images that t-SNE arranges.
    """
    components = _principal(features, seed)
    plane = np.zeros((len(features), 2))
    plane[:, : min(2, components.shape[1])] = components[:, :2]
    spread = plane.std(0).max()
    if how == "pca" or len(features) < 4 or not spread:
        return plane, "the first two principal components"
    chosen = np.arange(len(features))
    if len(features) > size:
        chosen = np.sort(np.random.default_rng(seed).choice(len(features), size=size, replace=False))
    arranged = _arranged(components[chosen], plane[chosen] / spread, seed)
    first = f"t-SNE of the first {components.shape[1]} principal components"
    if len(chosen) == len(features):
        return arranged, first
    remaining = np.setdiff1d(np.arange(len(features)), chosen, assume_unique=True)
    plane[chosen] = arranged
    plane[remaining] = _beside(components[remaining], components[chosen], arranged)
    method = (
        f"{first} of {len(chosen):,} random images; each of the other {len(remaining):,} lies between its {BESIDE} "
        "nearest among these"
    )
    return plane, method


def tsne_places(features: np.ndarray, seed: int, ball=None) -> np.ndarray:
    """Places `(N, 2)` of `features` `(N, D)`, at least four, by t-SNE; all at the origin where all features are equal.

    `ball`: gives the distances, as `utilities.hyperbolic.Ball` does;
    None: Euclidean ones of the first principal components.
    """
    components = _principal(features, seed)
    plane = np.zeros((len(features), 2))
    plane[:, : min(2, components.shape[1])] = components[:, :2]
    spread = plane.std(0).max()
    # t-SNE of equal points is not defined
    if not spread:
        return plane
    if ball is None:
        return _arranged(components, plane / spread, seed)
    points = torch.from_numpy(features.astype(np.float64))
    distances = ball.distances(points, points).clamp(min=0).fill_diagonal_(0).numpy()
    return _arranged(distances, plane / spread, seed, metric="precomputed")


def _arranged(rows: np.ndarray, start: np.ndarray, seed: int, metric: str = "euclidean") -> np.ndarray:
    """t-SNE (van der Maaten & Hinton, JMLR 2008) of `rows`, or of distances `(n, n)`.

    `start` `(n, 2)`: the places at the start, of deviation 1.
    """
    from sklearn.manifold import TSNE

    start = (start * START).astype(np.float32)
    tsne = TSNE(perplexity=min(PERPLEXITY, (len(rows) - 1) / 3), init=start, metric=metric, random_state=seed % 2**32)
    return tsne.fit_transform(rows).astype(np.float64)


def _principal(features: np.ndarray, seed: int) -> np.ndarray:
    """The first principal components `(N, C)`, float32, C at most `COMPONENTS`."""
    from sklearn.decomposition import PCA

    count = min(COMPONENTS, *features.shape)
    solver = "covariance_eigh" if features.shape[1] <= 4096 and len(features) >= features.shape[1] else "auto"
    # all rows are equal: there are no components
    if not np.ptp(features, axis=0).any():
        return np.zeros((len(features), count), dtype=np.float32)
    return PCA(count, svd_solver=solver, random_state=seed % 2**32).fit_transform(features).astype(np.float32)


def _beside(points: np.ndarray, sample: np.ndarray, arranged: np.ndarray) -> np.ndarray:
    """For each of `points`, the mean place of its nearest in the sample, weighted by 1 / squared distance.

    A point that equals one of the sample has its place.
    """
    import faiss

    squared, nearest = faiss.knn(points, sample, min(BESIDE, len(sample)))
    weights = 1 / np.maximum(squared.astype(np.float64), 1e-12)
    return (arranged[nearest] * (weights / weights.sum(1, keepdims=True))[:, :, None]).sum(1)
