"""Data loaders whose batches and augmentations depend on the seed alone, not on the number of workers."""

import operator
import random
import signal
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info
from tqdm import tqdm

from engine import memory
from engine.cropping import Cut
from engine.erasing import Erased
from utilities.console import wrapped
from utilities.errors import UserError, lost_worker
from utilities.processes import kernels


class Batch(NamedTuple):
    """What a training step takes: labels `(B,)`, images uint8 `(B, 3, H, W)`, their indices in the data set `(B,)`.

    Under --random_erasing the images are `engine.erasing.Erased`, with their rectangles, under --decode_once
    `engine.cropping.Cut`. Under torchrun a loader gives each process labels and images of its part of the batch, and
    the indices of the whole batch.
    """

    labels: torch.Tensor
    images: torch.Tensor | Erased | Cut
    indices: torch.Tensor


class Items(list):
    """The items of a batch or of a part of it; `indices` are those of the whole batch, `erased` the rectangles of these
    items.
    """

    indices = None
    erased = None


def _collate(items: Items) -> Batch:
    batch = Batch(*default_collate(items))
    batch = batch if items.erased is None else batch._replace(images=Erased(batch.images, items.erased))
    return batch if items.indices is None else batch._replace(indices=torch.tensor(items.indices))


class SeededBatch(list):
    """The indices of one batch with the seed of its augmentations; `part`: the slice of it that is loaded, None:
    all.
    """

    seed = 0
    part = None


class EpochBatches:
    """A sampler's batches of one epoch, all drawn before the first is loaded: the random stream must not depend on
    prefetching workers.

    Args:
        size: how many images there are.
        iterations: batches an epoch; None: the sampler's own number.
        views: how often a batch holds each image, augmented anew each time.
        ranks: this process's `engine.ranks.Ranks`, of which only the part of each batch is loaded; None: the whole
        batch.
        tells: whether the first epoch prints how many of its batches hold an image several times.
    """

    def __init__(
        self, sampler, size: int, iterations: int | None = None, views: int = 1, ranks=None, tells: bool = False
    ):
        self.sampler = sampler
        self.size = size
        self.iterations = iterations
        self.views = views
        self.ranks = ranks
        self.tells = tells

    def __len__(self):
        return self.iterations or len(self.sampler)

    def __iter__(self):
        batches = self._drawn()
        while len(batches) < len(self):
            self.sampler.precompute_indices()
            batches += self._drawn()
        batches = batches[: len(self)] if self.iterations else batches
        if self.tells and (line := _repeats(batches, self._name)) is not None:
            tqdm.write(wrapped(line, 2))
        self.tells = False
        for indices, seed in zip(batches, torch.randint(2**62, (len(batches),)).tolist(), strict=True):
            batch = SeededBatch([*indices] * self.views)
            batch.seed = seed
            if self.ranks is not None and self.ranks.cuts(len(batch)):
                batch.part = self.ranks.part(len(batch))
            yield batch

    def _drawn(self) -> list:
        """The batches that the sampler yields, all of them checked: a user's sampler may yield anything, in any epoch.

        Raises UserError where it yields none, as an epoch that is filled up would wait forever, and for a batch that is
        no list of places in the data set.
        """
        name = f"--data_sampler {self._name}"
        batches = [_listed(batch) for batch in self.sampler]
        if not batches:
            raise UserError(f"{name} yields no batch: __iter__ must yield lists of indices each time, in every epoch")
        for batch in batches:
            if not self._fits(batch):
                raise UserError(
                    f"{name} yields {str(batch)[:60]}: expected a list of whole numbers from 0 to {self.size - 1}, "
                    "places in image_list"
                )
        return batches

    @property
    def _name(self) -> str:
        """The sampler's name, the value of `--data_sampler`."""
        return type(self.sampler).__module__.rpartition(".")[2]

    def _fits(self, batch) -> bool:
        """Whether a batch is a list of places in the data set, at least one."""
        try:
            places = list(map(operator.index, batch))
        except TypeError:
            return False
        return bool(places) and min(places) >= 0 and max(places) < self.size


def _listed(batch):
    """A batch that can be read several times: an iterator of a user's sampler becomes a list."""
    return list(batch) if isinstance(batch, Iterator) else batch


def _repeats(batches: list, name: str) -> str | None:
    """A line on batches that hold an image several times, of the sampler `name`; None without any."""
    repeats = [len(batch) - len(set(map(int, batch))) for batch in batches]
    affected = sum(count > 0 for count in repeats)
    images = sum(map(len, batches))
    if not affected:
        return None
    return (
        f"batches of {name}: {affected:,} of {len(batches):,} hold an image several times, {sum(repeats) / images:.1%} "
        "of the images are such repeats, positives that show the image of their anchor. --data_sampler class_balanced "
        "repeats only images of "
        "classes with fewer than --samples_per_class"
    )


