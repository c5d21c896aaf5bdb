import numpy as np
import pytest
import torch
from scipy.stats import wasserstein_distance

from tests.datasampler.made import draw, make_sampler, spied

SIZES = [9, 4, 7, 1, 12, 5, 3, 8, 6, 10]  # 65 images


def pair_distances(points):
    return np.array([np.sqrt(((points[i] - points[j]) ** 2).sum()) for i in range(len(points)) for j in range(i + 1, len(points))])


def reference(pool, batch):
    """By loops over pairs and dimensions, NumPy's histogram and scipy's Wasserstein distance with weights over bin centres."""
    whole, part = pair_distances(pool), pair_distances(batch)
    edges = np.linspace(whole.min(), whole.max(), 51)
    centres = (edges[1:] + edges[:-1]) / 2
    part_counts = np.histogram(part.clip(edges[0], edges[-1]), edges)[0]
    distance = wasserstein_distance(centres, centres, np.histogram(whole, edges)[0], part_counts)
    columns = list(zip(pool.T, batch.T, strict=True))
    means = sum((one.mean() - other.mean()) ** 2 for one, other in columns) ** 0.5
    deviations = sum((one.std() - other.std()) ** 2 for one, other in columns) ** 0.5
    return means + deviations + 75 * distance


@pytest.mark.parametrize("size", [2, 6, 15])
def test_scores(size):
    sampler = make_sampler("disthist_batchmatch", SIZES, bs=12)
    pools = torch.randn(3, 20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pools[1] *= 7  # every pool has a scale of its own
    candidates = torch.rand(3, 6, 20, generator=torch.Generator().manual_seed(1)).argsort(2)[..., :size]
    scores = sampler.score(pools, candidates)
    for pool, rows, row_scores in zip(pools.numpy(), candidates.numpy(), scores, strict=True):
        for row, score in zip(rows, row_scores, strict=True):
            assert score.item() == pytest.approx(reference(pool, pool[row]), rel=1e-9)
    in_float = sampler.score(pools.float(), candidates)  # a pair at the edge of a bin may change sides
    torch.testing.assert_close(in_float.double(), scores, rtol=2e-2, atol=2e-2)


def test_a_batch_that_lies_elsewhere_than_its_pool_is_far_from_it():
    """Of a pool of points and their mirror images, a batch on one side is far from the pool, one across its middle is near."""
    sampler = make_sampler("disthist_batchmatch", SIZES, bs=12)
    points = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 3
    pool = torch.cat([points, -points])
    aside, across = torch.arange(6), torch.tensor([0, 7, 2, 9, 4, 11])
    scores = sampler.score(pool[None], torch.stack([aside, across])[None])[0]
    for rows, score in zip((aside, across), scores, strict=True):
        assert score.item() == pytest.approx(reference(pool.numpy(), pool[rows].numpy()), rel=1e-9)
    means = (pool[aside].mean(0).norm(), pool[across].mean(0).norm())  # the pool's own is 0
    without_means = sampler.score(pool[None], torch.stack([aside, aside + 6])[None])[0]
    torch.testing.assert_close(without_means[0], without_means[1])  # mirror images of each other
    assert means[0] > 4 * means[1] and scores[0] > means[0]


def test_the_pool_itself_is_at_distance_zero_and_copies_do_no_harm():
    sampler = make_sampler("disthist_batchmatch", SIZES, bs=12)
    pool = torch.randn(1, 12, 4)
    pool[0, 3] = pool[0, 8]
    assert abs(sampler.score(pool, torch.arange(12).view(1, 1, 12)).item()) < 1e-4
    assert abs(sampler.score(torch.full((1, 12, 4), 0.7), torch.arange(6).view(1, 1, 6)).item()) < 1e-6


@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_best_candidate_is_taken(m):
    flags = {"bs": 12, "samples_per_class": m, "data_batchmatch_bigbs": 36, "data_batchmatch_ncomps": 5}
    sampler = make_sampler("disthist_batchmatch", SIZES, dtype=torch.float64, **flags)
    pools, candidates = spied(sampler, "draw_pools"), spied(sampler, "draw_candidates")
    batches = draw(sampler, seed=0)
    storage = sampler.storage.numpy()
    assert len(candidates) == 1 and candidates[0].shape == (5, 5, 12)
    for pool, rows, batch in zip(pools[0].numpy(), candidates[0].numpy(), batches.numpy(), strict=True):
        scores = [reference(storage[pool], storage[pool[row]]) for row in rows]
        assert (batch == pool[rows[int(np.argmin(scores))]]).all()
