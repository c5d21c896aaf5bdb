"""Records of a run: every sink, a file of this folder, gets the same rows.

Rows are values of an epoch or, with --log_every, of a batch.

Names: `test/e_recall@1` everywhere, but the files of a group have those of the ICML pipeline, and the online service
has both, or one of them by `--online_names`. Values of one batch: `batch/loss`. Pictures: `pictures/spectrum`;
TensorBoard's: `visuals/spectrum`.
"""

from typing import NamedTuple

from runs.icml_names import SECTIONS, SPLIT_TITLES, IcmlName, icml_name, metric_group, training_group
from runs.names import plain

__all__ = [
    "SECTIONS",
    "SPLIT_TITLES",
    "BatchRow",
    "IcmlName",
    "Row",
    "Sink",
    "icml_name",
    "metric_group",
    "named_row",
    "open_sinks",
    "training_group",
]


class Row(NamedTuple):
    """One value of an epoch.

    metric: the name in metrics.csv. group: the ICML pipeline's group of curves. step: the batches trained so far.
    label: the value's name within its group; None: the metric's own name. section: the ICML pipeline's section; None:
    that of the split.
    """

    epoch: int
    split: str
    group: str
    metric: str
    value: float
    step: int = 0
    label: str | None = None
    section: str | None = None

    @property
    def name(self) -> str:
        """`test/e_recall@1`."""
        return f"{self.split}/{self.metric}"

    @property
    def icml_name(self) -> IcmlName:
        """The ICML pipeline's name."""
        return IcmlName(self.section or SPLIT_TITLES[self.split], self.group, self.label or plain(self.metric))

    @property
    def title(self) -> str:
        """The ICML pipeline's name as text, `Test: discriminative_e_recall: e_recall@1`."""
        return self.icml_name.key


def named_row(epoch: int, split: str, metric: str, value: float, step: int, evaltypes: list[str]) -> Row:
    """The row of a value, `metric` its name in metrics.csv, of a run with these evaltypes."""
    section, group, label = icml_name(split, metric, evaltypes)
    return Row(epoch, split, group, metric, value, step, label, section)


class BatchRow(NamedTuple):
    """One value of one batch: `step` counts the batches of all epochs from 1."""

    epoch: int
    step: int
    name: str
    value: float


class Sink:
    """A sink that records nothing: the base of all others."""

    def write(self, rows: list[Row]) -> None:
        """Record the rows of one epoch."""

    def write_batches(self, rows: list[BatchRow]) -> None:
        """Record the rows of some batches, in the order of their steps."""

    def cut(self, epoch: int, step: int = 0, tested: bool = True) -> None:
        """On resume, drop all rows after `epoch`, which ended with the batch `step`.

        tested: False drops those of test, too.
        """

    def fill(self, rows: list[Row], batches: list[BatchRow]) -> None:
        """On resume, after `cut`, add the rows that are missing of all so far.

        Rows are missing where a file was lost or damaged, or was locked when a run was killed.
        """

    def arrays(self, epoch: int, split: str, values: dict) -> None:
        """Record array-valued metrics, name -> numpy array."""

    def picture(self, epoch: int, name: str, path) -> None:
        """Record a picture that lies at `path`."""

    def selected(self, rule: str, epoch: int, values: dict) -> None:
        """Record the epoch that the selection rule now chooses; `values`: split -> {metric: value}."""

    def best(self, selected: dict, files: dict) -> None:
        """Keep the network of the selected epoch.

        selected: the arguments of `selected()`. files: name in a run folder -> path.
        """

    def close(self) -> None:
        """Finish."""


def open_sinks(opt, folder) -> list[Sink]:
    """The sinks that the flags ask for."""
    from runs.records.local import ArrayFiles, BatchFile, GroupFiles, LongFile
    from runs.records.online import online_sink
    from runs.records.sqlite import Database
    from runs.records.tensorboard import EventFiles
    from utilities import extras

    if opt.no_records:
        return [LongFile(folder)]
    local = [
        LongFile(folder),
        BatchFile(folder),
        GroupFiles(folder),
        ArrayFiles(folder),
        Database(folder),
    ]
    if extras.is_installed("tensorboard", otherwise="no TensorBoard files are written"):
        local.append(EventFiles(folder))
    return [*local, online_sink(opt, folder)]
