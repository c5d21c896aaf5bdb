"""Variance components of a difference that was measured on a crossed design of training sets, test sets and seeds.

The model of one difference d[k, e, s] of two losses, trained on the classes of set k with seed s, tested on set e:

    d = m + T_k + E_e + TE_ke + S_ks + r_kes

No set tests itself, and runs may be missing, so the table has holes. Each sum of squares below is what a factor adds to
a least-squares fit of the others (Henderson's method III), and its expected value is linear in the components, which
are solved from below: r, S, then TE, and T and E. Estimates are unbiased and so can be negative.
"""

import functools

import numpy as np

from results.planning import COMPONENTS
from utilities.intervals import t_quantile


def estimate(differences: np.ndarray) -> dict[str, float]:
    """The components of `COMPONENTS`, in the squared unit of the differences.

    Args:
        differences: `(training sets, test sets, seeds)`, NaN where a run is missing; two seeds or more.
    """
    present = np.isfinite(differences).all(2)
    n_seeds = differences.shape[2]
    square_r = square_s = 0.0
    freedom_r = freedom_s = size_s = 0
    for rows, cells in zip(differences, present, strict=True):
        table = rows[cells]  # (test sets, seeds) of a training set
        if len(table) < 2:
            continue
        of_seeds = table.mean(0) - table.mean()
        square_r += ((table - table.mean(1, keepdims=True) - of_seeds) ** 2).sum()
        freedom_r += (len(table) - 1) * (n_seeds - 1)
        square_s += len(table) * (of_seeds**2).sum()
        freedom_s += n_seeds - 1
        size_s += len(table) * (n_seeds - 1)
    r = square_r / freedom_r
    s = (square_s - freedom_s * r) / size_s
    crossed = _crossed(present.tobytes(), present.shape)
    means = differences.mean(2)[present]
    # its expectation is TE + r / J, with J seeds
    residual = means @ crossed["residual"] @ means / crossed["freedom"]
    of_training = (means @ crossed["training"] @ means - crossed["n_training"] * residual) / crossed["size_training"]
    of_test = (means @ crossed["test"] @ means - crossed["n_test"] * residual) / crossed["size_test"]
    return {"T": of_training - s / n_seeds, "E": of_test, "TE": residual - r / n_seeds, "S": s, "r": r}


@functools.cache
def _crossed(present: bytes, shape: tuple[int, int]) -> dict:
    """The quadratic forms of the cell means of a crossed table with holes, their degrees of freedom and sizes.

    Args:
        present: the bytes of a boolean table, training sets x test sets.
    """
    cells = np.argwhere(np.frombuffer(present, bool).reshape(shape))
    training = (cells[:, :1] == np.unique(cells[:, 0])).astype(np.float64)
    test = (cells[:, 1:] == np.unique(cells[:, 1])).astype(np.float64)
    # name of a fit -> identity matrix less the projection on the fit's columns
    without_fit = {}
    ranks = {}
    for name, columns in (("training", training), ("test", test), ("both", np.hstack([training, test]))):
        without_fit[name] = np.eye(len(cells)) - columns @ np.linalg.pinv(columns)
        ranks[name] = np.linalg.matrix_rank(columns)
    return {
        "residual": without_fit["both"],
        "freedom": len(cells) - ranks["both"],
        "training": without_fit["test"] - without_fit["both"],
        "n_training": ranks["both"] - ranks["test"],
        "size_training": np.trace(training.T @ without_fit["test"] @ training),
        "test": without_fit["training"] - without_fit["both"],
        "n_test": ranks["both"] - ranks["training"],
        "size_test": np.trace(test.T @ without_fit["training"] @ test),
    }


def mean_estimate(differences: list[np.ndarray]) -> dict[str, float]:
    """The components of several differences on one design, each averaged."""
    estimates = [estimate(of_pair) for of_pair in differences]
    return {name: float(np.mean([of_pair[name] for of_pair in estimates])) for name in COMPONENTS}


def interval(differences: list[np.ndarray]) -> dict[str, tuple[float, float]]:
    """95 % intervals of `mean_estimate`: a jackknife over the sets, each left out as a training and as a test set.

    Every set is both, in the same order.
    """
    n_sets = len(differences[0])
    without_set = []
    for index in range(n_sets):
        remaining = np.delete(np.arange(n_sets), index)
        without_set.append(mean_estimate([of_pair[np.ix_(remaining, remaining)] for of_pair in differences]))
    centre = mean_estimate(differences)
    bounds = {}
    for name in COMPONENTS:
        values = np.array([estimates[name] for estimates in without_set])
        half = t_quantile(n_sets - 1) * np.sqrt((n_sets - 1) * values.var())
        bounds[name] = (centre[name] - half, centre[name] + half)
    return bounds
