"""A run folder on disk: its path, its content, its run's progress.

This is the one place that decides whether a run is finished.
"""

import contextlib
import functools
import re
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

import architectures
import datasets
import trainers
from options.flags.shared import has_folds
from runs import checkpoint, damage
from runs.records.local import LongFile, read_metrics
from utilities import reading
from utilities.errors import UserError
from utilities.files import alternatives, expanded, write_file, write_yaml

PARAMETERS = "parameters.yaml"
SUMMARY = "summary.json"
INFO = "Parameter_Info.txt"
METRICS = Path("CSV_Logs") / "metrics.csv"
COPIES = {"split_file": "split_file.json", "dataset_fixes": "dataset_fixes.csv"}  # flag -> the run's copy of its file
GROUP_FILE = "split_groups_{}.csv"  # the run's copies of the files of --split_groups, numbered from 0
_COPIED = r"split_file\.json|dataset_fixes\.csv|split_groups_\d+\.csv"
# as `replacing` names them
_LEFTOVER = re.compile(rf"\.lock|\.(?:parameters\.yaml|Parameter_Info\.txt|{_COPIED})\.\w{{8}}\.tmp")


def is_finished(epoch: int, planned: int, stopped: bool) -> bool:
    """Whether a run that trained `epoch` of `planned` epochs has nothing left to train.

    stopped: `--patience` ended it.
    """
    return stopped or epoch >= planned


def out_of_patience(epoch: int, best: int | None, patience: int | None) -> bool:
    """Whether `--patience` ends a run after `epoch`, `best` being the selected epoch, None if there is none yet."""
    return patience is not None and epoch - (best or 0) >= patience


def was_stopped(content: dict, patience: int | None) -> bool:
    """Whether the run of a checkpoint's content was stopped by its `--patience`, and would be by `patience` too."""
    run = content["run"]
    return run["stopped"] and out_of_patience(content["epoch"], run["selected"]["epoch"], patience)


class Progress(NamedTuple):
    """How far a run is: epochs trained, and whether `--patience` stopped it."""

    epochs: int
    stopped: bool


