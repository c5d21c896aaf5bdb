"""Tuples of a batch: one form into the other, lists of a user's miner, partners by the order of classes."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import criteria
from tests.batch_mining._reference import assert_drawn_with
from utilities import tuples
from utilities.reference import Reference
from utilities.tuples import Classes, Pairs, Sets, Triplets

indices = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


def columns(pairs):
    return [torch.tensor(list(column), dtype=torch.long) for column in zip(*pairs, strict=True)] or [torch.empty(0, dtype=torch.long)] * 2


def rows(mined):
    return list(zip(*(column.tolist() for column in mined), strict=True))


@settings(max_examples=60, deadline=None)
@given(indices, indices)
def test_pairs_become_triplets_by_their_anchor(positives, negatives):
    mined = tuples.as_triplets(Pairs(*columns(positives), *columns(negatives)))
    expected = [(a, p, n) for a, p in positives for b, n in negatives if a == b]  # with multiplicity
    assert sorted(rows(mined)) == sorted(expected)
    assert all(column.dtype == torch.long for column in mined)


def test_triplets_become_pairs_with_their_multiplicity():
    mined = Triplets(torch.tensor([0, 0, 3]), torch.tensor([1, 1, 2]), torch.tensor([4, 5, 4]))
    pairs = tuples.as_pairs(mined)
    assert rows(pairs[:2]) == [(0, 1), (0, 1), (3, 2)]
    assert rows(pairs[2:]) == [(0, 4), (0, 5), (3, 4)]
    assert tuples.as_pairs(pairs) is pairs
    assert tuples.as_triplets(mined) is mined


@pytest.mark.parametrize(
    "given",
    [
        [(0, 1, 2), (3, 4, 5)],
        [[0, 1, 2], [3, 4, 5]],
        ((0, 1, 2), (3, 4, 5)),
        [(np.int64(0), np.int64(1), np.int64(2)), np.array([3, 4, 5])],
        [torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5])],
        (torch.tensor([0, 3]), torch.tensor([1, 4]), torch.tensor([2, 5])),
    ],
)
def test_a_users_miner_may_return_lists(given):
    mined = tuples.from_user(given, "cpu")
    assert isinstance(mined, Triplets)
    assert rows(mined) == [(0, 1, 2), (3, 4, 5)]
    assert all(column.dtype == torch.long for column in mined)


def test_indices_are_whole_numbers():
    with pytest.raises(TypeError):
        tuples.from_user([(0, 1, 2.5)], "cpu")


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
    a, p, n = batch.detach()[[0, 1, 2, 3]], batch.detach()[[1, 0, 3, 2]], batch.detach()[[2, 3, 0, 1]]
    torch.testing.assert_close(loss.detach(), ((a - p) ** 2 - (a - n) ** 2).sum(1).mean())
    assert criterion.batchminer.stats == {"mine": 1} and copy.deepcopy(criterion).batchminer.stats == {"mine": 1}


def test_a_users_miner_may_find_nothing_or_pairs():
    assert [len(column) for column in tuples.from_user([], "cpu")] == [0, 0, 0]
    four = tuple(torch.arange(2) for _ in range(4))
    assert isinstance(tuples.from_user(four, "cpu"), Pairs)
    pairs = Pairs(*four)
    assert tuples.from_user(pairs, "cpu") is pairs


@pytest.mark.parametrize("given", [None, [(0, 1)], {"a": 1}, torch.zeros(3)])
def test_a_users_miner_may_not_return_anything_else(given):
    with pytest.raises(TypeError):
        tuples.from_user(given, "cpu")


def test_masks_of_classes():
    labels = torch.tensor([2, 7, 2, 9])
    expected = [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
    assert tuples.same_class(labels).long().tolist() == expected
    assert tuples.same_class(labels[:1], labels).long().tolist() == expected[:1]
    assert tuples.positive_mask(labels).nonzero().tolist() == [[0, 2], [2, 0]]


def test_pair_masks_hold_distinct_pairs():
    positives, negatives = tuples.pair_masks(Triplets(torch.tensor([0, 0, 2]), torch.tensor([1, 1, 1]), torch.tensor([3, 3, 0])), 4)
    assert positives.nonzero().tolist() == [[0, 1], [2, 1]]
    assert negatives.nonzero().tolist() == [[0, 3], [2, 0]]


def test_pairs_of_masks():
    torch.manual_seed(0)
    positives, negatives = torch.rand(5, 5) > 0.5, torch.rand(5, 5) > 0.7
    mined = tuples.pairs_of_masks(positives, negatives)
    assert torch.equal(torch.stack(mined[:2], 1), positives.nonzero())
    assert torch.equal(torch.stack(mined[2:], 1), negatives.nonzero())
    assert [len(column) for column in tuples.pairs_of_masks(positives & False, negatives)[:2]] == [0, 0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_spread(counts):
    owners, numbers = tuples.spread(torch.tensor(counts))
    assert rows((owners, numbers)) == [(i, k) for i, count in enumerate(counts) for k in range(count)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_partners_are_numbered_without_gap_or_repetition(labels):
    classes, b = Classes(torch.tensor(labels)), range(len(labels))
    for a in b:
        positives = [j for j in b if j != a and labels[j] == labels[a]]
        negatives = [j for j in b if labels[j] != labels[a]]
        assert (int(classes.n_positives[a]), int(classes.n_negatives[a])) == (len(positives), len(negatives))
        assert bool(classes.complete[a]) == bool(positives and negatives)
        for expected, by_number in ((positives, classes.positives), (negatives, classes.negatives)):
            found = by_number(torch.full((len(expected),), a), torch.arange(len(expected)))
            assert sorted(found.tolist()) == expected
    assert classes.anchors().tolist() == [a for a in b if classes.complete[a]]


def test_draws_are_uniform():
    labels = [1, 0, 1, 2, 1, 0, 3]
    classes = Classes(torch.tensor(labels))
    torch.manual_seed(1)
    anchors = torch.full((3000,), 2)
    assert_drawn_with({0: 0.5, 4: 0.5}, classes.draw_positives(anchors).tolist())
    assert_drawn_with(dict.fromkeys([1, 3, 5, 6], 0.25), classes.draw_negatives(anchors).tolist())
    assert_drawn_with(dict.fromkeys(range(5), 0.2), tuples.below(torch.full((3000,), 5)).tolist())


@pytest.mark.parametrize(
    "anchor, negative, strangers",
    [(0, 1, [3, 6]), (1, 0, [3, 6]), (3, 6, [0, 1, 2, 4, 5]), (6, 0, [1, 3, 5]), (0, 4, [1, 3, 5, 6])],
)
def test_strangers_are_of_neither_class(anchor, negative, strangers):
    classes = Classes(torch.tensor([1, 0, 1, 2, 1, 0, 3]))
    torch.manual_seed(2)
    drawn, exist = classes.draw_strangers(torch.full((2000,), anchor), torch.full((2000,), negative))
    assert exist.all()
    assert_drawn_with({m: 1 / len(strangers) for m in strangers}, drawn.tolist())


def test_no_strangers():
    classes = Classes(torch.tensor([0, 0, 1, 1]))
    drawn, exist = classes.draw_strangers(torch.tensor([0, 2, 0]), torch.tensor([2, 1, 1]))
    assert exist.tolist() == [False, False, True]
    assert ((drawn >= 0) & (drawn < 4)).all()
    assert drawn[2] in (2, 3)


def test_a_draw_never_reaches_the_count(monkeypatch):
    counts = torch.tensor([1, 2, 3, 5, 4095, 4096, 2**24 - 1])
    monkeypatch.setattr(torch, "rand", lambda shape, dtype, device=None: torch.full(shape, 1 - 2**-24, dtype=dtype))
    assert tuples.below(counts).tolist() == (counts - 1).tolist()


def test_sets_have_names():
    assert Sets._fields == Triplets._fields == ("anchors", "positives", "negatives")


# ------------------------------------------------------------------------------------------------ partners in a reference


def compared(labels, others, own):
    """The anchors' labels, and a reference whose embeddings do not matter."""
    return torch.tensor(labels), Reference(torch.zeros(len(others), 1), torch.tensor(others, dtype=torch.long), torch.tensor(own), False)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8), st.lists(st.integers(-3, 4), max_size=12), st.data())
