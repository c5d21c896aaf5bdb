"""TensorBoard event files: `tensorboard --logdir <save_path>`."""

from pathlib import Path

from utilities.records import Row, Sink


class EventFiles(Sink):
    """Scalars as `<split>/<metric>`, array-valued metrics as histograms, pictures as images."""

    def __init__(self, folder: Path):
        self.folder = folder / "tensorboard"
        self._writer = None
        self._purge = None

    @property
    def writer(self):
        """The writer, opened at the first value: importing it takes seconds."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.folder), purge_step=self._purge)
        return self._writer

    def write(self, rows: list[Row]) -> None:
        for row in rows:
            self.writer.add_scalar(f"{row.split}/{row.metric}", row.value, row.epoch)
        self.writer.flush()

    def cut(self, epoch: int) -> None:
        self._purge = epoch + 1  # TensorBoard itself then drops what an earlier process wrote from there on

    def arrays(self, epoch: int, split: str, values: dict) -> None:
        for name, value in values.items():
            self.writer.add_histogram(f"{split}/{name}", value, epoch)

    def picture(self, epoch: int, name: str, path) -> None:
        import numpy as np
        from PIL import Image

        self.writer.add_image(name, np.asarray(Image.open(path).convert("RGB")), epoch, dataformats="HWC")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
