"""A search under torchrun: the first process searches, all train each of its runs, whose flags it sends to them."""

import contextlib
import gc

import torch

from engine.ranks import Ranks
from utilities.errors import NotFinite


class Together:
    """`train` by all processes of a search; with one process simply `train`.

    Args:
        train: runs the options of one run; the main job.
    """

    def __init__(self, train):
        self.train = train
        self.ranks = Ranks()

    def __call__(self, opt):
        """Train a run, with the others; for the first process.

        Raises RuntimeError where one of several processes runs out of memory: the trial cannot just fail, as the others
        wait for it.
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
        """Context of the search.

        The first process gets this object; the others get None, after they have trained every run with it.
        """
        yield self if self.ranks.writes else self._follow()
        if self.ranks.writes:
            self.ranks.share(None)

    def _follow(self) -> None:
        while (opt := self.ranks.share()) is not None:
            # the loss is the same in all processes: the first one records why the trial failed
            with contextlib.suppress(NotFinite):
                self.train(opt)
            gc.collect()
            torch.cuda.empty_cache()
