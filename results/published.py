"""Published values beside our own. The values are docs/published/*.csv, the flags they belong to the run scripts."""

import csv
import math
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from results import columns, inference, roles
from results.columns import BEST_ON_TEST, SELECTED, Column, column
from results.groups import Group
from results.settings import shown
from utilities.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "published"
SOURCES = ("published", "mlrc")
ABOUT = {
    "published": "published: ICML 2020 (arXiv 2002.08473), R@1 of each run's best epoch on test, mean and deviation with ddof 0 over 5 seeds. "
    "Ours is taken alike: best epoch on test, ddof 0",
    "mlrc": "published: A Metric Learning Reality Check (arXiv 2003.08505), MAP@R. On validation: mean over 4 folds of the best epoch of the best of 50 trials "
    "of its search (so optimistic), no deviation given; on test: read off a figure, about +-0.03, most likely of the four folds' embeddings joined "
    "(512 dimensions), so higher than one fold's. Ours: the selected epoch, of cross-validations the mean of the folds, on test that of their "
    "concatenated embeddings where these were measured",
}


@dataclass
class Value:
    """One published number in printed units; the deviation, where there is one, with ddof 0."""

    column: Column
    how: str  # the selection rule under which ours compares
    mean: float
    deviation: float = math.nan
    seeds: int = 1
    joined: bool = False  # of the folds' concatenated embeddings


@dataclass
class Published:
    """One published configuration: its flags, as text of a command, and its values."""

    dataset: str
    group: str
    method: str
    words: list[str]
    values: list[Value]
    rho: float = math.nan
    note: str = ""
    _flags: dict = field(default_factory=dict)

    def flag(self, name: str) -> str | None:
        """The text of a flag in the command."""
        return self.words[self.words.index(name) + 1] if name in self.words else None

    def flags(self, read) -> dict:
        """All flags as resolved by `read`, parameters.read."""
        if not self._flags:
            opt = read(self.words)
            self._flags = {name: value for name, value in vars(opt).items() if name in opt.flags}
        return self._flags


def load(source: str) -> list[Published]:
    """The published configurations of `published` (ICML 2020) or `mlrc`."""
    return _revisit() if source == "published" else _mlrc()


def methods() -> dict[tuple[str, str], str]:
    """(data set, group) -> the paper's name of the method, for the ICML paper's runs."""
    return {(row["dataset"], row["group"]): row["method"] for row in _table("revisit_runs.csv")}


