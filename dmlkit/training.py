"""The program from Python: `dmlkit.train(data=FOLDER, loss="margin")` gives a `Run`, which embeds, finds and exports.

Flags are keywords, with the names and values of the command line (docs/flags.md).
"""

import hashlib
import os
import shutil
import textwrap
from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

import parameters
from engine.ranks import several_processes
from runs import Embedder, RunFolder
from utilities import plug_in_folders
from utilities.annotations import File, Frame, Image
from utilities.errors import UserError
from utilities.files import write_file

# both are imported when they are used
if TYPE_CHECKING:
    from retrieval.answers import Neighbour
    from retrieval.index import Index

LABEL = "label"
PATH = "path"
SPLIT = "split"
# flags with which main.py does something else than train a run
NO_TRAINING = (
    *("dry_run", "profile_steps", "list", "find", "explain", "check_data", "print_config"),
    *("evaluate", "evaluate_only", "evaluate_ensemble", "aggregate_only"),
)


class TrainingRun(Protocol):
    """A run while it trains, as a callback sees it.

    Attributes:
        folder: of the run.
    """

    folder: Path

    def stop(self) -> None:
        """End the training after this epoch. The run can be resumed."""


class Callback(Protocol):
    """What `train` takes as a callback; a class need not inherit from it."""

    def on_epoch_end(self, run: TrainingRun, epoch: int, scores: dict[str, dict[str, Any]], /) -> Any:
        """Called when an epoch is recorded.

        Args:
            run: the run, which `run.stop()` ends.
            epoch: counted from 1.
            scores: split -> {metric: value}, empty where the epoch was not evaluated.
        """


def train(data: File | Frame | None = None, callbacks: Iterable[Callback] = (), **flags: Any) -> "Run":
    """Train a network and return its run. Raises UserError, of one line, for what cannot work.

    Args:
        data: a folder with a folder of images for each class; a CSV table as of --dataset csv; a pandas frame with the
            columns `path`, `label` and perhaps those of such a table: without `split`, the first half of the classes in
            the order of their names is trained on, the other evaluated. None: what the flags say, `dataset="cub200"`.
        callbacks: objects with a method `on_epoch_end(run, epoch, scores)`, called when an epoch is recorded
            (`Callback`). `scores`: split -> {metric: value}, empty where the epoch was not evaluated. `run.stop()` ends
            the training after it: of a cross-validation that fold, of a reproduction that stage. Such a run can be
            resumed.
        flags: those of the command line, `n_epochs=10, evaluation_metrics=["e_recall@1", "nmi"], no_records=True`.
    """
    import main

    callbacks = _checked(callbacks)
    opt = parameters.resolve(_words({**flags, **_flags_of(data, flags)}))
    for flag in NO_TRAINING:
        if getattr(opt, flag):
            raise UserError(f"dmlkit.train trains: leave {flag} out, or call Run(folder)")
    later = [stage.but(callbacks=callbacks) for stage in opt.later]
    with several_processes():
        return Run(main.main(opt.but(callbacks=callbacks, later=later)).folder)