def test_partners_in_a_reference_are_numbered_without_gap_or_repetition(labels, others, data):
    own = [data.draw(st.integers(-1, len(others) - 1)) for _ in labels]
    y, reference = compared(labels, others, own)
    classes = Classes(y, reference)
    positive_mask, negative_mask = reference.masks(y)
    assert torch.equal(reference.negatives(y), negative_mask)
    for a in range(len(labels)):
        positives = [j for j in range(len(others)) if j != own[a] and others[j] == labels[a]]
        negatives = [j for j in range(len(others)) if j != own[a] and others[j] != labels[a]]
        assert (int(classes.n_positives[a]), int(classes.n_negatives[a])) == (len(positives), len(negatives))
        assert bool(classes.complete[a]) == bool(positives and negatives)
        assert positive_mask[a].nonzero().flatten().tolist() == positives
        assert negative_mask[a].nonzero().flatten().tolist() == negatives
        for expected, by_number in ((positives, classes.positives), (negatives, classes.negatives)):
            found = by_number(torch.full((len(expected),), a), torch.arange(len(expected)))
            assert sorted(found.tolist()) == expected
    assert classes.anchors().tolist() == [a for a in range(len(labels)) if classes.complete[a]]
    for anywhere in (classes.draw_positives(), classes.draw_negatives()):  # arbitrary where there is none, yet a row that can be looked up
        assert ((anywhere >= 0) & (anywhere < max(len(others), 1))).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=10), st.integers(0, 100))
