"""Subset mining: which subsets are tried, that the one with the highest loss is trained on, and nothing else is left behind."""

import collections
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import criteria
import main
import parameters
import trainers
from runs import checkpoint
from tests import builders
from tests.batch_mining._reference import assert_drawn_with
from trainers import _subset
from training.loading import Batch
from training.runtime import Runtime
from training.step import Step

LABELS = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
FLAGS = ["--dataset", "glyphs", "--bs", "10", "--subset_mining", "maximum_loss", "--subset_size", "4"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=3, max_size=14), st.data())
def test_whole_classes_as_long_as_they_fit(labels, data):
    size = data.draw(st.integers(2, len(labels) - 1))
    places = _subset.draw_groups(torch.tensor(labels), size).tolist()
    assert len(places) == len(set(places)) == size and places == sorted(places)
    all_of, taken = collections.Counter(labels), collections.Counter(labels[place] for place in places)
    cut = [label for label in taken if taken[label] < all_of[label]]
    assert len(cut) <= 1
    if cut:  # then no class that is left out fits in its place
        assert all(all_of[label] > taken[cut[0]] for label in all_of if label not in taken)


def test_subsets_are_drawn_alike():
    torch.manual_seed(0)
    drawn = [tuple(_subset.draw_groups(torch.tensor(LABELS), 4).tolist()) for _ in range(3000)]
    expected = {(2 * a, 2 * a + 1, 2 * b, 2 * b + 1): 0.1 for a, b in itertools.combinations(range(5), 2)}
    assert_drawn_with(expected, drawn)
    cut = [tuple(_subset.draw_groups(torch.tensor([7, 7, 7, 7]), 3).tolist()) for _ in range(1000)]
    assert_drawn_with(dict.fromkeys(itertools.combinations(range(4), 3), 0.25), cut)


class Network(torch.nn.Module):
    """Has a layer whose statistics a pass in training mode moves, and remembers its passes."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.last_linear = torch.nn.Linear(3, 4)
        self.passes = []

    def forward(self, images):
        self.passes.append((len(images), self.training, torch.is_grad_enabled()))
        pooled = self.norm(images.float().mean((2, 3)) / 255)
        return self.last_linear(pooled), {"pooled": pooled}


class Sampler:
    """Takes in a step's embeddings."""

    def replace_storage_entries(self, embeddings, indices):
        self.embeddings, self.indices = embeddings, indices


