import pytest
import torch
from pytorch_metric_learning.losses import SignalToNoiseRatioContrastiveLoss

from tests.criteria._oracles import ListMiner, build, check_formula, check_gradient, check_peer, every_batch, mined_partners, partners


def reference(pos_margin=0.0, neg_margin=1.0, weight=0.0, find=partners):
    def loss(batch, labels):
        positives, negatives = find(labels)
        terms = {1: [], -1: []}
        for a in range(len(labels)):
            for side, others, margin in ((1, positives[a], pos_margin), (-1, negatives[a], neg_margin)):
                for b in others:
                    distance = (batch[a] - batch[b]).var() / batch[a].var()
                    value = side * (distance - margin)
                    if value > 0:
                        terms[side].append(value)
        return sum(sum(t) / len(t) for t in terms.values() if t) + weight * batch.sum(1).abs().mean()

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("snr_contrastive", reference(), kind, unit)


@every_batch
def test_mined_pairs(kind, unit):
    check_formula("snr_contrastive", reference(find=mined_partners), kind, unit, batchminer=ListMiner(), mine_pairs=True)


@every_batch
def test_margins_and_regulariser(kind, unit):
    flags = {"pos_margin": 0.3, "neg_margin": 2.5, "regularizer_weight": 0.4}
    check_formula("snr_contrastive", reference(0.3, 2.5, 0.4), kind, unit, **{f"loss_snr_contrastive_{k}": v for k, v in flags.items()})


def test_gradient():
    check_gradient("snr_contrastive", loss_snr_contrastive_regularizer_weight=0.1)


def test_against_pytorch_metric_learning():
    check_peer("snr_contrastive", SignalToNoiseRatioContrastiveLoss())


def test_a_common_offset_cancels_in_single_precision():
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(8, 32, generator=generator, dtype=torch.float64)
    labels = torch.arange(8) // 2
    criterion = build("snr_contrastive")
    torch.testing.assert_close(criterion((batch + 50).float(), labels).double(), criterion(batch, labels), rtol=1e-4, atol=1e-4)


def test_coincident_positives_are_not_active():
    """Rounding must not make a distance of 0 count as an active term."""
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(64, 128, generator=generator)
    batch, labels = torch.cat([half, half, torch.randn(64, 128, generator=generator)]), torch.arange(192) % 64
    criterion = build("snr_contrastive")
    criterion(batch, labels)
    assert float(criterion.stats["active_positive_share"]) == pytest.approx(4 / 6)
