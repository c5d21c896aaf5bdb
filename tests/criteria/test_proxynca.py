import torch

import criteria
from tests.criteria._oracles import build, check_formula, check_gradient, every_batch


def reference(scale):
    def loss(batch, labels, proxies):
        total = 0.0
        for x, y in zip(batch, labels, strict=True):
            squared = [(scale * x / x.norm() - scale * p / p.norm()).square().sum() for p in proxies]
            others = sum(torch.exp(-squared[k]) for k in range(len(proxies)) if k != y)
            total = total + squared[y] + torch.log(others)
        return total / len(labels)

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("proxynca", reference(3), kind, unit)


def test_other_scale():
    check_formula("proxynca", reference(1.5), "ragged", False, loss_proxynca_scale=1.5)


def test_gradient():
    check_gradient("proxynca")


def test_rate_and_shape():
    criterion = build("proxynca", lr=1e-4, loss_proxynca_lrmulti=20.0)
    assert criterion.optim_dict_list[0]["lr"] == 20 * 1e-4
    assert [tuple(p.shape) for p in criterion.parameters()] == [(5, 6)]


def test_start():
    torch.manual_seed(0)
    proxies = criteria.select("proxynca", n_classes=400, embed_dim=64).proxies.detach()
    assert abs(float(proxies.std()) - 1 / 8) < 0.003 and abs(float(proxies.mean())) < 0.003


def test_a_single_class_has_nothing_to_be_told_from():
    criterion = criteria.select("proxynca", n_classes=1, embed_dim=4)
    loss = criterion(torch.randn(3, 4), torch.zeros(3, dtype=torch.long))
    loss.backward()
    assert float(loss.detach()) == 0 and criterion.proxies.grad.abs().sum() == 0
