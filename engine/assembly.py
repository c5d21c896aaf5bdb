"""Everything that trains on one data set, built from the flags: the same for main.py, for adapters and benchmarks."""

from typing import NamedTuple

import torch

import batch_mining
import criteria
import datasampler
import trainers
from engine.loading import training_loader
from engine.optimisers import build_optimizer
from engine.step import Step, build_step


class Training(NamedTuple):
    """A training method with its optimiser and batches.

    trainer: network, criterion and miner. sampler: chooses the images of each batch. loader: yields one
    `engine.loading.Batch` per step of an epoch. step: `step(batch)` updates the weights.
    """

    trainer: torch.nn.Module
    optimizer: torch.optim.Optimizer
    sampler: object
    loader: torch.utils.data.DataLoader
    step: Step


def build_trainer(opt, network, runtime):
    """The training method with network, miner and criterion, on the runtime's device."""
    batchminer = None
    if criteria.takes_miner(opt.loss, opt):
        batchminer = batch_mining.select(opt.batch_mining, opt)
    # --embed_dim 0: class vectors are as wide as the features
    embed_dim = trainers.width(network, opt)
    criterion = criteria.of_run(opt.but(embed_dim=embed_dim), batchminer, network)
    trainer = trainers.select(opt.trainer, opt, runtime.place(network), criterion)
    return criteria.shard(trainer, opt, runtime.ranks).to(runtime.device)


def build_training(opt, network, dataset, runtime, teacher=None, guide=None) -> Training:
    """What the flags ask for on the training images `dataset`.

    teacher, guide: of `--teacher` and `--guide`, see `evaluation.teachers`.
    """
    of_data = {"class_names": dataset.class_names, "loaded_teacher": teacher, "loaded_guide": guide}
    trainer = build_trainer(opt.but(**of_data), network, runtime)
    trainer = criteria.with_levels(trainer, dataset)
    if getattr(dataset, "graded_pairs", None) is not None:
        trainer.set_pairs(*dataset.graded_pairs)
    if getattr(dataset, "label_numbers", None) is not None:
        trainers.check_several_labels(trainer, opt)
    optimizer = build_optimizer(network, trainer.criterion, opt, trainers.groups_of(trainer, opt))
    sampler = datasampler.for_training(opt, dataset, trainer.LABELS)
    loader = training_loader(dataset, sampler, opt, trainer.VIEWS, runtime.ranks)
    step = build_step(opt, trainer, optimizer, runtime, sampler, trainers.average_of(network, opt))
    return Training(trainer, optimizer, sampler, loader, step)
