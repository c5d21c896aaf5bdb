"""The run as the processes know it that do not write, under torchrun: the same state, and nothing on disk."""

from pathlib import Path

from runs import checkpoint
from runs.run import Run, Selection
from utilities.meter import BatchLog


def run_of(opt, parts: dict, selection: Selection, ranks) -> Run:
    """The run of this process: the first one's writes, the others follow it."""
    if ranks.size == 1:
        return Run(opt, parts, selection)
    return Leader(opt, parts, selection, ranks) if ranks.writes else Follower(opt, parts, selection, ranks)


class OfSeveral(Run):
    """What leader and followers do alike."""

    def epochs(self):
        """See `Run.epochs`; afterwards all wait until what the first process writes is there."""
        yield from super().epochs()
        self.ranks.wait()


class Leader(OfSeveral):
    """The run of the first of several processes. The others restore what it has found, once it has."""

    def __init__(self, opt, parts: dict, selection: Selection, ranks):
        super().__init__(opt, parts, selection)
        self.ranks = ranks

    def start(self, environment: dict) -> None:
        """See `Run.start`."""
        super().start(environment)
        self.ranks.share((str(self.folder), self.resumed))


class Follower(OfSeveral):
    """The run of another process: it is told the scores, and so knows the best epoch, patience and when to end."""

    writes = False

    def __init__(self, opt, parts: dict, selection: Selection, ranks):
        self.opt, self.parts, self.selection, self.ranks = opt, parts, selection, ranks
        self.begin()
        self.batches = BatchLog()

    def start(self, environment: dict) -> None:
        """Restore what the first process has restored, which is the folder's last checkpoint by now."""
        folder, self.resumed = self.ranks.share()
        self.folder = Path(folder)
        if (self.folder / checkpoint.LAST).exists():
            self._restore(self.folder / checkpoint.LAST)

    def end_epoch(self, epoch: int, training: dict, scores: dict, draw=lambda: None) -> None:
        """See `Run.end_epoch`; nothing is drawn."""
        super().end_epoch(epoch, training, scores)

    def plot(self) -> None:
        """The first process does."""

    def close(self) -> None:
        """There is nothing open."""

    def _save(self, name: str) -> None:
        """The first process does."""

    def _summarise(self) -> None:
        """The first process does."""
