"""HIST beyond its formula: a probability that underflows, running statistics."""

import torch
from torch.testing import assert_close

from tests.criteria.test_table import build, points


def test_a_row_far_from_its_class_counts():
    """Its probability underflows in float32: the authors' mean is without it."""
    criterion = build("hist", tau=1000.0, hidden=4, alpha=1.1).float()
    criterion.log_variances.data.zero_()
    x = criterion.proxies.detach()[[0, 1]].clone().requires_grad_()
    criterion(x, torch.tensor([1, 0])).backward()
    assert criterion.stats["distribution_loss"] > 100 and x.grad.isfinite().all() and x.grad.abs().sum() > 1


def test_running_statistics_are_those_of_torch():
    criterion = build("hist", hidden=4)
    peer = torch.nn.BatchNorm1d(4).double()
    batch = points(9, 0, True).detach()
    labels = torch.tensor([0, 1, 0, 2, 2, 2, 3, 0, 4])
    hidden = criterion.graph(criterion.distances(batch), labels) @ criterion.layers[0](batch)
    assert_close(criterion.norm(hidden), peer(hidden))
    for name, value in peer.state_dict().items():
        assert_close(criterion.norm.state_dict()[name], value)
    assert_close(criterion.norm.eval()(hidden), peer.eval()(hidden))
    criterion = build("hist", hidden=4)
    row = batch[:1].clone().requires_grad_()
    value = criterion(row, labels[:1])
    value.backward()
    assert value.isfinite() and criterion.norm.running_var.isfinite().all() and row.grad.isfinite().all()
