"""Equal rows are equally far from an anchor, whatever a matrix product's rounding: ties have one answer."""

import itertools

import pytest
import torch

import batch_mining
from batch_mining._miner import comparable_distances
from tests.kit.mining import as_lists
from utilities.reference import Reference
from utilities.tensors import _odd_numbers, first_equal_rows, pairwise_distances

SHAPES = list(itertools.product((5, 9), (4, 7, 33, 129)))


def batches(dtype=torch.float32):
    """Batches in which most rows occur several times, in several classes."""
    generator = torch.Generator().manual_seed(0)
    for size, dimensions in SHAPES:
        rows = torch.randn(size, dimensions, generator=generator, dtype=torch.float64).to(dtype)
        x = rows[torch.randint(size // 2, (size,), generator=generator)]
        yield x, torch.randint(3, (size,), generator=generator)


def test_the_random_numbers_are_copied_to_a_device_once():
    """A copy from the host in each step would make the host wait for the device."""
    for device in map(torch.device, ("cpu", "meta")):
        assert _odd_numbers(7, device) is _odd_numbers(7, device) and _odd_numbers(7, device).device == device


def equal_rows(x):
    """`equal[i][j]`: are rows i and j equal?"""
    rows = x.tolist()
    return [[row == column for column in rows] for row in rows]


def mined(name, x, labels, **flags):
    """Tuples within the batch, and with the batch as a reference given by the caller."""
    miner = batch_mining.select(name, **flags)
    rows = torch.arange(len(x))
    return [miner(x, labels), miner(x, labels, x.clone(), labels, rows)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_first_equal_rows(dtype):
    for x, _ in batches(dtype):
        expected = [row.index(True) for row in equal_rows(x)]
        assert first_equal_rows(x).tolist() == expected
    zeros = torch.tensor([[0.0, 1.0], [-0.0, 1.0], [torch.nan, 1.0], [torch.nan, 1.0], [1.0, 0.0]], dtype=dtype)
    assert first_equal_rows(zeros).tolist() == [0, 0, 2, 3, 4]


def test_duplicates_are_equally_far():
    differ = 0
    for x, labels in batches():
        r = torch.cat([x, x[:2] + 1])
        for form in ((), (r, torch.zeros(len(r)), torch.arange(len(x)))):
            reference = Reference.build(x, labels, *form)
            first = first_equal_rows(reference.embeddings)
            plain = pairwise_distances(x, reference.embeddings)
            differ += int((plain != plain[:, first]).sum())
            distances = comparable_distances(x, reference)
            assert torch.equal(distances, distances[:, first])
            torch.testing.assert_close(distances, plain, atol=1e-3, rtol=1e-5)
            assert not distances[:, : len(x)][torch.tensor(equal_rows(x))].any()
    assert differ, "else there is nothing to guard against here"


def test_a_negative_that_equals_the_positive_is_hard_and_not_semihard():
    for x, labels in batches():
        equal = equal_rows(x)
        y = labels.tolist()
        rows = itertools.product(range(len(x)), repeat=3)
        ties = {(a, p, n) for a, p, n in rows if a != p and y[a] == y[p] != y[n] and equal[p][n]}
        for kind, expected in (("hard", ties), ("all", ties), ("semihard", set()), ("easy", set())):
            for triplets in mined("tripletmargin", x, labels, miner_tripletmargin_type=kind):
                assert ties.intersection(as_lists(*triplets)) == expected


@pytest.mark.parametrize(
    ("pos", "neg"), [("easy", "semihard"), ("hard", "semihard"), ("semihard", "hard"), ("semihard", "easy")]
)
def test_a_semihard_pair_is_no_duplicate_of_the_other(pos, neg):
    for x, labels in batches():
        for pairs in mined("easy_hard", x, labels, miner_easy_hard_pos=pos, miner_easy_hard_neg=neg):
            equal = equal_rows(x)
            negatives = dict(zip(pairs.anchors_n.tolist(), pairs.negatives.tolist(), strict=True))
            for a, p in zip(pairs.anchors_p.tolist(), pairs.positives.tolist(), strict=True):
                assert not equal[p][negatives[a]]


@pytest.mark.parametrize("strategy", ["easy", "hard"])
def test_of_duplicates_the_first_is_chosen(strategy):
    for x, labels in batches():
        equal = equal_rows(x)
        y = labels.tolist()
        for pairs in mined("easy_hard", x, labels, miner_easy_hard_pos=strategy, miner_easy_hard_neg=strategy):
            chosen = [(0, *pair) for pair in zip(pairs.anchors_p.tolist(), pairs.positives.tolist(), strict=True)]
            chosen += [(1, *pair) for pair in zip(pairs.anchors_n.tolist(), pairs.negatives.tolist(), strict=True)]
            for is_negative, a, j in chosen:
                assert not any(i != a and equal[i][j] and (y[i] != y[a]) == is_negative for i in range(j))
