import math

import pytest
import torch
from pytorch_metric_learning.losses import TupletMarginLoss

from tests.criteria._oracles import ListMiner, build, check_formula, check_gradient, check_peer, every_batch
from tests.criteria._references import check_references, mined, plain


def slow(batch, compared, positives, negatives, margin=0.1, scale=64.0):
    terms = []
    for i, x in enumerate(batch):
        cosines = [x @ y / x.norm() / y.norm() for y in compared]
        for p in positives[i]:
            angle = torch.acos(cosines[p].clamp(-1 + 1e-7, 1 - 1e-7))
            terms.append(torch.log(1 + sum(torch.exp(scale * (cosines[n] - torch.cos(angle - margin))) for n in negatives[i]) + 0 * angle))
    return sum(terms) / len(terms) if terms else 0.0


@every_batch
def test_formula(kind, unit):
    check_formula("tupletmargin", plain(slow), kind, unit)


@every_batch
def test_mined_pairs(kind, unit):
    check_formula("tupletmargin", mined(slow), kind, unit, batchminer=ListMiner(), mine_pairs=True)


def test_other_flags():
    flags = {"loss_tupletmargin_margin": 0.5, "loss_tupletmargin_scale": 8.0}
    check_formula("tupletmargin", plain(lambda *pairs: slow(*pairs, 0.5, 8.0)), "ragged", True, **flags)


def test_references():
    check_references("tupletmargin", slow)


def test_gradient():
    check_gradient("tupletmargin", loss_tupletmargin_scale=8.0)


def test_against_pytorch_metric_learning():
    check_peer("tupletmargin", TupletMarginLoss(margin=math.degrees(0.1)))
    assert TupletMarginLoss().margin == pytest.approx(0.1, rel=1e-3)  # 5.73 degrees


def test_cosines_of_plus_and_minus_one():
    """Where the package's arc cosine has an infinite slope."""
    for dtype in (torch.float32, torch.float64):
        batch = torch.tensor([[1.0, 0], [2, 0], [-1, 0], [0, 1]], dtype=dtype, requires_grad=True)
        loss = build("tupletmargin")(batch, torch.tensor([0, 0, 0, 1]))
        loss.backward()
        assert torch.isfinite(loss) and torch.isfinite(batch.grad).all()
