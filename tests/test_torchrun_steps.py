"""Steps of several processes are those of one, to rounding: every criterion, miner and trainer, with memory, chunks, regularisers, subsets."""

import itertools
from unittest import mock

import numpy as np
import pytest
import torch

import batch_mining
import criteria
import parameters
import trainers
from tests import _processes
from tests._processes import alone, spawned
from tests.training.test_chunks import CLASSES, PREFIXES, TOLERANCES, WAYS, WIDTH, Network, assert_same_steps, of_loss, trained
from training.ranks import Ranks
from utilities.errors import UserError

MEMORY = ["--memory_size", "30", "--memory_start", "1"]
OF_MEMORY = ["--loss", "contrastive", *MEMORY]
SLOWLY = ["--lr", ".002"]  # for float32: long steps of steep losses enlarge its rounding
NEEDS_TRIPLETS = [name for name, module in batch_mining.REGISTRY.modules().items() if getattr(module, "NEEDS_TRIPLETS", False)]


def allowed(flags):
    """Whether the command line takes the flags."""
    try:
        parameters.resolve(["--dataset", "glyphs", *flags])
    except UserError:
        return False
    return True


def of_miner(miner):
    """Flags of criteria that take the miner: one of triplets, else of its own sets; one of pairs."""
    losses = ["triplet", *criteria.REGISTRY.names()]
    first = next(loss for loss in losses if allowed(["--loss", loss, "--batch_mining", miner]))
    pairs = [["--loss", "contrastive", "--batch_mining", miner]]
    return [["--loss", first, "--batch_mining", miner], *(words for words in pairs if allowed(words))]


def miners():
    return [words for name in batch_mining.REGISTRY.names() if name not in NEEDS_TRIPLETS for words in of_miner(name)]


def test_steps_are_those_of_one_process(tmp_path):
    """One start of two processes walks every criterion, miner, trainer and added loss."""
    vectors = np.random.default_rng(0).normal(size=(CLASSES, 2, 5))  # two a class
    np.savez(tmp_path / "vectors.npz", names=[f"class {label}" for label in range(CLASSES)], vectors=vectors)
    cases = [(0, of_loss(loss), {"steps": 1}) for loss in criteria.REGISTRY.names()]
    cases += [(0, words, {"steps": 1}) for words in miners()]
    cases += [(2 * (number % 2), ["--trainer", name, "--loss", "margin", *more], {"steps": 2}) for number, (name, more) in enumerate(WAYS)]
    cases += [
        (0, OF_MEMORY, {}),
        (0, [*OF_MEMORY, "--memory_ema", ".5"], {"stand_in": False}),
        (0, ["--loss", "margin"], {"dtype": torch.float32}),
    ]
    cases += [(0, ["--loss", "margin", "--subset_mining", "maximum_loss", "--subset_size", "6"], {"steps": 2})]
    cases += [(4, ["--loss", "margin", "--clip_grad_norm", ".05"], {})]
    cases += [(5, ["--loss", "proxyanchor", *PREFIXES], {}), (0, ["--loss", "softmax", *PREFIXES, "--matryoshka_heads", "own"], {})]
    cases += [(0, [*OF_MEMORY, *PREFIXES], {"stand_in": False})]
    language = ["--language_vectors", str(tmp_path / "vectors.npz"), "--loss_weights", "language_loss=5", "--loss"]
    cases += [(0, [*language, "multisimilarity"], {}), (5, [*language, "margin", "--language_direction", "forward", "--language_delay", "1"], {})]
    cases += [(0, ["--loss", "multisimilarity", "--metrix", ".4", "--metrix_level", "feature"], {"steps": 1})]
    spawned(2, _processes.steps_and_draws, cases)


class OfFeatures(torch.nn.Module):
    """A criterion that reads the network's pooled features."""

    def forward(self, batch, labels, batch_features, **kwargs):
        return batch.square().mean() + (batch_features.tanh() * (labels + 1)[:, None]).mean()


def travelling(rank):
    """The widths of what each process gathers in a step; parameters are those of one process."""
    sent, gather = [], Ranks.gather

    def counted(self, rows, total):
        sent.append([value.shape[1] for value in rows.values()])
        return gather(self, rows, total)

    def reading(opt, network, criterion):
        return trainers.Base(opt, network, OfFeatures())

    for (trainer, features), chunk_size in itertools.product(((None, []), (reading, [[Network.feature_dim]])), (0, 4)):
        how = {"steps": 1, "trainer": trainer}
        with alone():
            one = trained(0, "--loss", "contrastive", **how)
        with mock.patch.object(Ranks, "gather", counted):
            many = trained(chunk_size, "--loss", "contrastive", **how)
        assert sent == [[WIDTH], *features], "embeddings, compared and evaluated, in one message; features where they are read"
        sent.clear()
        assert_same_steps(one, many, *TOLERANCES[torch.float64])


def test_a_tensor_with_two_names_travels_once_and_features_only_where_they_are_read():
    spawned(2, travelling)


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 3, 5])
def test_three_steps_of_everything_are_those_of_one_process(n):
    """Criteria against a memory too where they compare samples; with two processes in float32 also. Five do not divide the twelve images."""
    against = [loss for loss, module in criteria.REGISTRY.modules().items() if getattr(module, "COMPARES_SAMPLES", True)]
    losses = [of_loss(loss) for loss in criteria.REGISTRY.names()]
    ways = [["--trainer", name, "--loss", "margin", *more] for name, more in WAYS]
    cases = [(0, words, {}) for words in losses] + [(0, [*of_loss(loss), *MEMORY], {"stand_in": False}) for loss in against]
    cases += [(chunk_size, words, {}) for words in ways for chunk_size in (0, 2)]
    if n == 2:
        cases += [(0, [*words, *SLOWLY], {"dtype": torch.float32}) for words in losses + ways]
    further = [
        *miners(),
        *(["--loss", "margin", "--subset_mining", "maximum_loss", "--subset_size", size, "--batch_mining", "random"] for size in "46"),
        *(["--loss", "multisimilarity", "--optim", optimiser] for optimiser in ("adam", "adamw", "radam", "rmsprop")),
        ["--loss", "proxyanchor", "--arch", "resnet50_frozen", "--embed_regularizer", "lp", "--weight_regularizer", "regular_face"],
        ["--loss", "proxyanchor", "--metrix", ".4", "--weight_regularizer", "anticollapse"], ["--loss", "contrastive", "--metrix", ".4"],
        *(["--loss", loss, "--metrix", ".4", "--metrix_level", "feature"] for loss in ("multisimilarity", "proxyanchor")),
    ]  # fmt: skip
    spawned(n, _processes.same_steps, cases + [(0, words, {}) for words in further])
