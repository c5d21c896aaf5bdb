"""Thresholds with a promise for classes never seen: how often will an image of a new class be accepted?

n classes are set aside: they are used neither in training nor to choose an epoch or a flag, and are not in the gallery.
They and a future class are exchangeable draws of classes. Images of one class fail together, so a promise counts
classes, never images. An answer is accepted if its distance is below the threshold T.

confident: of one image per class, T is the k-th smallest distance, k the largest number with
    P(Bin(n, a) <= k - 1) <= d. Then with confidence 1 - d a share of at most a of the images of new classes is
    accepted (training-conditional split conformal prediction, arXiv 1209.2673, with one image per group, 1809.07441).
average: T is the largest observed distance t with (S(t) + 1) / (n + 1) <= a, where S(t) is the sum over the classes of
    the share of their images nearer than t. The share of images of new classes that is accepted is at most a on average
    over repetitions (conformal risk control, arXiv 2208.02814).
whole: as `confident`, with the smallest distance of each class: at most a share a of new classes has any image
    accepted.
pairs: as `confident`, of one image pair from each of floor(n/2) pairs of classes: of verification.
"""

import hashlib
import math
import os
from dataclasses import dataclass

import numpy as np

from utilities.counts import count_of

PROMISES = ("confident", "average", "whole", "pairs")
# relative rounding error of a bound that is met exactly
SAFE = 1e-12


def rank(n: int, rate: float, risk: float) -> int:
    """k, the largest number with P(Bin(n, rate) <= k - 1) <= risk; 0 if n is too small for any."""
    from scipy.special import bdtr

    chances = bdtr(np.arange(n), n, rate)
    return int((chances <= risk * (1 + SAFE)).sum())


def needed(promise: str, rate: float, risk: float) -> int:
    """The least number of classes that can give a promise."""
    if promise == "average":
        return max(math.ceil((1 - SAFE) / rate) - 1, 1)
    n = max(math.ceil(math.log(risk) / math.log1p(-rate) * (1 - SAFE)), 1)
    return 2 * n if promise == "pairs" else n


def reachable(promise: str, n: int, risk: float) -> float:
    """The least rate that n classes can promise; 1 if they can promise nothing."""
    if promise == "average":
        return 1 / (n + 1)
    draws = n // 2 if promise == "pairs" else n
    return -math.expm1(math.log(risk) / draws) if draws else 1.0


def growth(n_before: int, n_after: int) -> float:
    """How many times as high the rate can be, averaged over galleries of `n_after` classes, as in one of `n_before`."""
    return max(n_after / n_before, 1.0)


def rate_of_class(share: float, rate: float, images: int) -> float:
    """Bound on the chance that a new class's true rate is above `rate`, from `whole` with `share` on `images` each."""
    return min(share / -math.expm1(images * math.log1p(-rate)), 1.0)


def kth_smallest(distances: np.ndarray, rate: float, risk: float) -> float | None:
    """The threshold from independent distances `(n,)`; None if they are too few."""
    k = rank(len(distances), rate, risk)
    if not k:
        return None
    return float(np.partition(distances, k - 1)[k - 1])


def on_average(distances: np.ndarray, classes: np.ndarray, rate: float) -> float | None:
    """The threshold of `average` from distances `(N,)` of images of `classes` `(N,)`; None if these are too few."""
    numbers = np.unique(classes, return_inverse=True)[1]
    sizes = np.bincount(numbers)
    order = np.argsort(distances, kind="stable")
    # shares[i]: sum over classes of the share of images among the i nearest ones
    shares = np.concatenate([[0.0], np.cumsum(1 / sizes[numbers[order]])])
    values = distances[order]
    n_nearer = np.searchsorted(values, values, "left")
    fits = (shares[n_nearer] + 1) / (len(sizes) + 1) <= rate * (1 + SAFE)
    return float(values[fits][-1]) if fits.any() else None


