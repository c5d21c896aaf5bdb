"""The results of Baseline_Runs.sh and Recent_Runs.sh, as Markdown: methods beside the study's best losses."""

import math
from pathlib import Path

import pandas as pd

from experiments.study import settings
from experiments.study.page import markdown
from experiments.study.protocol import Comparison
from results import columns, groups, tables
from results.columns import SELECTED
from results.formats import Cell, Table
from results.tables.notes import text

# Classifiers are trained and judged by cosine similarity.
BY_COSINE = [columns.column("test", "c_recall@1"), columns.column("test", "c_map_r")]


def comparison_part(comparison: Comparison, runs: list) -> str:
    """The results of a comparison's script, as Markdown; if runs are missing, how many are finished."""
    rates = searched_rates(comparison, runs)
    compared_runs = [run for run in runs if run.group in comparison.groups() and run.seed in settings.SEEDS]
    by_name = {group.name: group for group in groups.build(compared_runs)}
    n_expected = len(comparison.groups()) * len(settings.SEEDS)
    n_finished = sum(len(group.seeds) for group in by_name.values())
    if n_finished < n_expected:
        return (
            f"{markdown(rates)}\n\n**Not finished**: {n_finished} of {n_expected} runs. Results are shown only when "
            "all runs are finished."
        )
    compared = [by_name[name] for name in comparison.groups()]
    parts = [rates, tables.single(compared, BY_COSINE, SELECTED, 1)]
    if len(comparison.variants) > 1:
        count = len(comparison.methods)
        pairs = list(zip(compared[:count], compared[count:], strict=True))
        difference = "only in --random_erasing 0.5; the rate was searched without it"
        parts.append(tables.beside_twins(pairs, BY_COSINE, 1, ("plain", "erasing"), difference))
    else:
        parts += costs(comparison)
        parts += [tables.ranks(compared, column) for column in BY_COSINE]
        parts.append(tables.optimism(compared, BY_COSINE, 1))
    return "\n\n".join(map(markdown, parts))


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
