import torch

from tests.criteria import _oracles
from tests.criteria._oracles import PINNED, PINNED_LABELS, PINNED_VECTORS


def test_the_authors_function_gives_the_same():
    criterion = _oracles.build("meanfield", loss_meanfield_alpha=2.0, loss_meanfield_beta=10.0, loss_meanfield_margin=0.5)
    criterion.n_classes, criterion.classes_expected, criterion.proxies = 3, 3, torch.nn.Parameter(PINNED_VECTORS)
    assert round(criterion(PINNED, PINNED_LABELS).item(), 7) == 0.3394990


def test_large_exponents_do_not_overflow():
    """beta times a cosine beyond exp's range in float32: the terms are then linear."""
    criterion = _oracles.build("meanfield", loss_meanfield_alpha=300.0, loss_meanfield_beta=500.0, loss_meanfield_margin=0.0).float()
    x = criterion.proxies.detach()[[0, 1, 1]].neg().requires_grad_()
    loss = criterion(x, torch.tensor([0, 1, 2]))
    loss.backward()
    assert loss.isfinite() and x.grad.isfinite().all() and x.grad.abs().sum() > 0
