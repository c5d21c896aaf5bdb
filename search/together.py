"""A search under torchrun: the first process searches, and all train each of its runs. What it suggests, the others are told."""

import contextlib
import gc

import torch

from utilities.errors import NotFinite
from utilities.ranks import Ranks


class Together:
    """`train`, by all processes of a search; one process alone trains.

    Args:
        train: runs the options of one run; the main job.
    """

    def __init__(self, train):
        self.train, self.ranks = train, Ranks()

    def __call__(self, opt):
        """Train a run, with the others; for the first process.

        Raises RuntimeError where the memory of one of several processes is too small: the others wait for it in vain.
        """
        self.ranks.share(opt)
        try:
            return self.train(opt)
        except torch.OutOfMemoryError as error:
            if self.ranks.size == 1:
                raise
            raise RuntimeError(str(error)) from error

    @contextlib.contextmanager
    def led(self):
        """What the first process does inside, which is None for the others: they train what it trains until its end, and go on."""
        yield self if self.ranks.writes else self._follow()
        if self.ranks.writes:
            self.ranks.share(None)

    def _follow(self) -> None:
        while (opt := self.ranks.share()) is not None:
            with contextlib.suppress(NotFinite):  # of the same loss in all processes: the first one records why the trial failed
                self.train(opt)
            gc.collect()
            torch.cuda.empty_cache()
