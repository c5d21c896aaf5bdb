"""The results of Baseline_Runs.sh and Recent_Runs.sh, as Markdown: methods beside the study's best losses."""

import math
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.study import settings
from experiments.study.page import markdown, p_text
from experiments.study.protocol import Comparison
from experiments.study.statistics import joint_difference
from results import columns, groups, inference, tables
from results.columns import SELECTED
from results.formats import Cell, Table
from results.groups import Group
from results.tables.notes import head, text

# points of R@1: a method whose last value is more than this above its best before still rises
RISING = 1.0
# Classifiers are trained and judged by cosine similarity.
BY_COSINE = [columns.column("test", "c_recall@1"), columns.column("test", "c_map_r")]


def comparison_part(comparison: Comparison, runs: list) -> str:
    """The results of a comparison's script, as Markdown; if runs are missing, how many are finished."""
    rates = searched_rates(comparison, runs)
    compared, n_finished = _begun(comparison, runs)
    n_expected = len(comparison.groups()) * len(settings.SEEDS)
    if n_finished < n_expected:
        return (
            f"{markdown(rates)}\n\n**Not finished**: {n_finished} of {n_expected} runs. Results are shown only when "
            "all runs are finished."
        )
    parts = [rates, tables.single(compared, BY_COSINE, SELECTED, 1)]
    if len(comparison.variants) > 1:
        count = len(comparison.methods)
        pairs = list(zip(compared[:count], compared[count:], strict=True))
        difference = "only in --random_erasing 0.5; the rate was searched without it"
        parts.append(tables.beside_twins(pairs, BY_COSINE, 1, ("plain", "erasing"), difference))
        parts.append(joint_erasing(pairs))
    else:
        parts += costs(comparison)
        parts += [tables.ranks(compared, column) for column in BY_COSINE]
        parts.append(tables.optimism(compared, BY_COSINE, 1))
    return "\n\n".join(map(markdown, parts))


def joint_erasing(pairs: list[tuple[Group, Group]]) -> Table:
    """The change by erasing over all methods together."""
    table = Table("erasing_joint", "emoji: erasing, all methods together", ["metric", "difference", "p"])
    for column in BY_COSINE:
        estimates = [(plain.estimate(column, SELECTED), twin.estimate(column, SELECTED)) for plain, twin in pairs]
        result = joint_difference(estimates)
        difference = Cell(result.difference, digits=column.digits, sign=True, interval=result.interval)
        table.add([text(head(column)), difference, Cell(result.p, digits=3)])
    table.notes = [
        f"Difference: mean over {len(pairs)} methods; in brackets its 95 % interval, and p, by Welch's t. "
        "They hold for these methods and further seeds."
    ]
    return table


def _begun(comparison: Comparison, runs: list) -> tuple[list[Group], int]:
    """The groups of the last stage that have runs, and how many runs count."""
    compared_runs = [run for run in runs if run.group in comparison.groups() and run.seed in settings.SEEDS]
    by_name = {group.name: group for group in groups.build(compared_runs)}
    begun = [by_name[name] for name in comparison.groups() if name in by_name]
    return begun, sum(len(group.seeds) for group in begun)


def comparison_answer(comparison: Comparison, runs: list) -> str:
    """The results in a few sentences; if runs are missing, that they are."""
    compared, n_finished = _begun(comparison, runs)
    if n_finished < len(comparison.groups()) * len(settings.SEEDS):
        return "- Not finished, so no result is shown."
    lines = [_still_rising(compared)]
    for column in BY_COSINE:
        estimates = [group.estimate(column, SELECTED) for group in compared]
        places = inference.ranked(estimates, column.higher)
        named = {"best": [], "close": [], "": []}
        for group, estimate, place in zip(compared, estimates, places, strict=True):
            named[place.mark].append(f"{group.name.partition('_')[2]} {estimate.mean:.1f}")
        lines.append(
            f"- **{column.title}**: best {', '.join(named['best'])}; not significantly worse: "
            f"{', '.join(named['close']) or 'none'}; significantly worse: {', '.join(named['']) or 'none'}."
        )
    if len(comparison.variants) > 1:
        count = len(comparison.methods)
        rows = joint_erasing(list(zip(compared[:count], compared[count:], strict=True))).rows
        changes = []
        for row in rows:
            low, high = row[1].interval
            changes.append(f"{row[0].text} {row[1].value:+.2f} [{low:+.2f}, {high:+.2f}], {p_text(row[2].value)}")
        lines.append(f"- **Erasing**, all {count} methods together: {'; '.join(changes)}.")
    return "\n".join(lines)


def _still_rising(compared: list[Group]) -> str:
    """How many methods were still improving at the end of the training, on validation classes."""
    names = []
    for group in compared:
        column = columns.column("val", BY_COSINE[0].metric)
        curves = np.array([run.series.get(column.split, column.metric) for run in group.counted]) * column.scale
        mean = curves[:, np.isfinite(curves).all(0)].mean(0)
        if mean[-1] - mean[:-1].max() > RISING:
            names.append(group.name.partition("_")[2])
    return (
        f"- **Not converged**: {len(names)} of {len(compared)} methods still rise at the last epoch: their mean R@1 on "
        f"validation classes is more than {RISING:g} point above its best before. They are {', '.join(names)}."
    )


def searched_rates(comparison: Comparison, runs: list) -> Table:
    """R@1 on validation classes of each rate that the search tried for a method."""
    table = Table(
        f"{comparison.name.lower()}_rates",
        "The search: R@1 on validation classes",
        ["method", "rate", "R@1 (val) [%]"],
    )
    column = columns.column("val", "c_recall@1")
    value_of = {run.group: columns.value(run, column, SELECTED) for run in runs}
    for method in comparison.methods:
        for rate, group in comparison.searched(method).items():
            table.add([text(method.name), text(rate), Cell(100 * value_of.get(group, math.nan), digits=2)])
    return table


def costs(comparison: Comparison) -> list[Table]:
    """Cost of a step of each method, also relative to multi-similarity, measured by `benchmarks/methods.py --costs`.

    No table if its file is missing.
    """
    file = Path(__file__).with_name(f"{comparison.name.lower()}_costs.csv")
    if not file.exists():
        return []
    measured = pd.read_csv(file, index_col="method")
    table = Table(
        f"{comparison.name.lower()}_costs", "Cost of a training step", ["method", "ms", "relative to MS", "MB"]
    )
    for method in comparison.methods:
        milliseconds, megabytes, _ = measured.loc[method.name]
        table.add(
            [
                text(method.name),
                Cell(milliseconds, digits=0),
                Cell(milliseconds / measured.milliseconds["MS"], digits=2),
                Cell(megabytes, digits=0),
            ]
        )
    table.notes = [
        f"Medians of alternating steps on {measured.threads.iloc[0]} threads, without loading. MB: peak memory of a "
        "step without the weights, measured in a separate process."
    ]
    return [table]
