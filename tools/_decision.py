"""What `decide` reports of a threshold: rates with intervals over classes, what one threshold for all classes costs,
and the lines and the JSON file that say so.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import metrics
from datasets import _schemes
from evaluation import file_arrays, promise, thresholds
from evaluation.promise import Promise
from metrics import open_set
from results import bootstrap
from results.bootstrap import Outcomes
from tools._queries import Gallery, Queries, is_verification
from utilities.console import aligned
from utilities.counts import count_of
from utilities.intervals import share_interval

QUANTILES = (0.05, 0.5, 0.95)
MOST_PAIRED = 4000  # images whose pairs opis compares, 8 million: a second
HIGH = 0.1  # true rate of a new class
PROBES = 3  # gallery images whose vectors tell an index of another network


@dataclass(frozen=True)
class Rate:
    """A value and its 95 % interval over classes; None if it has none."""

    value: float
    interval: tuple[float, float] | None = None

    @property
    def cells(self) -> list[str]:
        """Value and interval as text."""
        if np.isnan(self.value):
            return ["–", ""]
        if self.interval is None:
            return [f"{self.value:.4f}", ""]
        return [f"{self.value:.4f}", f"[{self.interval[0]:.4f}, {self.interval[1]:.4f}]"]


@dataclass(frozen=True)
class Decision:
    """A threshold, how it was chosen, and what it does.

    pledge: the promise, or None. n: set-aside units. fewest: images of the smallest of them. rates: name -> Rate.
    limits: the largest T of set-aside classes by themselves, at `QUANTILES`. paired: opis and the images that it
    compares.
    """

    threshold: float
    pledge: Promise | None
    n: int
    fewest: int
    sentence: str
    gallery: Gallery
    rates: dict[str, Rate]
    limits: list[float]
    paired: tuple[float, int]

    @property
    def growth(self) -> float:
        """The factor by which the rate can grow when the set-aside classes are enrolled."""
        return promise.growth(self.gallery.n_units, self.gallery.n_units + self.n)

    @property
    def high_rate(self) -> float | None:
        """Of `--promise whole`: bound on the share of new classes whose true rate is above `HIGH`; None of another."""
        if self.pledge is None or self.pledge.kind != "whole":
            return None
        return promise.rate_of_class(self.pledge.rate, HIGH, self.fewest)


def rates(queries: Queries, threshold: float, flags, verify: bool) -> dict[str, Rate]:
    """The rates at the threshold. `verify`: of pairs."""
    answers = queries.answers
    accepted = answers.distance < threshold
    is_known = answers.known
    hits, of_known = thresholds.by_class((accepted & answers.right)[is_known], answers.label[is_known])
    false_accepts, of_new = thresholds.by_class(accepted[~is_known], answers.label[~is_known])
    if verify:
        (matched,) = _rates(_over_images(hits, of_known))
        (false_matched,) = _rates(_over_images(false_accepts, of_new))
        return {"matched": matched, "false_matched": false_matched}
    named, baks = _rates(_over_images(hits, of_known), _over_classes(hits, of_known))
    fpir, baus = _rates(_over_images(false_accepts, of_new), _over_classes(of_new - false_accepts, of_new))
    decisions = thresholds.decisions(answers, threshold)
    return {
        "named": named,
        "baks": baks,
        "fpir": fpir,
        "baus": baus,
        "root": Rate(decisions.root),
        "normalized_accuracy": Rate(decisions.normalized_accuracy(flags.known_weight)),
        f"dir@{flags.rate:g}": Rate(open_set.dir_at(answers, flags.rate)),
    }


def _over_images(sums: np.ndarray, sizes: np.ndarray) -> Outcomes:
    """Of values whose sums are known for each class `(C,)`: their mean over all images."""
    return Outcomes(sums[None], sizes)


def _over_classes(sums: np.ndarray, sizes: np.ndarray) -> Outcomes:
    """The same: the mean of the classes' means."""
    return Outcomes((sums / sizes)[None], np.ones(len(sizes)))


def _rates(*parts: Outcomes) -> list[Rate]:
    """The means of several outcomes on the same classes, with intervals from the same draws of classes."""
    n_classes = len(parts[0].sizes)
    if not n_classes:
        return [Rate(float("nan")) for _ in parts]
    if n_classes < 2:
        return [Rate(float(part.means[0])) for part in parts]
    rates = []
    for interval in bootstrap.intervals(list(parts)):
        bounds = interval.low, interval.high
        # drawn classes all agree: an interval of width 0
        if interval.value in (0, 1):
            bounds = share_interval(interval.value, n_classes)
        rates.append(Rate(interval.value, (max(bounds[0], 0.0), min(bounds[1], 1.0))))
    return rates


def named_text(rate: Rate) -> str:
    """The share of known images named rightly, such as `78 % [71, 84]`; empty without known images."""
    if np.isnan(rate.value):
        return ""
    text = f"{100 * rate.value:.0f} %"
    if rate.interval is not None:
        text += f" [{100 * rate.interval[0]:.0f}, {100 * rate.interval[1]:.0f}]"
    return text


def class_limits(chosen: Queries, rate: float) -> list[float]:
    """`QUANTILES` over classes of the largest T at which a class's limits rate is at most `rate`."""
    if not len(chosen):
        return []
    of_classes = thresholds.limits(chosen.answers.distance, chosen.images.classes, rate)
    return np.quantile(of_classes, QUANTILES, method="higher").tolist()


