import pytest
import torch
from pytorch_metric_learning.losses import SoftTripleLoss
from pytorch_metric_learning.regularizers import SparseCentersRegularizer

import criteria
from criteria._proxies import spread_of_centres
from tests.criteria._oracles import build, check_formula, check_gradient, check_peer, every_batch


def reference(n_centroids=2, delta=0.01, gamma=0.1, scale=8, reg_weight=0.2):
    def loss(batch, labels, centres):
        n_classes = len(centres) // n_centroids
        centres = [w / w.norm() for w in centres]
        centres = [centres[c * n_centroids : (c + 1) * n_centroids] for c in range(n_classes)]
        total = 0.0
        for x, y in zip(batch, labels, strict=True):
            similarities = []
            for own in centres:
                s = torch.stack([x @ w / x.norm() for w in own])
                similarities.append((torch.exp(s / gamma) / torch.exp(s / gamma).sum() * s).sum())
            logits = torch.stack([scale * (s - (delta if c == y else 0)) for c, s in enumerate(similarities)])
            total = total - (logits[y] - torch.logsumexp(logits, 0))
        pairs = [(own[t], own[u]) for own in centres for t in range(n_centroids) for u in range(t + 1, n_centroids)]
        spread = sum(torch.sqrt(2 + 1e-5 - 2 * first @ second) for first, second in pairs)
        divisor = n_classes * n_centroids * (n_centroids - 1)
        return total / len(labels) + (reg_weight * spread / divisor if n_centroids > 1 else 0)

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("softtriplet", reference(), kind, unit)


@pytest.mark.parametrize("n_centroids", [1, 4])
def test_numbers_of_centres(n_centroids):
    check_formula("softtriplet", reference(n_centroids), "ragged", False, loss_softtriplet_n_centroids=n_centroids)


def test_gradient():
    check_gradient("softtriplet", loss_softtriplet_n_centroids=3)


def test_against_pytorch_metric_learning():
    regularizer = SparseCentersRegularizer(5, 3)
    peer = SoftTripleLoss(5, 6, centers_per_class=3, la=8, gamma=0.1, margin=0.01)
    check_peer("softtriplet", peer, "fc", loss_softtriplet_n_centroids=3, loss_softtriplet_reg_weight=0.0)
    criterion = build("softtriplet", loss_softtriplet_n_centroids=3)
    theirs = regularizer(criterion.proxies.detach())  # without the 1e-5 below its root
    torch.testing.assert_close(spread_of_centres(criterion.unit_centres(torch.zeros(1, 6, dtype=torch.float64))), theirs, rtol=1e-4, atol=0)


def test_coincident_centres_have_a_finite_gradient():
    criterion = build("softtriplet", loss_softtriplet_n_centroids=3).float()
    with torch.no_grad():
        criterion.proxies.copy_(criterion.proxies[:1].expand_as(criterion.proxies))
    criterion(torch.randn(4, 6), torch.tensor([0, 1, 2, 2])).backward()
    assert torch.isfinite(criterion.proxies.grad).all()


def test_memory_of_many_classes():
    """11,318 classes of 10 centres: a (CK)^2 matrix would take 51 GB."""
    criterion = criteria.select("softtriplet", n_classes=11318, embed_dim=8, loss_softtriplet_n_centroids=10)
    loss = criterion(torch.randn(4, 8), torch.tensor([0, 1, 2, 11317]))
    loss.backward()
    assert torch.isfinite(criterion.proxies.grad).all()


def test_rate():
    assert build("softtriplet", lr=1e-4, loss_softtriplet_lrmulti=3.0).optim_dict_list[0]["lr"] == pytest.approx(3e-4)
