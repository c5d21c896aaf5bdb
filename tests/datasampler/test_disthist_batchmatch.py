import numpy as np
import pytest
import torch
from scipy.stats import wasserstein_distance

from tests.datasampler.made import draw, make_sampler, spied

SIZES = [9, 4, 7, 1, 12, 5, 3, 8, 6, 10]  # 65 images


def pair_distances(points):
    return np.array([np.sqrt(((points[i] - points[j]) ** 2).sum()) for i in range(len(points)) for j in range(i + 1, len(points))])


def reference(pool, batch):
    """By loops over pairs, NumPy's histogram and scipy's Wasserstein distance with weights over bin centres."""
    whole, part = pair_distances(pool), pair_distances(batch)
    edges = np.linspace(whole.min(), whole.max(), 51)
    centres = (edges[1:] + edges[:-1]) / 2
    part_counts = np.histogram(part.clip(edges[0], edges[-1]), edges)[0]
    distance = wasserstein_distance(centres, centres, np.histogram(whole, edges)[0], part_counts)
    return abs(whole.mean() - part.mean()) + abs(whole.std() - part.std()) + 75 * distance


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


def test_the_pool_itself_is_at_distance_zero_and_copies_do_no_harm():
    sampler = make_sampler("disthist_batchmatch", SIZES, bs=12)
    pool = torch.randn(1, 12, 4)
    pool[0, 3] = pool[0, 8]
    assert abs(sampler.score(pool, torch.arange(12).view(1, 1, 12)).item()) < 1e-4
    assert sampler.score(torch.full((1, 12, 4), 0.7), torch.arange(6).view(1, 1, 6)).item() == 0


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