class BatchesInOrder:
    """The batches, in the data set's order, that one process embeds: consecutive whole batches.

    Attributes:
        rows: the images that each process embeds, one slice per process.
    """

    def __init__(self, count: int, size: int, ranks):
        batches = -(-count // size)
        bounds = [min(-(-rank * batches // ranks.size) * size, count) for rank in range(ranks.size)] + [
            count
        ]  # rounded up: the first process has a batch if any has
        self.rows = [slice(*pair) for pair in zip(bounds, bounds[1:], strict=False)]
        self.mine = self.rows[ranks.rank]
        self.size = size

    def __len__(self):
        return -(-(self.mine.stop - self.mine.start) // self.size)

    def __iter__(self):
        for start in range(self.mine.start, self.mine.stop, self.size):
            yield list(range(start, min(start + self.size, self.mine.stop)))


def _rectangles(dataset, batch) -> torch.Tensor | None:
    """Those of --random_erasing in this part of the batch, int64 `(B, 4)`.

    They have a seed of their own, and are drawn for the whole batch: the other draws, and the part, change nothing.
    """
    erasing = getattr(getattr(dataset, "transform", None), "erasing", None)
    if erasing is None:
        return None
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(getattr(batch, "seed", 0) + 1)
        return erasing.draw(len(batch))[getattr(batch, "part", None) or slice(None)]


class SeededItems(Dataset):
    """A data set whose random augmentations are seeded once a batch, with the seed that the batch carries.

    `seconds`: `(workers,)`, float64, in memory that the processes share: how long each has loaded so far.
    """

    def __init__(self, dataset, n_workers: int = 0):
        self.dataset = dataset
        self.seconds = torch.zeros(max(n_workers, 1), dtype=torch.float64).share_memory_()

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index]

    def __getitems__(self, batch):
        since = time.perf_counter()
        worker = get_worker_info()
        with torch.random.fork_rng(devices=[]):  # without workers this is the training process: leave its stream alone
            torch.default_generator.manual_seed(
                getattr(batch, "seed", 0)
            )  # torch.manual_seed would seed the GPUs too, which stay so
            if worker is not None:
                random.seed(torch.initial_seed())
                np.random.seed(torch.initial_seed() % 2**32)  # noqa: NPY002
            part = getattr(batch, "part", None)
            items = Items(self.dataset[index] for index in batch) if part is None else self._part(batch, part)
        items.erased = _rectangles(self.dataset, batch)
        self.seconds[0 if worker is None else worker.id] += time.perf_counter() - since
        return items

    def _part(self, batch: SeededBatch, part: slice) -> Items:
        """The items of a part, augmented as in the whole batch: earlier images draw too, unloaded if the data set has
        `pass_over`.
        """
        items = Items()
        passes = getattr(self.dataset, "pass_over", None)
        items.indices = list(batch)
        for place, index in enumerate(batch):
            if part.start <= place < part.stop:
                items.append(self.dataset[index])
            elif passes is None:
                self.dataset[index]  # after the part too: it may draw from generators that outlive the batch
            elif place < part.start:
                passes(index)
        return items


class Loader(DataLoader):
    """A loader that frees memory before it forks its workers, and reports a lost worker in one line."""

    @property
    def seconds(self) -> float:
        """Seconds spent on the batches so far, all workers side by side."""
        return self.dataset.seconds.mean().item()

    def __iter__(self):
        if self.num_workers and self._iterator is None:  # there are no persistent workers yet
            memory.release_freed()
        return self._reporting_lost_workers(super().__iter__())

    def _reporting_lost_workers(self, batches):
        """Yield the batches. Where a worker is lost, end the others and raise `lost_worker`'s error."""
        try:
            yield from batches
        except (RuntimeError, ConnectionError, EOFError) as error:
            if (lost := lost_worker(error) or _lost_while_receiving(error)) is None:
                raise
            self._iterator = None
            if hasattr(batches, "_shutdown_workers"):  # else torch reports the lost worker again when any process ends
                batches._shutdown_workers()
            raise lost from None


def _lost_while_receiving(error: Exception) -> UserError | KeyboardInterrupt | None:
    """`lost_worker` for a broken connection to a worker: torch learns of the worker's end, and raises, a moment
    later.
    """
    try:
        if isinstance(error, (ConnectionError, EOFError)):
            time.sleep(1)
    except RuntimeError as late:
        return lost_worker(late)
    return None


def _start_worker(_) -> None:
    """Leave Ctrl-C to the training process, and print no traceback where the job ends while a batch is handed over."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    show = sys.excepthook
    sys.excepthook = lambda kind, *rest: None if issubclass(kind, (OSError, EOFError)) else show(kind, *rest)


class CutBatches:
    """Loader of --decode_once: copies the drawn rows of a batch out of the image cache in this process, without
    workers.

    On a GPU they lie in pinned memory, which torch keeps until its copy to the device is done, and the next batch is
    cut while the device computes the step. A thread for the copies took longer than all of them (docs/speed.md). Draws
    depend on the seed of the batch and the place in it, as those of `SeededItems`.

    `seconds`: spent on the batches so far.

    Raises UserError where images are missing in the cache, or are of several sizes without a limit.
    """

    def __init__(self, dataset, batches: EpochBatches):
        self.dataset = dataset
        self.batches = batches
        self.pins = torch.cuda.is_available()
        self.seconds = 0.0
        self.labels = torch.tensor([label for _, label in dataset.image_list])
        cache = dataset.read.cache
        if missing := [path for path in dataset.paths if not cache.holds(path)]:
            dataset.read.fresh(missing[0])  # where it cannot be decoded, this says why
            raise UserError(
                f"--decode_once: {len(missing):,} of {len(dataset):,} training images are not in --image_cache "
                f"{cache.folder}: see the warning above"
            )
        if not dataset.read.side and len({cache.view(path).shape for path in dataset.paths}) > 1:
            raise UserError(
                "--decode_once: images of several sizes need --image_cache_side N, the long side that they get: "
                "341 keeps the short side of 4:3 at 256"
            )

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for batch in self.batches:
            since = time.perf_counter()
            cut = self._cut(batch)
            self.seconds += time.perf_counter() - since
            yield cut

    def _cut(self, batch: SeededBatch) -> Batch:
        """This process's part of a batch, drawn as in the whole one."""
        part = batch.part or slice(None)
        indices = torch.tensor(batch)
        views = [self.dataset.view(index) for index in batch]
        draws = self.dataset.transform.draw(
            torch.tensor([view.shape[:2] for view in views]), torch.Generator().manual_seed(batch.seed)
        )
        draws = {name: drawn[part] for name, drawn in draws.items()}
        images = Cut(self._rows(views[part], draws["boxes"]), draws, self.dataset.transform)
        erased = _rectangles(self.dataset, batch)
        return Batch(self.labels[indices[part]], images if erased is None else Erased(images, erased), indices)

    def _rows(self, views: list[np.ndarray], boxes: torch.Tensor) -> torch.Tensor:
        """The rows of each crop in their whole width, uint8 `(B, H, W, 3)`: one piece of memory where images are
        equally wide, faster than parts of rows.
        """
        tops, _, heights, _ = boxes.T.tolist()
        pixels = torch.empty(
            len(views), max(heights), max(view.shape[1] for view in views), 3, dtype=torch.uint8, pin_memory=self.pins
        )
        for place, view, top, height in zip(pixels.numpy(), views, tops, heights, strict=True):
            place[:height, : view.shape[1]] = view[top : top + height]
        return pixels


def training_loader(dataset: Dataset, sampler, opt, views: int = 1, ranks=None) -> DataLoader:
    """Loader of the batches that `sampler` puts together, with `views` augmented views of each image; yields `Batch`.

    `ranks`: the run's processes, each of which loads its part of every batch.
    """
    tells = ranks is None or ranks.writes
    ranks = None if getattr(opt, "subset_mining", None) else ranks  # a subset is chosen from the whole batch
    batches = EpochBatches(sampler, len(dataset), opt.iterations_per_epoch, views, ranks, tells)
    return (
        CutBatches(dataset, batches)
        if getattr(opt, "decode_once", False)
        else _loader(dataset, opt, opt.kernels, True, batch_sampler=batches)
    )


def evaluation_loader(dataset: Dataset, opt, ranks=None, parts: list[slice] | None = None) -> DataLoader:
    """Loader of the data set in its order; yields `Batch`. Of several processes (`ranks`) each loads its part of the
    batches.

    parts: the images to load, in slices, no two of which share a batch; None: all.
    """
    keep_their_shape = getattr(getattr(dataset, "transform", None), "limit", None) is not None
    size = 1 if keep_their_shape else opt.eval_bs
    if parts is not None:
        batches = [
            list(range(start, min(start + size, part.stop)))
            for part in parts
            for start in range(part.start, part.stop, size)
        ]
        return _loader(dataset, opt, opt.eval_kernels, False, batch_sampler=batches)
    if ranks is None or ranks.size == 1:
        return _loader(dataset, opt, opt.eval_kernels, False, batch_size=size, shuffle=False)
    return _loader(dataset, opt, opt.eval_kernels, False, batch_sampler=BatchesInOrder(len(dataset), size, ranks))


def _loader(dataset, opt, n_kernels, trains: bool, **batches) -> DataLoader:
    n_kernels = kernels(n_kernels)
    return Loader(
        SeededItems(dataset, n_kernels),
        collate_fn=_collate,
        num_workers=n_kernels,
        pin_memory=torch.cuda.is_available(),
        persistent_workers=n_kernels > 0 and trains,
        worker_init_fn=_start_worker,
        generator=torch.Generator().manual_seed(
            opt.seed
        ),  # its own: starting an epoch draws nothing from the training's stream
        **batches,
    )
