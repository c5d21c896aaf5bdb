"""The samplers with a memory: the storage, its updates, pools, partners and candidates, in a training."""

import pytest
import torch
from scipy.stats import chisquare

import datasampler
import main
import parameters
from datasampler._memory import BatchMatchSampler, CoresetSampler, MemorySampler
from tests.kit.refusals import refused
from tests.kit.runs import run_words
from tests.kit.samplers import SIZES, draw, labels_of, make_data, make_sampler, spied

FLAGS = {"bs": 12, "samples_per_class": 3, "data_batchmatch_bigbs": 24}
CLASSES = {
    name: module.Sampler
    for name, module in datasampler.REGISTRY.modules().items()
    if issubclass(module.Sampler, MemorySampler)
}
CORESETS = [name for name, kind in CLASSES.items() if issubclass(kind, CoresetSampler)]
MATCHES = [name for name, kind in CLASSES.items() if issubclass(kind, BatchMatchSampler)]


class Network(torch.nn.Module):
    """Embedding = mean colours; remembers in which mode it was asked."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.frozen = torch.nn.BatchNorm2d(3).eval()
        self.dtype = dtype
        self.asked = []

    def forward(self, images):
        self.asked.append((self.training, self.frozen.training, torch.is_grad_enabled(), images.dtype))
        features = images.float().mean((2, 3)).to(self.dtype)
        return features, {"pooled": features}


def loader(count, bs=8):
    images = torch.randint(256, (count, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    return images, [(torch.zeros(len(part)), images[part], part) for part in order.split(bs)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_create_storage_embeds_every_image_in_evaluation_mode(dtype):
    sampler = datasampler.select("greedy_coreset", None, *make_data(SIZES), **FLAGS)
    images, batches = loader(65)
    network = Network(dtype).train()
    network.frozen.eval()
    with pytest.raises(ValueError, match="gave 57 of 65 images|gave 64 of 65 images"):
        sampler.create_storage(batches[:-1], network, "cpu")
    assert sampler.state_dict() == {}
    sampler.create_storage(batches, network, torch.device("cpu"))
    assert set(network.asked) == {(False, False, False, torch.uint8)}
    # Each module keeps its mode
    assert network.training and not network.frozen.training
    storage = sampler.state_dict()["storage"]
    assert not storage.requires_grad and storage.dtype == torch.float32
    torch.testing.assert_close(storage, images.float().mean((2, 3)).to(dtype).float())
    sampler.replace_storage_entries(torch.ones(1, 3, dtype=dtype), torch.tensor([2]))
    assert sampler.storage[2].tolist() == [1, 1, 1] and draw(sampler).shape == (5, 12)
    network.forward = lambda images: 1 / 0
    with pytest.raises(ZeroDivisionError):
        sampler.create_storage(batches, network, "cpu")
    assert network.training


def test_storage_updates():
    """Of an image that occurs twice the last embedding counts."""
    indices = torch.tensor([5, 60, 0, 5])
    new = torch.randn(4, 6, requires_grad=True)
    for momentum, rate in ((-1, 1), (0.9, 1), (1, 1), (0.5, 0.5)):
        sampler = make_sampler("greedy_coreset", SIZES, **FLAGS, data_mb_mom=momentum, data_mb_lr=rate)
        expected = sampler.storage.clone()
        sampler.replace_storage_entries(new, indices)
        for index, row in ((60, 1), (0, 2), (5, 3)):
            target = new[row] if momentum < 0 else momentum * expected[index] + (1 - momentum) * new[row]
            expected[index] = (expected[index] + rate * (target - expected[index])).detach()
        torch.testing.assert_close(sampler.storage, expected)
        assert not sampler.storage.requires_grad
        assert momentum >= 0 or torch.equal(sampler.storage[5], new[3].detach())
    sampler = make_sampler("greedy_coreset", SIZES, **FLAGS, data_storage_no_update=True)
    before = sampler.storage.clone()
    sampler.replace_storage_entries(new, indices)
    assert torch.equal(sampler.storage, before)


@pytest.mark.parametrize("name", CLASSES)
def test_choices_follow_the_storage_and_not_the_chunks(name, monkeypatch):
    """Pools are mapped through their own indices in every chunk; a saved storage is not shared; a random projection is
    chosen in.
    """
    sampler = make_sampler(name, SIZES, **FLAGS)
    before = draw(sampler, seed=0)
    second = make_sampler(name, SIZES, embeddings=sampler.state_dict()["storage"], **FLAGS)
    sampler.replace_storage_entries(10 * torch.randn(30, 6), torch.arange(30))
    assert not torch.equal(draw(sampler, seed=0), before) and torch.equal(draw(second, seed=0), before)
    pools = spied(sampler, "draw_pools")
    monkeypatch.setattr("datasampler._memory.CHUNK", 1)
    step = 3 if name in CORESETS else 1
    batches = draw(sampler)
    for pool, batch in zip(pools[0], batches, strict=True):
        assert torch.isin(batch[::step], pool).all()
    projecting = make_sampler(name, SIZES, dim=40, **FLAGS, data_sampler_lowproj_dim=5)
    seen = []
    original = projecting.choose
    projecting.choose = lambda pools, embeddings: seen.append(embeddings.shape[-1]) or original(pools, embeddings)
    draw(projecting)
    assert set(seen) == {5}
    ratios = torch.stack(
        [torch.pdist(projecting.projected()).square() / torch.pdist(projecting.storage).square() for _ in range(50)]
    )
    assert abs(ratios.mean() - 1) < 0.05, "distances stay on average"
    for dim in (-1, 40, 100):
        projecting.projected_dim = dim
        assert projecting.projected() is projecting.storage
    sampler = make_sampler(name, SIZES, **{**FLAGS, "data_batchmatch_bigbs": 5000})
    pools = spied(sampler, "draw_pools")
    draw(sampler)
    assert all(len(pool.unique()) == 65 for pool in pools[0]) if name in CORESETS else pools[0].shape == (5, 63)


@pytest.mark.parametrize("name", CORESETS)
def test_coresets_choose_from_pools_and_join_partners(name):
    sampler = make_sampler(name, SIZES, **FLAGS)
    labels = labels_of(SIZES)
    outside = 0
    torch.manual_seed(0)
    all_pools = spied(sampler, "draw_pools")
    for _ in range(10):
        batches = draw(sampler)
        pools = all_pools[-1]
        assert pools.shape == (5, 24) and not torch.equal(pools[0].sort().values, pools[1].sort().values)
        for pool, batch in zip(pools, batches, strict=True):
            groups = batch.view(4, 3)
            assert len(pool.unique()) == 24 and len(groups[:, 0].unique()) == 4 and torch.isin(groups[:, 0], pool).all()
            for group in groups:
                assert len(labels[group].unique()) == 1 and len(group.unique()) == min(3, SIZES[labels[group[0]]])
            outside += int((~torch.isin(groups[:, 1:], pool)).sum())
    assert outside > 0
    torch.manual_seed(0)
    for anchor in [i for i in range(65) if SIZES[labels[i]] > 1][::13]:
        counts = torch.bincount(sampler.with_partners(torch.full((3000, 1), anchor))[:, 1:].flatten(), minlength=65)
        is_partner = (labels == labels[anchor]) & (torch.arange(65) != anchor)
        assert (counts[~is_partner] == 0).all()
        assert is_partner.sum() == 1 or chisquare(counts[is_partner]).pvalue > 1e-3, "uniform over the class"


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("name", MATCHES)
def test_matched_pools_draw_classes_whatever_their_size(name, m):
    """By the counts of 3,000 pools, and of candidates of a pool in which classes have several groups, one or none."""
    sizes = [40, 1, 2, 9, 3]
    flags = {"data_batchmatch_bigbs": 12 * m, "data_batchmatch_ncomps": 3000}
    sampler = make_sampler(name, sizes, bs=4 * m, samples_per_class=m, **flags)
    labels = labels_of(sizes)
    torch.manual_seed(0)
    pools = torch.cat([sampler.draw_pools() for _ in range(3000 // len(sampler) + 1)])[:3000]
    assert pools.shape == (3000, 12 * m)
    classes = labels[pools[:, ::m]].flatten()
    assert chisquare(torch.bincount(classes, minlength=5)).pvalue > 1e-3
    for label, size in enumerate(sizes):
        groups = pools.view(-1, m)[classes == label]
        assert all(len(group.unique()) == min(m, size) for group in groups[:200])
        counts = torch.bincount(groups.flatten(), minlength=55)[labels == label]
        assert size < max(m, 2) or chisquare(counts).pvalue > 1e-3
    classes = torch.tensor([0, 3, 0, 4, 0, 0, 3, 0])
    pool = sampler.images_of(classes[:, None].expand(-1, m), torch.zeros(8, m, dtype=torch.long))
    candidates = sampler.draw_candidates(pool.view(1, -1))
    assert candidates.shape == (1, 3000, 4 * m)
    groups = candidates.view(-1, m)
    # Candidates consist of whole groups of m
    assert (groups == groups[:, :1] + torch.arange(m)).all() and (groups[:, 0] % m == 0).all()
    counts = torch.bincount(groups[:, 0] // m, minlength=8)
    by_class = [counts[classes == label] for label in (0, 3, 4)]
    assert counts.sum() == 12000 and chisquare([int(class_counts.sum()) for class_counts in by_class]).pvalue > 1e-3
    assert chisquare(by_class[0]).pvalue > 1e-3 and chisquare(by_class[1]).pvalue > 1e-3


def test_what_cannot_be_chosen_and_calls_in_another_order_are_refused():
    for name in CLASSES:
        with refused("--data_batchmatch_bigbs 3 is too small"):
            make_sampler(name, SIZES, **{**FLAGS, "data_batchmatch_bigbs": 3})
    for name in MATCHES:
        with refused("--bs 1: one image has no spread"):
            make_sampler(name, SIZES, **{**FLAGS, "bs": 1, "samples_per_class": 1})
    values = {"data_mb_mom": 1.5, "data_mb_lr": -0.1, "data_batchmatch_ncomps": 0, "data_d2_coreset_lambda": -1}
    for flag, value in values.items():
        with refused(f"--{flag} .* must be at (most|least)"):
            make_sampler("greedy_coreset", SIZES, **FLAGS, **{flag: value})
    sampler = datasampler.select("greedy_coreset", None, *make_data(SIZES), **FLAGS)
    with pytest.raises(RuntimeError, match="create_storage"):
        sampler.precompute_indices()
    with pytest.raises(RuntimeError, match="create_storage"):
        sampler.replace_storage_entries(torch.ones(1, 6), torch.tensor([0]))
    with pytest.raises(RuntimeError, match="precompute_indices"):
        list(sampler)
    with pytest.raises(ValueError, match="holds 64 embeddings, the training data 65"):
        sampler.load_state_dict({"storage": torch.zeros(64, 6)})
    with pytest.raises(ValueError, match="no embeddings of the training images"):
        sampler.load_state_dict({})


def record_calls(monkeypatch, name):
    """Storage, epoch and arguments of each call of a sampler's method from now on, in a list that grows."""
    calls = []
    method = getattr(MemorySampler, name)

    def call(self, *arguments):
        method(self, *arguments)
        calls.append((self.storage.clone(), self.epoch, *arguments))

    monkeypatch.setattr(MemorySampler, name, call)
    return calls


def test_a_training_trains_what_is_chosen_and_stores_what_it_embeds(data, tmp_path, monkeypatch):
    created = record_calls(monkeypatch, "create_storage")
    epochs = record_calls(monkeypatch, "precompute_indices")
    updates = record_calls(monkeypatch, "replace_storage_entries")
    flags = "--loss margin --data_sampler greedy_coreset --n_epochs 2 --data_batchmatch_bigbs 20"
    words = run_words(data, tmp_path, *flags.split(), "--iterations_per_epoch", "3")
    run = main.main(parameters.read(words))
    assert len(created) == 1 and len(epochs) == 2 and not torch.equal(epochs[0][1], epochs[1][1])
    batches = [sorted(batch.tolist()) for _, epoch, *_ in epochs for batch in epoch]
    assert [sorted(update[3].tolist()) for update in updates] == batches
    storage = created[0][0]
    for _, _, embeddings, indices in updates:
        storage[indices] = embeddings
    assert torch.equal(run.parts["sampler"].storage, storage)
    main.main(parameters.read(["--resume_from", str(run.folder), "--n_epochs", "3"]))
    assert len(created) == 1 and len(epochs) == 3, "the checkpoint has the storage"
