import torch
from pytorch_metric_learning.losses import SupConLoss

from tests.criteria._oracles import ListMiner, check_formula, check_gradient, check_peer, every_batch, mined_partners, partners


def reference(temperature, find=partners):
    def loss(batch, labels):
        positives, negatives = find(labels)
        losses = []
        for i in range(len(labels)):
            if positives[i]:
                mass = [torch.exp(batch[i] @ x / batch[i].norm() / x.norm() / temperature) for x in batch]
                whole = sum(mass[j] for j in {*positives[i], *negatives[i]})
                losses.append(-sum(torch.log(mass[p] / whole) for p in positives[i]) / len(positives[i]))
        return sum(losses) / len(losses) if losses else 0.0

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("supcon", reference(0.1), kind, unit)


@every_batch
def test_mined_pairs(kind, unit):
    check_formula("supcon", reference(0.1, mined_partners), kind, unit, batchminer=ListMiner(), mine_pairs=True)


def test_gradient():
    check_gradient("supcon")


def test_against_pytorch_metric_learning():
    check_peer("supcon", SupConLoss(temperature=0.1))
