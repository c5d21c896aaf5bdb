import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import NCALoss

from tests.criteria._oracles import ListMiner, build, check_formula, check_gradient, check_peer, every_batch, mined_partners, partners


def reference(scale, find=partners):
    def loss(batch, labels):
        positives, negatives = find(labels)
        losses = []
        for i in range(len(labels)):
            if positives[i]:
                mass = [torch.exp(-scale * (batch[i] - x).square().sum()) for x in batch]
                losses.append(-torch.log(sum(mass[p] for p in positives[i]) / sum(mass[j] for j in {*positives[i], *negatives[i]})))
        return sum(losses) / len(losses) if losses else 0.0

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("nca", reference(1), kind, unit)


@every_batch
def test_mined_pairs(kind, unit):
    check_formula("nca", reference(1, mined_partners), kind, unit, batchminer=ListMiner(), mine_pairs=True)


def test_scale():
    check_formula("nca", reference(4.5), "ragged", True, loss_nca_scale=4.5)


def test_gradient():
    check_gradient("nca")


def test_against_pytorch_metric_learning():
    check_peer("nca", NCALoss(softmax_scale=2, distance=LpDistance(normalize_embeddings=False, power=2)), loss_nca_scale=2.0)


def test_far_positives_still_pull():
    """Where exp(-d^2) is 0 in every precision, the value is the distance and the gradient is alive."""
    batch = torch.tensor([[0.0, 0], [40, 0], [1, 0], [41, 0]], requires_grad=True)
    loss = build("nca")(batch, torch.tensor([0, 0, 1, 1]))
    loss.backward()
    torch.testing.assert_close(loss, torch.tensor((1600 + 1600) / 2 - 1.0), rtol=1e-5, atol=0)
    assert (batch.grad[:, 0].abs() > 1).all()


def test_a_common_offset_cancels_in_single_precision():
    generator = torch.Generator().manual_seed(0)
    batch, labels = torch.randn(8, 16, generator=generator, dtype=torch.float64), torch.arange(8) // 2
    criterion = build("nca")
    torch.testing.assert_close(criterion((batch + 30).float(), labels).double(), criterion(batch, labels), rtol=1e-4, atol=1e-4)