def smallest_by_class(distances: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """`(n,)` the smallest distance of each class, classes ascending."""
    numbers = np.unique(classes, return_inverse=True)[1]
    smallest = np.full(int(numbers.max()) + 1, np.inf)
    np.minimum.at(smallest, numbers, distances)
    return smallest


def digest(text: str) -> bytes:
    """SHA-256 of a text; of a file name that is not Unicode, of its bytes."""
    return hashlib.sha256(os.fsencode(text)).digest()


def one_per_unit(units, classes, files, bursts=None) -> np.ndarray:
    """Rows `(n,)` of one image for each unit, units ascending.

    It is the first by SHA-256 of class/file; with bursts, of the burst that is first by SHA-256 of class/burst. There
    is no seed, so that nobody can search for the choice with the best threshold.

    Args:
        units: `(N,)` what counts as one draw: classes, or super-classes, or classes that share a group.
        classes, files, bursts: `(N,)` names of each image's class, file and burst; a burst "" is of one image.
    """
    best = {}
    for row, (unit, class_name, file) in enumerate(zip(units, classes, files, strict=True)):
        of_image = digest(f"{class_name}/{file}")
        of_burst = of_image
        if bursts is not None and bursts[row]:
            of_burst = digest(f"{class_name}/{bursts[row]}")
        key = of_burst, of_image, row
        if unit not in best or key < best[unit]:
            best[unit] = key
    return np.array([best[unit][-1] for unit in sorted(best)], dtype=np.int64)


def disjoint_pairs(names: list) -> np.ndarray:
    """Places `(floor(n/2), 2)` of disjoint pairs of n units, in the order of SHA-256 of their names."""
    order = sorted(range(len(names)), key=lambda place: digest(str(names[place])))
    return np.array(order[: len(order) // 2 * 2], dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class Promise:
    """What is promised and from how much.

    kind: one of `PROMISES`. rate: a, the share of images (`whole`: of classes; `pairs`: of image pairs).
    risk: d, one less the confidence; not used by `average`. n: units that are set aside. noun: what a unit is.
    """

    kind: str
    rate: float
    risk: float
    n: int
    noun: str = "individual"

    @property
    def nouns(self) -> str:
        """The plural of the noun."""
        return f"{self.noun}es" if self.noun.endswith("s") else f"{self.noun}s"

    @property
    def needed(self) -> int:
        """The least n."""
        return needed(self.kind, self.rate, self.risk)

    @property
    def k(self) -> int | None:
        """Which of the smallest distances is the threshold; None for `average`."""
        if self.kind == "average":
            return None
        draws = self.n // 2 if self.kind == "pairs" else self.n
        return rank(draws, self.rate, self.risk)

    def sentence(self, threshold: float, gallery_classes: int, gallery_images: int, named: str) -> str:
        """The promise in words.

        Args:
            gallery_classes, gallery_images: of the gallery; not used by `pairs`.
            named: the share of images of known classes that are named rightly, such as "78 % [71, 84]"; may be empty.
        """
        bound = f"at most {percent(self.rate)} %"
        with_confidence = f"With {percent(1 - self.risk)} % confidence {bound}"
        gallery = f"{count_of(gallery_classes, self.noun, self.nouns)}, {count_of(gallery_images, 'image')}"
        of_new = f"{self.nouns} not in this gallery ({gallery})"
        statements = {
            "confident": f"{with_confidence} of images of {of_new} get a name",
            "average": f"On average over repetitions {bound} of images of {of_new} get a name",
            "whole": f"{with_confidence} of {of_new} have any image that gets a name, of as many images as these have",
            "pairs": f"{with_confidence} of image pairs of two new {self.nouns} match",
        }
        farther = "farther is different" if self.kind == "pairs" else "farther is new"
        text = (
            f"T = {digits_below(threshold)} (distance; {farther}). {statements[self.kind]}; from {self.n:,} set aside."
        )
        if named:
            text += f" {named} of images of known {self.nouns} are named rightly."
        return text

    def impossible(self) -> str:
        """Why n units cannot give this promise, the number needed, and what they can give."""
        with_confidence = f"{percent(self.rate)} % with {percent(1 - self.risk)} % confidence"
        average = f"{percent(self.rate)} % on average over repetitions"
        average_needed = needed("average", self.rate, self.risk)
        least = reachable(self.kind, self.n, self.risk)
        verb = "gives" if self.n == 1 else "give"
        offer = f"{self.n:,} {verb} {percent_above(least)} %" if least < 1 else f"{self.n:,} {verb} nothing"
        start = f"Impossible with {count_of(self.n, self.noun, self.nouns)}:"
        if self.kind == "average":
            return f"{start} {average} needs {average_needed:,}. {offer}."
        start += f" {with_confidence} needs {self.needed:,}."
        if self.kind != "confident":
            return f"{start} {offer}."
        if self.n >= average_needed:
            return f"{start} {offer}, or {average} (needs {average_needed:,})."
        return f"{start} {offer}; {average} needs {average_needed:,}."


def digits_below(threshold: float) -> str:
    """A threshold with four digits, rounded down: a larger one would accept more than is promised."""
    if not threshold or math.isinf(threshold):
        return f"{threshold:g}"
    scale = 10.0 ** (3 - math.floor(math.log10(threshold)))
    return f"{math.floor(threshold * scale * (1 + SAFE)) / scale:.4g}"


def percent(share: float) -> str:
    """A share in per cent, as it was written."""
    return f"{100 * share:.10g}"


def percent_above(share: float) -> str:
    """A share in per cent with two digits, rounded up: a smaller one would be more than can be promised."""
    value = 100 * share
    digits = max(1 - math.floor(math.log10(value)), 0)
    scale = 10**digits
    return f"{math.ceil(value * scale * (1 - SAFE)) / scale:.{digits}f}"