def test_the_batch_as_its_reference_numbers_partners_alike(labels, seed):
    y, reference = compared(labels, labels, list(range(len(labels))))
    plain, other = Classes(y), Classes(y, reference)
    for name in ("order", "starts", "counts", "n_positives", "n_negatives", "complete"):
        assert torch.equal(getattr(plain, name), getattr(other, name))
    for draw in ("draw_positives", "draw_negatives"):
        drawn = []
        for classes in (plain, other):
            torch.manual_seed(seed)
            drawn.append(getattr(classes, draw)(classes.anchors()))
        assert torch.equal(*drawn)


def test_draws_in_a_reference_are_uniform():
    others, own = [5, 1, 1, 0, 2, 1, 0, 3, 1], [2, 3, -1, 7]  # of the label's own; of the label's own; not there; of another label
    y, reference = compared([1, 0, 1, 1], others, own)
    classes = Classes(y, reference)
    torch.manual_seed(1)
    for a in range(4):
        anchors = torch.full((3000,), a)
        positives = [j for j in range(9) if j != own[a] and others[j] == int(y[a])]
        negatives = [j for j in range(9) if j != own[a] and others[j] != int(y[a])]
        assert_drawn_with(dict.fromkeys(positives, 1 / len(positives)), classes.draw_positives(anchors).tolist())
        assert_drawn_with(dict.fromkeys(negatives, 1 / len(negatives)), classes.draw_negatives(anchors).tolist())


@pytest.mark.parametrize(
    "label, negative, strangers",
    [(1, 3, [0, 4, 7]), (1, 0, [3, 4, 6, 7]), (0, 4, [0, 1, 2, 5, 7, 8]), (9, 1, [0, 3, 4, 6, 7]), (9, 7, [0, 1, 2, 3, 4, 5, 6, 8])],
)
def test_strangers_in_a_reference_are_of_neither_class(label, negative, strangers):
    """Also of an anchor whose class the reference lacks."""
    y, reference = compared([label], [5, 1, 1, 0, 2, 1, 0, 3, 1], [-1])
    torch.manual_seed(2)
    drawn, exist = Classes(y, reference).draw_strangers(torch.zeros(3000, dtype=torch.long), torch.full((3000,), negative))
    assert exist.all()
    assert_drawn_with({m: 1 / len(strangers) for m in strangers}, drawn.tolist())


def test_no_strangers_in_a_reference():
    y, reference = compared([0, 7], [0, 1, 0, 1], [-1, -1])
    _, exist = Classes(y, reference).draw_strangers(torch.tensor([0, 1]), torch.tensor([1, 1]))
    assert exist.tolist() == [False, True]
