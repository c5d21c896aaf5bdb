import torch
from pytorch_metric_learning.losses import ThresholdConsistentMarginLoss

from tests.criteria._oracles import ListMiner, build, check_formula, check_gradient, check_peer, every_batch
from tests.criteria._references import check_references, mined, plain


def slow(batch, compared, positives, negatives, pos_margin=0.9, neg_margin=0.5, pos_weight=1.0, neg_weight=1.0):
    similarities = [[x @ y / x.norm() / y.norm() for y in compared] for x in batch]
    below = [pos_margin - row[p] for row, chosen in zip(similarities, positives, strict=True) for p in chosen if row[p] <= pos_margin]
    above = [row[n] - neg_margin for row, chosen in zip(similarities, negatives, strict=True) for n in chosen if row[n] >= neg_margin]
    return pos_weight * sum(below) / max(len(below), 1) + neg_weight * sum(above) / max(len(above), 1)


@every_batch
def test_formula(kind, unit):
    check_formula("threshold_consistent", plain(slow), kind, unit)


@every_batch
def test_mined_pairs(kind, unit):
    check_formula("threshold_consistent", mined(slow), kind, unit, batchminer=ListMiner(), mine_pairs=True)


FLAGS = {
    "loss_threshold_consistent_pos_margin": 0.3, "loss_threshold_consistent_neg_margin": -0.2,
    "loss_threshold_consistent_pos_weight": 2.0, "loss_threshold_consistent_neg_weight": 0.3,
}  # fmt: skip


def test_other_flags():
    check_formula("threshold_consistent", plain(lambda *pairs: slow(*pairs, 0.3, -0.2, 2.0, 0.3)), "ragged", True, **FLAGS)


def test_references():
    check_references("threshold_consistent", slow)


def test_gradient():
    check_gradient("threshold_consistent")


def test_against_pytorch_metric_learning():
    check_peer("threshold_consistent", ThresholdConsistentMarginLoss())
    check_peer("threshold_consistent", ThresholdConsistentMarginLoss(2.0, 0.3, 0.3, -0.2), **FLAGS)


def test_pairs_within_the_margins_cost_nothing():
    batch = torch.tensor([[1.0, 0], [1, 0.01], [0, 1], [0.01, 1]], dtype=torch.float64, requires_grad=True)
    loss = build("threshold_consistent")(batch, torch.tensor([0, 0, 1, 1]))
    loss.backward()
    assert loss == 0 and (batch.grad == 0).all()
