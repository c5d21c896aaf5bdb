"""What is checked before every loss, and the tuples that a criterion asks of its miner."""

import pytest
import torch

from utilities.criterion import MetricCriterion
from utilities.tuples import Pairs, Triplets


class Seen(MetricCriterion):
    """Keeps what reaches it."""

    def forward(self, batch, labels, **kwargs):
        self.batch = batch
        self.labels = labels
        self.more = kwargs
        return batch.sum()


def test_wrong_shapes_and_labels_beyond_the_classes_are_refused():
    for batch, labels in (((4,), (4,)), ((4, 2, 2), (4,)), ((4, 2), (3,)), ((4, 2), (4, 1))):
        with pytest.raises(ValueError, match=r"expected \(B, D\) and \(B,\)"):
            Seen()(torch.zeros(batch), torch.zeros(labels, dtype=torch.long))
    criterion = Seen()
    criterion.expect_classes(3)
    criterion(torch.zeros(2, 3), torch.tensor([0, 2]))
    criterion(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
    for labels in ([-1, 0], [0, 3]):
        with pytest.raises(ValueError, match="of 3 classes they go from 0 to 2"):
            criterion(torch.zeros(2, 3), torch.tensor(labels))


def test_types_are_settled_and_keywords_pass():
    seen = Seen()
    for dtype, expected in (
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        for call in (lambda b, y: seen(b, y, more=1), lambda b, y: seen(labels=y, batch=b, more=1)):
            call(torch.zeros(2, 3, dtype=dtype), torch.zeros(2, dtype=torch.int32))
            assert seen.more.pop("reference").plain
            assert (seen.batch.dtype, seen.labels.dtype, seen.more) == (expected, torch.long, {"more": 1})


def test_a_miner_sees_no_graph_and_its_lists_become_tuples():
    def miner(batch, labels):
        assert not batch.requires_grad and not torch.is_grad_enabled()
        return [(0, 1, 2), (1, 0, 2)]

    criterion = MetricCriterion(miner)
    batch = torch.zeros(4, 2, requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1])
    triplets = criterion.triplets(batch, labels)
    pairs = criterion.pairs(batch, labels)
    assert isinstance(triplets, Triplets) and isinstance(pairs, Pairs)
    assert [column.tolist() for column in triplets] == [[0, 1], [1, 0], [2, 2]]
    positives, negatives = criterion.pair_masks(batch, labels)
    assert positives.nonzero().tolist() == [[0, 1], [1, 0]] and negatives.nonzero().tolist() == [[0, 2], [1, 2]]
    positives, negatives = MetricCriterion().pair_masks(batch[:3], labels[:3])
    assert positives.nonzero().tolist() == [[0, 1], [1, 0]], "without a miner all pairs count"
    assert negatives.nonzero().tolist() == [[0, 2], [1, 2], [2, 0], [2, 1]]
