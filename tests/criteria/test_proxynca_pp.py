import pytest
import torch
from pytorch_metric_learning.losses import ProxyNCALoss

from tests.criteria._oracles import build, check_formula, check_gradient, check_peer, every_batch
from utilities.errors import UserError


def reference(scale):
    def loss(batch, labels, proxies):
        total = 0.0
        for x, y in zip(batch, labels, strict=True):
            squared = [(scale * x / x.norm() - scale * p / p.norm()).square().sum() for p in proxies]
            total = total + squared[y] + torch.log(sum(torch.exp(-s) for s in squared))
        return total / len(labels)

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("proxynca_pp", reference(3), kind, unit)


def test_gradient():
    check_gradient("proxynca_pp", loss_proxynca_pp_scale=2.0)


def test_against_pytorch_metric_learning():
    check_peer("proxynca_pp", ProxyNCALoss(5, 6, softmax_scale=9), "proxies")


def test_the_scale_as_the_package_states_it():
    check_peer("proxynca_pp", ProxyNCALoss(5, 6, softmax_scale=13.9843), "proxies", loss_proxynca_pp_softmax_scale=13.9843)
    check_formula("proxynca_pp", reference(2), "ragged", True, loss_proxynca_pp_softmax_scale=4.0, loss_proxynca_pp_scale=7.0)


def test_the_scale_that_is_given_can_be_learned():
    learned = build("proxynca_pp", loss_learn=["scale"])
    assert learned.scale.requires_grad and float(learned.scale.detach()) == pytest.approx(3)
    with pytest.raises(UserError, match="no such number to learn; it has softmax_scale"):
        build("proxynca_pp", loss_learn=["scale"], loss_proxynca_pp_softmax_scale=9.0)


def test_rate():
    assert build("proxynca_pp", lr=1e-4).optim_dict_list[0]["lr"] == 50 * 1e-4
