"""Variances of the groups of a column, squeezed towards a common value, and the degrees of freedom that this gains.

A variance over few seeds is imprecise, but all groups of a column together tell what is usual. Smyth (Stat. Appl.
Genet. Mol. Biol. 3, 2004; limma's fitFDist and squeezeVar) assumes scaled inverse chi-squared true variances. Their
scale and degrees of freedom (`prior`) follow from mean and variance of the logarithms of the observed variances. A
squeezed variance is the mean of the group's variance and of the scale, weighted by their degrees of freedom.

True variances may have another distribution, and the best of a table is often a group that varies much. Therefore the
procedure is more cautious than limma's (benchmarks/marks.py measures its error): a variance is raised, never lowered;
the gain in degrees of freedom falls as a group's variance rises above the scale; a variance of 0 takes no part; and a
column with two of these, as rounded values produce them, is not squeezed.
"""

import numpy as np

FEWEST_GROUPS = 3  # with a variance above 0
MOST_CONSTANT = 1  # groups with a variance of 0
STEPS = 50  # of Newton's method, which needs about 6
PRECISION = 1e-8
# tables that `simulated_pairs` draws
SIMULATED = 2000


def inverse_trigamma(values: np.ndarray) -> np.ndarray:
    """The arguments at which the trigamma function has these positive values (limma's trigammaInverse)."""
    from scipy.special import zeta

    arguments = 0.5 + 1 / values
    for _ in range(STEPS):
        trigamma = zeta(2, arguments)
        change = trigamma * (1 - trigamma / values) / (-2 * zeta(3, arguments))
        arguments = arguments + change
        if np.all(-change <= PRECISION * arguments):
            break
    return arguments


def prior(variances: np.ndarray, freedom: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale and degrees of freedom of the true variances, `(...)` both; infinite if the variances differ by chance.

    Args:
        variances: `(..., k)`, two or more of each table above 0; a 0 is left out.
        freedom: of the variances, `(..., k)`.
    """
    from scipy.special import digamma, zeta

    varies = variances > 0
    count = varies.sum(-1)
    logarithms = np.log(np.where(varies, variances, 1)) - digamma(freedom / 2) + np.log(freedom / 2)
    middle = (logarithms * varies).sum(-1) / count
    squares = (varies * (logarithms - middle[..., None]) ** 2).sum(-1) / (count - 1)
    excess = squares - (varies * zeta(2, freedom / 2)).sum(-1) / count
    differ = excess > 0
    half = inverse_trigamma(np.where(differ, excess, 1.0))
    pooled = (varies * variances * freedom).sum(-1) / (varies * freedom).sum(-1)
    scale = np.where(differ, np.exp(middle + digamma(half) - np.log(half)), pooled)
    return scale, np.where(differ, 2 * half, np.inf)


def squeezed(variances, freedom) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Squeezed variances and their degrees of freedom `(..., k)`; and whether a table was squeezed `(...)`.

    Args:
        variances: of the values of each group, `(..., k)`.
        freedom: of the variances, `(k,)` or one for all.
    """
    variances = np.asarray(variances, dtype=np.float64)
    freedom = np.broadcast_to(np.asarray(freedom, dtype=np.float64), variances.shape)
    varies = variances > 0
    count = varies.sum(-1)
    is_squeezed = (count >= FEWEST_GROUPS) & (count >= variances.shape[-1] - MOST_CONSTANT)
    if not is_squeezed.any():
        return variances, freedom, is_squeezed
    usable = np.where(is_squeezed[..., None], variances, 1.0)
    scale, prior_freedom = (part[..., None] for part in prior(usable, freedom))
    # weight of `scale` in a squeezed variance
    weight = 1 / (1 + freedom / prior_freedom)
    pooled_freedom = (freedom * (usable > 0)).sum(-1, keepdims=True)
    gain = np.minimum(freedom + prior_freedom, pooled_freedom) - freedom
    gain *= np.minimum(1.0, scale / np.where(varies, usable, 1.0))
    changes = is_squeezed[..., None] & varies
    raised = np.maximum(variances, (1 - weight) * usable + weight * scale)
    return np.where(changes, raised, variances), np.where(changes, freedom + gain, freedom), is_squeezed


def simulated_pairs(groups: int, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Standard error of the difference of two groups and its degrees of freedom in `SIMULATED` tables, `(T,)` both.

    The tables have normal values with a deviation of 1.
    """
    freedom = seeds - 1
    variances = np.random.default_rng(0).chisquare(freedom, (SIMULATED, groups)) / freedom
    raised, freedoms, _ = squeezed(variances, freedom)
    pair = raised[:, :2]
    return np.sqrt(pair.sum(1) / seeds), pair.sum(1) ** 2 / (pair**2 / freedoms[:, :2]).sum(1)