class RunFolder:
    """The content of the folder `path`, of a run or of one fold.

    `opt`: the flags with which the run is to go on; None: those that it has saved. A missing file raises UserError in
    `flags`, `summary`, `selected`, `state` and `needs_test`; a damaged file does so everywhere.
    """

    def __init__(self, path: Path | str, opt: Namespace | None = None):
        self.path = Path(path)
        self.opt = opt

    @functools.cached_property
    def flags(self) -> dict:
        """Flag -> value as saved. Raises UserError where the folder holds none, or they are damaged."""
        return read_parameters(self.path)

    def _flag(self, name: str):
        return self.flags.get(name) if self.opt is None else getattr(self.opt, name)

    @property
    def is_cross_validation(self) -> bool:
        """Whether this is the folder of a cross-validation, whose runs are the folds in it."""
        return (self.path / PARAMETERS).exists() and has_folds(self.flags)

    def fold(self, number: int) -> "RunFolder":
        """The folder of one fold."""
        return RunFolder(self.path / f"fold_{number}", self.opt)

    @property
    def summary(self) -> dict:
        """The content of summary.json. Raises UserError where it is missing or damaged."""
        path = self.path / SUMMARY
        if not path.exists():
            raise UserError(f"{path} is missing: --resume writes it anew from the checkpoint")
        way_out = "delete it, and --resume writes it anew from the checkpoint"
        summary = damage.load(path, reading.read_json, damage.SUMMARY, way_out)
        return {**summary, "selected": {"rule": "", "epoch": None, **summary["selected"]}}

    @property
    def selected(self) -> dict:
        """`rule`, `epoch` and `values`, split -> {metric: value}, of the selected epoch.

        epoch: None before the first evaluation.
        """
        return self.summary["selected"]

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint, of a trained or an untrained network."""
        return (self.path / checkpoint.LAST).exists()

    @property
    def state(self) -> dict:
        """The last checkpoint's content; tensors are read on first use. Raises UserError if there is none."""
        return checkpoint.read(self.path / checkpoint.LAST, lazily=True)

    @property
    def progress(self) -> Progress:
        """How far the run is; no epoch if there is no checkpoint yet."""
        if not self.has_checkpoint:
            return Progress(0, False)
        content = checkpoint.progress(self.path / checkpoint.LAST)
        stopped = content["run"]["stopped"]
        if self.opt is not None and self.opt.patience is not None:
            stopped = was_stopped(content, self.opt.patience)
        return Progress(content["epoch"], stopped)

    @property
    def finished(self) -> bool:
        """Whether all epochs are trained, or patience ran out. It says nothing of `--final_test`: see `needs_test`."""
        if not (self.has_checkpoint and (self.path / SUMMARY).exists()):
            return False
        epochs, stopped = self.progress
        return is_finished(epochs, self._flag("n_epochs"), stopped)

    @property
    def needs_test(self) -> bool:
        """Whether `--final_test` asks for test values of the selected epoch, and there are none yet."""
        if not self._flag("final_test"):
            return False
        selected = self.selected
        return selected["epoch"] is not None and "test" not in selected["values"]

    @property
    def metrics(self):
        """CSV_Logs/metrics.csv as a pandas DataFrame, empty if there is none.

        Its columns are epoch, split, metric, value.
        """
        import pandas as pd

        path = self.path / METRICS
        try:
            with reading.parsing(path):
                rows = read_metrics(path)[:4]
        except reading.Unreadable as error:
            if not error.is_missing:
                raise UserError(f"{path} is damaged: {error.reason}. --resume sets it aside") from error
            rows = [[]] * 4
        return pd.DataFrame(dict(zip(LongFile.FIELDS, rows, strict=True)))

    def network(self, which: str = "best", evaltypes: list[str] | None = None):
        """The network on the CPU, in evaluation mode.

        which: `best`, the selected epoch if one was evaluated, or `last`.

        Where `evaltypes` (default: the run's `--evaltypes`) need the trainer's heads, the network gives a dict of
        embeddings, as in evaluation.

        Raises UserError if there is no checkpoint, or `which` is neither.
        """
        if which not in ("best", "last"):
            raise UserError(f"which={which!r}: 'best' or 'last'")
        path = self.path / checkpoint.LAST
        flags = Namespace(**self.flags)
        content = checkpoint.read(path)
        if which == "best":
            path = checkpoint.selected(self.path, content["run"])
            content = checkpoint.read(path)
        try:
            network = architectures.select(flags.arch, flags, not_pretrained=True, weights=None)
        except UserError:
            raise
        except Exception as error:
            # these flags have not passed the types of the command line
            raise UserError(
                f"{self.path / PARAMETERS} is damaged: its flags make no network ({str(error)[:160]})"
            ) from error
        checkpoint.restore_network(path, content, network)
        if evaltypes is None:
            evaltypes = self.flags.get("evaltypes", [])
        flags.n_classes = content.get("n_classes")
        try:
            return trainers.evaluated_network(flags, network, content.get("trainer"), evaltypes).eval()
        except UserError:
            raise
        except Exception as error:
            reason = f"the heads of its trainer do not fit its flags: {checkpoint.line(error)}"
            raise checkpoint.damaged(path, reason) from error


def load_run(folder: Path | str, which: str = "best"):
    """The network of a run, in evaluation mode on the CPU, and its flags as a namespace.

    `which`: `best` (the selected epoch, where one was evaluated) or `last`.
    Raises UserError if there is no such checkpoint.
    """
    run = RunFolder(folder)
    return run.network(which), Namespace(**run.flags)


def run_folder(opt) -> Path:
    """The folder of a run with these flags, before a number is added if it exists.

    A fold's folder is in that of its cross-validation.
    """
    folder = Path(opt.resume_from) if opt.resume_from else Path(opt.save_path) / opt.dataset / opt.savename
    return folder if opt.fold is None else folder / f"fold_{opt.fold}"


def fold_of(folder: Path) -> tuple[Path, list[int]] | None:
    """(cross-validation's folder, [fold]) where `folder` is one fold of a cross-validation, else None."""
    match = re.fullmatch("fold_([0-9]{1,9})", folder.name)
    if match and RunFolder(folder.parent).is_cross_validation:
        return folder.parent, [int(match[1])]
    return None


def is_leftover(path: Path) -> bool:
    """Whether a file in a run folder is its lock, or what a run leaves that is killed while it writes its flags."""
    return bool(_LEFTOVER.fullmatch(path.name)) and path.is_file() and not path.is_symlink()


