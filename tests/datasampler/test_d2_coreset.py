import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, multivariate_normal

from tests.datasampler.made import draw, make_sampler
from utilities.errors import UserError

SIZES = [9, 4, 7, 1, 12, 5, 3, 8, 6, 10]  # 65 images


def make(**flags):
    return make_sampler("d2_coreset", SIZES, bs=12, samples_per_class=2, data_batchmatch_bigbs=40, **flags)


def shrunk_covariance(pool):
    """Covariance by loops, 10 % of it replaced by the mean variance on the diagonal."""
    size, dim = pool.shape
    means = [sum(row[i] for row in pool) / size for i in range(dim)]
    covariance = np.zeros((dim, dim))
    for i in range(dim):
        for j in range(dim):
            covariance[i, j] = sum((row[i] - means[i]) * (row[j] - means[j]) for row in pool) / (size - 1)
    return means, 0.9 * covariance + 0.1 * np.trace(covariance) / dim * np.eye(dim)


@pytest.mark.parametrize(("size", "dim"), [(20, 3), (5, 8)])
def test_densities_are_those_of_the_pools_gaussian(size, dim):
    pools = torch.randn(2, size, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.2, 3, dim)
    _, log_densities = make().gaussian(pools)
    for pool, ours in zip(pools.numpy(), log_densities.numpy(), strict=True):
        means, covariance = shrunk_covariance(pool)
        expected = multivariate_normal(means, covariance).logpdf(pool)
        np.testing.assert_allclose(ours - ours[0], expected - expected[0], rtol=1e-8)


def test_draws_have_the_pools_mean_and_shrunk_covariance():
    pool = torch.randn(10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * torch.tensor([0.5, 1, 2])
    torch.manual_seed(0)
    draws, _ = make().gaussian(pool.expand(40000, -1, -1))
    means, covariance = shrunk_covariance(pool.numpy())
    np.testing.assert_allclose(draws.mean((0, 1)), means, atol=0.05)
    np.testing.assert_allclose(np.cov(draws[:, 0].T), covariance, atol=0.12)


def test_first_anchor_is_nearest_to_the_draw():
    sampler, pools = make(), torch.randn(30, 15, 4)
    torch.manual_seed(2)
    draws, _ = sampler.gaussian(pools)
    torch.manual_seed(2)
    first, _ = sampler.first_anchors(pools)
    for pool, drawn, anchor in zip(pools, draws[:, 0], first, strict=True):
        assert int(anchor) == min(range(15), key=lambda i: float((pool[i] - drawn).square().sum()))


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
def test_next_anchors_follow_density_times_distance(power):
    sampler = make(data_d2_coreset_lambda=power)
    pool = torch.randn(8, 3, generator=torch.Generator().manual_seed(3))
    pool[5] = pool[2]  # a copy of an anchor
    chosen = [2, 7]
    means, covariance = shrunk_covariance(pool.double().numpy())
    weights = []
    for i in range(8):
        nearest = min(sum(float(pool[i, d] - pool[c, d]) ** 2 for d in range(3)) for c in chosen)
        weights.append(0.0 if i in chosen else float(multivariate_normal(means, covariance).pdf(pool[i])) * nearest**power)
    expected = np.array(weights) / sum(weights)
    assert (expected[5] > 0) == (power == 0)

    count = 20000
    nearest = torch.cdist(pool.double(), pool.double()[chosen]).min(1).values.square().float()
    taken = torch.zeros(8, dtype=torch.bool)
    taken[chosen] = True
    _, log_densities = sampler.gaussian(pool[None])
    torch.manual_seed(0)
    drawn = sampler.next_anchors(nearest.expand(count, -1), taken.expand(count, -1), log_densities.expand(count, -1))
    counts = torch.bincount(drawn, minlength=8).numpy()
    possible = expected > 0
    assert (counts[~possible] == 0).all()
    assert chisquare(counts[possible], count * expected[possible]).pvalue > 1e-3


def test_anchors_use_the_nearest_of_all_chosen():
    """End to end on two pools: what reaches `next_anchors` is the minimum over the anchors so far."""
    sampler, pools = make(), torch.randn(2, 10, 3, dtype=torch.float64)
    calls, original = [], sampler.next_anchors
    sampler.next_anchors = lambda *args: calls.append((args[0].clone(), args[1].clone())) or original(*args)
    anchors = sampler.choose_anchors(pools)
    assert anchors.shape == (2, 6) and len(calls) == 5
    for step, (nearest, taken) in enumerate(calls, start=1):
        for row in range(2):
            chosen = anchors[row, :step].tolist()
            assert taken[row].nonzero().squeeze(1).tolist() == sorted(chosen)
            for i in range(10):
                expected = min(math.dist(pools[row, i].tolist(), pools[row, c].tolist()) ** 2 for c in chosen)
                assert nearest[row, i].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("power", [0, 1])
def test_copies_everywhere_still_give_distinct_anchors(power):
    sampler = make(data_d2_coreset_lambda=power, embeddings=torch.eye(6)[torch.arange(65) % 2])
    anchors = draw(sampler, seed=0)[:, ::2]
    assert all(len(row.unique()) == 6 for row in anchors)


def test_densities_beyond_a_floats_range_are_compared():
    """In many dimensions all densities underflow; the distances still decide among equally likely samples."""
    sampler = make()
    log_densities = torch.full((4000, 3), -5000.0)
    nearest = torch.tensor([0.0, 1.0, 3.0]).expand(4000, -1)
    taken = torch.tensor([True, False, False]).expand(4000, -1)
    torch.manual_seed(0)
    counts = torch.bincount(sampler.next_anchors(nearest, taken, log_densities), minlength=3).tolist()
    assert counts[0] == 0 and chisquare(counts[1:], [1000, 3000]).pvalue > 1e-3


def test_a_negative_exponent_is_refused():
    with pytest.raises(UserError, match="--data_d2_coreset_lambda -1"):
        make(data_d2_coreset_lambda=-1)
