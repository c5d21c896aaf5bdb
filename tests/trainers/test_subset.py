"""Subset mining: which subsets are tried; the one with the highest loss is trained on, and leaves nothing else."""

import collections
import itertools
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import trainers
from engine.loading import Batch
from tests.kit import tiny
from tests.kit.mining import assert_drawn_with
from tests.kit.runs import equal_states
from trainers import _subset

LABELS = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
FLAGS = "--bs 10 --subset_mining maximum_loss --subset_size 4"


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 4), min_size=3, max_size=14), st.data())
def test_whole_classes_as_long_as_they_fit(labels, data):
    size = data.draw(st.integers(2, len(labels) - 1))
    places = _subset.draw_groups(torch.tensor(labels), size).tolist()
    assert len(places) == len(set(places)) == size and places == sorted(places)
    all_of = collections.Counter(labels)
    counts = collections.Counter(labels[place] for place in places)
    cut = [label for label in counts if counts[label] < all_of[label]]
    assert len(cut) <= 1
    # No class that is left out would fit in the place of the one that is cut
    if cut:
        assert all(all_of[label] > counts[cut[0]] for label in all_of if label not in counts)


def test_subsets_are_drawn_alike():
    torch.manual_seed(0)
    subsets = [tuple(_subset.draw_groups(torch.tensor(LABELS), 4).tolist()) for _ in range(800)]
    two_classes = [(2 * a, 2 * a + 1, 2 * b, 2 * b + 1) for a, b in itertools.combinations(range(5), 2)]
    assert_drawn_with(dict.fromkeys(two_classes, 0.1), subsets)
    cut = [tuple(_subset.draw_groups(torch.tensor([7, 7, 7, 7]), 3).tolist()) for _ in range(400)]
    assert_drawn_with(dict.fromkeys(itertools.combinations(range(4), 3), 0.25), cut)


class Network(tiny.Network):
    """Remembers its passes."""

    def __init__(self):
        super().__init__()
        self.passes = []

    def forward(self, images):
        self.passes.append((len(images), self.training, torch.is_grad_enabled()))
        return super().forward(images)


def step_of(*words, loss="contrastive", **how):
    torch.manual_seed(1)
    flags = f"--loss {loss} --optim sgd --lr .1 {FLAGS}"
    trainer, opt = tiny.trainer("metric_only", flags, *words, network=Network(), **how)
    return tiny.step(opt, trainer)


@pytest.fixture
def tried(monkeypatch):
    """The subsets that are drawn."""
    values = []
    draw = _subset.draw_groups
    monkeypatch.setattr(_subset, "draw_groups", lambda labels, size: values.append(draw(labels, size)) or values[-1])
    return values


def contrastive(x, labels):
    """Of all pairs: mean d over the positive ones, mean [1 - d]+ over the negative ones."""
    pairs = list(itertools.permutations(range(len(labels)), 2))
    positive = [tiny.distance(x[i], x[j]) for i, j in pairs if labels[i] == labels[j]]
    negative = [max(0.0, 1 - tiny.distance(x[i], x[j])) for i, j in pairs if labels[i] != labels[j]]
    return sum(positive) / len(positive) + sum(negative) / len(negative)


def test_the_subset_with_the_highest_loss_is_trained_on(tried):
    step = step_of("--subset_trials 6")
    plain = step_of()
    batch = tiny.batch(LABELS)
    # statistics of the whole batch, as in training
    embeddings = step_of().trainer.outputs(batch.images)["embeddings"]
    plain.trainer.subset = None
    torch.manual_seed(0)
    done = step(batch)
    assert len(tried) == 6
    losses = [contrastive(embeddings[places].tolist(), batch.labels[places].tolist()) for places in tried]
    best = tried[losses.index(max(losses))]
    assert torch.equal(done.loss, plain(Batch(*(column[best] for column in batch))).loss) and done.images == 4
    assert torch.equal(step.sampler.indices, 20 + best) and len(step.sampler.embeddings) == 4
    # statistics of the trained images alone
    assert equal_states(step.trainer.network.state_dict(), plain.trainer.network.state_dict())
    assert step.trainer.network.passes == [(10, True, False), (4, True, True)]


