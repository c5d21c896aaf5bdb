"""Steps of several processes are those of one, to rounding: every criterion, miner and trainer, with memory, chunks,
regularisers, subsets.
"""

import itertools
from unittest import mock

import numpy as np
import pytest
import torch

import batch_mining
import criteria
import trainers
from engine.ranks import Ranks
from tests.engine.test_chunks import (
    CLASSES,
    PREFIXES,
    TOLERANCES,
    WAYS,
    WIDTH,
    Network,
    assert_same_steps,
    of_loss,
    trained,
)
from tests.kit import processes
from tests.kit.processes import one_process, spawned
from tests.kit.runs import resolve
from utilities.criterion import takes_reference
from utilities.errors import UserError

MEMORY = ["--memory_size 30 --memory_start 1"]
OF_MEMORY = ["--loss contrastive", *MEMORY]
# for float32: long steps of steep losses enlarge its rounding
SLOWLY = ["--lr", ".002"]
NEEDS_TRIPLETS = [
    name for name, module in batch_mining.REGISTRY.modules().items() if getattr(module, "NEEDS_TRIPLETS", False)
]


def allowed(flags):
    """Whether the command line takes the flags."""
    try:
        resolve("--dataset glyphs", *flags)
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


def everything(folder, n, full):
    """Cases of `_processes.same_steps`: every trainer and added loss, and some criteria.

    `full`: also every criterion, by itself and against a memory, every miner, further flags, three steps; with two
    processes in float32 too.
    """
    # two vectors a class
    vectors = np.random.default_rng(0).normal(size=(CLASSES, 2, 5))
    np.savez(folder / "vectors.npz", names=[f"class {label}" for label in range(CLASSES)], vectors=vectors)
    language = f"--language_vectors {folder}/vectors.npz --loss_weights language_loss=5 --loss"
    chosen_ways = WAYS if full else dict(WAYS).items()
    ways = [["--trainer", name, "--loss", "margin", *flags] for name, flags in chosen_ways]
    cases = [(2 * (number % 2), words, {"steps": 2}) for number, words in enumerate(ways)]
    # a state of its own; class vectors
    cases += [(0, of_loss(loss), {"steps": 2}) for loss in ("dynamic_softmargin", "softtriplet")]
    cases += [(0, [*OF_MEMORY, "--memory_ema .5"], {"stand_in": False})]
    cases += [(4, ["--loss margin --clip_grad_norm .05"], {})]
    cases += [(0, ["--loss margin --subset_mining maximum_loss --subset_size 6"], {"steps": 2})]
    cases += [(5, ["--loss proxyanchor", *PREFIXES], {"steps": 1})]
    cases += [(0, [f"{language} multisimilarity"], {"steps": 1})]
    cases += [(0, ["--loss multisimilarity --metrix .4 --metrix_level feature"], {"steps": 1})]
    cases += [(4, ["--loss triplet", *MEMORY], {"stand_in": False, "label_sets": True})]
    if not full:
        return cases
    losses = [of_loss(loss) for loss in criteria.REGISTRY.names()]
    further_ways = [
        OF_MEMORY,
        *losses,
        *miners(),
        ["--loss softmax", *PREFIXES, "--matryoshka_heads own"],
        ["--loss margin --subset_mining maximum_loss --subset_size 4 --batch_mining random"],
        ["--loss multisimilarity --optim rmsprop"],
        *([f"--loss multisimilarity --momentum .9 --optim {name}"] for name in ("adam", "amsgrad", "adamw", "radam")),
        ["--loss proxyanchor --arch resnet50_frozen --embed_regularizer lp --weight_regularizer regular_face"],
        ["--loss proxyanchor --metrix .4 --weight_regularizer anticollapse"],
        ["--loss contrastive --metrix .4"],
    ]
    against = [loss for loss, module in criteria.REGISTRY.modules().items() if takes_reference(module.Criterion)]
    cases += [(0, [*of_loss(loss), *MEMORY], {"stand_in": False}) for loss in against]
    cases += [(0, [*OF_MEMORY, *PREFIXES], {"stand_in": False})]
    cases += [(5, [f"{language} margin --language_direction forward --language_delay 1"], {})]
    cases += [(0, [*words, *SLOWLY], {"dtype": torch.float32}) for words in losses + ways if n == 2]
    return cases + [(2, words, {}) for words in ways] + [(0, words, {}) for words in further_ways]


@pytest.mark.parametrize("n,full", [(2, False), *(pytest.param(n, True, marks=pytest.mark.long) for n in (2, 3, 5))])
def test_steps_are_those_of_one_process(n, full, tmp_path):
    """One start of the processes walks them all. Five do not divide the twelve images."""
    check = processes.steps_and_draws if n == 2 else processes.same_steps
    spawned(n, check, everything(tmp_path, n, full))


class OfFeatures(torch.nn.Module):
    """A criterion that reads the network's pooled features."""

    def forward(self, batch, labels, batch_features, **kwargs):
        return batch.square().mean() + (batch_features.tanh() * (labels + 1)[:, None]).mean()


def travelling(rank):
    """The widths of what each process gathers in a step; parameters are those of one process."""
    sent = []
    gather = Ranks.gather

    def counted(self, rows, total):
        sent.append([value.shape[1] for value in rows.values()])
        return gather(self, rows, total)

    def reading(opt, network, criterion):
        return trainers.Base(opt, network, OfFeatures())

    for (trainer, features), chunk_size in itertools.product(((None, []), (reading, [[Network.feature_dim]])), (0, 4)):
        how = {"steps": 1, "trainer": trainer}
        with one_process():
            single = trained(0, "--loss", "contrastive", **how)
        with mock.patch.object(Ranks, "gather", counted):
            joint = trained(chunk_size, "--loss", "contrastive", **how)
        # embeddings, compared and evaluated, in one message; features where they are read
        assert sent == [[WIDTH], *features]
        sent.clear()
        assert_same_steps(single, joint, *TOLERANCES[torch.float64])


def test_a_tensor_with_two_names_travels_once_and_features_only_where_they_are_read():
    spawned(2, travelling)
