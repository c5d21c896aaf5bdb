import pytest
import torch

from criteria import _ranking
from tests.criteria._oracles import batch_of, build, check_formula, check_gradient, every_batch, partners
from utilities.errors import UserError


def reference(ks=(1, 2, 4, 8, 16), temperature=0.01, k_temperature=1.0):
    def loss(batch, labels):
        positives, negatives = partners(labels)
        used = [k for k in ks if k <= len(labels) - 1]
        recalls = []
        for q in range(len(labels)):
            if not positives[q]:
                continue
            s = [batch[q] @ x for x in batch]
            others = positives[q] + negatives[q]
            ranks = [1 + sum(torch.sigmoid((s[j] - s[p]) / temperature) for j in others if j != p) for p in positives[q]]
            for k in used:
                hits = sum(torch.sigmoid((k - rank) / k_temperature) for rank in ranks)
                recalls.append(hits.clamp(max=k) / min(k, len(positives[q])))
        return 1 - sum(recalls) / len(recalls) if recalls else 0.0

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("recallatk", reference(), kind, unit)


def test_other_flags():
    flags = {"loss_recallatk_ks": [1, 3], "loss_recallatk_temperature": 0.1, "loss_recallatk_k_temperature": 0.5}
    check_formula("recallatk", reference((1, 3), 0.1, 0.5), "ragged", True, **flags)


def test_gradient():
    check_gradient("recallatk", loss_recallatk_temperature=0.2)


@pytest.mark.parametrize("kind", ["pairs", "ragged", "one class", "all alone"])
@pytest.mark.parametrize("chunk", [1, 20])
def test_chunks_change_nothing(kind, chunk, monkeypatch):
    batch, labels = batch_of(kind)
    criterion = build("recallatk", loss_recallatk_temperature=0.1)
    results = []
    for size in (_ranking.CHUNK, chunk):
        monkeypatch.setattr(_ranking, "CHUNK", size)
        points = batch.clone().requires_grad_()
        loss = criterion(points, labels)
        loss.backward()
        results += [loss.detach(), points.grad]
    torch.testing.assert_close(results[0], results[2], rtol=1e-12, atol=0)
    torch.testing.assert_close(results[1], results[3], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("ks", [[], [0, 1]])
def test_impossible_ks_are_refused(ks):
    with pytest.raises(UserError, match="ks"):
        build("recallatk", loss_recallatk_ks=ks)
