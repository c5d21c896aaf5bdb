"""Data loaders whose batches and augmentations depend on the seed alone, not on the number of workers.

`training_loader` loads the batches of batches.py, by workers (`Loader`, `SeededItems`) or, under --decode_once, out of
the image cache (`CutBatches`). `evaluation_loader` loads a data set in its order.
"""

import random
import signal
import sys
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from engine import memory
from engine.batches import Batch, BatchesInOrder, EpochBatches, Items, SeededBatch
from engine.cropping import Cut
from engine.erasing import Erased
from utilities.errors import UserError, lost_worker
from utilities.processes import kernels


def _collate(items: Items) -> Batch:
    batch = Batch(*default_collate(items), items.relevance)
    if items.erased is not None:
        batch = batch._replace(images=Erased(batch.images, items.erased))
    if items.indices is not None:
        batch = batch._replace(indices=torch.tensor(items.indices))
    return batch


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


def _relevance(dataset, batch) -> torch.Tensor | None:
    """The labels of the whole batch, bool `(B, L)`; None where each image has one."""
    labels_of = getattr(dataset, "label_rows", None)
    return None if labels_of is None else labels_of(batch)


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
        items.relevance = _relevance(self.dataset, batch)
        worker_id = 0 if worker is None else worker.id
        self.seconds[worker_id] += time.perf_counter() - since
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
                # after the part too: it may draw from generators that outlive the batch
                self.dataset[index]
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
        # there are no persistent workers yet
        if self.num_workers and self._iterator is None:
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
            # Without this torch reports the lost worker again when any process ends.
            if hasattr(batches, "_shutdown_workers"):
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
            # where it cannot be decoded, this says why
            dataset.read.fresh(missing[0])
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
        return Batch(self.labels[indices[part]], images, indices, _relevance(self.dataset, batch))

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
    reports_repeats = (ranks is None or ranks.writes) and not getattr(dataset, "graded_pairs", None)
    # a subset is chosen from the whole batch
    if opt.subset_mining:
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
    size = opt.eval_bs
    # Images keep their shapes, so each is a batch of its own.
    if getattr(getattr(dataset, "transform", None), "limit", None) is not None:
        size = 1
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
