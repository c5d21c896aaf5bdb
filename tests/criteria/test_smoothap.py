import pytest
import torch

from criteria import _ranking
from tests.criteria._oracles import batch_of, build, check_formula, check_gradient, every_batch, partners


def reference(temperature):
    def loss(batch, labels):
        positives, negatives = partners(labels)
        precisions = []
        for i in range(len(labels)):
            if not positives[i]:
                continue
            s = [batch[i] @ x for x in batch]
            total = 0.0
            for p in positives[i]:
                above_p = {j: torch.sigmoid((s[j] - s[p]) / temperature) for j in positives[i] + negatives[i] if j != p}
                total = total + (1 + sum(above_p[j] for j in positives[i] if j != p)) / (1 + sum(above_p.values()))
            precisions.append(total / len(positives[i]))
        return 1 - sum(precisions) / len(precisions) if precisions else 0.0

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("smoothap", reference(0.01), kind, unit)


def test_temperature():
    check_formula("smoothap", reference(0.2), "ragged", True, loss_smoothap_temperature=0.2)


def test_gradient():
    check_gradient("smoothap", loss_smoothap_temperature=0.2)


@pytest.mark.parametrize("kind", ["pairs", "ragged", "one class", "all alone"])
@pytest.mark.parametrize("chunk", [1, 20])
def test_chunks_change_nothing(kind, chunk, monkeypatch):
    batch, labels = batch_of(kind)
    criterion = build("smoothap", loss_smoothap_temperature=0.1)
    results = []
    for size in (_ranking.CHUNK, chunk):
        monkeypatch.setattr(_ranking, "CHUNK", size)
        points = batch.clone().requires_grad_()
        loss = criterion(points, labels)
        loss.backward()
        results += [loss.detach(), points.grad]
    torch.testing.assert_close(results[0], results[2], rtol=1e-12, atol=0)
    torch.testing.assert_close(results[1], results[3], rtol=1e-10, atol=1e-14)


def test_perfect_order_costs_nothing():
    batch = torch.eye(4).repeat_interleave(2, 0)
    assert float(build("smoothap")(batch, torch.arange(8) // 2)) == pytest.approx(0, abs=1e-6)
