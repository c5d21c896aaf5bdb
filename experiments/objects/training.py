"""A run of the study in memory: the project's criterion, miner, sampler and step on tensors, and what a test set gives.

It is what main.py does with --feature_cache, without its files: 240 steps take a second on one core.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

import datasampler
import metrics
import parameters
from engine.assembly import build_trainer
from engine.batches import Batch
from engine.optimisers import build_optimizer
from engine.random_state import seed_everything
from engine.runtime import Runtime
from engine.step import build_step

ARCH = "timm:tf_efficientnet_lite0_frozen_normalize"
WORDS = f"--arch {ARCH} --embed_dim 128 --bs 112 --samples_per_class 4 --optim adam --decay 0.0004"
LOSS_WORDS = {"margin": "--loss_margin_beta 0.6"}
# flag of the rate of the class vectors -> its multiple of the network's rate; proxyanchor's is 100 by default
VECTOR_RATES = {"softmax": 50, "arcface": 50}
# a class's mean precision is kept in this many steps: 1e-5 of a mean over 100 classes
BYTE = 255


class Sample(NamedTuple):
    """The images of some classes: pooled features or pixels, and labels `(N,)` from 0, class after class."""

    inputs: torch.Tensor
    labels: torch.Tensor


class Score(NamedTuple):
    """R@1 and MAP@R in percent; of each class `(C,)`, uint8, the number of hits and the mean precision in `BYTE`."""

    r1: float
    map_r: float
    hits: np.ndarray
    precision: np.ndarray


def flags(loss: str, rate: float, seed: int, words: str = ""):
    """The namespace of a run; `words`: further flags."""
    all_words = f"{WORDS} --loss {loss} --lr {rate} --seed {seed} {LOSS_WORDS.get(loss, '')} {words}"
    if loss in VECTOR_RATES:
        all_words += f" --loss_{loss}_lr {VECTOR_RATES[loss] * rate}"
    return parameters.resolve(all_words.split())


def train(opt, build_network, sample: Sample, steps: int) -> Iterator[tuple[int, torch.nn.Module]]:
    """Train, and yield after each step its number and the network.

    Args:
        opt: of `flags`.
        build_network: called with `opt` after the seed is set.
        sample: the training images.
    """
    n_classes = int(sample.labels.max()) + 1
    opt = opt.but(n_classes=n_classes)
    runtime = Runtime(opt)
    seed_everything(opt.seed)
    network = runtime.place(build_network(opt))
    trainer = build_trainer(opt, network, runtime)
    optimizer = build_optimizer(network, trainer.criterion, opt, trainer.param_groups(opt))
    image_list = [(str(index), int(label)) for index, label in enumerate(sample.labels)]
    image_dict = {label: [] for label in range(n_classes)}
    for index, (path, label) in enumerate(image_list):
        image_dict[label].append([path, index])
    sampler = datasampler.select(opt.data_sampler, opt, image_dict, image_list)
    step = build_step(opt, trainer, optimizer, runtime, sampler)
    step.start_epoch(1)
    number = 0
    while number < steps:
        for indices in sampler:
            if number == steps:
                break
            number += 1
            rows = torch.tensor(indices, device=sample.inputs.device)
            step(Batch(sample.labels[rows.cpu()], sample.inputs[rows], rows.cpu()))
            yield number, step.evaluated


def score(embeddings: torch.Tensor, labels: torch.Tensor) -> Score:
    """What each image finds among the others, of embeddings `(N, D)` with as many images of each class."""
    results = metrics.query_results(metrics.EmbeddingSpace(embeddings.float().cpu().numpy(), labels.numpy()))
    n_classes = int(labels.max()) + 1
    hits = results["hit"].reshape(n_classes, -1)
    precision = results["ap_at_r"].reshape(n_classes, -1)
    by_class = np.rint(BYTE * precision.mean(1)).astype(np.uint8)
    return Score(100 * float(hits.mean()), 100 * float(precision.mean()), hits.sum(1).astype(np.uint8), by_class)
