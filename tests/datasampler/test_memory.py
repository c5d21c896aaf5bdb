import pytest
import torch
from scipy.stats import chisquare

import datasampler
from datasampler._memory import BatchMatchSampler, CoresetSampler, MemorySampler
from tests.datasampler.made import draw, labels_of, make_data, make_sampler, spied
from utilities.errors import UserError

SIZES = [9, 4, 7, 1, 12, 5, 3, 8, 6, 10]  # 65 images
FLAGS = {"bs": 12, "samples_per_class": 3, "data_batchmatch_bigbs": 24}
NAMES = [name for name, module in datasampler.REGISTRY.modules().items() if issubclass(module.Sampler, MemorySampler)]
CORESETS = [name for name in NAMES if issubclass(datasampler.REGISTRY.module(name).Sampler, CoresetSampler)]
MATCHES = [name for name in NAMES if issubclass(datasampler.REGISTRY.module(name).Sampler, BatchMatchSampler)]


def test_the_methods_with_a_memory_are_there():
    assert sorted(CORESETS) == ["d2_coreset", "greedy_coreset"] and sorted(MATCHES) == ["disthist_batchmatch", "fid_batchmatch"]
    assert sorted(CORESETS + MATCHES) == NAMES


class Network(torch.nn.Module):
    """Embedding = mean colours; remembers in which mode it was asked."""

    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.BatchNorm2d(3).eval()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.asked = []

    def forward(self, images):
        self.asked.append((self.training, self.frozen.training, torch.is_grad_enabled(), images.dtype))
        features = images.float().mean((2, 3)) * self.scale
        return features, {"pooled": features}


