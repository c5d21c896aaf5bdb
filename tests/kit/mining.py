"""What the miners' tests share: batches, slow distances in float64, draws held against the probabilities they should
have.
"""

import numpy as np
import torch
from scipy import stats


def normal(*shape, seed=0):
    """Normal draws in float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch_of(labels, dimensions=4, seed=0, dtype=torch.float32):
    """Random embeddings `(B, D)` for a list of labels, and the labels as a tensor."""
    return normal(len(labels), dimensions, seed=seed).to(dtype), torch.tensor(labels, dtype=torch.long)


def slow_distances(x, r):
    """Distances `(B, M)` by the formula, of NumPy's float64."""
    return np.array([[np.linalg.norm(a - b) for b in r] for a in x]).reshape(len(x), len(r))


def as_lists(*columns):
    """Columns of indices as a list of tuples."""
    return list(zip(*(column.tolist() for column in columns), strict=True))


def assert_drawn_with(probabilities, outcomes_drawn):
    """Chi-square: outcomes (hashable) occur with `probabilities` (outcome -> probability), and no other ones."""
    outcomes = [outcome for outcome, probability in probabilities.items() if probability > 0]
    counts = {outcome: 0 for outcome in outcomes}
    for outcome in outcomes_drawn:
        assert outcome in counts, f"{outcome} has probability 0"
        counts[outcome] += 1
    expected = np.array([probabilities[outcome] for outcome in outcomes], dtype=float)
    expected *= len(outcomes_drawn) / expected.sum()
    observed = np.array([counts[outcome] for outcome in outcomes], dtype=float)
    # too few for the statistic: taken together
    rare = expected < 5
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        observed = np.append(observed[~rare], observed[rare].sum())
    if len(expected) > 1:
        assert stats.chisquare(observed, expected).pvalue > 1e-4, (observed, expected)
