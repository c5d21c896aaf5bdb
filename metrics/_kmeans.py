"""k-means as in `faiss.Kmeans` (20 iterations, seeded, all samples; its start, its rule for empty clusters)
with fewer distances.

After a few iterations most centroids no longer move. A sample whose centroid did not move can only change to one that
moved; a sample whose centroid moved needs all centroids only if no moved one is as near as its own was. So each
iteration compares all samples with the moved centroids, and few samples with all centroids. Apart from rounding the
clusters are those of faiss.
"""

import functools
import math

import numpy as np
import torch

from metrics._mapped import Converted
from metrics._tensors import group_sums
from utilities.processes import SingleProcess
from utilities.tensors import Products

ITERATIONS = 20
PUSH = 1 / 1024  # relative distance of the halves of a split cluster, as in faiss
LARGEST = 2.0**50  # size of a coordinate up to which squared distances in a million dimensions stay within float32
TILE = 16_000_000  # distances that torch holds at once
FAISS_ROWS = 4096  # rows of one matrix product of faiss, on which its rounding depends


def kmeans(
    features: np.ndarray | Converted | torch.Tensor,
    n_clusters: int,
    seed: int = 0,
    device: str = "cpu",
    ranks: SingleProcess | None = None,
) -> np.ndarray:
    """The cluster `(N,)` int64 of each row of `features` `(N, D)`, compared in float32; no more clusters than rows.

    Features in a file are read one block at a time, and the clusters' means are summed block by block, in float64. With
    several processes, each compares its part of the rows with the centroids, which are those of the first process.
    Features on a device stay there, as does all that is computed from them.
    """
    ranks = ranks or SingleProcess()
    n_clusters = min(n_clusters, len(features))
    if n_clusters <= 1:
        return np.zeros(len(features), dtype=np.int64)
    if isinstance(features, torch.Tensor):
        return of_tensor(features, n_clusters, seed).int().cpu().numpy().astype(np.int64)
    features = in_range(features)
    nearest, step = searcher(device)
    if not isinstance(features, np.ndarray):
        nearest = in_blocks(nearest)
    if ranks.size > 1:
        nearest = functools.partial(of_parts, nearest, step, ranks)
    centroids = features[start(len(features), seed)[:n_clusters]]
    distances, assigned = nearest(features, centroids)
    for _ in range(ITERATIONS):
        before = centroids
        centroids = ranks.share(updated(features, centroids, assigned))
        moved = (centroids != before).any(1)
        if not moved.any():
            break
        if moved.mean() > 0.5:
            distances, assigned = nearest(features, centroids)
            continue
        names = np.flatnonzero(moved)
        moved_distances, moved_nearest = nearest(features, centroids[names])
        own_moved = moved[assigned]
        closer = np.where(own_moved, moved_distances <= distances, moved_distances < distances)
        assigned = np.where(closer, names[moved_nearest], assigned)
        distances = np.where(closer, moved_distances, distances)
        unsure = np.flatnonzero(own_moved & ~closer)
        if len(unsure):
            for part in np.array_split(unsure, -(-len(unsure) // getattr(features, "block", len(unsure)))):
                distances[part], assigned[part] = nearest(features[part], centroids)
    return assigned


@torch.no_grad()
def of_tensor(features: torch.Tensor, n_clusters: int, seed: int) -> torch.Tensor:
    """`kmeans` on the device of the features `(N, D)`. It waits for sizes three times an iteration: how many centroids
    moved, and how many samples need all of them, save more than the waiting costs.
    """
    ends = torch.stack(features.aminmax())
    largest = float(ends.abs().max())
    if largest > LARGEST:
        features = features * _factor(largest)
    features = features.float()
    centroids = features[torch.from_numpy(start(len(features), seed)[:n_clusters].astype(np.int64)).to(features.device)]
    distances, assigned = compared(features, centroids)
    for _ in range(ITERATIONS):
        before = centroids
        centroids = means(features, centroids, assigned)
        moved = (centroids != before).any(1)
        names = moved.nonzero().squeeze(1)
        if not len(names):
            break
        if 2 * len(names) > n_clusters:
            distances, assigned = compared(features, centroids)
            continue
        moved_distances, moved_nearest = compared(features, centroids[names])
        own_moved = moved[assigned]
        closer = torch.where(own_moved, moved_distances <= distances, moved_distances < distances)
        assigned = torch.where(closer, names[moved_nearest], assigned)
        distances = torch.where(closer, moved_distances, distances)
        unsure = (own_moved & ~closer).nonzero().squeeze(1)
        if len(unsure):
            distances[unsure], assigned[unsure] = compared(features[unsure], centroids)
    return assigned


def in_range(features: np.ndarray | Converted) -> np.ndarray | Converted:
    """The features in float32; divided by a power of two where their squared distances would overflow,
    which changes no cluster.
    """
    if isinstance(features, np.ndarray):
        largest = max(abs(float(features.max(initial=0))), abs(float(features.min(initial=0))))
        if largest > LARGEST:
            features = features * _factor(largest)
        return np.ascontiguousarray(features, dtype=np.float32)
    largest = 0.0
    for first in range(0, len(features), features.block):
        block = features.read(slice(first, first + features.block))
        largest = max(largest, float(np.abs(block).max()))
    if largest <= LARGEST:
        return features
    factor = _factor(largest)
    return Converted(lambda rows: features.read(rows) * factor, features.shape, features.block)


def _factor(largest: float) -> float:
    """The power of two that brings a coordinate of this size to at most `LARGEST`."""
    return 2.0 ** -math.ceil(math.log2(largest / LARGEST))


def start(size: int, seed: int) -> np.ndarray:
    """The order `(N,)` in which samples become the first centroids: that of faiss for this seed."""
    try:
        import faiss
    except ModuleNotFoundError:
        return shuffled(size, (seed + 1) % 2**32)
    order = np.empty(size, dtype=np.int32)
    faiss.rand_perm(faiss.swig_ptr(order), size, seed + 1)
    return order


def shuffled(size: int, seed: int) -> np.ndarray:
    """faiss's permutation `(N,)` without faiss: each place in turn is swapped with one behind it, drawn by the
    Mersenne Twister.
    """
    order = list(range(size))
    twister = np.random.RandomState(seed)
    numbers = twister.randint(0, 2**32, max(size - 1, 0), dtype=np.uint32)
    for place, number in enumerate(numbers.tolist()):
        partner = place + number % (size - place)
        order[place], order[partner] = order[partner], order[place]
    return np.array(order, dtype=np.int32)


def updated(features: np.ndarray, centroids: np.ndarray, assigned: np.ndarray) -> np.ndarray:
    """The means `(K, D)` of the clusters. An empty cluster takes half of another, see `splits`."""
    n_clusters = len(centroids)
    counts = np.bincount(assigned, minlength=n_clusters).astype(np.float32)
    order = np.argsort(assigned, kind="stable")
    first = np.flatnonzero(np.diff(assigned[order], prepend=-1))
    present = assigned[order[first]]
    centroids = centroids.copy()
    if isinstance(features, np.ndarray):
        centroids[present] = np.add.reduceat(features[order], first) * (np.float32(1) / counts[present])[:, None]
    else:
        centroids[present] = (sums(features, assigned, n_clusters)[present] / counts[present, None]).astype(np.float32)
    push = _push(features.shape[1])
    for hole, split in splits(counts, len(features)):
        centroids[hole] = centroids[split] * (1 + push)
        centroids[split] *= 1 - push
    return centroids


def means(features: torch.Tensor, centroids: torch.Tensor, assigned: torch.Tensor) -> torch.Tensor:
    """`updated` on the device of the features, whose sums are in float64."""
    sums, counts = group_sums(features, assigned, len(centroids))
    centroids = torch.where(counts[:, None] > 0, (sums / counts.clamp(min=1)[:, None]).float(), centroids)
    if not counts.all():
        push = torch.from_numpy(_push(features.shape[1])).to(features.device)
        for hole, split in splits(counts.float().cpu().numpy(), len(features)):
            centroids[hole] = centroids[split] * (1 + push)
            centroids[split] *= 1 - push
    return centroids


def _push(dimensions: int) -> np.ndarray:
    """Relative distance `(D,)` of the halves of a split cluster from it."""
    return np.where(np.arange(dimensions) % 2, -PUSH, PUSH).astype(np.float32)


def splits(counts: np.ndarray, size: int):
    """Yield (empty cluster, the one that it takes half of), drawn in proportion to that one's size minus 1, one after
    the other: each split changes the odds of the next.

    counts: sizes `(K,)` of the clusters in float32, which are changed. size: the number of all samples.
    """
    n_clusters = len(counts)
    draws = np.random.RandomState(1234)  # noqa: NPY002  the generator and the seed that faiss takes
    for hole in np.flatnonzero(counts == 0):
        odds = (counts - 1) / np.float32(max(size - n_clusters, 1e-30))
        split = None
        while split is None:
            numbers = np.frombuffer(draws.bytes(4 * n_clusters), "<u4").astype(np.float32) / np.float32(2**32 - 1)
            is_drawn = numbers < odds
            if is_drawn.any():
                split = int(is_drawn.argmax())
        yield int(hole), split
        counts[hole] = counts[split] // 2
        counts[split] -= counts[hole]


def sums(features: Converted, assigned: np.ndarray, n_clusters: int) -> np.ndarray:
    """Sums `(K, D)` in float64 of each cluster's rows, read in their order."""
    total = np.zeros((n_clusters, features.shape[1]))
    for start in range(0, len(features), features.block):
        clusters = assigned[start : start + features.block]
        order = np.argsort(clusters, kind="stable")
        first = np.flatnonzero(np.diff(clusters[order], prepend=-1))
        rows = features[slice(start, start + len(clusters))][order].astype(np.float64)
        total[clusters[order[first]]] += np.add.reduceat(rows, first)
    return total


def in_blocks(nearest):
    """`nearest` for features that are read one block at a time."""

    def read(features, centroids):
        if isinstance(features, np.ndarray):
            return nearest(features, centroids)
        distances = []
        assigned = []
        for start in range(0, len(features), features.block):
            of_block = nearest(features[slice(start, start + features.block)], centroids)
            distances.append(of_block[0])
            assigned.append(of_block[1])
        return np.concatenate(distances), np.concatenate(assigned)

    return read


def of_parts(
    nearest, step, ranks: SingleProcess, features: np.ndarray | Converted, centroids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`nearest`, each of several processes for its rows, split where one process alone would split them:
    the same to the bit.
    """
    in_memory = isinstance(features, np.ndarray)
    unit = step(len(centroids)) if in_memory else features.block
    rows = ranks.portions(len(features), unit)
    mine = rows[ranks.rank]
    distances = np.empty(len(features), dtype=np.float32)
    indices = np.empty(len(features), dtype=np.int64)
    if mine.stop > mine.start:
        part = features[mine] if in_memory else features.part(mine)
        distances[mine], indices[mine] = nearest(part, centroids)
    ranks.share_rows(distances, rows)
    ranks.share_rows(indices, rows)
    return distances, indices


def searcher(device: str):
    """`nearest(features (N, D), centroids (K, D)) -> (squared distances (N,), indices (N,))`:
    faiss on the device, else torch there.

    And `step(K)`: how many rows are compared with K centroids at once.
    """
    if not faiss_runs_on(device):
        return on_torch(device), tile_rows
    import faiss

    search = faiss.knn
    if torch.device(device).type != "cpu":
        resources = faiss.StandardGpuResources()
        index = torch.device(device).index or 0

        def search(features, centroids, k):
            return faiss.knn_gpu(resources, features, centroids, k, device=index)

    def nearest(features, centroids):
        distances, indices = search(features, centroids, 1)
        return distances[:, 0].copy(), indices[:, 0].astype(np.int64)

    return nearest, lambda n_centroids: FAISS_ROWS


def faiss_runs_on(device: str) -> bool:
    """Whether faiss is installed and, for a GPU, was built for one."""
    try:
        import faiss
    except ModuleNotFoundError:
        return False
    return torch.device(device).type == "cpu" or getattr(faiss, "get_num_gpus", int)() > 0


def tile_rows(n_centroids: int) -> int:
    """Rows that torch compares with the centroids at once."""
    return max(1, TILE // n_centroids)


def on_torch(device: str):
    """`nearest` in torch, with a bounded number of distances at a time."""

    @torch.no_grad()
    def nearest(features, centroids):
        centroids = torch.from_numpy(centroids).to(device)
        distances = []
        indices = []
        for block in torch.from_numpy(features).split(tile_rows(len(centroids))):
            smallest = compared(block.to(device), centroids)
            distances.append(smallest[0].cpu())
            indices.append(smallest[1].cpu())
        return torch.cat(distances).numpy(), torch.cat(indices).numpy()

    return nearest


def compared(features: torch.Tensor, centroids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared distance `(N,)` of each of the features `(N, D)` to the nearest of the centroids, and which it is."""
    half_norms = 0.5 * centroids.square().sum(1)  # (K,)
    distances = []
    indices = []
    for block in features.split(tile_rows(len(centroids))):
        with Products("highest"):
            smallest = torch.addmm(half_norms, block, centroids.T, alpha=-1).min(1)
        distances.append(2 * smallest.values + block.square().sum(1))
        indices.append(smallest.indices)
    return torch.cat(distances), torch.cat(indices)