def batch_of(labels=LABELS, views=1):
    size = len(labels) * views
    images = torch.randint(0, 256, (size, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    return Batch(torch.tensor(labels).repeat(views), images, 100 + torch.arange(len(labels)).repeat(views))


def step_of(*words, loss="contrastive", mining="none", make=None):
    opt = parameters.read([*FLAGS, "--loss", loss, "--batch_mining", mining, *words])
    torch.manual_seed(1)
    network = Network()
    criterion = criteria.select(loss, opt, embed_dim=4, n_classes=5)
    trainer = trainers.select("metric_only", opt, network, criterion) if make is None else make(opt, network, criterion)
    step = Step(trainer, torch.optim.SGD(network.parameters(), lr=0.1), Runtime(opt), Sampler(), {})
    trainer.train()
    step.runtime.start_epoch(1)
    return step


def loss_by_loops(embeddings, labels):
    """Contrastive loss of all pairs: mean d over the positive ones, mean [1 - d]+ over the negative ones."""
    positive, negative = [], []
    for i, j in itertools.permutations(range(len(labels)), 2):
        d = float((embeddings[i] - embeddings[j]).double().norm())
        (positive if labels[i] == labels[j] else negative).append(d if labels[i] == labels[j] else max(0.0, 1 - d))
    return sum(positive) / len(positive) + sum(negative) / len(negative)


def test_the_subset_with_the_highest_loss_is_trained_on(monkeypatch):
    tried, draw = [], _subset.draw_groups
    monkeypatch.setattr(_subset, "draw_groups", lambda labels, size: tried.append(draw(labels, size)) or tried[-1])
    for seed in range(6):
        step, plain, batch = step_of(), step_of(), batch_of()
        whole = step_of().trainer.outputs(batch.images)["embeddings"].detach()  # statistics of the whole batch, as in training
        plain.trainer.subset = None
        tried.clear()
        torch.manual_seed(seed)
        done = step(batch)
        assert len(tried) == 5
        losses = [loss_by_loops(whole[places], [LABELS[p] for p in places.tolist()]) for places in tried]
        best = tried[losses.index(max(losses))]
        part = Batch(*(column[best] for column in batch))
        expected = plain(part)
        assert torch.equal(done.loss, expected.loss) and done.images == 4
        assert torch.equal(step.sampler.indices, 100 + best) and len(step.sampler.embeddings) == 4
        mine, theirs = step.trainer.network.state_dict(), plain.trainer.network.state_dict()
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)  # statistics of the trained images alone
        assert step.trainer.network.passes == [(10, True, False), (4, True, True)]




def test_the_miner_of_the_criterion_mines_in_each_subset_and_then_in_the_chosen_one():
    step = step_of("--subset_trials", "3", loss="triplet", mining="distance")
    miner, seen = step.trainer.criterion.batchminer, []
    mine = miner.mine
    miner.mine = lambda embeddings, labels, reference: seen.append(labels.tolist()) or mine(embeddings, labels, reference)
    step(batch_of())
    assert [len(labels) for labels in seen] == [4, 4, 4, 4] and seen[-1] in seen[:3]
    assert miner.stats["tuples"] == 4


def test_all_views_of_an_image_stay_together():
    step = step_of()
    step.trainer.VIEWS = 2
    done = step(batch_of(views=2))
    assert done.images == 8 and torch.equal(step.sampler.indices[:4], step.sampler.indices[4:])
    assert len(set(step.sampler.indices.tolist())) == 4


@pytest.mark.parametrize("size", [3, 4])
def test_a_small_batch_is_trained_on_whole(size):
    step = step_of()
    assert step(batch_of(LABELS[:size])).images == size and len(step.trainer.network.passes) == 1




def test_a_users_plain_trainer(monkeypatch):
    """A module of the shape, without `metric_loss`, of outputs within outputs."""

    class Plain(torch.nn.Module):
        def __init__(self, opt, network, criterion):
            super().__init__()
            self.network, self.criterion = network, criterion

        def outputs(self, images):
            embeddings, features = self.network(images)
            return {"embeddings": embeddings, "pooled": features["pooled"], "all": {"twice": 2 * embeddings, "name": "x"}}

        def losses(self, outputs, batch):
            assert len(outputs["all"]["twice"]) == len(batch.labels) == 4
            return {"metric_loss": self.criterion(outputs["embeddings"], batch.labels)}

    from types import SimpleNamespace

    monkeypatch.setattr(trainers.REGISTRY, "module", lambda name: SimpleNamespace(Trainer=Plain))
    assert step_of(make=lambda *given: trainers.select("plain", *given))(batch_of()).images == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--subset_mining", "maximum_loss"], "--subset_mining maximum_loss needs --subset_size"),
        (["--subset_size", "8"], "--subset_size 8 has no effect: add --subset_mining maximum_loss"),
        ([*FLAGS, "--subset_size", "10"], "--subset_size 10 is not below --bs 10"),
        ([*FLAGS, "--subset_size", "5"], "--subset_size 5 is not a multiple of --samples_per_class 2"),
        ([*FLAGS, "--subset_size", "2"], "--subset_size 2 is one class of --samples_per_class 2: --loss margin has no negatives there"),
        ([*FLAGS, "--bs", "12", "--samples_per_class", "6"], "--subset_size 4 is not a multiple of --samples_per_class 6"),
        ([*FLAGS, "--bs", "12", "--batch_mining", "packaged", "--data_sampler", "fixed_triplets"], "takes triplets apart"),
        ([*FLAGS, "--subset_size", "1"], "--subset_size.*must be at least 2"),
        ([*FLAGS, "--subset_trials", "0"], "--subset_trials.*must be at least 1"),
        ([*FLAGS, "--subset_mining", "minimum_loss"], "--subset_mining.*minimum_loss"),
    ],
    ids=lambda value: " ".join(value[-4:]) if isinstance(value, list) else "",
)
def test_what_cannot_work_is_one_line(words, message, capsys):
    import re

    with pytest.raises(SystemExit) as stop:
        parameters.read(words)
    said = capsys.readouterr().err.strip()
    assert stop.value.code == 2 and re.search(message, said) and "\n" not in said, said




