import pytest
import torch
from pytorch_metric_learning.losses import P2SGradLoss

from tests.criteria._oracles import DIMENSIONS, N_CLASSES, build, check_formula, check_gradient, every_batch


def reference(batch, labels, weights):
    total = 0.0
    for x, y in zip(batch, labels, strict=True):
        total = total + sum((x @ w / x.norm() / w.norm() - float(c == y)) ** 2 for c, w in enumerate(weights)) / 2
    return total / len(labels)


@every_batch
def test_formula(kind, unit):
    check_formula("p2sgrad", reference, kind, unit)


def test_gradient():
    check_gradient("p2sgrad")


def test_the_gradient_is_equation_11():
    """Of sample x: sum over classes of (cos - [c is the own]) (w^ - cos x^) / |x|."""
    criterion = build("p2sgrad")
    x = torch.randn(1, DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    criterion(x, torch.tensor([2])).backward()
    unit, weights = torch.nn.functional.normalize(x.detach()), torch.nn.functional.normalize(criterion.proxies.detach())
    cosines = (unit @ weights.T).squeeze(0)
    errors = cosines - torch.nn.functional.one_hot(torch.tensor(2), N_CLASSES)
    expected = sum(e * (w - c * unit[0]) for e, w, c in zip(errors, weights, cosines, strict=True)) / x.detach().norm()
    torch.testing.assert_close(x.grad[0], expected)


def test_against_pytorch_metric_learning():
    """2 / C of ours."""
    labels = torch.arange(24) // 2 % N_CLASSES
    batch = torch.randn(24, DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    criterion, peer = build("p2sgrad"), P2SGradLoss(DIMENSIONS, N_CLASSES)
    with torch.no_grad():
        criterion.proxies.copy_(torch.nn.functional.normalize(criterion.proxies))
    peer.weight.data = criterion.proxies.detach().T.clone()
    ours_in, theirs_in = batch.clone().requires_grad_(), batch.clone().requires_grad_()
    ours, theirs = criterion(ours_in, labels), peer(theirs_in, labels)
    torch.testing.assert_close(ours * 2 / N_CLASSES, theirs, rtol=1e-6, atol=0)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(ours_in.grad * 2 / N_CLASSES, theirs_in.grad, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("start", ["icml", "pml"])
def test_only_the_direction_of_the_class_vectors_counts(start):
    criterion = build("p2sgrad", loss_vectors_start=start)
    batch, labels = torch.eye(DIMENSIONS, dtype=torch.float64), torch.arange(DIMENSIONS) % N_CLASSES
    value = criterion(batch, labels)
    with torch.no_grad():
        criterion.proxies.mul_(7)
    torch.testing.assert_close(criterion(batch, labels), value)
