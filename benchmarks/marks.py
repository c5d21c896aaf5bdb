"""Which groups of a table are worse than its best: error, coverage and power of several procedures on simulated tables.

    python benchmarks/marks.py --write docs/statistics.md     # about ten minutes

The best is chosen by the same seeds, so that a test against it is no test against a fixed group. Each table has `k`
groups of `n` seeds. Their true means are equal, spread over .3 or 3 deviations, or the lower half of the groups is 2 or
8 deviations worse.

error: share of tables in which some group is marked as worse than the best although its true mean is not lower; the
highest of the true means above.
coverage: share of tables in which all intervals of the differences to the best hold the true ones; the lowest of them.
power: share of the marked groups among the lower half, which is two deviations below the best.
"""

import argparse
import bisect
import functools
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from results import inference
from results.simultaneous import gaps_to_best, worse_groups
from results.squeezing import prior, squeezed
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.intervals import interpolated, modulus_quantile, t_quantile
from utilities.numbers import whole
from utilities.reading import parsing

GROUPS = (2, 5, 9, 14, 25)
SEEDS = (3, 4, 5, 10)
KINDS = ("normal", "unequal", "t3", "lognormal", "outlier", "skewed", "rounded", "seeds")
SHOWN = 9
LEVEL = inference.ALPHA
MOST_SEEDS = 100
# the lines around the tables on their page
MARKS = ("<!-- tables: written by benchmarks/marks.py -->", "<!-- end of the tables -->")
# rounding error of the sums, where all values of two groups are equal
ROUNDING = 1e-12
TITLES = ("Highest error", "Lowest coverage", f"Power with {SHOWN} groups")


def simulated(kind: str, tables: int, k: int, n: int, generator) -> np.ndarray:
    """Values `(tables, k, n)` around 0; NaN if a group has fewer seeds.

    t3: t with 3 degrees of freedom. skewed: exponential, long tail below. rounded: to whole deviations. seeds: every
    second group has twice as many. Deviations of unequal: 1 to 4; lognormal: those of a lognormal distribution;
    outlier: ten times as large in one of five groups, the first and every fifth after it.
    """
    if kind == "t3":
        return generator.standard_t(3, (tables, k, n)) / 3**0.5
    if kind == "skewed":
        return 1 - generator.exponential(1, (tables, k, n))
    largest = n
    if kind == "seeds":
        largest = 2 * n
    values = generator.standard_normal((tables, k, largest))
    if kind == "unequal":
        values *= generator.uniform(1, 4, (tables, k, 1))
    elif kind == "lognormal":
        values *= np.exp(0.7 * generator.standard_normal((tables, k, 1)))
    elif kind == "outlier":
        values[:, ::5] *= 10
    elif kind == "rounded":
        values = values.round()
    elif kind == "seeds":
        values[:, ::2, n:] = np.nan
    return values