class Run:
    """A finished run.

    Args:
        folder: of the run, or of a fold of a cross-validation.

    Attributes:
        folder: as a Path.
    """

    def __init__(self, folder: File):
        self.folder = Path(folder).expanduser()
        self._embedder: Embedder | None = None
        self._index: Index | None = None

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """split -> {metric: value} of the selected epoch.

        Raises UserError for a folder without a run, and for a cross-validation, whose folds have scores.
        """
        run = RunFolder(self.folder)
        if run.is_cross_validation:
            raise UserError(f"{self.folder} is a cross-validation: name one of its folds, as {run.fold(0).path}")
        if not (self.folder / "parameters.yaml").exists():
            raise UserError(f"no run in {self.folder}")
        return run.selected["values"]

    @property
    def embedder(self) -> Embedder:
        """The run's best checkpoint as a function of images (`runs.Embedder`), made once."""
        if self._embedder is None:
            self._embedder = Embedder(self.folder)
        return self._embedder

    def embed(self, images: Image | Iterable[Image]) -> np.ndarray:
        """float32 `(N, D)`: embeddings of paths, Pillow images, arrays or tensors (`runs.Embedder`)."""
        return self.embedder(images)

    def index(self, images: File | Iterable[File], out: File | None = None) -> "Index":
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

    def query(self, image: File, k: int = 10) -> "list[Neighbour]":
        """The `k` nearest indexed images of an image, nearest first: `retrieval.answers.Neighbour`s with `rank`,
        `distance` and `path`. Raises UserError before `index` was called.
        """
        from retrieval import answers
        from retrieval.index import Index

        if not isinstance(k, Integral) or k < 1:
            raise UserError(f"k={k!r}: a whole number from 1")
        if self._index is None:
            place = self.folder / "index"
            if not place.exists():
                raise UserError(f"{self.folder}: call index(images) before query(image)")
            self._index = Index(place)
        return answers.answers(self._index, [str(image)], self.embedder(image), k)

    def export(self, format: str, out: File | None = None) -> Path:
        """Write the network for other programs: `onnx`, `torchscript`, `torch_export` or `safetensors`, with its
        preprocessing and a card. Returns the folder.

        Args:
            out: a new folder; None: `export_<format>/` in the run's folder.
        """
        from retrieval import __main__ as retrieval_program
        from retrieval import export

        if format not in export.FORMATS:
            raise UserError(f"format {format!r}: one of {', '.join(export.FORMATS)}")
        place = self.folder / f"export_{format}" if out is None else Path(out)
        retrieval_program.main(["export", str(self.folder), "--out", str(place), "--format", format])
        return place


def _flags_of(data, flags: dict) -> dict:
    """The flags that name the data."""
    if data is None:
        return {}
    for flag in ("dataset", "dataset_folder_path", "dataset_csv"):
        if flags.get(flag) is not None:
            raise UserError(f"data and {flag}: both name the data, leave one out")
    if hasattr(data, "columns") and hasattr(data, "assign"):
        data = _table_of(data, Path(flags.get("save_path") or "Training_Results"))
    if not isinstance(data, str | os.PathLike) or not str(data):
        text = textwrap.shorten(repr(data), 80)
        raise UserError(f"data {text}: a folder of classes, a .csv file or a pandas frame")
    path = Path(data).expanduser()
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
    n_without_path = sum(not isinstance(path, str | os.PathLike) for path in frame[PATH])
    if n_without_path:
        raise UserError(f"data: {n_without_path} rows of the frame have no {PATH}")
    table = frame.assign(**{PATH: [os.path.abspath(path) for path in frame[PATH]]})
    if SPLIT not in frame.columns:
        classes = sorted(frame[LABEL].dropna().unique(), key=str)
        trained_classes = set(classes[: len(classes) // 2])
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
        if value is None:
            continue
        if is_switch:
            if value not in (True, False):
                raise UserError(f"{name}={value!r}: True or False")
            if not value:
                option = f"--no-{name}"
            words.append(option)
        elif isinstance(value, bool):
            words += [option, str(int(value))]
        elif isinstance(value, Iterable) and not isinstance(value, str):
            words += [option, *map(str, value)]
        else:
            words.append(f"{option}={value}")
    return words


def _checked(callbacks) -> tuple:
    """The callbacks, each with its method. Raises UserError for what is none."""
    if not isinstance(callbacks, Iterable):
        raise UserError("callbacks: a list of objects with a method on_epoch_end(run, epoch, scores)")
    callbacks = tuple(callbacks)
    for callback in callbacks:
        if not callable(getattr(callback, "on_epoch_end", None)):
            raise UserError(f"callbacks: {callback!r} has no method on_epoch_end(run, epoch, scores)")
    return callbacks


def use_plugins(folder: File) -> None:
    """Take the plug-ins of a folder, as `--plugins` does: before a run that uses them is trained, loaded or embeds.

    Raises UserError for a folder that does not exist or holds none.
    """
    plug_in_folders.use([plug_in_folders.FLAG, str(folder)])


def _as_list(images) -> list:
    return [images] if isinstance(images, str | os.PathLike) else list(images)
