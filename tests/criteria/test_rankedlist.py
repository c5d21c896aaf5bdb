import pytest
import torch
from pytorch_metric_learning.losses import RankedListLoss

from tests.criteria._oracles import DIMENSIONS, ListMiner, build, check_formula, every_batch, mined_partners, partners
from tests.criteria._references import check_references


def apart(x, y):
    squared = (x - y).square().sum()
    return squared.sqrt() if squared > 0 else squared


def weighted(violations, temperature):
    active = [v for v in violations if v > 0]
    weights = [torch.exp(temperature * v.detach()) for v in active]
    return sum(w * v for w, v in zip(weights, active, strict=True)) / sum(weights) if active else 0.0


def slow(batch, compared, positives, negatives, margin=0.4, alpha=1.2, t_n=10.0, t_p=0.0, imbalance=0.5):
    total = 0.0
    for i, x in enumerate(batch):
        far = weighted([apart(x, compared[p]) - (alpha - margin) for p in positives[i]], t_p)
        near = weighted([alpha - apart(x, compared[n]) for n in negatives[i]], t_n)
        total = total + (1 - imbalance) * far + imbalance * near
    return total / len(batch)


@every_batch
def test_formula(kind, unit):
    check_formula("rankedlist", lambda x, labels: slow(x, x, *partners(labels)), kind, unit)


@every_batch
def test_mined_pairs(kind, unit):
    loops = lambda x, labels: slow(x, x, *mined_partners(labels))  # noqa: E731
    check_formula("rankedlist", loops, kind, unit, batchminer=ListMiner(), mine_pairs=True)


def test_flags():
    flags = {
        "loss_rankedlist_margin": 0.6, "loss_rankedlist_alpha": 1.4, "loss_rankedlist_neg_temperature": 3.0,
        "loss_rankedlist_pos_temperature": 2.0, "loss_rankedlist_imbalance": 0.3,
    }  # fmt: skip
    check_formula("rankedlist", lambda x, labels: slow(x, x, *partners(labels), 0.6, 1.4, 3.0, 2.0, 0.3), "ragged", True, **flags)


def test_references():
    check_references("rankedlist", slow)


@pytest.mark.parametrize(("t_n", "t_p"), [(10, 0), (0, 0), (3, 2)])
def test_against_pytorch_metric_learning(t_n, t_p):
    """Its values up to the 1e-5 in its divisors; its gradients where no weight depends on a distance."""
    labels = torch.arange(24) // 2 % 5
    batch = torch.randn(24, DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ours_in, theirs_in = (torch.nn.functional.normalize(batch).requires_grad_() for _ in range(2))
    ours = build("rankedlist", loss_rankedlist_neg_temperature=t_n, loss_rankedlist_pos_temperature=t_p)(ours_in, labels)
    theirs = RankedListLoss(margin=0.4, Tn=t_n, Tp=t_p)(theirs_in, labels)
    torch.testing.assert_close(ours, theirs, rtol=3e-4, atol=0)
    if t_n == t_p == 0:
        ours.backward()
        theirs.backward()
        tangent = theirs_in.grad  # the package normalises once more: its gradient has no part along the embedding
        along = (ours_in.grad * ours_in.detach()).sum(1, keepdim=True) * ours_in.detach()
        torch.testing.assert_close(ours_in.grad - along, tangent, rtol=1e-3, atol=1e-6)


def test_a_high_temperature_does_not_overflow():
    batch = torch.randn(8, DIMENSIONS, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = build("rankedlist", loss_rankedlist_neg_temperature=10000, loss_rankedlist_pos_temperature=10000).float()(
        batch, torch.arange(8) // 2
    )
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(batch.grad).all()