def data_of(folder: Path | str) -> dict:
    """What decides, beside its flags, which images the run in `folder` had.

    `fold` and, of which the run keeps a copy, `split_file`, `dataset_fixes` and `split_groups`.
    """
    folder = Path(folder).resolve()
    fold = fold_of(folder)
    data = {"fold": None}
    run_of_folds = folder
    if fold is not None:
        run_of_folds, (data["fold"],) = fold
    for flag, name in COPIES.items():
        copy = run_of_folds / name
        if copy.exists():
            data[flag] = str(copy)
    if (run_of_folds / GROUP_FILE.format(0)).exists():
        words = read_parameters(run_of_folds).get("split_groups") or []
        data["split_groups"] = _with_group_copies(run_of_folds, words)
    return data


def read_parameters(folder: Path | str, keys: tuple[str, ...] = ("dataset", "loss", "arch")) -> dict:
    """The flags in a folder's parameters.yaml.

    Raises UserError where the folder holds none, or they lack one of the `keys`.
    """
    path = Path(folder) / PARAMETERS
    if not path.exists():
        raise UserError(f"no run in {folder}: {path.name} is missing")
    return read_yaml(path, dict.fromkeys(keys))


def read_yaml(path: Path, keys: dict | None = None):
    """The content of a YAML file. Raises UserError where it cannot be read, is no YAML, or lacks one of the `keys`."""
    return damage.load(path, reading.read_yaml, keys, "Put a copy of it back")


def read_json(path: Path):
    """The content of a JSON file; None, which no run writes, where it cannot be read or is no JSON."""
    with contextlib.suppress(reading.Unreadable):
        return reading.read_json(path)


def measurement(path: Path, description: dict) -> Path:
    """The file of a measurement: the one with the same `description`, else the first free one.

    The names are `path`.json, `path`_1.json, …
    """
    for file in alternatives(path, ".json"):
        content = read_json(file) if file.exists() else description
        # a damaged file is left alone, and the next name is tried
        if isinstance(content, dict) and {key: content.get(key) for key in description} == description:
            return file


def describe(folder: Path, opt) -> None:
    """Write the flags into the folder.

    parameters.yaml, Parameter_Info.txt for readers, and once the content of --split_file, --dataset_fixes and of the
    files of --split_groups.
    """
    for file, copy in split_files(folder, vars(opt)):
        if opt.fold is None and not copy.exists():
            write_file(copy, expanded(file).read_bytes())
    flags = opt.saved()
    write_yaml(folder / PARAMETERS, flags)
    write_file(folder / INFO, "".join(f"{name}: {value}\n" for name, value in flags.items()))


def split_files(folder: Path, flags: dict) -> list[tuple[str, Path]]:
    """The files that decide a run's split and its copies of them: of the flags of `COPIES`, and of `--split_groups`."""
    files = [(flags[flag], folder / name) for flag, name in COPIES.items() if flags.get(flag) is not None]
    for number, file in enumerate(datasets.group_files(flags.get("split_groups") or [])):
        files.append((file, folder / GROUP_FILE.format(number)))
    return files


def changed_split_file(folder: Path, flags: dict) -> str | None:
    """The first of a run's split files that is gone or no longer holds what it held when the run began; else None."""
    return next((file for file, copy in split_files(folder, flags) if not _is_copy(file, copy)), None)


def with_split_copies(folder: Path, flags: dict) -> dict:
    """The flags of a run with its copies of the split files in their place."""
    changes = {}
    for flag, name in COPIES.items():
        if flags.get(flag) is not None and (folder / name).exists():
            changes[flag] = str(folder / name)
    if flags.get("split_groups"):
        changes["split_groups"] = _with_group_copies(folder, flags["split_groups"])
    return {**flags, **changes}


def _with_group_copies(folder: Path, words: list[str]) -> list[str]:
    """The words of --split_groups with the run's copies of the files."""
    files = datasets.group_files(words)
    copy_of = {file: folder / GROUP_FILE.format(number) for number, file in enumerate(files)}
    return [str(copy_of[word]) if word in copy_of and copy_of[word].exists() else word for word in words]


def _is_copy(file: str, copy: Path) -> bool:
    """Whether a file holds what the run's copy holds; True if there is no copy."""
    if not copy.exists():
        return True
    try:
        return expanded(file).read_bytes() == copy.read_bytes()
    except (OSError, ValueError, TypeError, RuntimeError):
        # a damaged parameters.yaml may hold no path at all
        return False
