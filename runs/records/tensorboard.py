"""TensorBoard event files: `tensorboard --logdir <save_path>`."""

import contextlib
import threading
import time
from pathlib import Path

from runs.records import BatchRow, Row, Sink
from runs.records.damaged import as_folder, set_aside
from utilities.errors import UserError


class EventFiles(Sink):
    """Scalars and histograms of arrays as `<split>/<metric>`, `visuals/<name>`, all by epoch; `batch/<name>` by step.

    TensorBoard sorts by these names, so that the pictures come after the curves of all splits.
    Batches have a folder of their own, `batches`: on resume TensorBoard cuts all curves of a folder at one number, an
    epoch or a step.
    """

    def __init__(self, folder: Path):
        self.folder = folder / "tensorboard"
        self._writers = {}
        self._purge = {}

    @contextlib.contextmanager
    def _writer(self, subfolder: str = ""):
        """The writer of a folder, opened at its first value: importing it takes seconds.

        It is flushed. Raises UserError.
        """
        try:
            writer = self._open(subfolder)
            yield writer
            writer.flush()
        except OSError as error:
            # the writer's thread has ended: the next one to write opens a new writer
            self._writers.pop(subfolder, None)
            raise UserError(
                f"cannot write {self.folder} ({error.strerror or error}): free the disk or correct the "
                "permissions, then --resume"
            ) from error

    def _open(self, subfolder: str):
        if subfolder not in self._writers:
            from torch.utils.tensorboard import SummaryWriter

            threading.excepthook = _shown_by_the_caller
            folder = as_folder(as_folder(self.folder) / subfolder)
            _wait_for_a_later_name(folder)
            self._writers[subfolder] = SummaryWriter(str(folder), purge_step=self._purge.get(subfolder))
        return self._writers[subfolder]

    def write(self, rows: list[Row]) -> None:
        with self._writer() as writer:
            for row in rows:
                writer.add_scalar(row.name, row.value, row.epoch)

    def write_batches(self, rows: list[BatchRow]) -> None:
        with self._writer("batches") as writer:
            for row in rows:
                writer.add_scalar(f"batch/{row.name}", row.value, row.step)

    def cut(self, epoch: int, step: int = 0, tested: bool = True) -> None:
        # TensorBoard drops an earlier process's values from there on.
        self._purge = {"": epoch + 1, "batches": step + 1}
        blocking = next((path for path in self.folder.rglob("*tfevents*") if path.is_dir()), None)
        # TensorBoard skips damaged parts of a file, but stops at a folder of such a name
        if blocking is not None:
            set_aside(self.folder, f"{blocking.name} is a folder")

    def fill(self, rows: list[Row], batches: list[BatchRow]) -> None:
        # an event file is only ever added to: it is whole, or lost
        if not any(self.folder.rglob("*tfevents*")):
            self.write(rows)
            if batches:
                self.write_batches(batches)

    def arrays(self, epoch: int, split: str, values: dict) -> None:
        with self._writer() as writer:
            for name, value in values.items():
                writer.add_histogram(f"{split}/{name}", value, epoch)

    def picture(self, epoch: int, name: str, path) -> None:
        from PIL import Image
        from tensorboard.compat.proto.summary_pb2 import Summary

        with Image.open(path) as opened:
            width, height = opened.size
        # The file's own bytes: add_image would decode and encode it again.
        picture = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=Path(path).read_bytes())
        with self._writer() as writer:
            writer.file_writer.add_summary(Summary(value=[Summary.Value(tag=f"visuals/{name}", image=picture)]), epoch)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def _shown_by_the_caller(args) -> None:
    """Print no error of TensorBoard's thread: the next call raises it once more."""
    if type(args.thread).__name__ != "_AsyncWriterThread":
        threading.__excepthook__(args)


def _wait_for_a_later_name(folder: Path) -> None:
    """Wait until the name of a new event file sorts after those in `folder`, at most 2 s.

    The limit is for a clock that was set back.

    TensorBoard reads the files of a folder in the order of their names:
    `events.out.tfevents.<second>.<host>.<process>.<counter>`. Within a second neither process nor counter ("10" < "9")
    tells which was first, so that second has to pass.
    """
    seconds = (path.name.split(".")[3] for path in folder.glob("events.out.tfevents.*.*"))
    newest = max((int(second) for second in seconds if second.isdigit()), default=0)
    time.sleep(min(max(newest + 1.02 - time.time(), 0), 2))
