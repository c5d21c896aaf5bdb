"""Which groups of a table are worse than its best: error, coverage and power of several procedures on simulated tables.

    python benchmarks/marks.py            # the tables in docs/statistics.md, some minutes

The best is chosen by the same seeds, so that a test against it is no test against a fixed group. Each table has `k`
groups of `n` seeds.

error: share of tables without any true difference in which some group is marked as worse than the best.
coverage: share of tables in which all intervals of the differences to the best hold the true ones. It is measured for
tables without differences and for tables whose true means are spread over three deviations; the lower of the two.
power: share of the marked groups among those two deviations below the best, the lower half of the groups.
"""

import argparse
import sys
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from results import inference
from utilities.errors import OneLineParser
from utilities.intervals import modulus_quantile, t_quantile
from utilities.numbers import whole

GROUPS = (2, 5, 9, 14, 25)
SEEDS = (3, 5, 10)
KINDS = ("normal", "unequal", "t3")
SHOWN = 9
LEVEL = inference.ALPHA
TITLES = ("Highest error", "Lowest coverage", f"Power with {SHOWN} groups")


def simulated(kind: str, tables: int, k: int, n: int, generator) -> np.ndarray:
    """Values `(tables, k, n)` around 0.

    Groups of `unequal` have deviations from 1 to 4; values of `t3` have t with 3 degrees of freedom.
    """
    if kind == "t3":
        return generator.standard_t(3, (tables, k, n)) / 3**0.5
    values = generator.standard_normal((tables, k, n))
    if kind == "unequal":
        values *= generator.uniform(1, 4, (tables, k, 1))
    return values


def by_interpolation(quantile, freedom: np.ndarray) -> np.ndarray:
    """`quantile(freedom)`, which takes long, from 24 points in 1 / freedom."""
    inverse = 1 / np.clip(freedom, 1.0, 400.0)
    points = np.linspace(inverse.min(), inverse.max(), 24)
    return np.interp(inverse, points, [quantile(1 / point) for point in points])


def present(k: int, n: int, freedom: np.ndarray) -> np.ndarray:
    """The tables' procedure."""
    return by_interpolation(lambda f: inference.critical(k, n, f), freedom)


def dunnett_t3(k: int, n: int, freedom: np.ndarray) -> np.ndarray:
    """All pairs by the studentised maximum modulus, with Welch's degrees of freedom."""
    return by_interpolation(lambda f: modulus_quantile(k * (k - 1) // 2, f), freedom)


def games_howell(k: int, n: int, freedom: np.ndarray) -> np.ndarray:
    """All pairs by the studentised range, with Welch's degrees of freedom."""
    from scipy.stats import studentized_range

    return by_interpolation(lambda f: studentized_range.ppf(1 - LEVEL, k, f), freedom) / 2**0.5


def bonferroni(k: int, n: int, freedom: np.ndarray) -> np.ndarray:
    """All pairs by Welch's test, corrected for their number."""
    return by_interpolation(lambda f: t_quantile(f, 1 - LEVEL / (k * (k - 1) / 2)), freedom)


def against_best(k: int, n: int, freedom: np.ndarray) -> np.ndarray:
    """Welch's test of each group against the best, corrected for k - 1 of them, as if the best were not chosen."""
    return by_interpolation(lambda f: t_quantile(f, 1 - LEVEL / (k - 1)), freedom)


PROCEDURES = {
    "T3 or Bonferroni": present,
    "Dunnett T3": dunnett_t3,
    "Games-Howell": games_howell,
    "Bonferroni": bonferroni,
    "k - 1 tests": against_best,
}


def measured(procedure, values: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which groups are marked as worse `(T, k)`, and whether all intervals hold `(T,)`.

    Args:
        values: tables `(T, k, n)` around 0.
        true: means `(k,)`, added to them.
    """
    tables, k, n = values.shape
    values = values + true[:, None]
    means = values.mean(2)
    squares = values.var(2, ddof=1) / n
    best = means.argmax(1)
    rows = np.arange(tables)
    error = np.sqrt(squares + squares[rows, best, None])
    freedom = error**4 / (squares**2 + squares[rows, best, None] ** 2) * (n - 1)
    differences = means[rows, best, None] - means
    reach = procedure(k, n, freedom) * error
    return differences > reach, (np.abs(differences - (true[best, None] - true)) <= reach).all(1)


def line(procedure, kind: str, k: int, n: int, tables: int, seed: int = 0) -> tuple[float, float, float]:
    """Error, coverage and power of a procedure."""
    generator = np.random.default_rng([seed, k, n])
    equal = np.zeros(k)
    spread = np.linspace(0, -3, k)
    lower = np.where(np.arange(k) < (k + 1) // 2, 0.0, -2.0)
    marked, holds = measured(procedure, simulated(kind, tables, k, n, generator), equal)
    _, spread_holds = measured(procedure, simulated(kind, tables, k, n, generator), spread)
    worse, _ = measured(procedure, simulated(kind, tables, k, n, generator), lower)
    return marked.any(1).mean(), min(holds.mean(), spread_holds.mean()), worse[:, lower < 0].mean()


def main(tables: int) -> None:
    """Print a table each of the highest error and the lowest coverage over the `GROUPS`, and of the power.

    The power is that of `SHOWN` groups. A table has a row for each kind of values and number of seeds.
    """
    rows = {title: [] for title in TITLES}
    for kind, n in product(KINDS, SEEDS):
        figures = []
        for procedure in PROCEDURES.values():
            errors, coverages, powers = zip(*(line(procedure, kind, k, n, tables) for k in GROUPS), strict=True)
            figures.append((max(errors), min(coverages), powers[GROUPS.index(SHOWN)]))
        for title, values in zip(TITLES, zip(*figures, strict=True), strict=True):
            cells = [f"{value:.3f}".lstrip("0") for value in values]
            rows[title].append(f"| {kind}, {n} | {' | '.join(cells)} |")
        print(f"{kind} values, {n} seeds: done", file=sys.stderr)
    heads = ["values, seeds", *PROCEDURES]
    for title in TITLES:
        print(f"\n{title}, {tables:,} tables each:\n\n| {' | '.join(heads)} |\n|{'-|' * len(heads)}")
        print("\n".join(rows[title]), flush=True)


if __name__ == "__main__":
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=whole(1), default=10_000, help="of each kind, number of groups and of seeds")
    main(parser.parse_args().tables)
