import math

import pytest
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner

from tests.criteria._oracles import (
    LABELS,
    ListMiner,
    batch_of,
    build,
    check_formula,
    check_gradient,
    check_peer,
    every_batch,
    mined_partners,
    partners,
)


def reference(margin, find=partners, pos_weight=2.0, neg_weight=40.0, thresh=0.5):
    def loss(batch, labels):
        positives, negatives = find(labels)
        total = 0.0
        for i in range(len(labels)):
            s = [batch[i] @ other for other in batch]
            kept_p, kept_n = [s[p] for p in positives[i]], [s[n] for n in negatives[i]]
            if margin < math.inf:
                if not kept_p or not kept_n:
                    continue
                hardest_positive, hardest_negative = min(kept_p), max(kept_n)
                kept_p = [v for v in kept_p if v - margin < hardest_negative]
                kept_n = [v for v in kept_n if v + margin > hardest_positive]
            total = total + torch.log(1 + torch.as_tensor(sum(torch.exp(-pos_weight * (v - thresh)) for v in kept_p))) / pos_weight
            total = total + torch.log(1 + torch.as_tensor(sum(torch.exp(neg_weight * (v - thresh)) for v in kept_n))) / neg_weight
        return total / len(labels)

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("multisimilarity", reference(0.1), kind, unit)


@every_batch
def test_an_infinite_margin_keeps_all_pairs(kind, unit):
    check_formula("multisimilarity", reference(math.inf), kind, unit, loss_multisimilarity_margin=math.inf)


@every_batch
def test_mined_pairs(kind, unit):
    check_formula("multisimilarity", reference(0.1, mined_partners), kind, unit, batchminer=ListMiner(), mine_pairs=True)


def test_other_weights():
    flags = {"loss_multisimilarity_pos_weight": 5.0, "loss_multisimilarity_neg_weight": 30.0, "loss_multisimilarity_thresh": 0.2}
    check_formula("multisimilarity", reference(0.1, partners, 5.0, 30.0, 0.2), "ragged", True, **flags)


def test_gradient():
    check_gradient("multisimilarity")


def test_against_pytorch_metric_learning():
    check_peer("multisimilarity", MultiSimilarityLoss(2, 40, 0.5), tuples=MultiSimilarityMiner(0.1))


def test_against_pytorch_metric_learning_with_all_pairs():
    check_peer("multisimilarity", MultiSimilarityLoss(2, 40, 0.5), loss_multisimilarity_margin=math.inf)


def test_an_infinite_margin_keeps_the_terms_of_anchors_that_lack_a_kind():
    batch = torch.nn.functional.normalize(torch.tensor([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [1, 0.05]], dtype=torch.float64))
    labels = torch.tensor([0, 0, 1, 1, 2])
    ours = build("multisimilarity", loss_multisimilarity_margin=math.inf)(batch, labels)
    torch.testing.assert_close(ours, MultiSimilarityLoss(2, 40, 0.5)(batch, labels))
    assert float(ours) == pytest.approx(0.42910, abs=5e-6)


@pytest.mark.parametrize("kind", LABELS)
def test_against_pytorch_metric_learning_with_all_pairs_of_every_batch(kind):
    batch, labels = batch_of(kind)
    ours = build("multisimilarity", loss_multisimilarity_margin=math.inf)(batch, labels)
    torch.testing.assert_close(ours, torch.as_tensor(MultiSimilarityLoss(2, 40, 0.5)(batch, labels)).to(ours), rtol=1e-7, atol=1e-9)


def test_stats_count_kept_pairs():
    batch, labels = batch_of("pairs")
    criterion = build("multisimilarity", loss_multisimilarity_margin=math.inf)
    criterion(batch, labels)
    assert criterion.stats["kept_positive_share"] == criterion.stats["kept_negative_share"] == 1
    expected = sum(float(batch[i] @ batch[i + 1]) for i in range(0, 8, 2)) / 4
    assert float(criterion.stats["positive_similarity"]) == pytest.approx(expected)
