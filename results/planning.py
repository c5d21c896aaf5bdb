"""How much evidence a claim needs, from variance components: `Result_Evaluations.py --plan 1 --plan_components FILE`.

A difference of two methods, in points, is that of one draw of training classes and one of test classes. With K draws,
J seeds per method and n test classes the mean difference has the variance

    V = [T + S / J + (E + TE + r / J) n_0 / n] / K

with the components (points squared, those in brackets at n_0 test classes): T of the training classes, E of the test
classes, TE of both together, S of the seeds, r of seeds and test classes together. A t-test over the K differences has
K - 1 degrees of freedom. experiments/objects/ estimates the components of the shipped file (docs/evidence.md).
"""

import argparse
import bisect
import math
from dataclasses import dataclass
from pathlib import Path

from results import columns
from results.inference import ALPHA, POWER
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.intervals import t_power, t_quantile, t_shift
from utilities.numbers import Range, number, whole
from utilities.reading import read_records

COMPONENTS = ("T", "E", "TE", "S", "r")
# components that fall with the number of test classes
OVER_CLASSES = ("E", "TE", "r")
OVER_SEEDS = ("S", "r")
HEAD = ("metric", "component", "variance", "classes", "source")
# name of the shipped file
SHIPPED = "objects"
SHIPPED_FILE = Path(__file__).with_name("objects_components.csv")
MOST_DRAWS = 10**6


@dataclass(frozen=True)
class Design:
    """Numbers of test classes, of seeds per method, of draws of the classes."""

    classes: int = 100
    seeds: int = 5
    draws: int = 1


@dataclass(frozen=True)
class Components:
    """The variance components of a difference in one metric.

    variances: component -> points squared. classes: component -> number of test classes at which it was estimated.
    source: where they come from.
    """

    metric: str
    variances: dict[str, float]
    classes: dict[str, int]
    source: str

    def variance(self, design: Design) -> float:
        """V of the mean difference, in points squared."""
        total = 0.0
        for name, variance in self.variances.items():
            if name in OVER_CLASSES:
                variance *= self.classes[name] / design.classes
            if name in OVER_SEEDS:
                variance /= design.seeds
            total += variance
        return total / design.draws

    def error(self, design: Design) -> float:
        """Standard error of the mean difference, in points."""
        return math.sqrt(self.variance(design))

    def draws_needed(self, points: float, design: Design) -> int | None:
        """The least number of draws whose t-test shows a true difference with a power of `POWER`; None: too many."""
        deviation = self.error(Design(design.classes, design.seeds))

        def is_enough(draws: int) -> bool:
            return deviation == 0 or t_power(points * math.sqrt(draws) / deviation, draws - 1, ALPHA) >= POWER

        if not is_enough(MOST_DRAWS):
            return None
        return bisect.bisect_left(range(MOST_DRAWS + 1), True, lo=2, key=is_enough)

    def least_shown(self, design: Design) -> float:
        """The true difference in points that is shown with a power of `POWER`.

        A single draw has no deviation of its own: it is judged by these components, as if they were exact.
        """
        freedom = math.inf if design.draws == 1 else design.draws - 1
        bound = t_quantile(freedom, 1 - ALPHA)
        if design.draws == 1:
            return self.error(design) * (bound + t_quantile(math.inf, 2 * POWER - 1))
        return self.error(design) * t_shift(POWER, freedom, bound)

    def wrong_sign(self, points: float, design: Design) -> float:
        """Chance that the mean difference has the opposite sign of a true difference."""
        error = self.error(design)
        return 0.5 * math.erfc(points / error / math.sqrt(2)) if error else 0.0


def read(name: str, metrics: list[str] = ()) -> list[Components]:
    """The components of a file, by metric.

    Args:
        name: a CSV file with the columns `HEAD`, or `SHIPPED`.
        metrics: those that are needed; without any all that the file has.

    Raises UserError for a missing metric or component and for a negative variance, Unreadable for no CSV file.
    """
    path = SHIPPED_FILE if name == SHIPPED else Path(name)
    flag = f"--plan_components {name}"
    if name == SHIPPED and not path.exists():
        raise UserError(f"{flag}: this study is not finished (docs/evidence.md): name a CSV file of components")
    head, rows = read_records(path)
    for column in HEAD:
        if column not in head:
            raise UserError(f"{flag}: the file has no column {column!r}; it needs {', '.join(HEAD)}")
    by_metric = {}
    for line, row in enumerate(rows, start=2):
        line_name = f"{flag}, line {line}"
        _add(by_metric, row, line_name)
    if not by_metric:
        raise UserError(f"{flag}: the file has no rows")
    for metric in metrics:
        if metric not in by_metric:
            raise UserError(f"{flag}: no components of the metric {metric}; the file has {', '.join(by_metric)}")
    components = [of_metric for of_metric in by_metric.values() if not metrics or of_metric.metric in metrics]
    for of_metric in components:
        absent = [name for name in COMPONENTS if name not in of_metric.variances]
        if absent:
            raise UserError(f"{flag}: {of_metric.metric} lacks the component {', '.join(absent)}")
    return components


def _add(by_metric: dict[str, Components], row: dict[str, str], line_name: str) -> None:
    """Add a row of the file to the components of its metric; `line_name`: flag and line, for messages."""
    metric = row["metric"].strip()
    component = row["component"].strip()
    if not metric:
        raise UserError(f"{line_name}: the metric is missing")
    if component not in COMPONENTS:
        raise UserError(f"{line_name}: component {component!r} is none of {', '.join(COMPONENTS)}")
    of_metric = by_metric.setdefault(metric, Components(metric, {}, {}, row["source"].strip()))
    if component in of_metric.variances:
        raise UserError(f"{line_name}: the component {component} of {metric} is there twice")
    if row["source"].strip() != of_metric.source:
        raise UserError(f"{line_name}: {metric} has components of several sources")
    of_metric.variances[component] = _number(row["variance"], number(0), f"{line_name}: variance")
    of_metric.classes[component] = _number(row["classes"], whole(1), f"{line_name}: classes")


def _number(text: str, convert: Range, line_name: str):
    """A number of the file. Raises UserError."""
    try:
        return convert(text.strip())
    except argparse.ArgumentTypeError as error:
        raise UserError(f"{line_name}: {error}") from error


def sentences(components: list[Components], points: float, design: Design) -> list[str]:
    """What the components say about a true difference of `points`: a line per metric, then where they come from."""
    draws = count_of(design.draws, "draw")
    noun = "point" if points == 1 else "points"
    lines = [
        f"plan for a difference of {points:g} {noun} between two methods: {design.classes:,} test classes, "
        f"{count_of(design.seeds, 'seed')} per method, {draws} of training and test classes"
    ]
    for of_metric in components:
        needed = of_metric.draws_needed(points, design)
        needed_text = f"more than {MOST_DRAWS:,} draws" if needed is None else count_of(needed, "draw")
        lines.append(
            f"{columns.title(of_metric.metric)}: {needed_text} needed ({POWER:.0%} power); {draws} can show "
            f"{of_metric.least_shown(design):.2f} points; chance of a wrong sign with {draws}: "
            f"{of_metric.wrong_sign(points, design):.1%}"
        )
    if design.draws == 1:
        lines.append("one draw cannot estimate its own deviation: what it can show is by these components alone")
    sources = dict.fromkeys(of_metric.source for of_metric in components)
    lines.append(f"components: {'; '.join(sources)}: yours may differ")
    return lines
