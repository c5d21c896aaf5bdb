import torch
from pytorch_metric_learning.losses import InstanceLoss

import criteria
from tests.criteria._oracles import DIMENSIONS, check_formula, check_gradient, every_batch


def reference(gamma):
    def loss(batch, labels, weights):
        total = 0.0
        for x, y in zip(batch, labels, strict=True):
            logits = torch.stack([gamma * (x @ w) for w in weights])
            total = total - (logits[y] - torch.logsumexp(logits, 0))
        return total / len(labels)

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("instance", reference(1.0), kind, unit)


def test_gamma():
    check_formula("instance", reference(64.0), "ragged", True, loss_instance_gamma=64)


def test_gradient():
    check_gradient("instance")


def test_against_pytorch_metric_learning():
    """Its class vectors are the batch itself: with one sample a class, and these vectors, value and gradient agree."""
    batch = torch.randn(7, DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    labels = torch.arange(7)
    criterion = criteria.select("instance", n_classes=7, embed_dim=DIMENSIONS, loss_instance_gamma=64).double()
    unit = torch.nn.functional.normalize(batch)
    ours = torch.func.functional_call(criterion, {"proxies": unit}, (unit, labels))
    theirs = InstanceLoss(gamma=64)(batch, labels)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(value, batch, retain_graph=True)[0] for value in (ours, theirs)))
