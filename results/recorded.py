"""One run as the tables see it, whether it was read from a folder or from W&B.

`RecordedRun` has the run's identity (data set, group, seed, fold), its flags, versions and hardware, its `Series` of
recorded values, and the problem that keeps it from counting, if there is one (`judge`). The other functions read
identity and environment from flags and files.
"""

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from results.roles import FlagRoles
from runs.folder import is_finished, out_of_patience
from utilities.counts import count_of

# added to a run's flags: runs that differ in it are not averaged
CHANGED = "changed_on_resume"
FOLD = re.compile(r"fold_(\d+)$")
# flags
WHOLE_NUMBERS = ("seed", "n_epochs", "patience", "split_sets", "embed_dim")
LISTS_OF_NAMES = ("evaltypes", "storage_metrics")
# packages whose versions are named among the settings
VERSIONS = ("torch", "torchvision", "faiss-gpu", "faiss-cpu", "scikit-learn")


class Series:
    """The recorded values of a run: `epochs` `(E,)` ascending, `values` `(E, K)` with NaN where nothing was recorded.

    Args:
        keys: the K pairs (split, metric).
    """

    def __init__(self, epochs: np.ndarray, keys: list[tuple[str, str]], values: np.ndarray):
        self.epochs = epochs
        self.keys = {key: i for i, key in enumerate(keys)}
        self.values = values

    def get(self, split: str, metric: str) -> np.ndarray:
        """Values `(E,)` of one metric, all NaN if it was never recorded."""
        column = self.keys.get((split, metric))
        if column is None:
            return np.full(len(self.epochs), np.nan)
        return self.values[:, column]

    @classmethod
    def from_rows(cls, epochs, splits, metrics, values) -> "Series":
        """From the long form, four sequences of equal length; of duplicate rows the last one counts."""
        steps, row = np.unique(np.array(epochs, dtype=np.int32), return_inverse=True)
        pairs = list(zip(splits, metrics, strict=True))
        recorded = set(pairs)
        possible = itertools.product(dict.fromkeys(splits), dict.fromkeys(metrics))
        keys = [pair for pair in possible if pair in recorded]
        column = {key: i for i, key in enumerate(keys)}
        table = np.full((len(steps), len(keys)), np.nan)
        table[row, [column[pair] for pair in pairs]] = values
        return cls(steps, keys, table)


EMPTY = Series(np.empty(0, dtype=np.int64), [], np.empty((0, 0)))


@dataclass
class OverFolds:
    """Content of a cross-validation's meta/<kind>.json: results over these folds, epochs and flags."""

    folds: list[int]
    epochs: list[int]
    flags: dict
    means: dict[tuple[str, str], float]  # (split, metric) -> mean, NaN if it is not defined


@dataclass(eq=False)
class RecordedRun:
    """One run: its identity, what it recorded, and why it does not count if so."""

    name: str
    # the run's folder, or its address at W&B
    location: str
    dataset: str
    group: str
    seed: int | None
    # which of its flags count for which purpose
    roles: FlagRoles
    fold: int | None = None
    flags: dict = field(default_factory=dict)
    # Flags whose value follows from other flags, such as that of --fc_lr from --lr.
    derived: set[str] = field(default_factory=set)
    # versions, hardware, images: title -> text
    environment: dict[str, str] = field(default_factory=dict)
    series: Series = field(default_factory=lambda: EMPTY)
    # why the run does not count, such as that it failed or is short
    problem: str | None = None
    notes: list[str] = field(default_factory=list)
    selected_epoch: int | None = None  # as summary.json names it
    warnings: list[str] = field(default_factory=list)  # of its training, such as of a collapse
    # Of a split of an out-of-distribution progression: Frechet distance of training and test classes.
    fid: float | None = None
    # For a fold: kind of embeddings -> the results over all folds.
    meta: dict[str, OverFolds] = field(default_factory=dict)

    @property
    def cross_validation(self) -> str:
        """The name of the fold's cross-validation; for any other run its own."""
        if self.fold is None:
            return self.name
        return self.name.rpartition("/")[0]


def typed(flags: dict) -> dict:
    """The flags, with whole numbers and lists of names where the tables rely on them.

    Raises ValueError that names the flag.
    """
    typed_flags = dict(flags)
    kinds = ((WHOLE_NUMBERS, whole_number, "no whole number"), (LISTS_OF_NAMES, words, "no list of names"))
    for names, read, rule in kinds:
        for name in names:
            try:
                if flags.get(name) is not None:
                    typed_flags[name] = read(flags[name])
            except (ValueError, TypeError, OverflowError):
                raise ValueError(f"{name} {flags[name]!r} is {rule}") from None
    return typed_flags


