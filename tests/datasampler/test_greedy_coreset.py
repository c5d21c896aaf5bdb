import math

import pytest
import torch

from tests.datasampler.made import draw, make_sampler, spied

SIZES = [9, 4, 7, 1, 12, 5, 3, 8, 6, 10]  # 65 images
FLAGS = {"bs": 12, "samples_per_class": 2, "data_batchmatch_bigbs": 40}


def distance(x, y):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(x.tolist(), y.tolist(), strict=True)))


def farthest_first(pool, storage, count):
    """Greedy k-centre by loops: the sample whose nearest chosen one is farthest."""
    chosen = [int(pool[0])]
    while len(chosen) < count:
        best, best_distance = None, -1.0
        for candidate in pool.tolist():
            if candidate not in chosen:
                nearest = min(distance(storage[candidate], storage[other]) for other in chosen)
                if nearest > best_distance:
                    best, best_distance = candidate, nearest
        chosen.append(best)
    return chosen


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_anchors_are_those_of_a_double_loop(dtype):
    sampler = make_sampler("greedy_coreset", SIZES, dtype=dtype, **FLAGS)
    pools = spied(sampler, "draw_pools")
    batches = draw(sampler, seed=0)
    for pool, batch in zip(pools[0], batches, strict=True):
        assert batch[::2].tolist() == farthest_first(pool, sampler.storage.double(), 6)


def test_first_anchors_are_random():
    sampler = make_sampler("greedy_coreset", SIZES, **FLAGS)
    torch.manual_seed(0)
    first = torch.cat([draw(sampler)[:, 0] for _ in range(200)])
    assert len(first.unique()) == 65


def test_copies_of_an_anchor_come_last_and_then_at_random():
    points = torch.eye(4).repeat_interleave(16, 0)[:64]
    points = torch.cat([points, points[:1]])  # 65 samples at 4 places
    sampler = make_sampler("greedy_coreset", SIZES, embeddings=points, **FLAGS)
    pools = spied(sampler, "draw_pools")
    for seed in range(5):
        batches = draw(sampler, seed=seed)
        for pool, batch in zip(pools[-1], batches, strict=True):
            anchors = batch[::2]
            assert len(points[anchors[:4]].unique(dim=0)) == 4  # each place once
            assert len(anchors.unique()) == 6
            left = [index for index in pool.tolist() if index not in anchors[:4]]
            assert anchors[4:].tolist() == left[:2]  # the pool is in random order


def test_limit_counts_small_distances_as_none():
    sampler = make_sampler("greedy_coreset", SIZES, **FLAGS, data_gc_coreset_lim=1e3)
    pools = spied(sampler, "draw_pools")
    assert torch.equal(draw(sampler)[:, ::2], pools[0][:, :6])


def test_softened_draws_among_the_farthest_three_percent():
    sizes = [30] * 10
    sampler = make_sampler("greedy_coreset", sizes, **{**FLAGS, "data_batchmatch_bigbs": 200}, data_gc_softened=True)
    pools = spied(sampler, "draw_pools")
    batches = draw(sampler, seed=0)
    storage, ranks_seen = sampler.storage.double(), set()
    for pool, batch in zip(pools[0], batches, strict=True):
        anchors = batch[::2].tolist()
        assert len(set(anchors)) == 6
        for step in range(1, 6):
            nearest = torch.cdist(storage[pool], storage[anchors[:step]]).min(1).values
            rank = int((nearest > nearest[pool.tolist().index(anchors[step])]).sum())
            ranks_seen.add(rank)
    assert ranks_seen == set(range(6))  # 3 % of 200


def test_softened_takes_what_is_left_of_a_small_pool():
    sampler = make_sampler("greedy_coreset", [3] * 4, bs=12, samples_per_class=1, data_gc_softened=True)
    assert sorted(draw(sampler).flatten().tolist()) == list(range(12))
