import pytest
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss

from tests.criteria._oracles import DIMENSIONS, ListMiner, build, check_formula, every_batch, mined_partners, partners
from tests.criteria._references import check_references

ALPHA, BETA, THRESHOLD, MARGIN = 2.0, 50.0, 0.5, 0.1


def softplus(x):
    return torch.log1p(torch.exp(x))


def of_one_anchor(kind, of_positives, of_negatives):
    """The loss that the weights are named after, of one anchor's cosines; None where it has no slope."""
    if kind == "contrastive":
        return sum(-s for s in of_positives) + sum((s - THRESHOLD).clamp(min=0) for s in of_negatives)
    if kind == "triplet":
        return sum((n - p + MARGIN).clamp(min=0) for p in of_positives for n in of_negatives)
    if kind == "binomial":
        return sum(softplus(ALPHA * (THRESHOLD - s)) for s in of_positives) / max(len(of_positives), 1) + sum(
            softplus(BETA * (s - THRESHOLD)) for s in of_negatives
        ) / max(len(of_negatives), 1)
    if kind == "lifted":
        if not of_positives or not of_negatives:
            return None
        return (torch.log(sum(torch.exp(-s) for s in of_positives)) + torch.log(sum(torch.exp(s) for s in of_negatives))).clamp(min=0)
    positive = torch.log(1 + sum(torch.exp(-ALPHA * (s - THRESHOLD)) for s in of_positives)) / ALPHA if of_positives else 0.0
    return positive + (torch.log(1 + sum(torch.exp(BETA * (s - THRESHOLD)) for s in of_negatives)) / BETA if of_negatives else 0.0)


def slow(kind):
    """The weights are that loss's derivatives by automatic differentiation."""

    def loss(batch, compared, positives, negatives):
        total = 0.0
        for i, x in enumerate(batch):
            cosines = [x @ y / x.norm() / y.norm() for y in compared]
            chosen = [*positives[i], *negatives[i]]
            leaves = [cosines[j].detach().clone().requires_grad_() for j in chosen]
            named = of_one_anchor(kind, leaves[: len(positives[i])], leaves[len(positives[i]) :])
            if chosen and torch.is_tensor(named) and named.requires_grad:
                slopes = torch.autograd.grad(named, leaves, allow_unused=True)
                total = total + sum(slope * cosines[j] for slope, j in zip(slopes, chosen, strict=True) if slope is not None)
        return total / len(batch)

    return loss


KINDS = ["contrastive", "triplet", "binomial", "lifted", "multisimilarity"]
every_kind = pytest.mark.parametrize("weights", KINDS)


@every_kind
@every_batch
def test_formula(kind, unit, weights):
    check_formula("gpw", lambda x, labels: slow(weights)(x, x, *partners(labels)), kind, unit, loss_gpw_weights=weights)


@every_kind
@every_batch
def test_mined_pairs(kind, unit, weights):
    loops = lambda x, labels: slow(weights)(x, x, *mined_partners(labels))  # noqa: E731
    check_formula("gpw", loops, kind, unit, batchminer=ListMiner(), mine_pairs=True, loss_gpw_weights=weights)


@every_kind
def test_references(weights):
    check_references("gpw", slow(weights), loss_gpw_weights=weights)


def test_the_gradient_is_that_of_pytorch_metric_learnings_multi_similarity():
    labels = torch.arange(24) // 2 % 5
    batch = torch.randn(24, DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    ours, theirs = build("gpw")(batch, labels), MultiSimilarityLoss(ALPHA, BETA, THRESHOLD)(batch, labels)
    torch.testing.assert_close(*(torch.autograd.grad(value, batch)[0] for value in (ours, theirs)), rtol=1e-9, atol=1e-12)


def test_flags_reach_the_weights():
    labels = torch.tensor([0, 0, 1, 1])
    batch = torch.nn.functional.normalize(torch.randn(4, DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(3)))
    value = build("gpw", loss_gpw_weights="contrastive", loss_gpw_threshold=-1.0)(batch, labels)
    s = batch @ batch.T
    expected = (s[:2, 2:].sum() * 2 - 2 * s[0, 1] - 2 * s[2, 3]) / 4
    torch.testing.assert_close(value, expected)
    changed = {"loss_gpw_pos_scale": 5.0, "loss_gpw_neg_scale": 7.0, "loss_gpw_threshold": 0.1}
    ours, theirs = (x.clone().requires_grad_() for x in (batch, batch))
    build("gpw", **changed)(ours, labels).backward()
    MultiSimilarityLoss(5.0, 7.0, 0.1)(theirs, labels).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    wide = build("gpw", loss_gpw_weights="triplet", loss_gpw_margin=2.0)(batch, labels)  # every triplet is violated
    torch.testing.assert_close(wide, (2 * s[:2, 2:].sum() - 4 * s[0, 1] - 4 * s[2, 3]) / 4)
