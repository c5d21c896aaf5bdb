import pytest
import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import LiftedStructureLoss

from tests.criteria._oracles import ListMiner, check_formula, check_gradient, check_peer, distance, every_batch, mined_partners, partners
from tests.criteria._references import check_references


def apart(x, y):
    squared = (x - y).square().sum()
    return squared.sqrt() if squared > 0 else squared


def slow(batch, compared, positives, negatives, margin=1.0):
    terms = []
    for i, x in enumerate(batch):
        for j in positives[i]:
            near = [torch.exp(margin - apart(x, compared[k])) for k in negatives[i]]
            near += [torch.exp(margin - apart(batch[m], compared[j])) for m in range(len(batch)) if j in negatives[m]]
            terms.append((apart(x, compared[j]) + torch.log(sum(near))).clamp(min=0) ** 2 / 2 if near else 0 * apart(x, compared[j]))
    return sum(terms) / len(terms) if terms else 0.0


def paper(x, labels):
    """Equation 4 of the paper, each pair once."""
    pairs = [(i, j) for i in range(len(labels)) for j in range(i + 1, len(labels)) if labels[i] == labels[j]]
    total = 0.0
    for i, j in pairs:
        near = [torch.exp(1 - distance(x, a, k)) for a in (i, j) for k in range(len(labels)) if labels[k] != labels[a]]
        total = total + ((distance(x, i, j) + torch.log(sum(near))).clamp(min=0) ** 2 if near else 0 * distance(x, i, j))
    return total / (2 * len(pairs)) if pairs else 0.0


@every_batch
def test_formula_of_the_paper(kind, unit):
    check_formula("lifted_original", paper, kind, unit)


@every_batch
@pytest.mark.parametrize("margin", [-0.5, 2.0])
def test_margin(kind, unit, margin):
    loops = lambda x, labels: slow(x, x, *partners(labels), margin)  # noqa: E731
    check_formula("lifted_original", loops, kind, unit, loss_lifted_original_neg_margin=margin)


@every_batch
def test_mined_pairs(kind, unit):
    loops = lambda x, labels: slow(x, x, *mined_partners(labels))  # noqa: E731
    check_formula("lifted_original", loops, kind, unit, batchminer=ListMiner(), mine_pairs=True)


def test_references():
    check_references("lifted_original", slow)


def test_gradient():
    check_gradient("lifted_original")


def test_against_pytorch_metric_learning():
    check_peer("lifted_original", LiftedStructureLoss(neg_margin=1, pos_margin=0, distance=LpDistance(normalize_embeddings=False)))
