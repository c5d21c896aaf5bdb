import torch
from pytorch_metric_learning.losses import CosFaceLoss

from tests.criteria._oracles import check_formula, check_gradient, check_peer, every_batch


def reference(margin, scale):
    def loss(batch, labels, weights):
        total = 0.0
        for x, y in zip(batch, labels, strict=True):
            logits = [scale * (x @ w / x.norm() / w.norm() - (margin if c == y else 0)) for c, w in enumerate(weights)]
            total = total - (logits[y] - torch.logsumexp(torch.stack(logits), 0))
        return total / len(labels)

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("cosface", reference(0.35, 64), kind, unit)


def test_gradient():
    check_gradient("cosface", loss_cosface_scale=8.0)


def test_against_pytorch_metric_learning():
    check_peer("cosface", CosFaceLoss(5, 6), "W")