def true_means(k: int) -> dict[str, np.ndarray]:
    """True means `(k,)` of the groups, by what they are."""
    half = np.where(np.arange(k) < (k + 1) // 2, 0.0, -1.0)
    spread = np.linspace(0, -1, k)
    return {"equal": 0 * half, "close": 0.3 * spread, "spread": 3 * spread, "lower": 2 * half, "far": 8 * half}


def limma(variances: np.ndarray, freedom: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Squeezed variances as limma has them: lowered, too, and with all degrees of freedom for each group."""
    is_squeezed = (variances > 0).sum(-1) > 1
    freedom = np.broadcast_to(freedom, variances.shape)
    if not is_squeezed.any():
        return variances, freedom, is_squeezed
    scale, gain = (part[..., None] for part in prior(np.where(is_squeezed[..., None], variances, 1.0), freedom))
    weight = 1 / (1 + freedom / gain)
    lowered = (1 - weight) * variances + weight * scale
    total = np.minimum(freedom + gain, freedom.sum(-1, keepdims=True))
    changes = is_squeezed[..., None]
    return np.where(changes, lowered, variances), np.where(changes, total, freedom), is_squeezed


def tables_value(k: int, n: int, freedom: float, is_squeezed: bool) -> float:
    """Dunnett's T3; Bonferroni with few seeds whose variances are not squeezed."""
    return inference.critical(k, n, freedom, is_squeezed)


def dunnett_t3(k: int, n: int, freedom: float, is_squeezed: bool) -> float:
    """All pairs by the studentised maximum modulus, with Welch's degrees of freedom."""
    return modulus_quantile(k * (k - 1) // 2, freedom)


@functools.cache
def _studentized_range(k: int, freedom: float) -> float:
    from scipy.stats import studentized_range

    return studentized_range.ppf(1 - LEVEL, k, freedom)


def games_howell(k: int, n: int, freedom: float, is_squeezed: bool) -> float:
    """All pairs by the studentised range, with Welch's degrees of freedom."""
    return _studentized_range(k, freedom) / 2**0.5


def bonferroni(k: int, n: int, freedom: float, is_squeezed: bool) -> float:
    """All pairs by Welch's test, corrected for their number."""
    return t_quantile(freedom, 1 - LEVEL / (k * (k - 1) / 2))


def against_best(k: int, n: int, freedom: float, is_squeezed: bool) -> float:
    """Welch's test of each group against the best, corrected for k - 1 of them, as if the best were not chosen."""
    return t_quantile(freedom, 1 - LEVEL / (k - 1))


class Procedure(NamedTuple):
    """How groups are compared with the best.

    `critical`: standard errors that a group may lie off, of (groups, seeds, freedom, whether squeezed).
    `squeeze`: of variances and freedom, or None. `has_steps`: whether marks are made step by step.
    """

    critical: Callable
    squeeze: Callable | None = None
    has_steps: bool = False

    def values(self, groups: int, seeds: np.ndarray, freedom: np.ndarray, is_squeezed: np.ndarray) -> np.ndarray:
        """`critical` of arrays."""
        values = np.empty(freedom.shape)
        for n, flag in product(np.unique(seeds), (False, True)):
            of_kind = (seeds == n) & (is_squeezed == flag)
            if of_kind.any():
                critical = functools.partial(self.critical, groups, int(n), is_squeezed=flag)
                values[of_kind] = interpolated(critical, freedom[of_kind])
        return values


present = Procedure(tables_value, squeezed, has_steps=True)
before = Procedure(tables_value)
PROCEDURES = {
    "tables": present,
    "one step": present._replace(has_steps=False),
    "not squeezed": present._replace(squeeze=None),
    "T3 or Bonferroni": before,
    "Dunnett T3": Procedure(dunnett_t3),
    "limma, T3": Procedure(dunnett_t3, limma),
    "Games-Howell": Procedure(games_howell),
    "Bonferroni": Procedure(bonferroni),
    "k - 1 tests": Procedure(against_best),
}


def measured(procedure: Procedure, values: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which groups are marked as worse `(T, k)`, which of these wrongly, and whether all intervals hold `(T,)`.

    Args:
        values: tables `(T, k, n)` around 0, NaN where a group has fewer seeds.
        true: means `(k,)`, added to them.
    """
    values = values + true[:, None]
    means = np.nanmean(values, -1)
    best = means.argmax(1)
    counts = np.isfinite(values[0]).sum(-1)
    gaps = gaps_to_best(means, np.nanvar(values, -1, ddof=1), counts, best, procedure.squeeze)
    reach = gaps.half(len(true), procedure.values)
    marked = gaps.difference > reach
    if procedure.has_steps:
        marked = worse_groups(gaps, procedure.values)
    true_gaps = true[best, None] - true
    holds = np.abs(gaps.difference - true_gaps) <= reach + ROUNDING
    return marked, marked & (true_gaps <= 0), holds.all(1)


def line(procedure: Procedure, kind: str, k: int, n: int, tables: int, seed: int = 0) -> tuple[float, float, float]:
    """Error, coverage and power of a procedure."""
    generator = np.random.default_rng([seed, k, n])
    errors = []
    coverages = []
    power = 0.0
    for name, true in true_means(k).items():
        marked, wrong, holds = measured(procedure, simulated(kind, tables, k, n, generator), true)
        errors.append(wrong.any(1).mean())
        coverages.append(holds.mean())
        if name == "lower":
            power = marked[:, true < 0].mean()
    return max(errors), min(coverages), power


def seeds_needed(procedure: Procedure, lower: int, tables: int) -> int:
    """Seeds per group that mark groups one deviation below the best with the power of the tables' plans.

    In tables of `SHOWN` groups with normal values, `lower` of which are worse.
    """
    true = np.where(np.arange(SHOWN) < SHOWN - lower, 0.0, -1.0)

    def is_enough(n: int) -> bool:
        values = simulated("normal", tables, SHOWN, n, np.random.default_rng(n))
        return measured(procedure, values, true)[0][:, true < 0].mean() >= inference.POWER

    return bisect.bisect_left(range(MOST_SEEDS), True, lo=5, key=is_enough)


def simulated_tables(tables: int) -> str:
    """A table each of the highest error and the lowest coverage over the `GROUPS`, and of the power.

    The power is that of `SHOWN` groups. A table has a row for each kind of values and number of seeds. The last table
    has the seeds that one deviation needs.
    """
    rows = {title: [] for title in TITLES}
    for kind, n in product(KINDS, SEEDS):
        figures = []
        for procedure in PROCEDURES.values():
            errors, coverages, powers = zip(*(line(procedure, kind, k, n, tables) for k in GROUPS), strict=True)
            figures.append((max(errors), min(coverages), powers[GROUPS.index(SHOWN)]))
        for title, values in zip(TITLES, zip(*figures, strict=True), strict=True):
            cells = [f"{value:.3f}".removeprefix("0") for value in values]
            rows[title].append(f"| {kind}, {n} | {' | '.join(cells)} |")
        print(f"{kind} values, {n} seeds: done", file=sys.stderr)
    head = " | ".join(["values, seeds", *PROCEDURES])
    parts = []
    for title in TITLES:
        lines = [f"{title}, {tables:,} tables each:", "", f"| {head} |", f"|{'-|' * (len(PROCEDURES) + 1)}"]
        parts.append("\n".join([*lines, *rows[title]]))
    lines = [
        f"Seeds per group that mark one deviation with a power of {inference.POWER:.0%}, {SHOWN} groups:",
        "",
        "| procedure | half are best | one is best |",
        "|-|-|-|",
    ]
    for name in ("tables", "T3 or Bonferroni"):
        needed = [str(seeds_needed(PROCEDURES[name], lower, tables)) for lower in (SHOWN // 2, SHOWN - 1)]
        lines.append(f"| {name} | {' | '.join(needed)} |")
    return "\n\n".join([*parts, "\n".join(lines)])


def around_tables(page: Path) -> tuple[str, str]:
    """The text of a page before and after its tables. Raises UserError if it lacks the lines around them."""
    with parsing(page):
        before, start, text = page.read_text(encoding="utf-8").partition(MARKS[0])
    _, end, after = text.partition(MARKS[1])
    if not end:
        raise UserError(f"--write {page}: the page has no lines {MARKS[0]} and {MARKS[1]}")
    return before + start, end + after


def main(tables: int, page: Path | None) -> None:
    """Print the tables, or write them on their page."""
    if page is None:
        print(simulated_tables(tables))
        return
    above, below = around_tables(page)
    page.write_text(f"{above}\n\n{simulated_tables(tables)}\n\n{below}", encoding="utf-8")


if __name__ == "__main__":
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=whole(1), default=10_000, help="of each kind, number of groups and of seeds")
    parser.add_argument("--write", type=Path, default=None, help="page whose tables are replaced (default: print them)")
    options = parser.parse_args()
    with one_line_errors(Path(__file__).name):
        main(options.tables, options.write)
