"""Tuples of a batch: one form into the other, lists of a user's miner, partners by the order of classes."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import criteria
from tests.kit.mining import as_lists, assert_drawn_with
from utilities import tuples
from utilities.reference import Reference
from utilities.tuples import Classes, Pairs, Triplets

indices = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


def columns(pairs):
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).unbind(1)


@settings(max_examples=60, deadline=None)
@given(indices, indices)
def test_pairs_become_triplets_by_their_anchor(positives, negatives):
    mined = tuples.as_triplets(Pairs(*columns(positives), *columns(negatives)))
    # A pair that comes twice counts twice
    expected = [(a, p, n) for a, p in positives for b, n in negatives if a == b]
    assert sorted(as_lists(*mined)) == sorted(expected)
    assert all(column.dtype == torch.long for column in mined)


def test_triplets_become_pairs_with_their_multiplicity_and_masks_of_distinct_ones():
    mined = Triplets(torch.tensor([0, 0, 2]), torch.tensor([1, 1, 1]), torch.tensor([3, 3, 0]))
    pairs = tuples.as_pairs(mined)
    assert as_lists(*pairs[:2]) == [(0, 1), (0, 1), (2, 1)] and as_lists(*pairs[2:]) == [(0, 3), (0, 3), (2, 0)]
    assert tuples.as_pairs(pairs) is pairs and tuples.as_triplets(mined) is mined
    assert [mask.nonzero().tolist() for mask in tuples.pair_masks(mined, 4)] == [[[0, 1], [2, 1]], [[0, 3], [2, 0]]]
    torch.manual_seed(0)
    masks = torch.rand(5, 7) > 0.5, torch.rand(5, 7) > 0.7
    for positives, negatives in (masks, (masks[0] & False, masks[1])):
        pairs = tuples.pairs_of_masks(positives, negatives)
        for rows, mask in ((pairs[:2], positives), (pairs[2:], negatives)):
            assert torch.equal(torch.stack(rows, 1), mask.nonzero())
        assert all(map(torch.equal, tuples.pair_masks(pairs, 5, 7), (positives, negatives)))


TWO = [(0, 1, 2), (3, 4, 5)]
LISTS = [
    TWO,
    [list(triplet) for triplet in TWO],
    tuple(TWO),
    [tuple(map(np.int64, TWO[0])), np.array(TWO[1])],
    [*torch.tensor(TWO)],
    tuple(torch.tensor(TWO).T),
]


def test_a_users_miner_may_return_lists_or_pairs_and_nothing_else():
    for mined_tuples in LISTS:
        mined = tuples.from_user(mined_tuples, "cpu")
        assert isinstance(mined, Triplets) and as_lists(*mined) == TWO, mined_tuples
        assert all(column.dtype == torch.long for column in mined), mined_tuples
    assert [len(column) for column in tuples.from_user([], "cpu")] == [0, 0, 0]
    four = tuple(torch.arange(2) for _ in range(4))
    pairs = tuples.from_user(four, "cpu")
    assert isinstance(pairs, Pairs) and tuples.from_user(pairs, "cpu") is pairs
    for mined_tuples in (None, [(0, 1)], {"a": 1}, torch.zeros(3), [(0, 1, 2.5)]):
        with pytest.raises(TypeError):
            tuples.from_user(mined_tuples, "cpu")


def test_a_plain_module_gets_the_list_of_a_users_miner_as_triplets(monkeypatch):
    """And what else the miner has; a criterion of the house asks its miner itself."""

    class Plain(torch.nn.Module):
        def __init__(self, opt, batchminer):
            super().__init__()
            self.batchminer = batchminer

        def forward(self, batch, labels, **kwargs):
            anchors, positives, negatives = self.batchminer(batch, labels)
            return ((batch[anchors] - batch[positives]) ** 2 - (batch[anchors] - batch[negatives]) ** 2).sum(1).mean()

    class Miner:
        stats = {"mine": 1}

        def __call__(self, batch, labels):
            assert not batch.requires_grad and not torch.is_grad_enabled()
            return [(0, 1, 2), (1, 0, 3), (2, 3, 0), (3, 2, 1)]

    module = SimpleNamespace(Criterion=Plain, REQUIRES_BATCHMINER=True)
    monkeypatch.setattr(criteria.REGISTRY, "module", lambda name: module)
    criterion = criteria.select("plain", batchminer=Miner())
    batch = torch.randn(4, 3, requires_grad=True)
    loss = criterion(batch, torch.tensor([0, 0, 1, 1]))
    loss.backward()
    a = batch.detach()
    p = a[[1, 0, 3, 2]]
    n = a[[2, 3, 0, 1]]
    torch.testing.assert_close(loss.detach(), ((a - p) ** 2 - (a - n) ** 2).sum(1).mean())
    assert criterion.batchminer.stats == {"mine": 1} and copy.deepcopy(criterion).batchminer.stats == {"mine": 1}


def test_a_draw_never_reaches_the_count(monkeypatch):
    counts = torch.tensor([1, 2, 3, 5, 4095, 4096, 2**24 - 1])
    monkeypatch.setattr(torch, "rand", lambda shape, dtype, device=None: torch.full(shape, 1 - 2**-24, dtype=dtype))
    assert tuples.below(counts).tolist() == (counts - 1).tolist()


# --- partners of anchors
def classes_of(labels, reference_labels=None, own_rows=None):
    """The classes of a batch's own samples, or of a reference whose embeddings do not matter, and the reference."""
    y = torch.tensor(labels)
    if reference_labels is None:
        return Classes(y), None
    r = torch.tensor(reference_labels, dtype=torch.long)
    reference = Reference(torch.zeros(len(r), 1), r, torch.tensor(own_rows), False)
    return Classes(y, reference), reference


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=8),
    st.none() | st.lists(st.integers(-3, 4), max_size=12),
    st.data(),
)
def test_partners_are_numbered_without_gap_or_repetition(labels, reference_labels, data):
    # The batch is its own reference
    if reference_labels is None:
        classes, reference = classes_of(labels)
        reference_labels = labels
        own_rows = range(len(labels))
    else:
        own_rows = [data.draw(st.integers(-1, len(reference_labels) - 1)) for _ in labels]
        classes, reference = classes_of(labels, reference_labels, own_rows)
    for a, label in enumerate(labels):
        candidates = [(j, y) for j, y in enumerate(reference_labels) if j != own_rows[a]]
        positives = [j for j, y in candidates if y == label]
        negatives = [j for j, y in candidates if y != label]
        assert (int(classes.n_positives[a]), int(classes.n_negatives[a])) == (len(positives), len(negatives))
        assert bool(classes.complete[a]) == bool(positives and negatives)
        for expected, by_number in ((positives, classes.positives), (negatives, classes.negatives)):
            partner_rows = by_number(torch.full((len(expected),), a), torch.arange(len(expected)))
            assert sorted(partner_rows.tolist()) == expected
        if reference:
            masks = reference.masks(torch.tensor(labels))
            assert [mask[a].nonzero().flatten().tolist() for mask in masks] == [positives, negatives]
            assert torch.equal(reference.negatives(torch.tensor(labels)), masks[1])
    assert classes.anchors().tolist() == [a for a in range(len(labels)) if classes.complete[a]]
    # arbitrary where there is none, yet a row that can be looked up
    for partners in (classes.draw_positives(), classes.draw_negatives()):
        assert ((partners >= 0) & (partners < max(len(reference_labels), 1))).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=10), st.integers(0, 100))
