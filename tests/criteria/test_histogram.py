import math

import pytest
import torch

from tests.criteria._oracles import batch_of, build, check_formula, check_gradient, every_batch
from utilities.errors import UserError


def reference(n_nodes):
    step = 2 / (n_nodes - 1)

    def loss(batch, labels):
        histograms = {True: [0.0] * n_nodes, False: [0.0] * n_nodes}
        counts = {True: 0, False: 0}
        for i in range(len(labels)):
            for j in range(i + 1, len(labels)):
                similarity = (batch[i] @ batch[j]).clamp(-1, 1)
                same = bool(labels[i] == labels[j])
                counts[same] += 1
                for r in range(n_nodes):  # a triangle of width 2 steps over each node
                    share = 1 - abs(similarity - (-1 + r * step)) / step
                    if share > 0:
                        histograms[same][r] = histograms[same][r] + share
        if not counts[True] or not counts[False]:
            return 0.0
        return sum(histograms[False][r] / counts[False] * sum(histograms[True][: r + 1]) / counts[True] for r in range(n_nodes))

    return loss


@pytest.mark.parametrize("n_nodes", [65, 11, 2])
@every_batch
def test_formula(kind, unit, n_nodes):
    check_formula("histogram", reference(n_nodes), kind, unit, loss_histogram_nbins=n_nodes)


def test_gradient():
    check_gradient("histogram", loss_histogram_nbins=9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_pair_is_lost_on_a_node(dtype):
    """Similarities of exactly -1, 0 and 1 lie on nodes of 65: positives at 1, negatives at -1 and 0 cost nothing."""
    batch = torch.tensor([[1, 0], [1, 0], [-1, 0], [-1, 0], [0, 1], [0, 1]], dtype=dtype)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    assert float(build("histogram")(batch, labels)) == 0
    assert float(build("histogram")(-batch.abs(), torch.tensor([0, 1, 0, 1, 0, 1]))) == pytest.approx(
        float(reference(65)(-batch.abs().double(), torch.tensor([0, 1, 0, 1, 0, 1])))
    )


def test_separated_classes_cost_nothing_and_reversed_ones_everything():
    direction = torch.tensor([1.0, 0.0])
    batch = torch.stack([direction, direction, -direction, -direction])
    assert float(build("histogram")(batch, torch.tensor([0, 0, 1, 1]))) == 0
    # negatives at 1, positives at -1
    assert float(build("histogram")(batch, torch.tensor([0, 1, 0, 1]))) > 0.4


def test_one_node_is_refused():
    with pytest.raises(UserError, match="nbins 1"):
        build("histogram", loss_histogram_nbins=1)


def test_value_is_a_probability():
    batch, labels = batch_of("ragged")
    value = float(build("histogram")(batch, labels))
    assert 0 <= value <= 1 and math.isfinite(value)
