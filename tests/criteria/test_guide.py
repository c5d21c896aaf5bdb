"""A guide drops negatives: every loss that it can act on against its formula in loops, whose pairs are chosen by loops.

Formulas and scenes are those of tests/criteria/test_table.py.
"""

import dataclasses

import pytest
import torch
from torch.nn.functional import normalize
from torch.testing import assert_close

import criteria
from tests.criteria import _table
from tests.criteria._table import PINNED, PINNED_LABELS
from tests.criteria.test_matryoshka import nested
from tests.criteria.test_table import COMPARING, SCENES, anchors_at_a_time, build, over, pairs_of, points, step
from tests.kit.mining import normal
from trainers._guide import has_negatives
from utilities.guide import Guide
from utilities.reference import Reference

GUIDED = [row for row in COMPARING if has_negatives(criteria.REGISTRY.module(row[0]))]
OF_PAIRS = ("ntxent", "tupletmargin")
OF_SETS = ("angular", "npair")
RULES = ((0.0, False), (0.2, False), (0.3, True), (-0.1, True))
PINNED_GUIDE = torch.tensor([(1, 0), (0.8, 0.6), (0.6, 0.8), (0, 1)], dtype=torch.float64)


class SlowGuide:
    """What a guide drops, pair by pair."""

    def __init__(self, guide: Guide, all_positives):
        self.guide = guide
        self.all_positives = all_positives

    def cosine(self, a, j):
        return float(self.guide.anchors[a] @ self.guide.rows[j])

    def drops(self, a, p, n):
        limit = self.cosine(a, p) - self.guide.margin
        if self.guide.is_relative:
            limit = self.cosine(a, p) * (1 - self.guide.margin)
        return self.cosine(a, n) > limit + 1e-6

    def drops_by_nearest(self, a, n):
        positives = self.all_positives[a]
        other_images = [p for p in positives if self.guide.images[p] != self.guide.anchor_images[a]]
        candidates = other_images or positives
        return bool(candidates) and self.drops(a, max(candidates, key=lambda p: self.cosine(a, p)), n)

    def pairs(self, pairs):
        negatives = []
        for a, rows in enumerate(pairs[1]):
            negatives.append([n for n in rows if not self.drops_by_nearest(a, n)])
        return pairs[0], negatives

    def triplets(self, pairs):
        return [(a, p, n) for a, p, n in all_triplets(pairs) if not self.drops(a, p, n)]

    def sets(self, pairs):
        """Negatives beside the last positive, which the stand-in miner takes."""
        positives, negatives = pairs
        chosen = []
        for a, rows in enumerate(negatives):
            chosen.append([n for n in rows if positives[a] and not self.drops(a, positives[a][-1], n)])
        return positives, chosen


all_triplets = _table.triplets


def guide_of(n_anchors, own_rows, n_rows, seed, rule):
    """Rows of a few directions, so that cosines are equal too; the last positive but one is another view."""
    directions = normalize(normal(4, 3, seed=seed))
    anchors = directions[torch.randint(4, (n_anchors,), generator=torch.Generator().manual_seed(seed))]
    anchor_images = torch.arange(n_anchors)
    if n_rows is None:
        return Guide(anchors, anchors, anchor_images, anchor_images, *rule)
    rows = normalize(normal(n_rows, 3, seed=seed + 1))
    images = torch.arange(n_rows) + 100
    for a, row in enumerate(own_rows):
        if row >= 0:
            images[row] = a
            rows[row] = anchors[a]
    if n_rows > 5:
        images[5] = 0
        rows[5] = anchors[0]
    return Guide(anchors, rows, anchor_images, images, *rule)


def contrastive(slow):
    def formula(c, x, r, pairs, context):
        distances = [_table.distance(x[a], r[p]) for a, p, _ in all_triplets(pairs)]
        far = _table.mean([_table.hinge(d - c.pos_margin) for d in distances])
        near_pairs = [(a, n) for a, _, n in all_triplets(pairs) if not slow.drops_by_nearest(a, n)]
        return far + _table.mean([_table.hinge(c.neg_margin - _table.distance(x[a], r[n])) for a, n in near_pairs])

    return formula


