import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from tests.datasampler.made import draw, make_sampler, spied

SIZES = [9, 4, 7, 1, 12, 5, 3, 8, 6, 10]  # 65 images


def frechet(pool, batch):
    """By the textbook: covariances by np.cov, the root of their product by scipy."""
    first, second = np.cov(pool.T), np.cov(batch.T)
    root = sqrtm(first @ second).real
    return ((pool.mean(0) - batch.mean(0)) ** 2).sum() + np.trace(first + second - 2 * root)


@pytest.mark.parametrize(("size", "dim"), [(12, 4), (6, 6), (5, 9)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_are_frechet_distances(size, dim, dtype):
    sampler = make_sampler("fid_batchmatch", SIZES, bs=12)
    pools = torch.randn(3, 30, dim, dtype=dtype, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 2, dim, dtype=dtype)
    candidates = torch.rand(3, 7, 30, generator=torch.Generator().manual_seed(1)).argsort(2)[..., :size]
    scores = sampler.score(pools, candidates)
    for pool, rows, row_scores in zip(pools.double().numpy(), candidates.numpy(), scores, strict=True):
        for row, score in zip(rows, row_scores, strict=True):
            # scipy's root of a singular product is itself only good to the root of the rounding error
            assert score.item() == pytest.approx(frechet(pool, pool[row]), rel=1e-5 if size <= dim else 1e-9)


def test_the_pool_itself_is_at_distance_zero_and_copies_do_no_harm():
    sampler = make_sampler("fid_batchmatch", SIZES, bs=12)
    pool = torch.randn(1, 12, 4)
    assert abs(sampler.score(pool, torch.arange(12).view(1, 1, 12)).item()) < 1e-9
    same = sampler.score(torch.full((1, 12, 4), 0.7), torch.arange(6).view(1, 1, 6))
    assert abs(same.item()) < 1e-9


@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_best_candidate_is_taken(m):
    sampler = make_sampler("fid_batchmatch", SIZES, bs=12, samples_per_class=m, data_batchmatch_bigbs=36, data_batchmatch_ncomps=5)
    pools, candidates = spied(sampler, "draw_pools"), spied(sampler, "draw_candidates")
    batches = draw(sampler, seed=0)
    storage = sampler.storage.double().numpy()
    assert len(candidates) == 1 and candidates[0].shape == (5, 5, 12)
    for pool, rows, batch in zip(pools[0].numpy(), candidates[0].numpy(), batches.numpy(), strict=True):
        scores = [frechet(storage[pool], storage[pool[row]]) for row in rows]
        assert (batch == pool[rows[int(np.argmin(scores))]]).all()