def test_the_batch_as_its_reference_draws_alike(labels, seed):
    of_batch, _ = classes_of(labels)
    of_reference, _ = classes_of(labels, labels, range(len(labels)))
    for draw in ("draw_positives", "draw_negatives"):
        draws = []
        for classes in (of_batch, of_reference):
            torch.manual_seed(seed)
            draws.append(getattr(classes, draw)(classes.anchors()))
        assert torch.equal(*draws)


BATCH = [1, 0, 1, 2, 1, 0, 3]
OTHERS = [5, 1, 1, 0, 2, 1, 0, 3, 1]
# own rows of four anchors: two of the anchor's label, none, one of another label
OWN = [2, 3, -1, 7]


def test_draws_are_uniform():
    torch.manual_seed(1)
    assert_drawn_with(dict.fromkeys(range(5), 0.2), tuples.below(torch.full((3000,), 5)).tolist())
    of_batch = [(BATCH, BATCH, range(7), classes_of(BATCH)[0], 2)]
    of_reference = classes_of([1, 0, 1, 1], OTHERS, OWN)[0]
    for labels, candidates, own_rows, classes, a in of_batch + [
        ([1, 0, 1, 1], OTHERS, OWN, of_reference, a) for a in range(4)
    ]:
        partners = {row: y for row, y in enumerate(candidates) if row != own_rows[a]}
        for is_positive, draw in ((True, classes.draw_positives), (False, classes.draw_negatives)):
            rows = [row for row, y in partners.items() if (y == labels[a]) == is_positive]
            assert_drawn_with(dict.fromkeys(rows, 1 / len(rows)), draw(torch.full((3000,), a)).tolist())


def test_strangers_are_of_neither_class():
    """Also of an anchor whose class the reference lacks."""
    of_batch = [(BATCH, None, anchor, negative) for anchor, negative in ((0, 1), (1, 0), (3, 6), (6, 0), (0, 4))]
    of_reference = [([label], OTHERS, 0, negative) for label, negative in ((1, 3), (1, 0), (0, 4), (9, 1), (9, 7))]
    torch.manual_seed(2)
    for labels, reference_labels, anchor, negative in of_batch + of_reference:
        candidates = reference_labels or labels
        classes, _ = classes_of(labels, reference_labels, [-1])
        rows, exist = classes.draw_strangers(torch.full((3000,), anchor), torch.full((3000,), negative))
        excluded_labels = (labels[anchor], candidates[negative])
        strangers = [row for row, label in enumerate(candidates) if label not in excluded_labels]
        assert exist.all()
        assert_drawn_with(dict.fromkeys(strangers, 1 / len(strangers)), rows.tolist())
    rows, exist = classes_of([0, 0, 1, 1])[0].draw_strangers(torch.tensor([0, 2, 0]), torch.tensor([2, 1, 1]))
    assert exist.tolist() == [False, False, True] and rows[2] in (2, 3) and ((rows >= 0) & (rows < 4)).all()
    _, exist = classes_of([0, 7], [0, 1, 0, 1], [-1, -1])[0].draw_strangers(torch.tensor([0, 1]), torch.tensor([1, 1]))
    assert exist.tolist() == [False, True]
