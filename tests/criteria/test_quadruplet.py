"""Quadruplet loss: loops over the fourth samples that were drawn, edge cases."""

import pytest
import torch

from tests.criteria._oracles import MIXED, check_empty, check_finite, criterion_of, distance, embeddings_of, mined, rows
from utilities.tuples import Classes, as_triplets


def slow(x, triplets, strangers, labels, alpha_1, alpha_2):
    first, second = x.sum() * 0, x.sum() * 0
    count = 0
    for (a, p, n), m in zip(triplets, strangers, strict=True):
        first = first + torch.relu(distance(x, a, p) - distance(x, a, n) + alpha_1)
        if len({labels[a], labels[n], *labels}) > len({labels[a], labels[n]}):
            assert labels[m] not in (labels[a], labels[n])
            second = second + torch.relu(distance(x, a, p) - distance(x, n, m) + alpha_2)
            count += 1
    return first / max(len(triplets), 1) + second / max(count, 1)


@pytest.mark.parametrize("miner", ["all", "distance", "rho_distance", "none"])
@pytest.mark.parametrize("labels", [MIXED, [0, 0, 1, 1], [0, 0, 0, 1, 1, 2]])
def test_value(miner, labels):
    x, y = embeddings_of(labels), torch.tensor(labels)
    tuples = mined(miner, x, labels)
    triplets = as_triplets(tuples)
    criterion = criterion_of("quadruplet", tuples, loss_quadruplet_margin_alpha_1=0.5, loss_quadruplet_margin_alpha_2=1.5)
    for precision, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
        torch.manual_seed(3)
        strangers = Classes(y).draw_strangers(triplets.anchors, triplets.negatives)[0].tolist()
        torch.manual_seed(3)
        value = criterion(x.to(precision), y)
        expected = slow(x, rows(triplets), strangers, labels, 0.5, 1.5)
        torch.testing.assert_close(value.double(), expected, rtol=tolerance, atol=tolerance)
    torch.manual_seed(3)
    value = criterion(x, y)
    torch.testing.assert_close(*(torch.autograd.grad(v, x)[0] for v in (value, expected)), rtol=1e-8, atol=1e-9)


def test_gradcheck():
    labels = [0, 0, 1, 1, 2]
    tuples = mined("all", embeddings_of(labels), labels)
    criterion = criterion_of("quadruplet", tuples)

    def value(x):
        torch.manual_seed(0)
        return criterion(x, torch.tensor(labels))

    assert torch.autograd.gradcheck(value, (embeddings_of(labels),))


def test_mean_over_draws():
    """The second mean is unbiased: over many draws it is the mean over all fourth samples."""
    labels = [0, 0, 1, 2, 2, 2]
    x, y = embeddings_of(labels).detach(), torch.tensor(labels)
    tuples = mined("all", x, labels)
    criterion = criterion_of("quadruplet", tuples, loss_quadruplet_margin_alpha_1=-1e3, loss_quadruplet_margin_alpha_2=1e3)
    torch.manual_seed(0)
    drawn = torch.stack([criterion(x, y) for _ in range(800)])
    per_triplet = []
    for a, p, n in rows(tuples):
        fourth = [m for m in range(6) if labels[m] not in (labels[a], labels[n])]
        per_triplet.append(sum(distance(x, a, p) - distance(x, n, m) + 1e3 for m in fourth) / len(fourth))
    assert abs(drawn.mean() - sum(per_triplet) / len(per_triplet)) < 5 * drawn.std() / 800**0.5


def test_nothing_mined():
    check_empty("quadruplet")


def test_finite():
    check_finite("quadruplet", ["all", "distance", "rho_distance"])
