"""Shared by several benchmarks: a training step of the program, and median times of functions called in turn."""

import statistics
import time

import torch

import architectures
import datasampler
import parameters
from engine.assembly import build_trainer
from engine.loading import training_loader
from engine.optimisers import build_optimizer
from engine.runtime import Runtime
from engine.step import Step, StepSettings

CLASSES = 100


class NoMemory:
    """A sampler that keeps nothing."""

    def precompute_indices(self):
        """No indices are chosen in advance."""
        pass

    def replace_storage_entries(self, embeddings, indices):
        """Embeddings are not stored."""
        pass


def built(arch: str, *flags: str, n_classes: int = CLASSES) -> tuple[Step, object]:
    """A step with a network of random weights in its first epoch, and its options. An --arch among `flags` wins."""
    opt = parameters.read(["--dataset", "glyphs", "--arch", arch, "--not_pretrained", *flags]).but(n_classes=n_classes)
    opt.class_names = {label: f"class {label}" for label in range(n_classes)}
    runtime = Runtime(opt).begin()
    network = architectures.select(opt.arch, opt)
    trainer = build_trainer(opt, network, runtime)
    optimizer = build_optimizer(network, trainer.criterion, opt, trainer.param_groups(opt))
    step = Step(trainer, optimizer, runtime, NoMemory(), StepSettings(chunk_size=opt.chunk_size))
    step.start_epoch(1)
    return step, opt


def training(opt, runtime, network, dataset) -> tuple:
    """Loader, step and options, as `main.train_one_epoch` takes them, of a network that trains on a data set."""
    opt.n_classes = dataset.n_classes
    trainer = build_trainer(opt, network, runtime)
    sampler = datasampler.for_training(opt, dataset)
    step = Step(trainer, build_optimizer(network, trainer.criterion, opt), runtime, sampler)
    return training_loader(dataset, sampler, opt), step, opt


def seconds(work) -> float:
    """Seconds of one call; on a GPU by the device's own clock, so that work queued before it does not count."""
    if not torch.cuda.is_available():
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    torch.cuda.synchronize()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    work()
    ended.record()
    ended.synchronize()
    return began.elapsed_time(ended) / 1000


def medians(works: dict, warm_up: int, repeats: int) -> dict:
    """Name -> median seconds of each of `works`, called in turn."""
    for _ in range(warm_up):
        for work in works.values():
            work()
    times_of = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times_of[name].append(seconds(work))
    return {name: statistics.median(times) for name, times in times_of.items()}
