"""The results of Union_Runs.sh, as Markdown: one embedding for four domains, beside one network per domain."""

import itertools

import numpy as np

from experiments.study import settings
from experiments.study.page import markdown
from results import columns
from results.columns import LAST
from results.formats import Cell, Table
from results.tables.notes import text
from utilities.intervals import t_interval

UNION = "Union"  # name of the results of Union_Runs.sh on its page
DIFFERENCES = (
    ("Separate", "Joint"),
    ("Joint", "Specialists"),
    ("Separate", "Specialists"),
    ("Joint", "Features"),
    ("Separate", "Features"),
)


def union_part(runs: list) -> str:
    """The results of Union_Runs.sh, as Markdown; if runs are missing, how many are finished."""
    specialists = [f"Specialist_{name}" for name in settings.DOMAINS.values()]
    names = sorted(f"{UNION}_{name}" for name in {*settings.UNIVERSAL, *specialists})
    expected = [(f"{UNION}_Features", 0), *itertools.product(names, settings.UNION_SEEDS)]
    finished = {(run.group, run.seed): run for run in runs if run.problem is None}
    n_finished = sum(key in finished for key in expected)
    if n_finished < len(expected):
        return (
            f"**Not finished**: {n_finished} of {len(expected)} runs. Results are shown only when all runs are "
            "finished."
        )
    tables = [table for metric in ("e_recall@1", "mmp@5") for table in _tables_of(finished, metric)]
    return "\n\n".join(map(markdown, tables))


def _values(runs: dict, group: str, seeds, metric: str) -> np.ndarray:
    """`(seeds, domains)`: a metric of each domain, of a group's runs."""
    domain_columns = [columns.column("test", f"{domain}/{metric}") for domain in settings.DOMAINS]
    return np.array(
        [[columns.value(runs[f"{UNION}_{group}", seed], column, LAST) for column in domain_columns] for seed in seeds]
    )


def _percent_with_mean(values: np.ndarray) -> np.ndarray:
    """Values `(seeds, domains)` in percent, with the mean over the domains as a further column."""
    return 100 * np.column_stack([values, values.mean(1)])


def _tables_of(runs: dict, metric: str) -> list[Table]:
    """One metric: each way of training on each domain, their differences, and each specialist on each domain."""
    title = columns.column("test", metric).title
    heads = [*settings.DOMAINS.values(), "mean"]
    percent_heads = [f"{name} [%]" for name in heads]
    seeds = settings.UNION_SEEDS
    specialists = [_values(runs, f"Specialist_{name}", seeds, metric) for name in settings.DOMAINS.values()]
    values = {"Specialists": np.stack([values[:, domain] for domain, values in enumerate(specialists)], 1)}
    for name in settings.UNIVERSAL:
        values[name] = _values(runs, name, seeds, metric)
    values["Features"] = _values(runs, "Features", [0], metric)
    percents = {name: _percent_with_mean(array) for name, array in values.items()}

    trainings = Table(
        f"union_{metric}",
        f"{title}: queries of a domain in the index of all",
        ["training", "seeds", *percent_heads],
    )
    for name, percent in percents.items():
        trainings.add([text(name), text(str(len(percent))), *map(_with_interval, percent.T)])
    trainings.notes = [
        "In brackets: 95 % t-interval of the seeds' mean. Specialists: each domain is measured with the network "
        "trained on it. Features: the pretrained network without training, 1,280 dimensions."
    ]
    differences = Table(
        f"union_{metric}_differences",
        f"{title}: differences, paired by seed",
        ["difference", *(f"{name} [points]" for name in heads)],
    )
    for minuend, subtrahend in DIFFERENCES:
        points = percents[minuend] - percents[subtrahend]
        cells = [_with_interval(column, sign=True) for column in points.T]
        differences.add([text(f"{minuend} minus {subtrahend}"), *cells])
    differences.notes = [
        f"In brackets: 95 % t-interval over {len(seeds)} seeds. It covers the variation of training only: all runs "
        "have the same classes and images."
    ]
    across = Table(
        f"union_{metric}_specialists",
        f"{title} of each specialist on each domain",
        ["trained on", *percent_heads],
    )
    for name, array in zip(settings.DOMAINS.values(), specialists, strict=True):
        across.add([text(name), *map(_with_interval, _percent_with_mean(array).T)])
    return [trainings, differences, across]


def _with_interval(values: np.ndarray, sign: bool = False) -> Cell:
    """The mean of values `(seeds,)` and its 95 % t-interval; of a single value none. `sign`: with + or -."""
    estimate = t_interval(values)
    style = "+.2f" if sign else ".2f"
    mean = format(estimate["mean"], style)
    interval = estimate["interval_95"]
    if not interval:
        return text(mean)
    low, high = (format(end, style) for end in interval)
    return text(f"{mean} [{low}, {high}]")