def _table(name: str) -> list[dict]:
    with open(FOLDER / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _commands(name: str) -> dict[str, tuple[str, list[str]]]:
    """group -> (the comment above it, words of its first command after `main.py`) of a run script."""
    found, comment = {}, ""
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            comment = line.lstrip("# ") if ": published" in line else comment
        elif line.startswith("python main.py"):
            words = shlex.split(line, comments=True)[2:]
            found.setdefault(words[words.index("--group") + 1], (comment, words))
    return found


def _revisit() -> list[Published]:
    commands, notes = _commands("Revisit_Runs.sh"), {row["method"]: row["note"] for row in _table("revisit_notes.csv")}
    recall = column("test", "e_recall@1")
    configurations = {(row["dataset"], row["method"]): row for row in _table("revisit_runs.csv")}
    found = []
    for row in _table("published_revisit_icml2020.csv"):
        run = configurations[row["dataset"], row["method"]]
        value = Value(recall, BEST_ON_TEST, float(row["R@1_mean"]), float(row["R@1_std(ddof0,5 seeds)"]), int(run["seeds"]))
        rho, words = float(row["rho_spectrum@2(train)"]), commands[run["group"]][1]
        found.append(Published(row["dataset"], run["group"], row["method"], words, [value], rho, notes.get(row["method"], "")))
    return found


def _mlrc() -> list[Published]:
    values = {(row["method"], row["setting"]): row for row in _table("mlrc_map_r.csv")}
    found = []
    for group, (comment, words) in _commands("MLRC_Runs.sh").items():
        config = Path(words[words.index("--config") + 1]).stem
        setting = {"mlrc_sop": "online_products"}.get(config, config.removeprefix("mlrc_"))
        method = comment.partition(": published")[0]
        row = values[method, setting]
        numbers = [Value(column("val", "map_r"), SELECTED, 100 * float(row["validation_map_r"]))]
        if row["test_map_r"]:
            numbers.append(Value(column("test", "map_r"), SELECTED, 100 * float(row["test_map_r"]), joined=True))
        note = "published value read off a figure" if row["validation_source"] == "figure" else ""
        found.append(Published(setting.removesuffix("_bs256"), group, method, words, numbers, note=note))
    return found


@dataclass
class Match:
    """A group and its published counterpart; `differences` are flags in which they are not alike."""

    group: Group
    published: Published
    differences: list[str]


def matches(groups: list[Group], sources: list[str], read) -> tuple[dict[str, list[Match]], list[str]]:
    """Source -> its matches, where there are any, and a note on each source that has none. `read`: parameters.read.

    Raises UserError where none of the sources has one.
    """
    found, notes = {}, []
    have = sorted({f"{g.dataset}/{g.flags.get('loss')}" for g in groups})
    for source in sources:
        configurations = load(source)
        if here := match(groups, configurations, read):
            found[source] = here
        else:
            there = ", ".join(sorted({p.dataset for p in configurations}))
            none = f"nothing in common: no group ({', '.join(have)}) has a counterpart there"
            notes.append(f"--compare_to {source}: {none}; it has some on {there}")
    if sources and not found:
        raise UserError("; ".join(notes))
    return found, notes


def match(groups: list[Group], configurations: list[Published], read) -> list[Match]:
    """Find each group's counterpart, where it has one: by its name, else by data set, loss, miner and the loss's own flags."""
    found = []
    for group in groups:
        flags = group.flags
        alike = [p for p in configurations if p.dataset == group.dataset and p.flag("--loss") == str(flags.get("loss"))]
        named = [p for p in alike if p.group == group.name]
        candidates = named or [p for p in alike if _same_method(flags, p, read)]
        if candidates:
            differences, published = min(((_differences(flags, p, read), p) for p in candidates), key=lambda pair: len(pair[0]))
            found.append(Match(group, published, differences))
    return found


def _same_method(flags: dict, published: Published, read) -> bool:
    theirs = published.flags(read)
    own = [flag for flag in theirs if flag.startswith(f"loss_{theirs['loss']}_")]
    mining = published.flag("--batch_mining")
    return (mining is None or mining == flags.get("batch_mining")) and all(shown(flags.get(f, theirs[f])) == shown(theirs[f]) for f in own)


def _differences(flags: dict, published: Published, read) -> list[str]:
    """Flags of a run that differ from the published ones; of methods' flags only those of its own loss and miner."""
    theirs = published.flags(read)
    of_method = roles.method(theirs)
    if not published.flag("--batch_mining"):  # a loss that mines nothing: whatever the flag says
        of_method.pop("batch_mining", None)
    relevant = roles.published({**roles.settings(theirs), **of_method})
    return [
        f"{flag} {shown(flags[flag])} (published: {shown(value)})"
        for flag, value in sorted(relevant.items())
        if flag in flags and shown(flags[flag]) != shown(value)
    ]


def compare(group: Group, value: Value) -> tuple[inference.Estimate, inference.Comparison]:
    """Our estimate, with ddof 0 as the published one, and its comparison."""
    theirs = inference.with_ddof_1(value.mean, value.deviation, value.seeds, ddof=0)
    ours = group.joined(value.column) if joined(group, value) else group.values(value.column, value.how)
    return inference.estimate(ours, ddof=0), inference.compare(inference.estimate(ours), theirs)


def joined(group: Group, value: Value) -> bool:
    """Whether the concatenated embeddings of our folds are what compares, and were measured."""
    return value.joined and bool(np.isfinite(group.joined(value.column)).any())


def our_rho(group: Group) -> inference.Estimate:
    """rho_spectrum@2 on training data at the epoch of the best R@1 on test, as in the paper; NaN where it was not recorded."""
    return group.estimate(column("train", "rho_spectrum@2"), columns.BEST_ON_TEST)
