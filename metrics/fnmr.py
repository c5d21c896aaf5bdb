"""False non-match rate at a false match rate: verification by one threshold on the distance (ISO/IEC 19795-1)."""

from typing import NamedTuple

import numpy as np

from metrics import _pairs
from metrics._metric import Metric as Base

# pairs that are drawn of each kind that has more
SAMPLE = 10**7
CONFIDENCE = 0.95


class Rate(NamedTuple):
    """A share of pairs and its 95 % interval, which is the share itself where all pairs were compared."""

    value: float
    low: float
    high: float


class Metric(Base):
    """Share of the pairs of one class that do not match at the threshold at
    which a share `fmr` of the pairs of two classes does.

    Each pair of queries counts once. With n pairs of two classes, the threshold is the distance below which the nearest
    floor(fmr n) of them lie. A pair matches if its distance is below the threshold. A pair at the threshold does not
    match, so that at most a share `fmr` match falsely; a collapsed space has 1. NaN if there are no pairs of one
    class, or none of two.

    Up to 10^9 pairs, those of 44,721 queries, all are compared. Beyond, `SAMPLE` pairs of two classes are drawn with a
    fixed seed (and as many of one class, where there are more). `_low` and `_high` are then the ends of the 95 %
    interval of the value over all pairs: for the threshold by order statistics, for the share by Clopper and Pearson,
    each at 97.5 % where both were drawn. This prints one line.
    """

    NAMES = {
        "fnmr@fmr": "share of same-class pairs as far apart as the nearest share fmr of other-class pairs, or farther",
        "fnmr@fmr_low": (
            "lower end of the 95 % interval of fnmr@fmr; of up to 10^9 pairs fnmr@fmr itself, which then is exact"
        ),
        "fnmr@fmr_high": (
            "upper end of the 95 % interval of fnmr@fmr; of up to 10^9 pairs fnmr@fmr itself, which then is exact"
        ),
    }
    HIGHER_IS_BETTER = False
    VARIANTS = ("cosine",)

    def value(self, space) -> float:
        rate = space.remember(f"fnmr {self.parameter!r}", lambda: _rate(space, self.parameter))
        return {"_low": rate.low, "_high": rate.high}.get(self.name.removeprefix("fnmr@fmr"), rate.value)


def operating_point(space, fmr: float) -> tuple[float, float]:
    """The distance below which the nearest share `fmr` of the pairs of two classes lie, and `fnmr@fmr`; NaN if either
    kind has no pairs.
    """
    pairs = _pairs.sampled(space)
    if not pairs.same or not pairs.other:
        return float("nan"), float("nan")
    return float(np.sqrt(thresholds(pairs, (fmr,))[0])), Metric("fnmr@fmr", fmr).value(space)


def _rate(space, fmr: float) -> Rate:
    pairs = _pairs.sampled(space)
    if not pairs.same or not pairs.other:
        return Rate(*[float("nan")] * 3)
    if not pairs.exact:
        rate = sampled(pairs, fmr)
        interval = f"[{rate.low:.4f}, {rate.high:.4f}]"
        counts = f"{SAMPLE:,} of {pairs.other:,} pairs of two classes"
        if pairs.same > SAMPLE:
            counts += f" and {SAMPLE:,} of {pairs.same:,} of one class"
        print(f"fnmr@{fmr:g}: {rate.value:.4f}, 95 % interval {interval}, of {counts}")
        return rate
    limit = thresholds(pairs, (fmr,))[0] - pairs.tolerance
    missed = sum(int((tile.values >= limit).sum()) for tile in pairs.tiles(of_one_class=True)) / pairs.same
    return Rate(missed, missed, missed)


def thresholds(pairs, fmrs: tuple[float, ...]) -> list[float]:
    """The squared distances below which the nearest shares `fmrs` of the pairs of two classes lie; beyond 10^9 pairs,
    of a sample.
    """

    def compute():
        if pairs.exact:
            return pairs.nth_others([n_accepted(fmr, pairs.other) for fmr in fmrs])
        return [float(drawn_negatives(pairs)[n_accepted(fmr, SAMPLE)]) for fmr in fmrs]

    return pairs.space.remember(f"thresholds {fmrs}", compute)


def n_accepted(rate: float, count: int) -> int:
    """How many of `count` pairs may match falsely: floor(rate count), safe from rounding, so that .29 of 100 is 29."""
    return int(rate * count * (1 + 1e-12))


def drawn_negatives(pairs) -> np.ndarray:
    """Squared distances `(SAMPLE,)` of the drawn pairs of two classes, ascending."""
    return pairs.space.remember("sampled others", lambda: pairs.sample(False, SAMPLE))


def sampled(pairs, fmr: float) -> Rate:
    """The share and its interval from drawn pairs."""
    from scipy.special import bdtrik, betaincinv

    drawn_same = pairs.same > SAMPLE
    n_tails = 4 if drawn_same else 2
    tail = (1 - CONFIDENCE) / n_tails
    distances = drawn_negatives(pairs)
    n = SAMPLE
    if drawn_same:
        squared_distances = pairs.sample(True, SAMPLE, seed=1)
    else:
        parts = [tile.values.double().cpu().numpy() for tile in pairs.tiles(of_one_class=True)]
        squared_distances = np.sort(np.concatenate(parts))
    ranks = [
        n_accepted(fmr, n),
        max(int(bdtrik(tail, n, fmr)), 0),
        min(int(np.ceil(bdtrik(1 - tail, n, fmr))) + 1, n - 1),
    ]
    # a far threshold misses less
    n_same = len(squared_distances)
    missed, most_missed, least_missed = n_same - np.searchsorted(squared_distances, distances[ranks] - pairs.tolerance)
    low = least_missed / n_same
    high = most_missed / n_same
    if drawn_same and least_missed:
        low = float(betaincinv(least_missed, n_same - least_missed + 1, tail))
    if drawn_same and most_missed < n_same:
        high = float(betaincinv(most_missed + 1, n_same - most_missed, 1 - tail))
    return Rate(float(missed / n_same), float(low), float(high))
