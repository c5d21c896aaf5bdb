"""The program from Python: `dmlkit.train(data=FOLDER, loss="margin")` gives a `Run`, which embeds, finds and exports.

Flags are keywords, with the names and values of the command line (docs/flags.md).
"""

import hashlib
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import parameters
from runs import Embedder, RunFolder
from utilities.errors import UserError
from utilities.files import write_file

LABEL = "label"
PATH = "path"
SPLIT = "split"


def train(data=None, callbacks=(), **flags) -> "Run":
    """Train a network and return its run. Raises UserError, of one line, for what cannot work.

    Args:
        data: a folder with a folder of images for each class; a CSV table as of --dataset csv; a pandas frame with the
            columns `path`, `label` and perhaps those of such a table: without `split`, the first half of the classes in
            the order of their names is trained on, the other evaluated. None: what the flags say, `dataset="cub200"`.
        callbacks: objects with a method `on_epoch_end(run, epoch, scores)`, called when an epoch is recorded. `scores`:
            split -> {metric: value}, empty where the epoch was not evaluated. `run.stop()` ends the training after it;
            such a run can be resumed.
        flags: those of the command line, `n_epochs=10, evaluation_metrics=["e_recall@1", "nmi"], no_records=True`.
    """
    import main

    opt = parameters.resolve(_words({**_flags_of(data, flags), **flags}))
    if opt.job != "train":
        raise UserError(f"dmlkit.train trains: leave {opt.job} out, or call Run(folder)")
    return Run(main.main(opt.but(callbacks=tuple(callbacks))).folder)


class Run:
    """A finished run.

    Args:
        folder: of the run, or of a fold of a cross-validation.

    Attributes:
        folder: as a Path.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self._embedder = None
        self._index = None

    def __repr__(self):
        return f"Run({str(self.folder)!r})"

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """split -> {metric: value} of the selected epoch."""
        return RunFolder(self.folder).selected["values"]

    @property
    def embedder(self) -> Embedder:
        """The run's best checkpoint as a function of images (`runs.Embedder`), made once."""
        if self._embedder is None:
            self._embedder = Embedder(self.folder)
        return self._embedder

    def embed(self, images) -> np.ndarray:
        """float32 `(N, D)`: embeddings of paths, Pillow images, arrays or tensors (`runs.Embedder`)."""
        return self.embedder(images)

    def index(self, images, out=None):
        """Index images to search them by `query`. Returns the `retrieval.index.Index`.

        Args:
            images: paths of images, of folders with all images below them, or of CSV tables with a column `path`.
            out: a new folder for it; None: `index/` in the run's folder, which is replaced.
        """
        from retrieval import index, sources

        place = self.folder / "index" if out is None else Path(out)
        paths = sources.listed([str(image) for image in _as_list(images)])
        if out is None:
            shutil.rmtree(place, ignore_errors=True)
        index.build(self.embedder, paths, place)
        self._index = index.Index(place)
        return self._index

    def query(self, image, k: int = 10) -> list:
        """The `k` nearest indexed images of an image, nearest first: `retrieval.answers.Neighbour`s with `rank`,
        `distance` and `path`. Raises UserError before `index` was called.
        """
        from retrieval import answers
        from retrieval.index import Index

        if self._index is None:
            place = self.folder / "index"
            if not place.exists():
                raise UserError(f"{self.folder}: call index(images) before query(image)")
            self._index = Index(place)
        return answers.answers(self._index, [str(image)], self.embedder(image), k)

    def export(self, format: str, out=None) -> Path:
        """Write the network for other programs: `onnx`, `torchscript`, `torch_export` or `safetensors`, with its
        preprocessing and a card. Returns the folder.

        Args:
            out: a new folder; None: `export_<format>/` in the run's folder.
        """
        from retrieval import export
        from retrieval.__main__ import parser

        place = self.folder / f"export_{format}" if out is None else Path(out)
        defaults = vars(parser().parse_args(["export", str(self.folder), "--out", str(place), "--format", "onnx"]))
        export.export(SimpleNamespace(**{**defaults, "format": [format]}))
        return place


def _flags_of(data, flags: dict) -> dict:
    """The flags that name the data."""
    if data is None:
        return {}
    if hasattr(data, "columns"):
        data = _table_of(data, Path(flags.get("save_path", "Training_Results")))
    path = Path(data)
    if path.is_dir():
        return {"dataset": "folder", "dataset_folder_path": path}
    if path.suffix.lower() == ".csv" and path.is_file():
        return {"dataset": "csv", "dataset_csv": path}
    raise UserError(
        f"data {str(data)!r}: a folder of classes, a .csv file or a pandas frame with the columns {PATH} and {LABEL}; "
        "a data set by its name: dataset="
    )


def _table_of(frame, save_path: Path) -> Path:
    """Write a pandas frame as a table that the data set `csv` reads; its name is the hash of its content."""
    missing = [name for name in (PATH, LABEL) if name not in frame.columns]
    if missing:
        columns = ", ".join(map(str, frame.columns))
        raise UserError(f"data: the frame has no column {' or '.join(missing)}, but {columns or 'none'}")
    table = frame.assign(**{PATH: [os.path.abspath(path) for path in frame[PATH]]})
    if SPLIT not in frame.columns:
        classes = sorted(frame[LABEL].dropna().unique(), key=str)
        trained_classes = classes[: len(classes) // 2]
        table[SPLIT] = ["train" if label in trained_classes else "validation" for label in frame[LABEL]]
    content = table.to_csv(index=False).encode()
    file = save_path / "tables" / f"{hashlib.sha256(content).hexdigest()[:16]}.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, content)
    return file.resolve()


def _words(flags: dict) -> list[str]:
    """Keywords as words of a command line."""
    actions = {action.dest: action for action in parameters.get_parser()._actions}
    words = []
    for name, value in flags.items():
        option = f"--{name}"
        is_switch = name in actions and actions[name].nargs == 0
        if value is None or (is_switch and not value):
            continue
        if is_switch:
            words.append(option)
        elif isinstance(value, bool):
            words += [option, str(int(value))]
        elif isinstance(value, list | tuple):
            words += [option, *map(str, value)]
        else:
            words += [option, str(value)]
    return words


def _as_list(images) -> list:
    return [images] if isinstance(images, str | Path) else list(images)
