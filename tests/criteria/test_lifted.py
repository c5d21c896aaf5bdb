"""Lifted-structure loss: loops, pytorch-metric-learning, edge cases."""

import pytest
import torch
from pytorch_metric_learning import distances, losses, regularizers

from tests.criteria._oracles import MIXED, check_finite, check_tuples, criterion_of, distance, embeddings_of, mined


def slow(labels, neg_margin, l2):
    def value(criterion, x):
        terms, b = [], range(len(labels))
        for a in b:
            positives = [distance(x, a, p) for p in b if p != a and labels[p] == labels[a]]
            negatives = [neg_margin - distance(x, a, n) for n in b if labels[n] != labels[a]]
            if positives and negatives:
                terms.append(torch.relu(sum(p.exp() for p in positives).log() + sum(n.exp() for n in negatives).log()))
        return sum(terms) / len(terms) + l2 * sum(row.norm() for row in x) / len(x)

    return value


@pytest.mark.parametrize("neg_margin", [1.0, -2.5])
@pytest.mark.parametrize("labels", [MIXED, [0, 0, 1], [0, 1, 0, 1, 0, 2, 2]])
def test_value(labels, neg_margin):
    sets = mined("lifted", embeddings_of(labels), labels)
    flags = {"loss_lifted_neg_margin": neg_margin, "loss_lifted_l2": 0.2}
    criterion = check_tuples("lifted", slow(labels, neg_margin, 0.2), sets, labels=labels, **flags)
    if labels == MIXED:  # the margin of -2.5 leaves some anchors without a cost
        assert (criterion.stats["active_share"] < 1) == (neg_margin < 0)


def test_agrees_with_pytorch_metric_learning():
    labels = [0, 1, 2] * 3
    x, y = embeddings_of(labels), torch.tensor(labels)
    value = criterion_of("lifted", mined("lifted", x, labels))(x, y)
    metric = distances.LpDistance(normalize_embeddings=False)
    oracle = losses.GeneralizedLiftedStructureLoss(
        neg_margin=1, pos_margin=0, distance=metric, embedding_regularizer=regularizers.LpRegularizer(), embedding_reg_weight=0.005
    )
    expected = oracle(x, y)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, x)[0] for v in (value, expected)))


def test_nothing_mined_leaves_the_norm():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    value = criterion_of("lifted", mined("lifted", x, [0, 1]), loss_lifted_l2=0.1)(x, torch.tensor([0, 1]))
    value.backward()
    assert value.item() == pytest.approx(0.1 * 2.5)
    assert torch.isfinite(x.grad).all()


def test_finite():
    check_finite("lifted", ["lifted"])
