import torch
from pytorch_metric_learning.distances import DotProductSimilarity
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss

import criteria
from tests.criteria._oracles import batch_of, build, check_formula, check_gradient, check_peer, every_batch


def reference(temperature):
    def loss(batch, labels, weights):
        total = 0.0
        for x, y in zip(batch, labels, strict=True):
            logits = torch.stack([x @ w / w.norm() / temperature for w in weights])
            total = total - (logits[y] - torch.logsumexp(logits, 0))
        return total / len(labels)

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("softmax", reference(0.05), kind, unit)


def test_gradient():
    check_gradient("softmax", loss_softmax_temperature=0.3)


def test_against_pytorch_metric_learning():
    check_peer("softmax", NormalizedSoftmaxLoss(5, 6, temperature=0.05, distance=DotProductSimilarity(normalize_embeddings=False)), "W")


def test_start_and_rate():
    criterion = criteria.select("softmax", n_classes=50, embed_dim=16, loss_softmax_lr=0.002)
    assert criterion.optim_dict_list[0]["lr"] == 0.002
    largest = float(criterion.proxies.detach().abs().max())
    assert 0.2 < largest <= 0.25


def test_stats():
    batch, labels = batch_of("pairs")
    criterion = build("softmax")
    with torch.no_grad():
        for label in range(4):
            criterion.proxies[label] = batch[2 * label]
    criterion(batch[::2], labels[::2])
    assert criterion.stats["accuracy"] == 1
    torch.testing.assert_close(criterion.stats["own_class_similarity"], torch.ones((), dtype=torch.float64))