def whole_number(value) -> int:
    """A number without a fraction, as int. Raises ValueError or TypeError."""
    number = int(value)
    if number != value:
        raise ValueError(f"{value!r} is no whole number")
    return number


def words(value) -> list[str]:
    """A list of names; a single name becomes a list of one. Raises TypeError."""
    names = [value] if isinstance(value, str) else list(value)
    "".join(names)
    return names


def dataset_of(flags: dict) -> str | None:
    """The name of a run's data set; None if none is given.

    That is --dataset_name, else for `folder`, `csv` and `mot` the name of its path, else --dataset.

    Each split of an out-of-distribution progression is a data set of its own.
    """
    name = flags.get("dataset")
    path_flags = {"folder": "dataset_folder_path", "csv": "dataset_csv", "mot": "dataset_mot"}
    path = flags.get(path_flags.get(name))
    dataset = flags.get("dataset_name")
    if not dataset and path:
        dataset = Path(str(path)).name.removesuffix(".csv")
    dataset = dataset or name
    if not dataset:
        return None
    return f"{dataset}{_of_progression(flags)}"


def _of_progression(flags: dict) -> str:
    """The suffix that distinguishes the splits of an out-of-distribution progression.

    Their classes differ, so no table may mix them.
    """
    if flags.get("split_scheme") != "oodml":
        return ""
    return f"_oodml_{flags.get('oodml_id')}"


def progression_of(flags: dict, dataset: str) -> str | None:
    """The name of the progression of which this data set is one split; None for any other data set."""
    suffix = _of_progression(flags)
    return dataset.removesuffix(suffix) if suffix else None


def identity(flags: dict, name: str) -> tuple[str, int | None]:
    """Group and seed by the flags, else by a name of the form `<group>_s<seed>`."""
    named = re.fullmatch(r"(.+)_s(\d+)(?:_\d+)?", name)
    group = name
    seed = None
    if named:
        group = named[1]
        seed = int(named[2])
    return str(flags.get("group") or group), flags.get("seed", seed)


def judge(run: RecordedRun, selected: float, evaluated: float) -> None:
    """Set what keeps a run from counting: nothing recorded, or fewer epochs than planned unless --patience ended it.

    Args:
        selected: the epoch that the run's rows select, NaN if there is none.
        evaluated: the last epoch that was evaluated, at which patience may end.
    """
    planned = run.flags.get("n_epochs")
    if run.problem or (planned == 0 and len(run.series.epochs)):
        return
    last = int(run.series.epochs.max(initial=0))
    best = None if np.isnan(selected) else int(selected)
    stopped = not np.isnan(evaluated) and out_of_patience(int(evaluated), best, run.flags.get("patience"))
    if last <= 0:
        run.problem = "failed: no epoch recorded"
    elif planned is not None and not is_finished(last, planned, stopped):
        run.problem = f"short: {last} of {count_of(planned, 'epoch')}"


def in_one_line(error: Exception, length: int = 120) -> str:
    """An error's text in one line."""
    return " ".join(str(error).split())[:length] or type(error).__name__


def environment(content: dict) -> dict[str, str]:
    """Versions, hardware, images and transforms from the content of environment.yaml: title -> text."""
    packages = content.get("packages") or {}
    data = content.get("data") or {}
    texts = {name: str(packages[name]) for name in VERSIONS if name in packages}
    for name in ("cuda", "python", "weights", "dimensions"):
        if content.get(name):
            texts[name] = str(content[name])
    if content.get("git_commit"):
        texts["commit"] = str(content["git_commit"])[:12]
    texts["GPU"] = str(content.get("gpu") or content.get("device") or "unknown")
    texts |= _of_data(data)
    changes_of = {"data": content.get("data_changes"), "software and machine": content.get("environment_changes")}
    for name, changes in changes_of.items():
        if changes:
            texts[name] = "changed " + ", ".join(f"{moment} ({change})" for moment, change in changes.items())
    for split, transform in (data.get("transforms") or {}).items():
        texts[f"transforms, {split}"] = str(transform)
    return texts


def _of_data(data: dict) -> dict[str, str]:
    """Counts and roles of the images: title -> text."""
    texts = {}
    counts = []
    for split, count in (data.get("counts") or {}).items():
        if count:
            counts.append(f"{split} {count.get('images')} of {count.get('classes')} classes")
    if counts:
        texts["images"] = ", ".join(counts)
    if data.get("roles"):
        texts["roles"] = ", ".join(f"{split}: {text}" for split, text in data["roles"].items())
    return texts
