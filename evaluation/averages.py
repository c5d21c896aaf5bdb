"""Results that are means over several tasks: domains, super-classes, draws of a gallery.

A metric is NaN where it is not defined: one that searches where no query counts, since none has a relevant item in
its gallery; a distance within classes where no class has two images. Means leave such tasks out, and notes say so.
"""

import itertools
import math
import statistics
from dataclasses import replace

import numpy as np

import metrics
from evaluation.task import Task, measure
from runs.names import plain

# domains that a note names
MOST_NAMED = 5


def divided(task: Task) -> list[Task]:
    """The tasks of which a value is the mean: one per domain or super-class of the queries;
    the task itself if it has neither.

    The queries of a domain search the whole gallery, or, with super-classes, that of their own.
    """
    if task.queries.domains is not None:
        column = "domains"
    elif task.queries.parents is not None:
        column = "parents"
    else:
        return [task]
    groups = np.unique(getattr(task.classified, column))
    return [_of_group(task, column, group) for group in groups.tolist()]


def _of_group(task: Task, column: str, group) -> Task:
    """The task of the queries and pooled images whose domain or super-class, as `column` says, is `group`."""
    rows = np.flatnonzero(getattr(task.queries, column) == group)
    # No query is of this group: its images are all in the gallery.
    if not len(rows):
        part = Task(task.queries.take(rows))
    elif task.queries.parents is None:
        part = task.part(rows, np.arange(len(task.searched)))
    else:
        part = task.part(rows, np.flatnonzero(task.searched.parents == task.queries.parents[rows[0]]))
    pool = None
    if task.pool is not None:
        pool = task.pool.take(np.flatnonzero(getattr(task.pool, column) == group))
    name = group if column == "domains" else None
    return replace(part, pool=pool, name=name)


def over_draws(draws, names: list[str], settings: dict, notes: list[str] | None = None) -> dict:
    """Metric -> its mean over the tasks of a draw; `<domain>/<metric>` -> its value there, if these are domains.

    Metrics that search are means over all draws; the others are those of the first. A mean leaves out tasks and draws
    where the metric is NaN, and is NaN where it is so in all of them.

    Args:
        draws: lists of tasks.
        settings: further arguments of `metrics.compute`.
        notes: gets one line for each set of metrics that are NaN, or whose mean leaves something out.
    """
    means_of_draws = []
    values_of_draws = []
    searching = [name for name in names if metrics.searches(name)]
    for tasks in draws:
        names_of_draw = searching if means_of_draws else names
        values_of_tasks = [(task.name, measure(task, names_of_draw, **settings)) for task in tasks]
        means_of_draws.append(_over_tasks(values_of_tasks))
        values_of_draws.append(values_of_tasks)
        if not searching:
            break
    results = {}
    for name in means_of_draws[0]:
        results[name] = mean([means[name] for means in means_of_draws if name in means])
    if notes is not None:
        notes += left_out(values_of_draws)
    return results


def _over_tasks(values_of_tasks: list[tuple[str | None, dict]]) -> dict:
    """Metric -> its mean over the tasks of one draw, and `<domain>/<metric>` -> its value in a domain."""
    means = {}
    for metric in values_of_tasks[0][1]:
        means[metric] = mean([values[metric] for _, values in values_of_tasks])
    for domain, values in values_of_tasks:
        if domain:
            for metric, value in values.items():
                means[f"{domain}/{metric}"] = value
    return means


def mean(values: list):
    """The mean, NaN left out; of arrays too, where a shorter one (a spectrum of few samples) is padded with zeros."""
    if len(values) == 1:
        return values[0]
    if not np.ndim(values[0]):
        defined = list(itertools.filterfalse(math.isnan, values))
        return statistics.fmean(defined) if defined else math.nan
    longest = max(map(len, values))
    return np.mean([np.pad(value, (0, longest - len(value))) for value in values], axis=0)


def left_out(draws: list[list[tuple[str | None, dict]]]) -> list[str]:
    """One line for each set of metrics that are not defined in the same tasks.

    Args:
        draws: of each draw its tasks: (domain or None, metric -> value).
    """
    names_by_reason = {}
    for name in draws[0][0][1]:
        undefined = _undefined(draws, name)
        if undefined:
            names_by_reason.setdefault((undefined, metrics.why_undefined(plain(name))), []).append(name)
    return [f"{', '.join(names)}: {undefined}, {reason}" for (undefined, reason), names in names_by_reason.items()]


def _undefined(draws: list[list[tuple[str | None, dict]]], name: str) -> str:
    """Where a metric is NaN; empty where it is defined everywhere."""
    values = []  # (domain or None, value)
    for tasks in draws:
        values += [(domain, of_task[name]) for domain, of_task in tasks if name in of_task]
    domains = [domain for domain, value in values if not np.ndim(value) and math.isnan(value)]
    if not domains:
        return ""
    if len(domains) == len(values):
        return "NaN"
    averaged = "draws of the gallery" if len(draws[0]) == 1 else "super-classes"
    undefined = ""
    if draws[0][0][0] is not None:
        distinct = sorted(set(map(str, domains)))
        averaged = "domains"
        undefined = ", ".join(distinct[:MOST_NAMED])
        if len(distinct) > MOST_NAMED:
            undefined += " and others"
        undefined = f" (without {undefined})"
    if len(draws) > 1 and len(draws[0]) > 1:
        averaged += " in all draws of the gallery"
    return f"mean over {len(values) - len(domains)} of {len(values)} {averaged}{undefined}; NaN in the others"
