"""The table of the miners: what each finds, as loops in float64.

That is a list of outcomes, or groups of outcomes that are drawn: the number of an anchor's draws in a group is known,
and each outcome's probability. Outcomes: (a, p, n) of triplets; (0, a, p) and (1, a, n) of pairs; (a, positives,
negatives) of sets.
"""

import dataclasses
import functools
import itertools
import math
from typing import NamedTuple

import numpy as np
import torch

from tests.kit.mining import as_lists, slow_distances
from utilities.tuples import Pairs, Sets


@dataclasses.dataclass
class Scene:
    """A batch and its reference; `own_rows`: the row of each anchor's own image in the reference, -1 if missing."""

    x: torch.Tensor
    labels: list
    r: torch.Tensor
    reference_labels: list
    own_rows: list

    def __post_init__(self):
        self.positives = []
        self.negatives = []
        for label, own_row in zip(self.labels, self.own_rows, strict=True):
            rows = [row for row in range(len(self.reference_labels)) if row != own_row]
            self.positives.append([row for row in rows if self.reference_labels[row] == label])
            self.negatives.append([row for row in rows if self.reference_labels[row] != label])
        self.anchors = [a for a in range(len(self.labels)) if self.positives[a] and self.negatives[a]]

    @functools.cached_property
    def d(self):
        return slow_distances(self.x.numpy(), self.r.numpy())

    @functools.cached_property
    def unit(self):
        return slow_distances(*self.units)

    @functools.cached_property
    def units(self):
        return [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (self.x.numpy(), self.r.numpy())]


class Group(NamedTuple):
    """Outcomes with their probabilities, of which so many are drawn."""

    table: dict
    draws: int


def outcomes(mined) -> list[tuple]:
    if isinstance(mined, Sets):
        sets = []
        for a, positives, negatives in zip(mined.anchors.tolist(), mined.positives, mined.negatives, strict=True):
            rows = tuple(positives.nonzero().flatten().tolist()) if positives.ndim else int(positives)
            sets.append((a, rows, tuple(negatives.nonzero().flatten().tolist())))
        return sets
    if isinstance(mined, Pairs):
        return as_pairs(as_lists(*mined[:2]), as_lists(*mined[2:]))
    return as_lists(*mined)


def as_pairs(positives, negatives):
    return [(0, *pair) for pair in positives] + [(1, *pair) for pair in negatives]


def all_triplets(s):
    return [(a, p, n) for a in s.anchors for p in s.positives[a] for n in s.negatives[a]]


def all_pairs(s):
    positives = [(a, row) for a, rows in enumerate(s.positives) for row in rows]
    negatives = [(a, row) for a, rows in enumerate(s.negatives) for row in rows]
    return as_pairs(positives, negatives)


def kept_triplets(rule):
    return lambda s: [triplet for triplet in all_triplets(s) if rule(s, *triplet)]


def kept_pairs(positive, negative):
    rules = (positive, negative)
    return lambda s: [(kind, a, j) for kind, a, j in all_pairs(s) if rules[kind](s, a, j)]


def gap(s, a, p, n):
    return s.d[a, n] - s.d[a, p]


def wide_angle(s, a, p, n):
    u, v = s.units
    return np.linalg.norm(u[a] - v[p]) / (2 * np.linalg.norm(v[n] - (u[a] + v[p]) / 2)) > np.tan(np.radians(20))


def product(s, a, j):
    return float(s.x[a] @ s.r[j])


def sorted_rows(s, a, rows):
    """The rows, the nearest to the anchor first."""
    return sorted(rows, key=lambda row: s.d[a, row])


def batchhard(s):
    return [(a, sorted_rows(s, a, s.positives[a])[-1], sorted_rows(s, a, s.negatives[a])[0]) for a in s.anchors]


def hardest_half(s):
    positives = sorted((pair for pair in all_pairs(s) if pair[0] == 0), key=lambda pair: -s.d[pair[1:]])
    negatives = sorted((pair for pair in all_pairs(s) if pair[0] == 1), key=lambda pair: s.d[pair[1:]])
    return positives[: math.ceil(len(positives) / 2)] + negatives[: math.ceil(len(negatives) / 2)]


