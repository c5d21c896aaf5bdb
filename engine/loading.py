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
    """The items of a batch or of a part of it.

    `indices` are those of the whole batch, `erased` the rectangles of these items.
    """

    indices = None
    erased = None


def _collate(items: Items) -> Batch:
    batch = Batch(*default_collate(items))
    if items.erased is not None:
        batch = batch._replace(images=Erased(batch.images, items.erased))
    if items.indices is not None:
        batch = batch._replace(indices=torch.tensor(items.indices))
    return batch


class SeededBatch(list):
    """The indices of one batch with the seed of its augmentations.

    `part`: the slice of it that is loaded, None: all.
    """

    seed = 0
    part = None


class EpochBatches:
    """A sampler's batches of one epoch.

    All are drawn before the first is loaded: the random stream must not depend on prefetching workers.

    Args:
        size: number of images.
        iterations: batches per epoch; None: the sampler's own number.
        views: how often a batch holds each image, augmented anew each time.
        ranks: this process's `engine.ranks.Ranks`, which loads its part of each batch; None: the whole batch.
        reports_repeats: whether the first epoch prints how many of its batches hold an image several times.
    """

    def __init__(
        self,
        sampler,
        size: int,
        iterations: int | None = None,
        views: int = 1,
        ranks=None,
        reports_repeats: bool = False,
    ):
        self.sampler = sampler
        self.size = size
        self.iterations = iterations
        self.views = views
        self.ranks = ranks
        self.reports_repeats = reports_repeats

    def __len__(self):
        return self.iterations or len(self.sampler)

    def __iter__(self):
        batches = self._drawn()
        while len(batches) < len(self):
            self.sampler.precompute_indices()
            batches += self._drawn()
        if self.iterations:
            batches = batches[: len(self)]
        self._report_repeats(batches)
        seeds = torch.randint(2**62, (len(batches),)).tolist()
        for indices, seed in zip(batches, seeds, strict=True):
            batch = SeededBatch([*indices] * self.views)
            batch.seed = seed
            if self.ranks is not None and self.ranks.cuts(len(batch)):
                batch.part = self.ranks.part(len(batch))
            yield batch

    def _report_repeats(self, batches: list) -> None:
        """In the first epoch, print how many batches hold an image several times."""
        if self.reports_repeats:
            line = _repeats(batches, self._name)
            if line is not None:
                tqdm.write(wrapped(line, 2))
        self.reports_repeats = False

    def _drawn(self) -> list:
        """The batches that the sampler yields, all of them checked: a user's sampler may yield anything, in any epoch.

        Raises UserError where it yields none, because filling up such an epoch would never end, and for a batch that
        is not a list of indices of the data set.
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
        "repeats only images of classes with fewer than --samples_per_class"
    )


class BatchesInOrder:
    """The batches, in the data set's order, that one process embeds: consecutive whole batches.

    Attributes:
        rows: the images that each process embeds, one slice per process.
    """

    def __init__(self, count: int, size: int, ranks):
        batches = -(-count // size)
        # Rounded up: the first process has a batch if any has.
        starts = [min(-(-rank * batches // ranks.size) * size, count) for rank in range(ranks.size)]
        ends = [*starts[1:], count]
        self.rows = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
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
        # Without workers this is the training process: its random stream is left alone.
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed would seed the GPUs too, which `fork_rng` does not restore here.
            torch.default_generator.manual_seed(getattr(batch, "seed", 0))
            if worker is not None:
                random.seed(torch.initial_seed())
                np.random.seed(torch.initial_seed() % 2**32)  # noqa: NPY002
            part = getattr(batch, "part", None)
            if part is None:
                items = Items(self.dataset[index] for index in batch)
            else:
                items = self._part(batch, part)
        items.erased = _rectangles(self.dataset, batch)
        self.seconds[0 if worker is None else worker.id] += time.perf_counter() - since
        return items

    def _part(self, batch: SeededBatch, part: slice) -> Items:
        """The items of a part, augmented as in the whole batch.

        Earlier images draw too; they are not loaded if the data set has `pass_over`.
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
            lost = lost_worker(error) or _lost_while_receiving(error)
            if lost is None:
                raise
            self._iterator = None
            if hasattr(batches, "_shutdown_workers"):  # else torch reports the lost worker again when any process ends
                batches._shutdown_workers()
            raise lost from None


def _lost_while_receiving(error: Exception) -> UserError | KeyboardInterrupt | None:
    """`lost_worker` for a broken connection to a worker: torch raises a moment later, when it learns of its end."""
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

    def show_unless_ended(kind, error, traceback):
        if not issubclass(kind, (OSError, EOFError)):
            show(kind, error, traceback)

    sys.excepthook = show_unless_ended


class CutBatches:
    """Loader of --decode_once: copies the drawn rows of a batch out of the image cache, without workers.

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
        sizes = torch.tensor([view.shape[:2] for view in views])
        draws = self.dataset.transform.draw(sizes, torch.Generator().manual_seed(batch.seed))
        draws = {name: values[part] for name, values in draws.items()}
        images = Cut(self._rows(views[part], draws["boxes"]), draws, self.dataset.transform)
        rectangles = _rectangles(self.dataset, batch)
        if rectangles is not None:
            images = Erased(images, rectangles)
        return Batch(self.labels[indices[part]], images, indices)

    def _rows(self, views: list[np.ndarray], boxes: torch.Tensor) -> torch.Tensor:
        """The rows of each crop in their whole width, uint8 `(B, H, W, 3)`.

        They are one piece of memory if the images are equally wide, which is faster to copy than parts of rows.
        """
        tops, _, heights, _ = boxes.T.tolist()
        width = max(view.shape[1] for view in views)
        pixels = torch.empty(len(views), max(heights), width, 3, dtype=torch.uint8, pin_memory=self.pins)
        for place, view, top, height in zip(pixels.numpy(), views, tops, heights, strict=True):
            place[:height, : view.shape[1]] = view[top : top + height]
        return pixels


def training_loader(dataset: Dataset, sampler, opt, views: int = 1, ranks=None) -> DataLoader:
    """Loader of the batches that `sampler` puts together, with `views` augmented views of each image; yields `Batch`.

    `ranks`: the run's processes, each of which loads its part of every batch.
    """
    reports_repeats = ranks is None or ranks.writes
    if opt.subset_mining:  # a subset is chosen from the whole batch
        ranks = None
    batches = EpochBatches(sampler, len(dataset), opt.iterations_per_epoch, views, ranks, reports_repeats)
    if opt.decode_once:
        return CutBatches(dataset, batches)
    return _loader(dataset, opt, opt.kernels, True, batch_sampler=batches)


def evaluation_loader(dataset: Dataset, opt, ranks=None, parts: list[slice] | None = None) -> DataLoader:
    """Loader of the data set in its order; yields `Batch`.

    ranks: the run's processes, each of which loads its part of the batches.
    parts: the images to load, in slices, no two of which share a batch; None: all.
    """
    keep_their_shape = getattr(getattr(dataset, "transform", None), "limit", None) is not None
    size = 1 if keep_their_shape else opt.eval_bs
    if parts is not None:
        batches = []
        for part in parts:
            for start in range(part.start, part.stop, size):
                batches.append(list(range(start, min(start + size, part.stop))))
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
        # A generator of its own: starting an epoch draws nothing from the training's stream.
        generator=torch.Generator().manual_seed(opt.seed),
        **batches,
    )