def inconsistency(queries: Queries) -> tuple[float, int]:
    """opis of the queries, and of how many images: of whole classes, in the order of `_schemes.mixed`."""
    names, numbers, sizes = np.unique(queries.images.classes, return_inverse=True, return_counts=True)
    order = np.array(_schemes.mixed(names.tolist(), 0), dtype=np.int64)
    fits = np.cumsum(sizes[order]) <= MOST_PAIRED
    places = np.flatnonzero(np.isin(numbers, order[fits]))
    if len(places) < 2:
        return float("nan"), len(places)
    features = queries.spaces[0].queries(queries.rows[places])
    return metrics.compute("opis", features, numbers[places])["opis"], len(places)


HEAD = ["", "value", "95 % over classes"]
TITLES = {
    "named": "known images named rightly",
    "baks": "BAKS, mean over known classes",
    "fpir": "new images that get a name (FPIR)",
    "baus": "BAUS, mean over new classes refused",
    "root": "sqrt(BAKS BAUS)",
    "normalized_accuracy": "normalized accuracy",
    "matched": "pairs of one class that match",
    "false_matched": "pairs of two classes that match",
}


def lines(decision: Decision, flags, n_files: int) -> list[str]:
    """The report, a line each."""
    rows = [HEAD]
    for name, rate in decision.rates.items():
        rows.append([TITLES.get(name, name), *rate.cells])
    text = [*aligned(rows), "", f"gallery: {decision.gallery}"]
    if decision.pledge is not None and decision.pledge.kind != "pairs":
        text.append(
            f"with the {decision.n:,} set-aside {decision.pledge.nouns} enrolled the rate of new ones can be "
            f"{decision.growth:.2f} times as high"
        )
    if decision.high_rate is not None:
        text.append(
            f"at most {promise.percent_above(decision.high_rate)} % of new {decision.pledge.nouns} have a true rate "
            f"above {promise.percent(HIGH)} %, as {count_of(decision.fewest, 'image')} or more of each show"
        )
    if n_files == 1 and decision.limits:
        low, middle, high = (promise.digits_below(value) for value in decision.limits)
        text.append(
            f"the largest T at which a set-aside class keeps {promise.percent(flags.rate)} % by itself: {low} for 5 % "
            f"of them, median {middle}, {high} for 95 %"
        )
    opis, n_images = decision.paired
    if n_files == 1 and not np.isnan(opis):
        text.append(f"opis {opis:.4g} of {count_of(n_images, 'image')}")
    return text


def content(decision: Decision, flags, calibration: dict | None, queries: Queries) -> dict[str, Any]:
    """The JSON of `--out`."""
    pledge = decision.pledge
    opis, n_images = decision.paired
    return {
        "threshold": decision.threshold,
        "threshold_by": flags.threshold_by,
        "promise": None if pledge is None else pledge.kind,
        "a": flags.rate,
        "d": _risk(pledge),
        "n": decision.n,
        "needed": None if pledge is None else pledge.needed,
        "k": None if pledge is None else pledge.k,
        "unit": flags.unit,
        "answer": _answer(flags),
        "gallery": {"classes": decision.gallery.n_classes, "images": len(decision.gallery.classes)},
        "growth": decision.growth,
        "high_rate": None if decision.high_rate is None else {"above": HIGH, "classes": decision.high_rate},
        "sentence": decision.sentence,
        "rates": {name: {"value": rate.value, "interval_95": rate.interval} for name, rate in decision.rates.items()},
        "class_limits": dict(zip(map(str, QUANTILES), decision.limits, strict=False)),
        "opis": {"value": opis, "images": n_images},
        "calibration": calibration,
        "network": _network(decision.gallery, flags, queries),
    }


def _answer(flags) -> str:
    """What the threshold is of; fused answers and pairs have other distances than the nearest image."""
    if is_verification(flags):
        return "pairs"
    return flags.answer if len(flags.files) == 1 else "fused"


def _risk(pledge: Promise | None) -> float | None:
    """d of a promise that has a confidence, without the rounding of 1 - .95."""
    if pledge is None or pledge.kind == "average":
        return None
    return round(pledge.risk, 12)


def _network(gallery: Gallery, flags, queries: Queries) -> dict:
    """What tells whether an index is of the same network: files, dimensions, length, and some gallery images."""
    space = queries.spaces[0]
    probes = []
    if "paths" in gallery.arrays and "reference_features" not in gallery.arrays:
        is_gallery = gallery.arrays.get("is_gallery", np.ones(len(gallery.arrays["paths"]), dtype=bool)).astype(bool)
        for row in np.flatnonzero(is_gallery)[:PROBES].tolist():
            vector = np.asarray(gallery.arrays["features"][row], dtype=np.float64).tolist()
            probes.append({"path": str(gallery.arrays["paths"][row]), "vector": vector})
    return {
        "files": [str(path) for path in flags.files],
        "dimensions": space.dimensions,
        "unit_length": space.normalised() is space,
        "eval_space": file_arrays.written_flags(gallery.arrays).get("eval_space", "euclidean"),
        "probes": probes,
    }
