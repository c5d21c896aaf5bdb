"""Tuples that a trainer hands a criterion in its miner's place, through every layer of it, and only inside."""

import pytest
import torch

import criteria
from utilities.criterion import with_tuples
from utilities.tuples import Pairs, Triplets

X = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0], [4.0, 0.0]])
LABELS = torch.tensor([0, 0, 1, 2])
TRIPLETS = Triplets(torch.tensor([0, 0]), torch.tensor([1, 1]), torch.tensor([2, 3]))


class ModuleMiner(torch.nn.Module):
    """A user's miner that is a module itself."""

    def forward(self, batch, labels):
        return [(0, 1, 2)]


class Fusion(torch.nn.Module):
    """Two criteria, one inside the other."""

    def __init__(self, miner):
        super().__init__()
        self.batchminer = miner
        self.triplet = criteria.select("triplet", batchminer=miner, loss_triplet_margin=20.0)

    def forward(self, batch, labels, **kwargs):
        return self.triplet(batch, labels)


def test_a_criterion_and_those_inside_it_take_what_they_are_given_and_have_their_miner_back():
    for miner in (ModuleMiner(), lambda batch, labels: [(0, 1, 2)]):
        criterion = Fusion(miner)
        assert criterion(X, LABELS).item() == 1 - 9 + 20
        with with_tuples(criterion, TRIPLETS):
            assert criterion(X, LABELS).item() == (1 - 9 + 20 + 1 - 16 + 20) / 2
        with pytest.raises(ZeroDivisionError), with_tuples(criterion, TRIPLETS):
            raise ZeroDivisionError
        assert criterion.batchminer is criterion.triplet.batchminer is miner and criterion(X, LABELS).item() == 12


def test_a_criterion_on_all_pairs_takes_those_it_is_given():
    criterion = criteria.select("snr_contrastive", loss_snr_contrastive_neg_margin=100.0)
    all_pairs = criterion(X + 1, LABELS)
    with with_tuples(criterion, Pairs(*(torch.tensor([i]) for i in (0, 1, 1, 3)))):
        assert not torch.equal(criterion(X + 1, LABELS), all_pairs)
    assert criterion.batchminer is None and torch.equal(criterion(X + 1, LABELS), all_pairs)


def test_who_takes_tuples():
    takes = set(filter(criteria.takes_tuples, criteria.REGISTRY.names()))
    assert {"triplet", "contrastive", "margin", "multisimilarity"} <= takes
    assert not takes & {"softmax", "npair", "lifted", "angular", "histogram", "pml"}