def easy_positive_semihard_negative(s):
    positives = []
    negatives = []
    for a in s.anchors:
        p = sorted_rows(s, a, s.positives[a])[0]
        farther = [n for n in sorted_rows(s, a, s.negatives[a]) if s.d[a, n] > s.d[a, p]]
        if farther:
            positives.append((a, p))
            negatives.append((a, farther[0]))
    return as_pairs(positives, negatives)


# draws


def alike(*choices):
    """Those of the first choice that is not empty."""
    return dict.fromkeys(next(filter(None, choices)), 1.0)


def any_positive(s, a):
    return alike(s.positives[a])


def one_each(of_negatives, of_positives=any_positive):
    """One triplet an anchor: by the weights of its positives, and of its negatives beside a positive."""

    def rule(s):
        groups = []
        for a in s.anchors:
            near = of_positives(s, a)
            table = {}
            for p, weight in near.items():
                far = of_negatives(s, a, p)
                for n, negative_weight in far.items():
                    table[a, p, n] = weight / sum(near.values()) * negative_weight / sum(far.values())
            groups.append(Group(table, 1))
        return groups

    return rule


def inverse_density(lower=0.5, upper=None):
    """By the density of distances on the sphere, its logarithm without the constant."""

    def weights(s, a, p):
        near = [n for n in s.negatives[a] if upper is not None and s.unit[a, n] <= upper] or s.negatives[a]
        dimensions = s.x.shape[1]
        clamped = {n: min(max(s.unit[a, n], lower), 2 - 1e-4) for n in near}
        logs = {}
        for n, d in clamped.items():
            logs[n] = (2 - dimensions) * math.log(d) - (dimensions - 3) / 2 * math.log(1 - d * d / 4)
        return {n: math.exp(value - max(logs.values())) for n, value in logs.items()}

    return weights


def switching(probability, lower=0.5):
    """As `distance`, but at times the own image as positive, and a positive as negative."""

    def rule(s):
        groups = []
        for table, draws in one_each(inverse_density(lower))(s):
            a = next(iter(table))[0]
            if s.own_rows[a] >= 0:
                table = {triplet: (1 - probability) * value for triplet, value in table.items()}
                table |= {(a, s.own_rows[a], p): probability / len(s.positives[a]) for p in s.positives[a]}
            groups.append(Group(table, draws))
        return groups

    return rule


def band(low, high):
    return lambda s, a, p: alike([n for n in s.negatives[a] if low <= s.d[a, n] <= high], s.negatives[a])


def semihard(margin):
    return lambda s, a, p: alike([n for n in s.negatives[a] if 0 < gap(s, a, p, n) < margin], s.negatives[a])


def soft_positive(s, a):
    nearest_negative = min(s.d[a, n] for n in s.negatives[a])
    return alike([p for p in s.positives[a] if s.d[a, p] > nearest_negative], s.positives[a])


def soft_negative(s, a, p):
    farthest_positive = max(s.d[a, p] for p in s.positives[a])
    return alike([n for n in s.negatives[a] if s.d[a, n] < farthest_positive], s.negatives[a])


def random_of_all(s):
    triplets = all_triplets(s)
    return [Group(dict.fromkeys(triplets, 1.0), len(s.labels))] if triplets else []


def random_per_anchor(count):
    def rule(s):
        groups = []
        for a in s.anchors:
            triplets = [triplet for triplet in all_triplets(s) if triplet[0] == a]
            groups.append(Group(dict.fromkeys(triplets, 1.0), count))
        return groups

    return rule


def within_a_class(s):
    """A class, then an anchor of the batch, then two samples, which may be the anchor's own image."""
    table = {}
    for label in set(s.labels) & set(s.reference_labels):
        anchors = [a for a, a_label in enumerate(s.labels) if a_label == label]
        members = [row for row, row_label in enumerate(s.reference_labels) if row_label == label]
        for a, p, n in itertools.product(anchors, members, members):
            table[a, p, n] = 1 / len(anchors) / len(members) ** 2
    return [Group(table, len(s.labels))] if table else []


