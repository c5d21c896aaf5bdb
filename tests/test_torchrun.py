"""Several processes are the same experiment as one: steps, batches, evaluation, whole runs; who writes; what is lost with one of them."""

import pytest
import torch

import criteria
import trainers
from tests import _processes
from tests._processes import spawned
from tests.utilities.test_chunks import OF_TRAINERS, of_loss

MEMORY = ["--loss", "contrastive", "--memory_size", "30", "--memory_start", "1"]


def test_steps_are_those_of_one_process():
    cases = [(0, of_loss(loss), {}) for loss in ("margin", "ntxent", "proxyanchor", "softtriplet", "multisimilarity")]
    cases += [(0, ["--loss", "triplet", "--batch_mining", miner], {}) for miner in ("random", "semihard", "distance")]
    cases += [(0, [*MEMORY, *more], {}) for more in ([], ["--memory_ema", ".5"])]
    cases += [(0, ["--loss", "margin", "--clip_grad_norm", ".05"], {}), (4, ["--loss", "margin"], {}), (4, ["--trainer", "diva"], {})]
    cases += [(0, ["--trainer", name, *OF_TRAINERS.get(name, []), "--loss", "margin"], {}) for name in ("adversarial", "s2sd", "diva")]
    cases += [(0, ["--loss", "margin"], {"dtype": torch.float32, "steps": 1}), (0, ["--loss", "ntxent", "--optim", "adamw"], {"steps": 2})]
    spawned(2, _processes.same_steps, cases)


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 3])
def test_every_criterion_steps_as_in_one_process(n):
    spawned(n, _processes.same_steps, [(0, of_loss(loss), {}) for loss in criteria.REGISTRY.names()])


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 3, 5])
def test_every_trainer_steps_as_in_one_process(n):
    """Five processes do not divide the twelve images."""
    flags = [["--trainer", name, *OF_TRAINERS.get(name, []), "--loss", "margin"] for name in trainers.REGISTRY.names()]
    spawned(n, _processes.same_steps, [(chunk_size, words, {}) for words in flags for chunk_size in (0, 2)])
