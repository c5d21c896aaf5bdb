"""Adapters: an embedding layer on a frozen network's features, `linear`, or with a hidden layer before it, `mlp`,
trained on the features of training images.

The recipe is that of ILIAS's linear adapter (configs/ilias_adapter.yaml: a cosine softmax of scale 16, 512 dimensions),
unless flags of training say otherwise. Neither the backbone nor an image is needed. The network of the last epoch is
measured: none is chosen.
"""

import copy
import time
from typing import NamedTuple

import torch

import architectures
import datasampler
import evaluation
from engine.assembly import build_training
from engine.loading import evaluation_loader
from engine.optimisers import build_scheduler
from engine.random_state import seed_everything
from engine.runtime import Runtime
from evaluation import features
from utilities.counts import count_of

KINDS = ("linear", "mlp")
RECIPE = ["--config", "ilias_adapter"]
FROZEN = [
    "--freeze_backbone",
    "--feature_cache",
    "--augmentation",
    "none",
    "--eval_scales",
    "1",
    "--evaluate_only",
    "--no_train_metrics",
]


class Adapted(NamedTuple):
    """What an adapter gives: split -> `evaluation.Embedded`, the number of its parameters, and how it was trained."""

    embedded: dict
    parameters: int
    remark: str


def adapted(kind: str, embedded: dict, opt) -> Adapted:
    """The embeddings of an adapter of `KINDS`.

    Args:
        embedded: split -> `evaluation.Embedded` of the backbone's features, with the training images as `train`.
        opt: with the flags `FROZEN`.

    Raises UserError where network, trainer or loss need more than features.
    """
    began = time.monotonic()
    splits = {}
    runtime = Runtime(opt)
    for split, of_split in embedded.items():
        # a copy, as other networks have features of their own of these images
        splits[split] = copy.copy(of_split.dataset)
        splits[split].features = torch.from_numpy(of_split.features[evaluation.MAIN_EVALTYPE])
    training = splits["train"]
    width = splits["train"].features.shape[1]
    hidden = []
    if kind == "mlp":
        hidden = opt.embed_hidden or [width]
    opt = opt.but(embed_hidden=hidden)
    opt.n_classes = training.n_classes
    seed_everything(opt.seed)
    network = runtime.place(architectures.behind(width, opt))
    trainer, optimizer, sampler, loader, step = build_training(opt, network, training, runtime)
    features.check(trainer, opt, runtime)
    scheduler = build_scheduler(optimizer, opt, None)
    datasampler.fill_storage(sampler, evaluation_loader(training, opt), trainer, runtime)
    for epoch in range(1, opt.n_epochs + 1):
        step.start_epoch(epoch)
        for batch in loader:
            step(batch)
        step.end_epoch()
        scheduler.step({})
    how = (
        f"adapter: --loss {opt.loss}, {count_of(opt.n_epochs, 'epoch')} on {len(training):,} training images, "
        f"{time.monotonic() - began:.1f} s"
    )
    evaluated = trainer.evaluated(step.evaluated)
    settings = evaluation.EmbedSettings(normalize=not opt.eval_no_normalize)
    embedded = {}
    for split, dataset in splits.items():
        embedded[split] = evaluation.embed(evaluated, evaluation_loader(dataset, opt), runtime, settings=settings)
    return Adapted(embedded, sum(parameter.numel() for parameter in network.parameters()), how)
