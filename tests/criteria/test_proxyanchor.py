import torch
from pytorch_metric_learning.losses import ProxyAnchorLoss

import criteria
from tests.criteria._oracles import build, check_formula, check_gradient, check_peer, every_batch


def reference(alpha, delta):
    def loss(batch, labels, proxies):
        positive, present, negative = 0.0, 0, 0.0
        for c, proxy in enumerate(proxies):
            s = [x @ proxy / x.norm() / proxy.norm() for x in batch]
            own = [s[i] for i in range(len(labels)) if labels[i] == c]
            others = [s[i] for i in range(len(labels)) if labels[i] != c]
            if own:
                present += 1
                positive = positive + torch.log(1 + sum(torch.exp(-alpha * (v - delta)) for v in own))
            if others:
                negative = negative + torch.log(1 + sum(torch.exp(alpha * (v + delta)) for v in others))
        return positive / present + negative / len(proxies)

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("proxyanchor", reference(32, 0.1), kind, unit)


def test_other_flags():
    check_formula("proxyanchor", reference(5, 0.3), "ragged", False, loss_proxyanchor_alpha=5.0, loss_proxyanchor_delta=0.3)


def test_gradient():
    check_gradient("proxyanchor", loss_proxyanchor_alpha=6.0)


def test_against_pytorch_metric_learning():
    check_peer("proxyanchor", ProxyAnchorLoss(5, 6, margin=0.1, alpha=32), "proxies")


def test_against_pytorch_metric_learning_with_absent_classes():
    check_peer("proxyanchor", ProxyAnchorLoss(5, 6, margin=0.1, alpha=32), "proxies", labels=torch.tensor([0, 0, 3, 3, 0]))


def test_start_and_rate():
    torch.manual_seed(0)
    criterion = criteria.select("proxyanchor", n_classes=200, embed_dim=64, lr=1e-4)
    assert criterion.optim_dict_list[0]["lr"] == 100 * 1e-4
    assert abs(float(criterion.proxies.detach().std()) - (2 / 200) ** 0.5) < 0.003  # fan out: the number of classes
    assert build("proxyanchor").proxies.shape == (5, 6)
