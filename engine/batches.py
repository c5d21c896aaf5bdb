"""The batches of an epoch: which images each holds, with which seed, and what a step receives.

All batches of an epoch are drawn before the first is loaded (`EpochBatches`), so that they depend on the seed alone.
"""

import operator
from collections.abc import Iterator
from typing import NamedTuple

import torch
from tqdm import tqdm

from engine.cropping import Cut
from engine.erasing import Erased
from utilities.console import wrapped
from utilities.errors import UserError


class _Fields(NamedTuple):
    labels: torch.Tensor
    images: torch.Tensor | Erased | Cut
    indices: torch.Tensor
    relevance: torch.Tensor | None = None


class Batch(_Fields):
    """What a training step takes: labels `(B,)`, images uint8 `(B, 3, H, W)`, their indices in the data set `(B,)`.

    Under --random_erasing the images are `engine.erasing.Erased`, with their rectangles, under --decode_once
    `engine.cropping.Cut`. Under torchrun a loader gives each process labels and images of its part of the batch, and
    the indices and the relevance of the whole batch.

    `relevance`: where images have several of L labels, which of them each has, bool `(B, L)`, and `labels` are the
    first ones. None where each image has one label: such a batch is unpacked into three.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator:
        n_fields = 3 if self.relevance is None else 4
        return iter(self[:n_fields])

    def _replace(self, **changes) -> "Batch":
        return Batch(**{**self._asdict(), **changes})


class Items(list):
    """The items of a batch or of a part of it.

    `indices` and `relevance` are those of the whole batch, `erased` the rectangles of these items.
    """

    indices = None
    relevance = None
    erased = None


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
        # A user's sampler is wrapped by `datasampler._adapter`.
        sampler = getattr(self.sampler, "wrapped", self.sampler)
        return type(sampler).__module__.rpartition(".")[2]

    def _fits(self, batch) -> bool:
        """Whether a batch is a list of places in the data set, at least one."""
        try:
            places = list(map(operator.index, batch))
        except TypeError:
            return False
        return bool(places) and min(places) >= 0 and max(places) < self.size


def _listed(batch):
    """A batch that can be read several times: an iterator of a user's sampler becomes a list."""
    if isinstance(batch, Iterator):
        return list(batch)
    return batch


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
        self.rows = list(map(slice, starts, [*starts[1:], count]))
        self.mine = self.rows[ranks.rank]
        self.size = size

    def __len__(self):
        return -(-(self.mine.stop - self.mine.start) // self.size)

    def __iter__(self):
        for start in range(self.mine.start, self.mine.stop, self.size):
            yield list(range(start, min(start + self.size, self.mine.stop)))
