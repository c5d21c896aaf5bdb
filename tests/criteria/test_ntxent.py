import torch
from pytorch_metric_learning.losses import NTXentLoss

from tests.criteria._oracles import ListMiner, check_formula, check_gradient, check_peer, every_batch, mined_partners, partners


def reference(temperature, find=partners):
    def loss(batch, labels):
        positives, negatives = find(labels)
        losses = []
        for i in range(len(labels)):
            mass = [torch.exp(batch[i] @ x / batch[i].norm() / x.norm() / temperature) for x in batch]
            losses += [-torch.log(mass[p] / (mass[p] + sum(mass[n] for n in negatives[i]))) for p in positives[i]]
        return sum(losses) / len(losses) if losses else 0.0

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("ntxent", reference(0.07), kind, unit)


@every_batch
def test_mined_pairs(kind, unit):
    check_formula("ntxent", reference(0.07, mined_partners), kind, unit, batchminer=ListMiner(), mine_pairs=True)


def test_temperature():
    check_formula("ntxent", reference(0.5), "ragged", True, loss_ntxent_temperature=0.5)


def test_gradient():
    check_gradient("ntxent")


def test_against_pytorch_metric_learning():
    check_peer("ntxent", NTXentLoss(temperature=0.07))