def one_positive(s):
    return [Group({(a, p, tuple(s.negatives[a])): 1.0 for p in s.positives[a]}, 1) for a in s.anchors]


def each_bin_alike(n_bins, *per_bin):
    def rule(s):
        groups = []
        for kind, count in enumerate(per_bin):
            pairs = [pair for pair in all_pairs(s) if pair[0] == kind]
            far = [s.d[pair[1:]] for pair in pairs]
            places = [min(int((d - min(far)) / max(max(far) - min(far), 1e-300) * n_bins), n_bins - 1) for d in far]
            bins = {place: {} for place in sorted(set(places))}
            for pair, place in zip(pairs, places, strict=True):
                bins[place][pair] = 1.0
            groups += [Group(table, count) for table in bins.values()]
        return groups

    return rule


def case(name, rule, scenery=None, **flags):
    """A miner, its rule, its flags, and the scenes' dimensions and scale where they are not 3 and 1."""
    return name, rule, {f"miner_{name}_{flag}": value for flag, value in flags.items()}, scenery or {}


BANDS = {"uniform": (0.1, 1.4), "hards": (0.1, 0.5), "semihards": (0.3, 0.7), "veryhards": (0.1, 0.3)}
GAPS = {
    "all": lambda *at: gap(*at) <= 0.25,
    "hard": lambda *at: gap(*at) <= 0,
    "semihard": lambda *at: 0 < gap(*at) <= 0.25,
    "easy": lambda *at: gap(*at) > 0.25,
}
MINERS = [
    case("all", all_triplets),
    case("angular", kept_triplets(wide_angle)),
    case("batchhard", batchhard),
    case("distance", one_each(inverse_density())),
    case("distance", one_each(inverse_density()), {"dimensions": 1}),
    case("distance", one_each(inverse_density(0.05, 1.4)), {"dimensions": 16}, lower_cutoff=0.05, upper_cutoff=1.4),
    case("distance", one_each(inverse_density(1.9, 0.0)), lower_cutoff=1.9, upper_cutoff=0.0),
    case("easy_hard", easy_positive_semihard_negative),
    case("hdc", hardest_half),
    case("intra_random", within_a_class),
    case("lifted", lambda s: [(a, tuple(s.positives[a]), tuple(s.negatives[a])) for a in s.anchors]),
    case(
        "multisimilarity",
        kept_pairs(
            lambda s, a, p: a in s.anchors and product(s, a, p) - 0.05 < max(product(s, a, n) for n in s.negatives[a]),
            lambda s, a, n: a in s.anchors and product(s, a, n) + 0.05 > min(product(s, a, p) for p in s.positives[a]),
        ),
        epsilon=0.05,
    ),
    case("none", all_pairs),
    case("npair", one_positive),
    case("pairmargin", kept_pairs(lambda s, a, p: s.d[a, p] > 0.2, lambda s, a, n: s.d[a, n] < 0.8), {"scale": 0.3}),
    *(case("parametric", one_each(band(*limits)), {"scale": 0.3}, mode=mode) for mode, limits in BANDS.items()),
    case("pml", kept_triplets(lambda s, a, p, n: s.unit[a, n] - s.unit[a, p] <= 0.5), kwargs=["margin=0.5"]),
    case("random", random_of_all),
    case("random", random_per_anchor(2), per_anchor=2),
    case("rho_distance", switching(0.2)),
    case("rho_distance", switching(0.0, 0.7), cp=0.0, lower_cutoff=0.7),
    case("rho_distance", switching(1.0), cp=1.0),
    # contrastive has no --loss_contrastive_margin, so that the width of the band is 0.2
    ("semihard", one_each(semihard(0.2)), {"loss": "contrastive"}, {}),
    case("semihard", one_each(semihard(0.7)), margin=0.7),
    case("softhard", one_each(soft_negative, soft_positive)),
    *(case("tripletmargin", kept_triplets(rule), type=kind, margin=0.25) for kind, rule in GAPS.items()),
    case("uniform_histogram", each_bin_alike(4, 3, 2), bins=4, pos_per_bin=3, neg_per_bin=2),
]
