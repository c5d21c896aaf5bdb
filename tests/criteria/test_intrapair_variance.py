from pytorch_metric_learning.losses import IntraPairVarianceLoss

from tests.criteria._oracles import ListMiner, check_formula, check_gradient, check_peer, every_batch
from tests.criteria._references import check_references, mined, plain


def slow(batch, compared, positives, negatives, pos_eps=0.01, neg_eps=0.01):
    similarities = [[x @ y / x.norm() / y.norm() for y in compared] for x in batch]
    of_positives, of_negatives = (
        [row[j] for row, chosen in zip(similarities, pairs, strict=True) for j in chosen] for pairs in (positives, negatives)
    )
    total = 0.0
    if of_positives:
        mean = sum(of_positives) / len(of_positives)
        total = total + sum(((1 - pos_eps) * mean - s).clamp(min=0) ** 2 for s in of_positives) / len(of_positives)
    if of_negatives:
        mean = sum(of_negatives) / len(of_negatives)
        total = total + sum((s - (1 + neg_eps) * mean).clamp(min=0) ** 2 for s in of_negatives) / len(of_negatives)
    return total


@every_batch
def test_formula(kind, unit):
    check_formula("intrapair_variance", plain(slow), kind, unit)


@every_batch
def test_mined_pairs(kind, unit):
    check_formula("intrapair_variance", mined(slow), kind, unit, batchminer=ListMiner(), mine_pairs=True)


def test_other_flags():
    flags = {"loss_intrapair_variance_pos_eps": 0.3, "loss_intrapair_variance_neg_eps": 0.7}
    check_formula("intrapair_variance", plain(lambda *pairs: slow(*pairs, 0.3, 0.7)), "ragged", True, **flags)


def test_references():
    check_references("intrapair_variance", slow)


def test_gradient():
    check_gradient("intrapair_variance")


def test_against_pytorch_metric_learning():
    check_peer("intrapair_variance", IntraPairVarianceLoss())
