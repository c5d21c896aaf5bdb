"""Data loaders whose batches and augmentations depend on the seed alone, not on the number of workers."""

import os
import random
import re
import signal
import sys
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from utilities import memory
from utilities.errors import UserError

_LOST = re.compile(r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:is killed by signal: ([^.]*)|exited unexpectedly)")


class Batch(NamedTuple):
    """What a training step takes: labels `(B,)`, images uint8 `(B, 3, H, W)`, their places in the data set `(B,)`."""

    labels: torch.Tensor
    images: torch.Tensor
    indices: torch.Tensor


def _collate(items: list) -> Batch:
    return Batch(*default_collate(items))


class SeededBatch(list):
    """The indices of one batch with the seed of its augmentations."""

    seed = 0


class EpochBatches:
    """A sampler's batches of one epoch, all drawn before the first is loaded.

    A loader asks for batches ahead of time, the further ahead the more workers it has; were they drawn then, they and the miner
    would share the random stream in an order that depends on `--kernels`.
    """

    def __init__(self, sampler, iterations: int | None = None, views: int = 1):
        self.sampler, self.views = sampler, views  # a batch holds its images so often, each time augmented anew
        self.iterations = iterations  # batches an epoch; None: the sampler's own number

    def __len__(self):
        return self.iterations or len(self.sampler)

    def __iter__(self):
        batches = list(self.sampler)
        while len(batches) < len(self):
            self.sampler.precompute_indices()
            batches += self.sampler
        batches = batches[: len(self)] if self.iterations else batches
        for indices, seed in zip(batches, torch.randint(2**62, (len(batches),)).tolist(), strict=True):
            batch = SeededBatch([*indices] * self.views)
            batch.seed = seed
            yield batch


class SeededItems(Dataset):
    """A data set whose random augmentations are seeded once a batch, with the seed that the batch carries."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index]

    def __getitems__(self, batch):
        with torch.random.fork_rng(devices=[]):  # without workers this is the training process: leave its stream alone
            torch.manual_seed(getattr(batch, "seed", 0))
            if get_worker_info() is not None:
                random.seed(torch.initial_seed())
                np.random.seed(torch.initial_seed() % 2**32)  # noqa: NPY002
            return [self.dataset[index] for index in batch]


class Loader(DataLoader):
    """A loader that starts its worker processes from as little memory as may be, and says in one line that one is lost."""

    started = False

    def __iter__(self):
        if self.num_workers and not (self.persistent_workers and self.started):
            memory.release_freed()
        self.started = True
        return self._telling(super().__iter__())

    def _telling(self, batches):
        """The batches; where a worker is lost meanwhile, `lost_worker`'s error, and the others are ended."""
        try:
            yield from batches
        except RuntimeError as error:
            lost = lost_worker(error)
            if lost is None:
                raise
            self._iterator = None
            if hasattr(batches, "_shutdown_workers"):  # while one that is lost is known to torch, each end of any process is its error
                batches._shutdown_workers()
            raise lost from None


def lost_worker(error: Exception) -> UserError | KeyboardInterrupt | None:
    """What torch's news of a lost worker process means, which may come at any moment; None for any other error.

    One that SIGTERM has ended was ended with its job: an interrupt. Else the system has ended it: a UserError.
    """
    killed = _LOST.search(str(error))
    if not isinstance(error, RuntimeError) or killed is None:
        return None
    if killed[1] and killed[1].startswith("Terminated"):
        return KeyboardInterrupt()
    how = f" ({killed[1].strip(' .')})" if killed[1] else ""
    return UserError(
        f"a worker process that loads images was ended by the system{how}, mostly because memory, or the shared memory in /dev/shm, ran out: "
        "lower --kernels and --eval_kernels, or --bs. --resume goes on from the last whole epoch"
    )


def _start_worker(_) -> None:
    """Ctrl-C is the training process's to handle, and that a job ends while a batch is handed over is no news."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    show = sys.excepthook
    sys.excepthook = lambda kind, *rest: None if issubclass(kind, (OSError, EOFError)) else show(kind, *rest)


def kernels(asked: int) -> int:
    """Worker processes: what was asked, at most the CPUs this process may use."""
    return min(asked, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def training_loader(dataset: Dataset, sampler, opt, views: int = 1) -> DataLoader:
    """Loader of the batches that `sampler` puts together, with so many augmented views of each image; yields `Batch`."""
    return _loader(dataset, opt, opt.kernels, batch_sampler=EpochBatches(sampler, opt.iterations_per_epoch, views))


def evaluation_loader(dataset: Dataset, opt) -> DataLoader:
    """Loader of the whole data set in its order; yields `Batch`."""
    return _loader(dataset, opt, opt.eval_kernels, batch_size=opt.eval_bs, shuffle=False)


def _loader(dataset, opt, n_kernels, **batches) -> DataLoader:
    n_kernels = kernels(n_kernels)
    return Loader(
        SeededItems(dataset),
        collate_fn=_collate,
        num_workers=n_kernels,
        pin_memory=torch.cuda.is_available(),
        persistent_workers=n_kernels > 0 and "batch_sampler" in batches,
        worker_init_fn=_start_worker,
        generator=torch.Generator().manual_seed(opt.seed),  # its own: starting an epoch takes nothing from the training's stream
        **batches,
    )