def test_the_miner_of_the_criterion_mines_in_each_subset_and_then_in_the_chosen_one():
    step = step_of("--subset_trials 3 --batch_mining distance", loss="triplet")
    miner = step.trainer.criterion.batchminer
    seen = []
    mine = miner.mine
    miner.mine = lambda *batch: seen.append(batch[1].tolist()) or mine(*batch)
    step(tiny.batch(LABELS))
    assert [len(labels) for labels in seen] == [4, 4, 4, 4] and seen[-1] in seen[:3] and miner.stats["tuples"] == 4


def test_without_labels_each_image_is_its_own_class(tried):
    trainer, opt = tiny.trainer("unsupervised", "--loss ntxent --optim sgd", FLAGS, "--subset_trials 20")
    seen = []
    mine = trainer.metric_loss
    trainer.metric_loss = lambda outputs, part: seen.append(part.labels) or mine(outputs, part)
    torch.manual_seed(0)
    assert tiny.step(opt, trainer)(tiny.batch(LABELS, 2)).images == 8
    assert any(set(places.tolist()) - {p ^ 1 for p in places.tolist()} for places in tried), "classes are torn"
    for labels in seen:
        assert torch.equal(*labels.chunk(2)) and len(set(labels.tolist())) == 4 and min(labels) >= 20


def test_buffers_of_the_criterion_are_restored():
    step = step_of(loss="dynamic_softmargin")
    plain = step_of(loss="dynamic_softmargin")
    batch = tiny.batch(LABELS)
    histogram = step.trainer.criterion.histogram
    before = histogram.clone()
    step.trainer.subset.values(step.trainer, batch, step.runtime, [torch.arange(4), torch.arange(4, 8)])
    assert step.trainer.criterion.histogram is histogram and torch.equal(histogram, before)
    plain(batch)
    assert not torch.equal(plain.trainer.criterion.histogram, before), "a step moves it"


def test_views_stay_together_and_a_small_batch_is_trained_on_whole():
    step = step_of()
    step.trainer.VIEWS = 2
    assert step(tiny.batch(LABELS, 2)).images == 8 and torch.equal(step.sampler.indices[:4], step.sampler.indices[4:])
    assert len(set(step.sampler.indices.tolist())) == 4
    for size in (3, 4):
        step = step_of()
        assert step(tiny.batch(LABELS[:size])).images == size and len(step.trainer.network.passes) == 1


def test_a_users_plain_trainer(monkeypatch):
    """A module of the shape, without `metric_loss`, of outputs within outputs."""

    class Plain(torch.nn.Module):
        def __init__(self, opt, network, criterion):
            super().__init__()
            self.network = network
            self.criterion = criterion

        def outputs(self, images):
            embeddings, features = self.network(images)
            nested = {"twice": 2 * embeddings, "name": "x"}
            return {"embeddings": embeddings, "pooled": features["pooled"], "nested": nested}

        def losses(self, outputs, batch):
            assert len(outputs["nested"]["twice"]) == len(batch.labels) == 4
            return {"metric_loss": self.criterion(outputs["embeddings"], batch.labels)}

    def make(name, opt, *arguments):
        monkeypatch.setattr(trainers.REGISTRY, "module", lambda name: SimpleNamespace(Trainer=Plain))
        return trainers.select("plain", opt, *arguments)

    step = step_of(make=make)
    assert step(tiny.batch(LABELS)).images == 4


def test_triplets_and_one_class_can_be_subsets():
    assert tiny.resolve(FLAGS, "--data_sampler fixed_triplets --bs 12").subset_mining
    assert tiny.resolve(FLAGS, "--loss softmax --subset_size 2").subset_mining
