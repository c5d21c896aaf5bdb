"""Distances of same-class and of different-class pairs, for a histogram."""

import numpy as np

from pictures.space import sample_pairs

ALL_UP_TO = 5000  # images: every pair is measured; of more images, a sample of pairs
SAMPLED = 2_000_000  # pairs of each kind
BLOCK = 1 << 16  # pairs whose differences are in memory at once


def distances(features: np.ndarray, labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Euclidean distances of same-class `(P,)` and different-class `(Q,)` pairs, float32, and a text
    that says which pairs these are.

    Args:
        features: `(N, D)`. labels: `(N,)` whole numbers.
    """
    if len(features) <= ALL_UP_TO:
        same_class = []
        different_class = []
        # one row of the matrix at a time: the whole has N squared entries
        for row in range(1, len(features)):
            measured = np.sqrt(np.square(features[:row] - features[row]).sum(1)).astype(np.float32)
            alike = labels[:row] == labels[row]
            same_class.append(measured[alike])
            different_class.append(measured[~alike])
        return (
            np.concatenate([np.empty(0, np.float32), *same_class]),
            np.concatenate([np.empty(0, np.float32), *different_class]),
            "all pairs",
        )
    same_class, different_class = (measure(features, *pairs) for pairs in sample_pairs(labels, seed, count=SAMPLED))
    return (
        same_class,
        different_class,
        f"random pairs, {len(same_class):,} of one class and {len(different_class):,} of two",
    )


def measure(features: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Euclidean distances `(P,)`, float32, of pairs of rows."""
    measured = np.empty(len(first), dtype=np.float32)
    for start in range(0, len(first), BLOCK):
        part = slice(start, start + BLOCK)
        measured[part] = np.sqrt(np.square(features[first[part]] - features[second[part]]).sum(1))
    return measured
