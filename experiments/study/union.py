"""The results of Union_Runs.sh, as Markdown: one embedding for four domains, beside one network per domain."""

import itertools

import numpy as np

from experiments.study import settings
from experiments.study.page import markdown
from results import columns, inference
from results.columns import LAST
from results.formats import Cell, Table
from results.tables.notes import text
from utilities.intervals import t_interval

# name of the results of Union_Runs.sh on its page
UNION = "Union"
DIFFERENCES = (
    ("Separate", "Joint"),
    ("Joint", "Specialists"),
    ("Separate", "Specialists"),
    ("Joint", "Features"),
    ("Separate", "Features"),
)


def union_part(runs: list) -> str:
    """The results of Union_Runs.sh, as Markdown; if runs are missing, how many are finished."""
    expected = _expected()
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


def _specialists(runs: dict, metric: str) -> list[np.ndarray]:
    """`(seeds, domains)` of the specialist of each domain."""
    return [_values(runs, f"Specialist_{name}", settings.UNION_SEEDS, metric) for name in settings.DOMAINS.values()]


def _percents(runs: dict, metric: str) -> dict[str, np.ndarray]:
    """By way of training, a metric in percent `(seeds, domains + 1)`, the last column the mean over the domains."""
    specialists = _specialists(runs, metric)
    values = {"Specialists": np.stack([values[:, domain] for domain, values in enumerate(specialists)], 1)}
    for name in settings.UNIVERSAL:
        values[name] = _values(runs, name, settings.UNION_SEEDS, metric)
    values["Features"] = _values(runs, "Features", [0], metric)
    return {name: _percent_with_mean(array) for name, array in values.items()}


def union_answer(runs: list) -> str:
    """The differences in R@1 in a few sentences; if runs are missing, that they are."""
    finished = {(run.group, run.seed): run for run in runs if run.problem is None}
    if not all(key in finished for key in _expected()):
        return "- Not finished, so no result is shown."
    percents = _percents(finished, "e_recall@1")
    heads = [*settings.DOMAINS.values(), "mean"]
    lines = []
    for minuend, subtrahend in DIFFERENCES:
        parts = {"better": [], "worse": [], "not significant": []}
        for name, first, second in zip(heads, percents[minuend].T, percents[subtrahend].T, strict=True):
            middle, low, high = difference(first, second)
            verdict = "not significant"
            if low > 0:
                verdict = "better"
            elif high < 0:
                verdict = "worse"
            parts[verdict].append(f"{name} {middle:+.1f} [{low:+.1f}, {high:+.1f}]")
        listed = [f"{verdict}: {', '.join(names)}" for verdict, names in parts.items() if names]
        dimensions = " (64 against 1,280 dimensions)" if subtrahend == "Features" else ""
        lines.append(f"- **{minuend} minus {subtrahend}**{dimensions}, R@1 in points: {'; '.join(listed)}.")
    return "\n".join(lines)


def _expected() -> list[tuple[str, int]]:
    """Group and seed of each run."""
    specialists = [f"Specialist_{name}" for name in settings.DOMAINS.values()]
    names = sorted(f"{UNION}_{name}" for name in {*settings.UNIVERSAL, *specialists})
    return [(f"{UNION}_Features", 0), *itertools.product(names, settings.UNION_SEEDS)]


def _tables_of(runs: dict, metric: str) -> list[Table]:
    """One metric: each way of training on each domain, their differences, and each specialist on each domain."""
    title = columns.column("test", metric).title
    heads = [*settings.DOMAINS.values(), "mean"]
    percent_heads = [f"{name} [%]" for name in heads]
    seeds = settings.UNION_SEEDS
    specialists = _specialists(runs, metric)
    percents = _percents(runs, metric)

    trainings = Table(
        f"union_{metric}",
        f"{title}: queries of a domain in the index of all",
        ["training", "seeds", *percent_heads],
    )
    for name, percent in percents.items():
        trainings.add([text(name), text(str(len(percent))), *map(_with_interval, percent.T)])
    trainings.notes = [
        "In brackets: 95 % t-interval of the seeds' mean. Specialists: each domain is measured with the network "
        "trained on it. Features: the pretrained network without training, 1,280 dimensions; the trained embeddings "
        "have 64."
    ]
    differences = Table(
        f"union_{metric}_differences",
        f"{title}: differences",
        ["difference", *(f"{name} [points]" for name in heads)],
    )
    for minuend, subtrahend in DIFFERENCES:
        domain_pairs = zip(percents[minuend].T, percents[subtrahend].T, strict=True)
        differences.add([text(f"{minuend} minus {subtrahend}"), *(_difference(*pair) for pair in domain_pairs)])
    differences.notes = [
        f"In brackets: 95 % interval of Welch's t over {len(seeds)} seeds each, as the seeds of two trainings are "
        "independent; from the features, which have none, Student's t. Not corrected for the number of differences. "
        "The interval covers the variation of training only: all runs have the same classes and images. The features "
        "have 1,280 dimensions, the trained embeddings 64."
    ]
    across = Table(
        f"union_{metric}_specialists",
        f"{title} of each specialist on each domain",
        ["trained on", *percent_heads],
    )
    for name, array in zip(settings.DOMAINS.values(), specialists, strict=True):
        across.add([text(name), *map(_with_interval, _percent_with_mean(array).T)])
    return [trainings, differences, across]


def difference(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """Difference of two means over seeds and its 95 % interval: Welch's t, Student's if `second` is a single value."""
    if len(second) == 1:
        estimate = t_interval(first - second)
        return (estimate["mean"], *estimate["interval_95"])
    ours = inference.estimate(first)
    theirs = inference.estimate(second)
    return (ours.mean - theirs.mean, *inference.difference(ours, theirs))


def _difference(first: np.ndarray, second: np.ndarray) -> Cell:
    middle, low, high = difference(first, second)
    return text(f"{middle:+.2f} [{low:+.2f}, {high:+.2f}]")


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
