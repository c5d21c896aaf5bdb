"""Runs and folds under torchrun: the first process alone writes, the others have the same state and write nothing.

Only the first process reads the disk, and shares what it reads: the others might read a file that it is just writing.
"""

import contextlib
from pathlib import Path

from engine.meter import BatchLog
from engine.ranks import Ranks
from runs import checkpoint
from runs.folder import RunFolder, run_folder
from runs.folds import CrossValidation
from runs.meta import Meta
from runs.run import Run, Selection


def run_of(opt, parts: dict, selection: Selection, ranks) -> Run:
    """The run of this process: the first one's writes, the others' follow."""
    if ranks.size == 1:
        return Run(opt, parts, selection)
    return Leader(opt, parts, selection, ranks) if ranks.writes else Follower(opt, parts, selection, ranks)


def goes_on(opt) -> bool:
    """Whether the run goes on from a checkpoint."""
    return opt.resume is not None and RunFolder(run_folder(opt)).has_checkpoint


class OfSeveral(Run):
    """The common part of leader and followers."""

    def epochs(self):
        """See `Run.epochs`; afterwards all wait until the first process has written its files."""
        yield from super().epochs()
        self.ranks.wait()


class Leader(OfSeveral):
    """The run of the first of several processes. The others restore the same checkpoint, after it."""

    def __init__(self, opt, parts: dict, selection: Selection, ranks):
        super().__init__(opt, parts, selection)
        self.ranks = ranks

    def start(self, environment: dict) -> None:
        """See `Run.start`."""
        super().start(environment)
        self.ranks.share((str(self.folder), self.resumed))


class Follower(OfSeveral):
    """The run of another process: it gets the scores, and so knows the best epoch, patience and when to end."""

    writes = False

    def __init__(self, opt, parts: dict, selection: Selection, ranks):
        self.opt = opt
        self.parts = parts
        self.selection = selection
        self.ranks = ranks
        self.begin()
        self.batches = BatchLog()

    def start(self, environment: dict) -> None:
        """Restore the folder's last checkpoint, as the first process has done."""
        folder, self.resumed = self.ranks.share()
        self.folder = Path(folder)
        if (self.folder / checkpoint.LAST).exists():
            self._restore(self.folder / checkpoint.LAST)

    def end_epoch(self, epoch: int, training: dict, scores: dict, draw=lambda: None) -> None:
        """See `Run.end_epoch`; nothing is drawn."""
        super().end_epoch(epoch, training, scores)

    def close(self) -> None:
        """There is nothing open."""

    def _save(self, name: str, parts: dict | None = None) -> None:
        """The first process does; it gets what this one alone holds, class vectors in shards."""
        for part in (parts or self.parts).values():
            part.state_dict()

    def _summarise(self) -> None:
        """The first process does."""


# ------------------------------------------------------------------------------------------------------------------
# folds
def folds_of(opt, n_folds: int) -> CrossValidation:
    """The folds of a cross-validation, each of them a run of all processes."""
    ranks = Ranks()
    return CrossValidation(opt, n_folds) if ranks.size == 1 else FoldsOfSeveral(opt, n_folds, ranks)


class FoldsOfSeveral(CrossValidation):
    """The folds that several processes train together, one after the other."""

    def __init__(self, opt, n_folds: int, ranks):
        super().__init__(opt, n_folds)
        self.ranks = ranks
        if not ranks.writes:
            self.meta = Unwritten(self.folder, opt, n_folds)

    @contextlib.contextmanager
    def started(self):
        """See `CrossValidation.started`: the first process takes the folder."""
        # the folder is taken once all processes have read its present content
        self.ranks.wait()
        with super().started() if self.ranks.writes else contextlib.nullcontext():
            self.folder, savename = self.ranks.share((self.folder, self.opt.savename))
            self.opt = self.opt.but(savename=savename)
            yield

    def fold_started(self) -> None:
        """See `CrossValidation.fold_started`."""
        if self.ranks.writes:
            super().fold_started()

    def to_train(self):
        """See `CrossValidation.to_train`."""
        options = super().to_train()

        def next_fold() -> int | None:
            for opt in options:
                return opt.fold
            return None

        fold = self.ranks.first(next_fold)
        while fold is not None:
            yield self.opt.of_fold(fold)
            fold = self.ranks.first(next_fold)

    @property
    def complete(self) -> bool:
        """See `CrossValidation.complete`."""
        return self.ranks.first(lambda: super(FoldsOfSeveral, self).complete)

    def refuse_untrained(self) -> None:
        """See `CrossValidation.refuse_untrained`."""
        self.ranks.first(super().refuse_untrained)

    def aggregate(self) -> dict:
        """See `CrossValidation.aggregate`."""
        return self.ranks.first(super().aggregate)


class Unwritten(Meta):
    """The results over the folds, of a process that does not write them."""

    def record_evaluation(self, folds: list[int], scores: list[dict]) -> None:
        """The first process does."""

    def record_ensemble(self, scores: dict) -> None:
        """The first process does."""