def loader(count, bs=8):
    images = torch.randint(256, (count, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    return images, [(torch.zeros(len(part)), images[part], part) for part in order.split(bs)]


@pytest.mark.parametrize("name", NAMES)
def test_create_storage_embeds_every_image_in_evaluation_mode(name):
    sampler = datasampler.select(name, None, *make_data(SIZES), **FLAGS)
    images, batches = loader(65)
    network = Network()
    network.train()
    network.frozen.eval()
    sampler.create_storage(batches, network, torch.device("cpu"))
    assert set(network.asked) == {(False, False, False, torch.uint8)}
    assert network.training and not network.frozen.training  # each module as it was
    storage = sampler.state_dict()["storage"]
    assert not storage.requires_grad
    torch.testing.assert_close(storage, images.float().mean((2, 3)))
    assert draw(sampler).shape == (5, 12)


def test_modes_are_restored_after_an_error_and_a_missing_image_is_one():
    sampler = datasampler.select("greedy_coreset", None, *make_data(SIZES), **FLAGS)
    network = Network().train()
    with pytest.raises(ValueError, match="gave 64 of 65 images"):
        sampler.create_storage(loader(65)[1][:-1], network, "cpu")
    assert network.training and sampler.state_dict() == {}
    network.forward = lambda images: 1 / 0
    with pytest.raises(ZeroDivisionError):
        sampler.create_storage(loader(65)[1], network, "cpu")
    assert network.training and network.frozen.training


def test_half_precision_embeddings_are_stored_in_float32():
    sampler = datasampler.select("greedy_coreset", None, *make_data(SIZES), **FLAGS)
    network = Network()
    network.forward = lambda images: (images.float().mean((2, 3)).bfloat16(), {})
    sampler.create_storage(loader(65)[1], network, "cpu")
    assert sampler.storage.dtype == torch.float32
    sampler.replace_storage_entries(torch.ones(1, 3, dtype=torch.bfloat16), torch.tensor([2]))
    assert sampler.storage[2].tolist() == [1, 1, 1]


def test_order_of_calls_is_checked():
    sampler = datasampler.select("greedy_coreset", None, *make_data(SIZES), **FLAGS)
    for call in (sampler.precompute_indices, lambda: sampler.replace_storage_entries(torch.ones(1, 6), torch.tensor([0]))):
        with pytest.raises(RuntimeError, match="create_storage"):
            call()
    with pytest.raises(RuntimeError, match="precompute_indices"):
        list(sampler)
    with pytest.raises(ValueError, match="holds 64 embeddings, the training data 65"):
        sampler.load_state_dict({"storage": torch.zeros(64, 6)})


@pytest.mark.parametrize(("momentum", "step"), [(-1, 1), (0, 1), (0.9, 1), (1, 1), (-1, 0.25), (0.5, 0.5)])
def test_storage_updates(momentum, step):
    sampler = make_sampler("greedy_coreset", SIZES, **FLAGS, data_mb_mom=momentum, data_mb_lr=step)
    old = sampler.storage.clone()
    indices = torch.tensor([5, 60, 0])
    new = torch.randn(3, 6, requires_grad=True)
    sampler.replace_storage_entries(new, indices)
    for index in range(65):
        if index in indices:
            given = new.detach()[indices.tolist().index(index)]
            target = given if momentum < 0 else momentum * old[index] + (1 - momentum) * given
            torch.testing.assert_close(sampler.storage[index], old[index] + step * (target - old[index]))
        else:
            assert torch.equal(sampler.storage[index], old[index])
    if (momentum, step) == (-1, 1):
        assert torch.equal(sampler.storage[indices], new.detach())  # exactly
    assert not sampler.storage.requires_grad


def test_the_last_of_a_repeated_image_counts():
    sampler = make_sampler("greedy_coreset", SIZES, **FLAGS)
    new = torch.arange(24.0).view(4, 6)
    sampler.replace_storage_entries(new, torch.tensor([7, 3, 7, 3]))
    assert torch.equal(sampler.storage[[7, 3]], new[2:])


def test_no_update():
    sampler = make_sampler("greedy_coreset", SIZES, **FLAGS, data_storage_no_update=True)
    old = sampler.storage.clone()
    sampler.replace_storage_entries(torch.ones(2, 6), torch.tensor([1, 2]))
    assert torch.equal(sampler.storage, old)


@pytest.mark.parametrize("flags", [{"data_mb_mom": 1.5}, {"data_mb_lr": -0.1}, {"data_mb_lr": 2}])
def test_updates_that_diverge_are_refused(flags):
    with pytest.raises(UserError, match="--data_mb_(mom|lr) .* must be at (most|least)"):
        make_sampler("greedy_coreset", SIZES, **FLAGS, **flags)


@pytest.mark.parametrize("name", NAMES)
def test_updates_change_later_choices(name):
    sampler = make_sampler(name, SIZES, **FLAGS)
    before = draw(sampler, seed=0)
    assert torch.equal(draw(sampler, seed=0), before)
    sampler.replace_storage_entries(10 * torch.randn(30, 6), torch.arange(30))
    assert not torch.equal(draw(sampler, seed=0), before)


@pytest.mark.parametrize("name", NAMES)
def test_checkpointed_storage_is_not_shared(name):
    sampler = make_sampler(name, SIZES, **FLAGS)
    other = make_sampler(name, SIZES, embeddings=sampler.state_dict()["storage"], **FLAGS)
    sampler.replace_storage_entries(torch.ones(1, 6), torch.tensor([0]))
    assert not torch.equal(other.storage[0], sampler.storage[0])


@pytest.mark.parametrize("name", NAMES)
def test_choices_do_not_depend_on_chunks(name, monkeypatch):
    """Pools are mapped through their own indices in every chunk."""
    sampler = make_sampler(name, SIZES, **FLAGS)
    pools = spied(sampler, "draw_pools")
    monkeypatch.setattr("datasampler._memory.CHUNK", 1)
    batches = draw(sampler)
    anchors = batches[:, ::3] if name in CORESETS else batches
    assert len(batches) == 5
    for pool, chosen in zip(pools[0], anchors, strict=True):
        assert torch.isin(chosen, pool).all()


@pytest.mark.parametrize("name", CORESETS)
def test_coresets_choose_from_their_pool_and_join_partners_of_the_whole_class(name):
    sampler, labels = make_sampler(name, SIZES, **FLAGS), labels_of(SIZES)
    torch.manual_seed(0)
    all_pools = spied(sampler, "draw_pools")
    outside = 0
    for _ in range(20):
        batches = draw(sampler)
        pools = all_pools[-1]
        assert pools.shape == (5, 24) and not torch.equal(pools[0].sort().values, pools[1].sort().values)
        for pool, batch in zip(pools, batches, strict=True):
            assert len(pool.unique()) == 24
            groups = batch.view(4, 3)
            assert len(groups[:, 0].unique()) == 4 and torch.isin(groups[:, 0], pool).all()
            for group in groups:
                assert len(labels[group].unique()) == 1
                assert len(group.unique()) == min(3, SIZES[labels[group[0]]])
            outside += int((~torch.isin(groups[:, 1:], pool)).sum())
    assert outside > 0


def test_partners_are_uniform_over_the_others_of_the_class():
    sampler, labels = make_sampler("greedy_coreset", [6, 2, 3], bs=6, samples_per_class=3), labels_of([6, 2, 3])
    torch.manual_seed(0)
    for anchor in range(11):
        partners = sampler.with_partners(torch.full((3000, 1), anchor))[:, 1:]
        counts = torch.bincount(partners.flatten(), minlength=11)
        others = (labels == labels[anchor]) & (torch.arange(11) != anchor)
        assert (counts[~others] == 0).all()
        assert others.sum() == 1 or chisquare(counts[others]).pvalue > 1e-3


@pytest.mark.parametrize("name", MATCHES)
def test_matched_batches_are_whole_groups_of_their_pool(name):
    sampler, labels = make_sampler(name, SIZES, **FLAGS), labels_of(SIZES)
    all_pools = spied(sampler, "draw_pools")
    all_candidates = spied(sampler, "draw_candidates")
    for _ in range(5):
        batches = draw(sampler)
        assert all_pools[-1].shape == (5, 24)
        for pool, batch in zip(all_pools[-1], batches, strict=True):
            groups = {tuple(group.tolist()) for group in pool.view(-1, 3)}
            for group in batch.view(-1, 3):
                assert tuple(group.tolist()) in groups and len(labels[group].unique()) == 1
        for candidates in all_candidates:
            assert candidates.shape[1:] == (10, 12)
            assert (candidates[..., 1::3] == candidates[..., ::3] + 1).all() and (candidates[..., ::3] % 3 == 0).all()


@pytest.mark.parametrize("name", MATCHES)
@pytest.mark.parametrize("m", [1, 2, 3])
def test_matched_pools_and_candidates_draw_classes_whatever_their_size(name, m):
    """By the counts of 3,000 pools, and of the candidates of one pool in which classes have several groups, or one, or none."""
    sizes = [40, 1, 2, 9, 3]
    sampler = make_sampler(name, sizes, bs=4 * m, samples_per_class=m, data_batchmatch_bigbs=12 * m, data_batchmatch_ncomps=3000)
    labels = labels_of(sizes)
    torch.manual_seed(0)
    pools = torch.cat([sampler.draw_pools() for _ in range(3000 // len(sampler) + 1)])[:3000]
    assert pools.shape == (3000, 12 * m)
    drawn = labels[pools[:, ::m]]
    assert chisquare(torch.bincount(drawn.flatten(), minlength=5)).pvalue > 1e-3
    for label, size in enumerate(sizes):
        groups = pools.view(-1, m)[drawn.flatten() == label]
        assert all(len(group.unique()) == min(m, size) for group in groups[:200])
        assert size < max(m, 2) or chisquare(torch.bincount(groups.flatten(), minlength=55)[labels == label]).pvalue > 1e-3
    several = sampler.images_of(torch.tensor([0, 3, 0, 4, 0, 0, 3, 0])[:, None].expand(-1, m), torch.zeros(8, m, dtype=torch.long))
    candidates = sampler.draw_candidates(several.view(1, -1))
    assert candidates.shape == (1, 3000, 4 * m)
    groups = torch.bincount(candidates[..., ::m].flatten() // m, minlength=8)
    by_class = groups[[0, 2, 4, 5, 7]].sum(), groups[[1, 6]].sum(), groups[3]
    assert sum(by_class) == 12000 and chisquare(torch.stack(by_class)).pvalue > 1e-3
    assert chisquare(groups[[0, 2, 4, 5, 7]]).pvalue > 1e-3 and chisquare(groups[[1, 6]]).pvalue > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_a_pool_is_no_larger_than_the_data(name):
    sampler = make_sampler(name, SIZES, bs=12, samples_per_class=3, data_batchmatch_bigbs=5000)
    pools = spied(sampler, "draw_pools")
    draw(sampler)
    assert all(len(pool.unique()) == 65 for pool in pools[0]) if name in CORESETS else pools[0].shape == (5, 63)


@pytest.mark.parametrize("name", NAMES)
def test_a_pool_too_small_is_an_error(name):
    with pytest.raises(UserError, match="--data_batchmatch_bigbs 3 is too small"):
        make_sampler(name, SIZES, **{**FLAGS, "data_batchmatch_bigbs": 3})


@pytest.mark.parametrize("name", MATCHES)
def test_without_candidates_there_is_no_batch(name):
    with pytest.raises(UserError, match="--data_batchmatch_ncomps 0"):
        make_sampler(name, SIZES, **FLAGS, data_batchmatch_ncomps=0)


def test_random_projection_keeps_distances_on_average():
    embeddings = torch.randn(65, 40, generator=torch.Generator().manual_seed(0))
    sampler = make_sampler("greedy_coreset", SIZES, embeddings=embeddings, **FLAGS, data_sampler_lowproj_dim=20)
    torch.manual_seed(0)
    ratios = torch.stack([torch.pdist(sampler.projected()).square() / torch.pdist(embeddings).square() for _ in range(50)])
    assert sampler.projected().shape == (65, 20)
    assert abs(ratios.mean() - 1) < 0.02
    assert torch.equal(sampler.storage, embeddings)


@pytest.mark.parametrize("name", NAMES)
def test_random_projection_is_what_is_chosen_in(name):
    sampler = make_sampler(name, SIZES, dim=40, **FLAGS, data_sampler_lowproj_dim=5)
    seen, original = [], sampler.choose
    sampler.choose = lambda pools, embeddings: seen.append(embeddings.shape[-1]) or original(pools, embeddings)
    draw(sampler)
    assert set(seen) == {5}
    for dim in (-1, 40, 100):
        sampler.projected_dim = dim
        assert sampler.projected() is sampler.storage
