import math

import pytest
import torch
from pytorch_metric_learning.losses import ManifoldLoss

import criteria
from tests.criteria._oracles import DIMENSIONS, batch_of, build, compare, every_batch, gradcheck

FLAGS = {"loss_manifold_n_proxies": 3}  # of five classes


def reference(groups, context_weight=1.0, alpha=0.8, margin=5e-4):
    """The walk by its series F = (1 - alpha) sum_t (alpha S)^t, everything else in loops."""

    def loss(batch, labels, proxies):
        n = len(batch)
        nodes = [x / max(float(x.detach().norm()), 1e-12) if not x.any() else x / x.norm() for x in [*batch, *proxies]]
        edges = [
            [torch.exp((a @ b).clamp(min=0) / 0.5) if i != j else 0 * (a @ b) for j, b in enumerate(nodes)] for i, a in enumerate(nodes)
        ]
        degrees = [sum(row) for row in edges]
        scaled = torch.stack(
            [torch.stack([e / (degrees[i] * degrees[j]).sqrt() for j, e in enumerate(row)]) for i, row in enumerate(edges)]
        )
        term = walk = torch.eye(len(nodes), dtype=batch.dtype)
        for _ in range(200):
            term = alpha * scaled @ term
            walk = walk + term
        walk = (1 - alpha) * walk
        total = 0.0
        for i in range(n):
            own = groups[labels[i]]
            rows = {
                "intrinsic": walk[i, n:],
                "context": [walk[i] @ walk[n + k] / walk[i].norm() / walk[n + k].norm() for k in range(len(proxies))],
            }
            for kind, row in rows.items():
                excesses = [row[k] - row[own] + margin for k in range(len(proxies)) if k != own]
                mass = sum(torch.exp(e) for e in excesses if e >= 0)
                total = total + (context_weight if kind == "context" else 1.0) * torch.log(1 + torch.as_tensor(mass))
        return total / n

    return loss


@every_batch
def test_formula(kind, unit):
    criterion = build("manifold", **FLAGS)
    batch, labels = batch_of(kind, unit)
    slow = reference(criterion.groups.tolist())
    compare(criterion, lambda x, proxies: slow(x, labels.tolist(), proxies), batch, labels, kinds_of_kinks(kind))


def kinds_of_kinks(kind):
    return kind == "duplicates"


def test_flags():
    criterion = build("manifold", loss_manifold_context_weight=0.3, loss_manifold_alpha=0.5, loss_manifold_margin=0.01)
    batch, labels = batch_of("ragged")
    slow = reference(criterion.groups.tolist(), 0.3, 0.5, 0.01)
    assert len(criterion.proxies) == 5  # at most one a class
    compare(criterion, lambda x, proxies: slow(x, labels.tolist(), proxies), batch, labels)


def test_gradient():
    batch, labels = batch_of("ragged", unit=False, seed=3)
    gradcheck(build("manifold", **FLAGS), batch, labels)


@pytest.mark.parametrize("context_weight", [0.0, 1.0, 2.5])
def test_against_pytorch_metric_learning(context_weight):
    """Its inverse is in single precision."""
    labels = torch.arange(24) // 2 % 5
    batch = torch.randn(24, DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    criterion = build("manifold", loss_manifold_context_weight=context_weight, **FLAGS)
    peer = ManifoldLoss(DIMENSIONS, K=3, lambdaC=context_weight).double()
    peer.proxies.data = criterion.proxies.detach().clone()
    ours_in, theirs_in = batch.clone().requires_grad_(), batch.clone().requires_grad_()
    ours, theirs = criterion(ours_in, labels), peer(theirs_in, indices_tuple=criterion.groups[labels])
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(ours_in.grad, theirs_in.grad, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(criterion.proxies.grad, peer.proxies.grad, rtol=1e-3, atol=1e-6)


def test_groups_are_equally_large_drawn_once_and_part_of_the_state():
    def of(seed):
        torch.manual_seed(seed)
        return criteria.select("manifold", n_classes=103, embed_dim=4)

    one, other = of(0), of(1)
    sizes = torch.bincount(one.groups, minlength=50)
    assert len(sizes) == 50 and set(sizes.tolist()) == {2, 3} and sizes.sum() == 103
    assert not torch.equal(one.groups, other.groups)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.groups, other.groups)


def test_one_proxy_costs_nothing():
    batch, labels = batch_of("pairs")
    assert math.isclose(float(build("manifold", loss_manifold_n_proxies=1)(batch, labels).detach()), 0, abs_tol=1e-12)
