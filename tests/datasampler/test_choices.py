"""How the samplers with a memory choose, against loops: coresets' anchors, batches most like their pool."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.spatial.distance import pdist
from scipy.stats import chisquare, multivariate_normal, wasserstein_distance

from tests.kit.samplers import SIZES, draw, make_sampler, spied

FLAGS = {"bs": 12, "samples_per_class": 2, "data_batchmatch_bigbs": 40}


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def d2(**flags):
    return make_sampler("d2_coreset", SIZES, **FLAGS, **flags)


def shrunk_covariance(pool):
    """Mean, and covariance of which 10 % are replaced by the mean variance on the diagonal."""
    covariance = np.cov(pool.T)
    return pool.mean(0), 0.9 * covariance + 0.1 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))


def test_the_gaussian_of_a_pool_and_its_first_anchor():
    for size, dim in ((20, 3), (5, 8)):
        pools = random(2, size, dim) * torch.linspace(0.2, 3, dim)
        _, log_densities = d2().gaussian(pools)
        for pool, ours in zip(pools.numpy(), log_densities.numpy(), strict=True):
            expected = multivariate_normal(*shrunk_covariance(pool)).logpdf(pool)
            np.testing.assert_allclose(ours - ours[0], expected - expected[0], rtol=1e-8)
    pool = random(10, 3) * torch.tensor([0.5, 1, 2])
    torch.manual_seed(0)
    draws, _ = d2().gaussian(pool.expand(40000, -1, -1))
    means, covariance = shrunk_covariance(pool.numpy())
    np.testing.assert_allclose(draws.mean((0, 1)), means, atol=0.05)
    np.testing.assert_allclose(np.cov(draws[:, 0].T), covariance, atol=0.12)
    # the first anchor is nearest to the draw
    sampler = d2()
    pools = random(30, 15, 4)
    torch.manual_seed(2)
    draws, _ = sampler.gaussian(pools)
    torch.manual_seed(2)
    first, _ = sampler.first_anchors(pools)
    assert torch.equal(first, torch.cdist(draws, pools)[:, 0].argmin(1))


@pytest.mark.parametrize("power", [0, 0.5, 2])
def test_next_anchors_follow_density_times_distance(power):
    sampler = d2(data_d2_coreset_lambda=power)
    pool = random(8, 3, seed=3)
    chosen = [2, 7]
    count = 20000
    # a copy of an anchor
    pool[5] = pool[2]
    nearest = torch.cdist(pool, pool[chosen]).min(1).values.square()
    weights = multivariate_normal(*shrunk_covariance(pool.numpy())).pdf(pool.numpy()) * nearest.numpy() ** power
    weights[chosen] = 0
    is_anchor = torch.zeros(8, dtype=torch.bool)
    is_anchor[chosen] = True
    _, log_densities = sampler.gaussian(pool[None])
    torch.manual_seed(0)
    rows = (values.expand(count, -1) for values in (nearest, is_anchor, log_densities))
    counts = torch.bincount(sampler.next_anchors(*rows), minlength=8).numpy()
    possible = weights > 0
    assert (counts[~possible] == 0).all() and possible[5] == (power == 0)
    assert chisquare(counts[possible], count * weights[possible] / weights.sum()).pvalue > 1e-3
    # in many dimensions all densities underflow; the distances still decide among equally likely samples
    nearest = torch.tensor([0.0, 1.0, 3.0]).expand(4000, -1)
    torch.manual_seed(0)
    chosen = d2().next_anchors(nearest, nearest == 0, torch.full((4000, 3), -5000.0))
    counts = torch.bincount(chosen, minlength=3).tolist()
    assert counts[0] == 0 and chisquare(counts[1:], [1000, 3000]).pvalue > 1e-3


def test_anchors_are_distinct_and_keep_the_nearest_distances():
    sampler = d2()
    pools = random(2, 10, 3)
    calls = []
    original = sampler.next_anchors
    sampler.next_anchors = lambda *args: calls.append((args[0].clone(), args[1].clone())) or original(*args)
    anchors = sampler.choose_anchors(pools)
    assert anchors.shape == (2, 6) and len(calls) == 5
    for step, (nearest, is_anchor) in enumerate(calls, start=1):
        for row in range(2):
            chosen = anchors[row, :step]
            assert is_anchor[row].nonzero().squeeze(1).tolist() == sorted(chosen.tolist())
            torch.testing.assert_close(nearest[row], torch.cdist(pools[row], pools[row, chosen]).min(1).values.square())
    # All 65 samples lie at two places, so that most are copies
    for power in (0, 1):
        sampler = d2(data_d2_coreset_lambda=power, embeddings=torch.eye(6)[torch.arange(65) % 2])
        assert all(len(row.unique()) == 6 for row in draw(sampler, seed=0)[:, ::2])


def farthest_first(pool, storage, count):
    """Greedy k-centre by loops: the sample whose nearest chosen one is farthest."""
    chosen = [int(pool[0])]

    def distance(candidate):
        return min(math.dist(storage[candidate].tolist(), storage[anchor].tolist()) for anchor in chosen)

    while len(chosen) < count:
        chosen.append(max((candidate for candidate in pool.tolist() if candidate not in chosen), key=distance))
    return chosen


def greedy(sizes=SIZES, **flags):
    """A sampler, and the pools that it will draw, one entry an epoch."""
    sampler = make_sampler("greedy_coreset", sizes, **{**FLAGS, **flags})
    return sampler, spied(sampler, "draw_pools")


def test_greedy_anchors_are_those_of_a_double_loop():
    for dtype in (torch.float32, torch.float64):
        sampler, pools = greedy(dtype=dtype)
        for batch, pool in zip(draw(sampler, seed=0), pools[0], strict=True):
            assert batch[::2].tolist() == farthest_first(pool, sampler.storage.double(), 6)
    assert len(torch.cat([draw(sampler)[:, 0] for _ in range(200)]).unique()) == 65, "the first one is random"
    # 65 samples at 4 places
    points = torch.cat([torch.eye(4).repeat_interleave(16, 0), torch.eye(4)[:1]])
    sampler, pools = greedy(embeddings=points)
    for batch, pool in zip(draw(sampler, seed=1), pools[0], strict=True):
        anchors = batch[::2]
        # each place once
        assert len(points[anchors[:4]].unique(dim=0)) == 4 and len(anchors.unique()) == 6
        # in the pool's random order
        assert anchors[4:].tolist() == [index for index in pool.tolist() if index not in anchors[:4]][:2]
    # Distances below the limit count as none: the anchors are the first of the pool
    sampler, pools = greedy(data_gc_coreset_lim=1e3)
    assert torch.equal(draw(sampler)[:, ::2], pools[0][:, :6])


def test_softened_draws_among_the_farthest_three_percent():
    sampler, pools = greedy([30] * 10, data_batchmatch_bigbs=200, data_gc_softened=True)
    batches = draw(sampler, seed=0)
    storage = sampler.storage.double()
    ranks = set()
    for pool, batch in zip(pools[0], batches, strict=True):
        anchors = batch[::2].tolist()
        assert len(set(anchors)) == 6
        for step in range(1, 6):
            nearest = torch.cdist(storage[pool], storage[anchors[:step]]).min(1).values
            ranks.add(int((nearest > nearest[pool.tolist().index(anchors[step])]).sum()))
    # 3 % of 200
    assert ranks == set(range(6))
    small_pool = make_sampler("greedy_coreset", [3] * 4, bs=12, samples_per_class=1, data_gc_softened=True)
    assert sorted(draw(small_pool).flatten().tolist()) == list(range(12)), "what remains of it"


def histogram_score(pool, batch):
    """NumPy's histogram and scipy's Wasserstein distance with weights over bin centres."""
    pool_distances = pdist(pool)
    edges = np.linspace(pool_distances.min(), pool_distances.max(), 51)
    centres = (edges[1:] + edges[:-1]) / 2
    counts = [
        np.histogram(distances.clip(edges[0], edges[-1]), edges)[0] for distances in (pool_distances, pdist(batch))
    ]
    distance = wasserstein_distance(centres, centres, *counts)
    return np.linalg.norm(pool.mean(0) - batch.mean(0)) + np.linalg.norm(pool.std(0) - batch.std(0)) + 75 * distance


def frechet(pool, batch):
    """By the textbook: covariances by np.cov, the root of their product by scipy."""
    first = np.cov(pool.T)
    second = np.cov(batch.T)
    return ((pool.mean(0) - batch.mean(0)) ** 2).sum() + np.trace(first + second - 2 * sqrtm(first @ second).real)


SCORES = {"disthist_batchmatch": histogram_score, "fid_batchmatch": frechet}


@pytest.mark.filterwarnings("ignore:Matrix is singular")
@pytest.mark.parametrize(("size", "dim"), [(2, 4), (6, 6), (5, 9), (15, 4)])
@pytest.mark.parametrize("name", SCORES)
def test_scores(name, size, dim):
    sampler = make_sampler(name, SIZES, bs=12)
    pools = random(3, 20, dim) * torch.linspace(0.1, 2, dim)
    # every pool has a scale of its own
    pools[1] *= 7
    candidates = torch.rand(3, 6, 20, generator=torch.Generator().manual_seed(1)).argsort(2)[..., :size]
    scores = sampler.score(pools, candidates)
    # scipy's root of a singular product is itself only good to the root of the rounding error
    precision = 1e-4 if name == "fid_batchmatch" and size <= dim else 1e-9
    for pool, rows, row_scores in zip(pools.numpy(), candidates.numpy(), scores, strict=True):
        for row, score in zip(rows, row_scores, strict=True):
            assert score.item() == pytest.approx(SCORES[name](pool, pool[row]), rel=precision)
    # a pair at the edge of a bin may change sides
    in_float = sampler.score(pools.float(), candidates)
    torch.testing.assert_close(in_float.double(), scores, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", SCORES)
def test_the_best_candidate_is_taken(name):
    sampler = make_sampler(name, SIZES, bs=12)
    pool = random(1, 12, 4, dtype=torch.float32)
    # copies do no harm
    pool[0, 3] = pool[0, 8]
    assert abs(sampler.score(pool, torch.arange(12).view(1, 1, 12)).item()) < 1e-4
    assert abs(sampler.score(torch.full((1, 12, 4), 0.7), torch.arange(6).view(1, 1, 6)).item()) < 1e-6
    for m in (1, 3):
        flags = {"bs": 12, "samples_per_class": m, "data_batchmatch_bigbs": 36, "data_batchmatch_ncomps": 5}
        sampler = make_sampler(name, SIZES, dtype=torch.float64, **flags)
        pools = spied(sampler, "draw_pools")
        candidates = spied(sampler, "draw_candidates")
        batches = draw(sampler, seed=0)
        storage = sampler.storage.numpy()
        assert len(candidates) == 1 and candidates[0].shape == (5, 5, 12)
        for pool, rows, batch in zip(pools[0].numpy(), candidates[0].numpy(), batches.numpy(), strict=True):
            scores = [SCORES[name](storage[pool], storage[pool[row]]) for row in rows]
            assert (batch == pool[rows[int(np.argmin(scores))]]).all()
