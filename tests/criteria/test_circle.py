import torch
from pytorch_metric_learning.losses import CircleLoss

from tests.criteria._oracles import ListMiner, check_formula, check_peer, every_batch, mined_partners, partners


def reference(m, g, find=partners):
    def loss(batch, labels):
        positives, negatives = find(labels)
        losses = []
        for i in range(len(labels)):
            if not positives[i] or not negatives[i]:
                continue
            s = [batch[i] @ x / batch[i].norm() / x.norm() for x in batch]
            from_positives = [-g * (1 + m - s[p].detach()).clamp(min=0) * (s[p] - 1 + m) for p in positives[i]]
            from_negatives = [g * (s[n].detach() + m).clamp(min=0) * (s[n] - m) for n in negatives[i]]
            exponent = torch.logsumexp(torch.stack(from_positives), 0) + torch.logsumexp(torch.stack(from_negatives), 0)
            value = torch.log1p(torch.exp(-exponent.abs())) + exponent.clamp(min=0)
            if value > 0:
                losses.append(value)
        return sum(losses) / len(losses) if losses else 0.0

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("circle", reference(0.4, 80), kind, unit)


@every_batch
def test_mined_pairs(kind, unit):
    check_formula("circle", reference(0.4, 80, mined_partners), kind, unit, batchminer=ListMiner(), mine_pairs=True)


def test_other_flags():
    check_formula("circle", reference(0.25, 20), "ragged", True, loss_circle_m=0.25, loss_circle_gamma=20.0)


def test_against_pytorch_metric_learning():
    """Gradients too: a numeric gradient would differentiate the weights, which are constants here."""
    check_peer("circle", CircleLoss(m=0.4, gamma=80))
