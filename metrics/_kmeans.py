"""k-means, 20 iterations, seeded, on all samples: faiss's, or the same in torch where faiss cannot use the device."""

import numpy as np
import torch

ITERATIONS = 20
TILE = 16_000_000  # scores of samples x centroids held at once


def kmeans(features: np.ndarray, n_clusters: int, seed: int = 0, device: str = "cpu") -> np.ndarray:
    """The cluster `(N,)` int64 of each row of `features` `(N, D)` float32."""
    n_clusters = min(n_clusters, len(features))
    if n_clusters <= 1:
        return np.zeros(len(features), dtype=np.int64)
    on_gpu = torch.device(device).type == "cuda"
    try:
        import faiss

        if on_gpu and getattr(faiss, "get_num_gpus", int)() == 0:
            faiss = None
    except ImportError:
        faiss = None
        print("k-means: faiss is not installed, torch does it instead (slower).")
    if faiss is None:
        return torch_kmeans(torch.from_numpy(features).to(device), n_clusters, seed).cpu().numpy()
    engine = faiss.Kmeans(
        features.shape[1], n_clusters, niter=ITERATIONS, seed=seed, gpu=on_gpu, min_points_per_centroid=1, max_points_per_centroid=2**31 - 1
    )
    engine.train(features)
    return engine.index.search(features, 1)[1][:, 0]


def nearest(features: torch.Tensor, centroids: torch.Tensor) -> torch.Tensor:
    """Index `(N,)` of the nearest of the centroids `(K, D)`."""
    half_norms = 0.5 * centroids.square().sum(1)  # (K,)
    step = max(1, TILE // len(centroids))
    parts = [torch.addmm(half_norms, block, centroids.T, alpha=-1).argmin(1) for block in features.split(step)]
    return torch.cat(parts)


@torch.no_grad()
def torch_kmeans(features: torch.Tensor, n_clusters: int, seed: int) -> torch.Tensor:
    """Lloyd's algorithm as faiss runs it: starts from distinct random samples, gives an empty cluster half of the largest one."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randperm(len(features), generator=generator)[:n_clusters]
    centroids = features[start.to(features.device)].clone()
    for _ in range(ITERATIONS):
        assigned = nearest(features, centroids)
        counts = torch.bincount(assigned, minlength=n_clusters)
        sums = torch.zeros_like(centroids).index_add_(0, assigned, features)
        centroids = sums / counts.clamp(min=1)[:, None]
        empty = torch.nonzero(counts == 0).squeeze(1)
        if len(empty):  # the largest clusters are split by a small push in opposite directions
            largest = torch.argsort(counts, descending=True, stable=True)[: len(empty)]
            empty = empty[: len(largest)]
            push = (1.0 / 1024) * (1 - 2 * (torch.arange(features.shape[1], device=features.device) % 2)).to(features.dtype)
            centroids[empty] = centroids[largest] * (1 + push)
            centroids[largest] = centroids[largest] * (1 - push)
    return nearest(features, centroids)
