"""Means of a metric over several spaces: domains, super-classes, draws of a gallery.

A metric is NaN where it is not defined: one that searches where no query counts, since none has a relevant item in
its reference; a distance within classes where no class has two images. Means leave such spaces out, and notes say so.
"""

import math
import statistics

import numpy as np

import metrics
from runs.names import plain

MOST_NAMED = 5  # domains that a note names


def over_draws(draws, names: list[str], about: dict, notes: list[str] | None = None) -> dict:
    """Metric -> its mean over the spaces of a draw; `<domain>/<metric>` -> its value there, where these are of domains.

    Metrics that search are means over all draws; the others are those of the first. A mean leaves out spaces and draws
    where the metric is NaN, and is NaN where it is so in all of them.

    Args:
        draws: lists of spaces.
        about: further arguments of `metrics.compute`.
        notes: gets one line for each set of metrics that are NaN, or whose mean leaves something out.
    """
    of_draws = []
    spaces = []
    searching = [name for name in names if metrics.searches(name)]
    for parts in draws:
        values = [part.compute(searching if of_draws else names, **about) for part in parts]
        means = {name: mean([of_part[name] for of_part in values]) for name in values[0]}
        for part, of_part in zip(parts, values, strict=True):
            if part.domain:
                means |= {f"{part.domain}/{name}": value for name, value in of_part.items()}
        of_draws.append(means)
        spaces.append([(part.domain, of_part) for part, of_part in zip(parts, values, strict=True)])
        if not searching:
            break
    found = {name: mean([means[name] for means in of_draws if name in means]) for name in of_draws[0]}
    if notes is not None:
        notes += left_out(spaces)
    return found


def mean(values: list):
    """The mean, NaN left out; of arrays too, where a shorter one (a spectrum of few samples) is padded with zeros."""
    if len(values) == 1:
        return values[0]
    if not np.ndim(values[0]):
        defined = [value for value in values if not math.isnan(value)]
        return statistics.fmean(defined) if defined else float("nan")
    longest = max(len(value) for value in values)
    return np.mean([np.pad(value, (0, longest - len(value))) for value in values], axis=0)


def left_out(draws: list[list[tuple[str | None, dict]]]) -> list[str]:
    """One line for each set of metrics that are not defined in the same spaces.

    Args:
        draws: of each draw its spaces: (domain or None, metric -> value).
    """
    holders = {}
    for name in draws[0][0][1]:
        undefined = _undefined(draws, name)
        if undefined:
            holders.setdefault((metrics.searches(plain(name)), undefined), []).append(name)
    return [f"{', '.join(names)}: {undefined}, {_reason(searches)}" for (searches, undefined), names in holders.items()]


def _undefined(draws: list[list[tuple[str | None, dict]]], name: str) -> str:
    """Where a metric is NaN, in words; empty where it is defined everywhere."""
    spaces = [(domain, values[name]) for draw in draws for domain, values in draw if name in values]
    domains = [domain for domain, value in spaces if not np.ndim(value) and math.isnan(value)]
    if not domains:
        return ""
    if len(domains) == len(spaces):
        return "NaN"
    kind = "draws of the gallery" if len(draws[0]) == 1 else "super-classes"
    named = ""
    if draws[0][0][0] is not None:
        kind = "domains"
        distinct = sorted(set(map(str, domains)))
        named = f" (without {', '.join(distinct[:MOST_NAMED])}{' and others' if len(distinct) > MOST_NAMED else ''})"
    if len(draws) > 1 and len(draws[0]) > 1:
        kind += " in all draws of the gallery"
    return f"mean over {len(spaces) - len(domains)} of {len(spaces)} {kind}{named}; NaN in the others"


def _reason(searches: bool) -> str:
    """Why a metric is NaN."""
    return "no query counts: none has anything to find" if searches else "it is not defined on these images"
