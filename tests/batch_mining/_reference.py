"""What the miners' tests share: batches, slow distances in float64, draws held against the probabilities they should have."""

import numpy as np
import torch
from scipy import stats

import batch_mining


def batch_of(labels, dimensions=4, seed=0, dtype=torch.float32):
    """Random embeddings `(B, D)` for a list of labels, and the labels as a tensor."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(labels), dimensions, generator=generator, dtype=torch.float64).to(dtype), torch.tensor(labels)


def slow_distances(embeddings, normalised=False):
    """Distances `(B, B)` by the formula, in NumPy's float64."""
    x = embeddings.detach().double().numpy()
    if normalised:
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return np.array([[np.linalg.norm(a - b) for b in x] for a in x])


def all_triplets(labels):
    """Every valid (a, p, n), by three loops."""
    y, b = [int(label) for label in labels], range(len(labels))
    return [(i, j, k) for i in b for j in b for k in b if i != j and y[i] == y[j] and y[i] != y[k]]


def complete(labels):
    """Samples that have a positive and a negative."""
    return sorted({a for a, _, _ in all_triplets(labels)})


def as_lists(*columns):
    """Columns of indices as a list of tuples."""
    return list(zip(*(column.tolist() for column in columns), strict=True))


def mine_often(name, embeddings, labels, times=1000, **flags):
    """The tuples of `times` mined batches, joined."""
    miner = batch_mining.select(name, **flags)
    torch.manual_seed(0)
    mined = [miner(embeddings, labels) for _ in range(times)]
    return type(mined[0])(*(torch.cat(parts) for parts in zip(*mined, strict=True)))


def assert_drawn_with(probabilities, drawn):
    """Chi-square: do the `drawn` outcomes (hashable) occur with `probabilities` (outcome -> probability), and no other ones?"""
    outcomes = [outcome for outcome, probability in probabilities.items() if probability > 0]
    counts = {outcome: 0 for outcome in outcomes}
    for outcome in drawn:
        assert outcome in counts, f"{outcome} has probability 0"
        counts[outcome] += 1
    expected = np.array([probabilities[outcome] for outcome in outcomes], dtype=float)
    expected *= len(drawn) / expected.sum()
    observed = np.array([counts[outcome] for outcome in outcomes], dtype=float)
    rare = expected < 5  # too few for the statistic: taken together
    if rare.any():
        expected, observed = np.append(expected[~rare], expected[rare].sum()), np.append(observed[~rare], observed[rare].sum())
    if len(expected) > 1:
        assert stats.chisquare(observed, expected).pvalue > 1e-4, (observed, expected)
