"""Sums over the queries of a space: of classes, and the R of a QR decomposition. On a GPU they are summed there."""

import numpy as np
import torch


def lengths(features, block: int) -> np.ndarray:
    """Lengths `(N,)` of features `(N, D)`, in float64, `block` rows at a time."""
    norms = np.empty(len(features))
    for start in range(0, len(features), block):
        rows = slice(start, start + block)
        norms[rows] = np.sqrt((features[rows].astype(np.float64) ** 2).sum(1))
    return norms


def singular_values(space) -> np.ndarray:
    """min(N, D) singular values of the queries, float64, descending;
    from R of a QR decomposition built block by block.
    """
    if space.tensors is not None:
        return torch.linalg.svdvals(space.tensors.upper()).numpy()
    upper = np.empty((0, space.dimensions))
    for start in range(0, space.size, space.block):
        block = torch.from_numpy(np.concatenate([upper, space.queries(slice(start, start + space.block))]))
        upper = torch.linalg.qr(block, mode="r").R.numpy()
    return torch.linalg.svdvals(torch.from_numpy(upper)).numpy()


def class_sums(space, normalised: bool) -> tuple[np.ndarray, np.ndarray]:
    """As `EmbeddingSpace.class_sums`."""
    if space.tensors is not None:
        sums, squares = space.tensors.class_sums(normalised)
        return sums.cpu().numpy(), squares.cpu().numpy()
    n_classes = int(space.labels.max()) + 1
    sums = np.zeros((n_classes, space.dimensions))
    squares = np.zeros(n_classes)
    for start in range(0, space.size, space.block):
        block = space.queries(slice(start, start + space.block))
        if normalised:
            norms = np.sqrt((block**2).sum(1, keepdims=True))
            block = block / np.where(norms > 0, norms, 1.0)
        labels = space.labels[start : start + space.block]
        order = np.argsort(labels, kind="stable")
        labels = labels[order]
        first = np.flatnonzero(np.diff(labels, prepend=-1))
        sums[labels[first]] += np.add.reduceat(block[order], first)
        squares += np.bincount(labels, weights=(block**2).sum(1)[order], minlength=n_classes)
    return sums, squares


def class_lengths(space) -> tuple[np.ndarray, np.ndarray]:
    """Squared lengths `(C,)` of the sums of the classes' query features at unit length,
    and sums `(C,)` of their squared norms.
    """
    if space.tensors is not None:
        sums, squares = space.tensors.class_sums(normalised=True)
        return sums.square().sum(1).cpu().numpy(), squares.cpu().numpy()
    sums, squares = class_sums(space, normalised=True)
    return (sums**2).sum(1), squares


def sum_of_means(space) -> tuple[np.ndarray, np.ndarray]:
    """Sum `(D,)` of the classes' means at unit length, and the sum of their squared norms; a zero mean stays zero,
    a class without queries has none.
    """
    counts = np.bincount(space.labels)
    if space.tensors is not None:
        total, square = space.tensors.sum_of_means(torch.from_numpy(counts))
        return total.cpu().numpy(), square.cpu().numpy()
    present = counts > 0
    sums, _ = class_sums(space, normalised=False)
    means = sums[present] / counts[present, None]
    norms = np.sqrt((means**2).sum(1, keepdims=True))
    means = np.divide(means, norms, out=np.zeros_like(means), where=norms > 0)
    return means.sum(0), (means**2).sum()
