"""What the criteria on all pairs share, against loops."""

import math

import pytest
import torch

from criteria import _pairs


def matrix(n=5, seed=0):
    return torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(n=5, share=0.6, seed=1):
    return (torch.rand(n, n, generator=torch.Generator().manual_seed(seed)) < share).double()


def test_weights_are_the_mask_in_the_batchs_precision():
    mask = weights().bool()
    for dtype in (torch.float32, torch.float64):
        chosen = _pairs.as_weights(mask, torch.zeros(1, dtype=dtype))
        assert chosen.dtype == dtype and torch.equal(chosen, mask.to(dtype))


def test_log_sum_exp_of_the_chosen():
    values, chosen = 200 * matrix(), weights()
    chosen[2] = 0
    sums = _pairs.log_sum_exp(values, chosen)
    for row in (0, 1, 3, 4):
        own = values[row][chosen[row] > 0]
        assert float(sums[row]) == pytest.approx(float(own.max()) + math.log(float((own - own.max()).exp().sum())), rel=1e-12)
    assert (sums[2] * 2).exp() == 0 and torch.isfinite(sums[2] * 2)


def test_softplus_has_no_threshold():
    for value in (-800.0, -20.0, 0.0, 19.0, 21.0, 800.0):
        assert float(_pairs.softplus(torch.tensor(value, dtype=torch.float64))) == pytest.approx(
            max(value, 0) + math.log1p(math.exp(-abs(value))), rel=1e-14, abs=0
        )


@pytest.mark.parametrize("n_nodes", [2, 6])
def test_soft_histograms(n_nodes):
    positions = (torch.rand(5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * (n_nodes - 1)).requires_grad_()
    with torch.no_grad():
        positions[0, 1], positions[0, 2], positions[0, 3] = 0, n_nodes - 1, 1  # on nodes
    positives = weights(share=0.4)
    negatives = weights(share=0.4, seed=2) * (1 - positives)
    counts = _pairs.soft_counts(positions, positives, negatives, n_nodes)
    expected = torch.zeros(5, 2, n_nodes, dtype=torch.float64)
    for kind, chosen in enumerate((positives, negatives)):
        for i, j in chosen.nonzero().tolist():
            for node in range(n_nodes):
                expected[i, kind, node] += max(0.0, 1 - abs(float(positions[i, j].detach()) - node))
    torch.testing.assert_close(counts.detach(), expected)
    slopes = torch.arange(n_nodes, dtype=torch.float64)
    (counts * slopes).sum().backward()  # the mean position of a pair is where it stands
    torch.testing.assert_close(positions.grad, positives + negatives)


def test_pairs_come_anchor_by_anchor():
    anchors, others = _pairs.positive_pairs(torch.tensor([[0, 1, 1], [0, 0, 0], [1, 0, 0.0]]))
    assert (anchors.tolist(), others.tolist()) == ([0, 0, 2], [1, 2, 0])
