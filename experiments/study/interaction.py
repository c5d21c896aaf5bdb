"""Whether the differences between losses change with the split of the classes by more than seeds alone.

`interaction` is the F test of loss x split in a balanced table and an upper bound of its deviation; `tau_of_seeds` the
Kendall's tau that two splits would have if only the seeds differed. Both compare means over the same number of seeds.
"""

import math
from typing import NamedTuple

import numpy as np

from experiments.study.page import markdown
from results import splits
from results.columns import SELECTED, Column
from results.formats import Cell, Table
from results.tables.notes import head, text

# confidence of the upper bound
BOUND = 0.95
DRAWS = 2000


class Interaction(NamedTuple):
    """F of loss x split and its p; with 95 % confidence the deviation of loss x split is below `bound`."""

    f: float
    p: float
    bound: float


def interaction(values: np.ndarray) -> Interaction:
    """The interaction in a balanced table `(losses, splits, seeds)` of normal values with one deviation of seeds.

    The mean square of loss x split over that of seeds is 1 + seeds * variance of loss x split / variance of seeds times
    a value of F (Searle, Casella & McCulloch, Variance Components, 1992). NaN if the seeds do not differ.
    """
    from scipy import stats

    n_losses, n_splits, n_seeds = values.shape
    cells = values.mean(2)
    residuals = cells - cells.mean(1, keepdims=True) - cells.mean(0) + cells.mean()
    freedom = (n_losses - 1) * (n_splits - 1)
    seed_freedom = n_losses * n_splits * (n_seeds - 1)
    seed_square = ((values - cells[..., None]) ** 2).sum() / seed_freedom
    if not seed_square:
        return Interaction(math.nan, math.nan, math.nan)
    f = n_seeds * (residuals**2).sum() / freedom / seed_square
    largest = f / stats.f.ppf(1 - BOUND, freedom, seed_freedom) - 1
    bound = math.sqrt(max(0.0, seed_square / n_seeds * largest))
    return Interaction(float(f), float(stats.f.sf(f, freedom, seed_freedom)), bound)


def tau_of_seeds(values: np.ndarray, rng: np.random.Generator) -> float:
    """Mean Kendall's tau of two splits on which the losses `(losses, splits, seeds)` differ in their seeds only.

    Each loss has its mean over all splits. The seeds' deviations from the mean of their split are drawn with
    replacement, scaled to the variance of seeds.
    """
    n_losses, n_splits, n_seeds = values.shape
    deviations = (values - values.mean(2, keepdims=True)) * math.sqrt(n_seeds / (n_seeds - 1))
    residuals = deviations.reshape(n_losses, -1)
    places = rng.integers(0, n_splits * n_seeds, (DRAWS, 2, n_losses, n_seeds))
    noise = residuals[np.arange(n_losses)[:, None], places].mean(-1)  # (draws, 2, losses)
    means = values.mean((1, 2)) + noise
    return float(np.mean([splits.taus(pair.T)[0, 1] for pair in means]))


def is_balanced(grid: splits.Splits, table_columns: list[Column]) -> bool:
    """Whether each loss has the same number of seeds on each split, two or more."""
    counts = set()
    for column in table_columns:
        for row in grid.values(column, SELECTED):
            counts |= set(map(len, row))
    return len(counts) == 1 and min(counts) > 1


def beyond_seeds(grid: splits.Splits, table_columns: list[Column]) -> Table:
    """F test of loss x split, its bound, and tau between splits and by seeds alone, of a balanced grid."""
    table = Table(
        f"{grid.dataset}_splits_interaction",
        f"{grid.dataset}: does another split change more than other seeds?",
        [
            "metric",
            "F of loss x split",
            "p",
            "loss x split is below [points]",
            "tau of two splits",
            "tau by seeds alone",
        ],
    )
    for column in table_columns:
        values = np.array(grid.values(column, SELECTED))
        result = interaction(values)
        table.add(
            [
                text(head(column)),
                Cell(result.f, digits=2),
                Cell(result.p, digits=2),
                Cell(result.bound, digits=2),
                Cell(splits.agreement(list(values)).mean, digits=2),
                Cell(tau_of_seeds(values, np.random.default_rng(0)), digits=2),
            ]
        )
    table.notes = [
        "F: mean square of loss x split over that of seeds. Below: one-sided 95 % bound of the deviation of loss x "
        "split, for normal values with equal deviations of seeds. Tau: Kendall's tau of the losses' means over the "
        "seeds of a split; by seeds alone: two splits on which each loss has its mean over all splits, and other "
        "seeds."
    ]
    return table


def answer(grid: splits.Splits, table_columns: list[Column], name: str) -> str:
    """The result on one data set in a few sentences."""
    if not is_balanced(grid, table_columns):
        return f"- **{name}**: losses or splits differ in their number of seeds, so no result is shown."
    rows = beyond_seeds(grid, table_columns).rows
    titles = [column.title for column in table_columns]
    p_values = [row[2].value for row in rows]
    ps = _listed(titles, p_values, "p {:.2f}")
    verdict = f"no significant interaction of loss and split ({ps})"
    if min(p_values) < 1 - BOUND:
        verdict = f"an interaction of loss and split ({ps})"
    bounds = _listed(titles, [row[3].value for row in rows], "{:.2f} points")
    measured = _listed(titles, [row[4].value for row in rows], "{:.2f}")
    expected = _listed(titles, [row[5].value for row in rows], "{:.2f}")
    return (
        f"- **{name}**: {verdict}. With 95 % confidence its deviation is below {bounds}. Kendall's tau between two "
        f"splits: {measured}; if only the seeds differed: {expected}."
    )


def _listed(titles: list[str], values: list[float], style: str) -> str:
    """`R@1 0.88, MAP@R 0.90`."""
    return ", ".join(f"{title} {style.format(value)}" for title, value in zip(titles, values, strict=True))


def interaction_part(grid: splits.Splits, table_columns: list[Column]) -> str:
    """The table as Markdown; a sentence if the grid is not balanced."""
    if not is_balanced(grid, table_columns):
        return "No test of loss x split: losses or splits differ in their number of seeds, or have a single one."
    return markdown(beyond_seeds(grid, table_columns))