def of_pairs(formula, slow):
    """The mean over positive pairs, each with its own negatives."""

    def mean_over_pairs(c, x, r, pairs, context):
        values = []
        for a, (positives, negatives) in enumerate(zip(*pairs, strict=True)):
            for p in positives:
                single = [[] for _ in pairs[0]], [[] for _ in pairs[0]]
                single[0][a] = [p]
                single[1][a] = [n for n in negatives if not slow.drops(a, p, n)]
                values.append(formula(c, x, r, single, context))
        return _table.mean(values)

    return mean_over_pairs


@over("name formula flags yields", GUIDED)
def test_a_loss_is_its_formula_without_dropped_negatives(name, formula, flags, yields):
    for seed, (labels, reference_labels, own_rows, unit, rows, _) in enumerate(SCENES):
        labels = torch.tensor(labels)
        x = r = points(len(labels), seed, unit)
        form = {}
        own_places = torch.arange(len(labels)) if own_rows is None else torch.tensor(own_rows)
        n_rows = None
        if reference_labels is not None:
            n_rows = len(reference_labels)
            r = points(n_rows, seed + 100, unit)
            reference_labels = torch.tensor(reference_labels, dtype=torch.long)
            form = {"reference": r, "reference_labels": reference_labels, "own": own_places}
        else:
            reference_labels = labels
        criterion = build(name, yields, formula, **flags)
        guide = guide_of(len(labels), own_places.tolist(), n_rows, seed, RULES[seed % len(RULES)])
        slow = SlowGuide(guide, pairs_of(labels, reference_labels, own_places)[0])
        pairs = pairs_of(labels, reference_labels, own_places, bool(yields))
        guided_formula = formula
        if name == "contrastive":
            guided_formula = contrastive(slow)
        elif name in OF_PAIRS:
            guided_formula = of_pairs(formula, slow)
        elif name in OF_SETS:
            pairs = slow.sets(pairs)
        elif not uses_triplets(name, yields):
            pairs = slow.pairs(pairs)
        inputs = [x, *criterion.parameters()]
        with anchors_at_a_time(rows):
            ours = step(criterion, inputs, x, labels, guide=guide, **form)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_table, "triplets", slow.triplets)
                expected = step(guided_formula, inputs, criterion, x, r, pairs, (labels, reference_labels, own_places))
        assert_close(ours, expected, rtol=1e-7, atol=1e-8)


def uses_triplets(name, yields):
    module = criteria.REGISTRY.module(name)
    return module.REQUIRES_BATCHMINER and module.ALLOWED_MINING_OPS is None and not yields


@pytest.mark.parametrize(("margin", "expected"), [(-1.0, 0.2304616), (0.0, 0.0261138)])
def test_the_pin(margin, expected):
    images = torch.arange(4)
    guide = Guide(PINNED_GUIDE, PINNED_GUIDE, images, images, margin)
    criterion = criteria.select("ntxent", loss_ntxent_temperature=0.1)
    assert float(criterion(PINNED, PINNED_LABELS, guide=guide)) == pytest.approx(expected, abs=1e-7)
    reference = Reference.build(PINNED, PINNED_LABELS)
    _, are_negative = dataclasses.replace(reference, guide=guide).masks(PINNED_LABELS)
    assert int(are_negative.sum()) == (8 if margin < 0 else 6)


def test_prefixes_have_the_same_guide():
    images = torch.arange(4)
    guide = Guide(PINNED_GUIDE, PINNED_GUIDE, images, images)
    plain = criteria.select("ntxent")
    cut = normalize(PINNED[:, :2])
    expected = plain(PINNED, PINNED_LABELS, guide=guide) + plain(cut, PINNED_LABELS, guide=guide)
    criterion = nested(criteria.select("ntxent"), "ntxent", prefixes=[2, 3], weights=None)
    assert criterion(PINNED, PINNED_LABELS, guide=guide) == expected


@over("name formula flags yields", GUIDED)
def test_without_a_negative_left_there_is_a_graph(name, formula, flags, yields):
    labels = torch.tensor([0, 0, 1, 1, 2])
    rows = torch.ones(5, 1, dtype=torch.float64)
    images = torch.arange(5)
    x = points(5, 3, False)
    criterion = build(name, yields, formula, **flags)
    value = criterion(x, labels, guide=Guide(rows, rows, images, images, 0.5))
    (gradient,) = torch.autograd.grad(value, x)
    assert value.isfinite() and gradient.isfinite().all()
    if name in OF_PAIRS or uses_triplets(name, yields) and name not in ("contrastive", "snr", "margin"):
        assert value == 0
