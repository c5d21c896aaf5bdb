"""Published values beside our own: the ledger's figures that our run scripts reproduce; the scripts give their
flags.
"""

import csv
import math
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from results import inference, ledger, roles
from results.columns import BEST_ON_TEST, LAST, SELECTED
from results.groups import Group
from results.settings import shown
from utilities.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = {
    "published": "Revisit_Runs.sh",
    "mlrc": "experiments/MLRC_Runs.sh",
}  # source -> the script that reproduces it
PRESETS = "experiments/Frontier_Runs.sh"  # the script of the presets, for the ledger alone
LEDGER = "ledger"
SOURCES = (*SCRIPTS, LEDGER)
FOLDED = ("mlrc",)  # splits of the ledger that have folds
ABOUT = {
    "published": "published: ICML 2020 (arXiv 2002.08473), R@1 of each run's best epoch on test, mean and deviation with ddof 0 "
    "over 5 seeds. "
    "Ours is taken alike: best epoch on test, ddof 0",
    "mlrc": "published: A Metric Learning Reality Check (arXiv 2003.08505), MAP@R. On validation: mean over 4 folds of the "
    "best epoch of the best of 50 trials "
    "of its search (so optimistic), no deviation given; on test: read off a figure, about +-0.03, most likely of the "
    "four folds' embeddings joined "
    "(512 dimensions), so higher than one fold's. Ours: the selected epoch, of cross-validations the mean of the "
    "folds, on test that of their "
    "concatenated embeddings where these were measured",
}


@dataclass
class Published:
    """One published configuration: its figures, and its flags as text of a command."""

    dataset: str
    group: str
    method: str
    words: list[str]
    figures: list[ledger.Figure]
    rho: float = math.nan
    note: str = ""
    _flags: dict = field(default_factory=dict)

    def flag(self, name: str) -> str | None:
        """The text of a flag in the command."""
        return self.words[self.words.index(name) + 1] if name in self.words else None

    def loss(self, read) -> str:
        """Its --loss, in the command or in the preset that this names."""
        return self.flag("--loss") or str(self.flags(read)["loss"])

    def flags(self, read) -> dict:
        """All flags as resolved by `read` (parameters.read)."""
        if not self._flags:
            opt = read(self.words)
            self._flags = {name: value for name, value in vars(opt).items() if name in opt.roles}
        return self._flags


def load(source: str) -> list[Published]:
    """The published configurations of `published` (ICML 2020) or `mlrc`: the ledger's figures of the runs in its
    script.
    """
    commands = _commands(SCRIPTS[source])
    rho = {row["group"]: float(row["rho"]) for row in _revisit_runs()}
    figures = {}
    for figure in ledger.figures():
        if figure.group in commands:
            figures.setdefault(figure.group, []).append(figure)
    return [
        Published(own[0].dataset, group, own[0].method, commands[group], own, rho.get(group, math.nan), own[0].note)
        for group, own in figures.items()
    ]


def load_presets(names: set[str]) -> list[Published]:
    """The ledger's figures on the data sets `names` that presets repeat; a configuration has the name of its preset as
    its group.
    """
    commands = {}
    figures = {}
    for words in _commands(PRESETS).values():
        commands[words[words.index("--config") + 1]] = words
    for figure in ledger.figures():
        if figure.preset in commands and figure.dataset in names:
            figures.setdefault(figure.preset, []).append(figure)
    return [Published(own[0].dataset, preset, own[0].method, commands[preset], own) for preset, own in figures.items()]


def methods() -> dict[tuple[str, str], str]:
    """(data set, group) -> the paper's name of the method, for the ICML paper's runs."""
    return {(row["dataset"], row["group"]): row["method"] for row in _revisit_runs()}


def _revisit_runs() -> list[dict]:
    with open(ledger.FILE.with_name("revisit_runs.csv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _commands(name: str) -> dict[str, list[str]]:
    """group -> words of its first command after `main.py` in a run script."""
    found = {}
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("python main.py"):
            words = shlex.split(line, comments=True)[2:]
            found.setdefault(words[words.index("--group") + 1], words)
    return found


@dataclass
class Match:
    """A group and its published counterpart; `differences`: flags in which they differ."""

    group: Group
    published: Published
    differences: list[str]


def matches(groups: list[Group], sources: list[str], read) -> tuple[dict[str, list[Match]], list[str]]:
    """Source -> its matches, where there are any, and a note on each source that has none. `read`: parameters.read.

    Raises UserError where none of the sources has a match, unless the ledger is among them, which reports by itself.
    """
    found = {}
    notes = []
    have = sorted({f"{g.dataset}/{g.flags.get('loss')}" for g in groups})
    for source in (source for source in sources if source != LEDGER):
        configurations = load(source)
        if here := match(groups, configurations, read):
            found[source] = here
        else:
            there = ", ".join(sorted({p.dataset for p in configurations}))
            none = f"nothing in common: no group ({', '.join(have)}) has a counterpart there"
            notes.append(f"--compare_to {source}: {none}; it has some on {there}")
    if notes and not found and LEDGER not in sources:
        raise UserError("; ".join(notes))
    return found, notes


def match(groups: list[Group], configurations: list[Published], read) -> list[Match]:
    """Find each group's counterpart, where it has one: by its name, else by data set, loss, miner and the loss's own
    flags.
    """
    found = []
    for group in groups:
        if candidates := counterparts(group, configurations, read):
            differences, published = min(
                ((_differences(group, p, read), p) for p in candidates), key=lambda pair: len(pair[0])
            )
            found.append(Match(group, published, differences))
    return found


def counterparts(group: Group, configurations: list[Published], read) -> list[Published]:
    """The published configurations of the group's method on its data set; if one has the group's name, that one
    alone.
    """
    alike = [p for p in configurations if p.dataset == group.dataset and p.loss(read) == str(group.flags.get("loss"))]
    named = [p for p in alike if p.group == group.name]
    return named or [p for p in alike if _same_method(group.flags, p, read)]


def from_ledger(
    of: dict[str, list[Group]], program: ledger.Program, defaults: dict, read
) -> tuple[dict[str, ledger.Comparison], list[str]]:
    """Data set -> its groups beside the ledger's figures, and a note on the data sets without figures."""
    scripts = [p for source in SCRIPTS for p in load(source) if p.dataset in of]
    configurations = [*scripts, *load_presets(set(of))]
    trained = {p.group: ledger.training(p.flags(read)) for p in configurations}
    names = {
        group: {p.group for p in counterparts(group, configurations, read)}
        for groups in of.values()
        for group in groups
    }
    found = {
        name: ledger.compare(
            groups, program, defaults, trained, lambda group, figure: figure.configuration in names[group]
        )
        for name, groups in of.items()
    }
    found = {name: made for name, made in found.items() if made.beside or made.refused}
    absent = [name for name in of if name not in found]
    if not absent:
        return found, []
    there = ", ".join(dict.fromkeys(f"{f.dataset} ({f.column.metric})" for f in ledger.figures()))
    return found, [
        (
            f"--compare_to {LEDGER}: no figures on {', '.join(absent)} in a metric that was recorded; there are some "
            f"on {there}"
        )
    ]


def _same_method(flags: dict, published: Published, read) -> bool:
    theirs = published.flags(read)
    own = [flag for flag in theirs if flag.startswith(f"loss_{theirs['loss']}_")]
    mining = published.flag("--batch_mining")
    return (mining is None or mining == flags.get("batch_mining")) and all(
        shown(flags.get(f, theirs[f])) == shown(theirs[f]) for f in own
    )


def _differences(group: Group, published: Published, read) -> list[str]:
    """Flags of a group that differ from the published ones; of the flags of methods, those of its own loss and miner
    alone.

    Flags that neither sets, whose value follows from other flags, are no differences.
    """
    flags = group.flags
    theirs = published.flags(read)
    run = (group.counted or group.runs)[0]
    derived = {flag for flag in run.derived if f"--{flag}" not in published.words}
    of_method = roles.method(theirs)
    if not published.flag("--batch_mining"):  # the loss mines nothing, so the flag has no effect
        of_method.pop("batch_mining", None)
    relevant = roles.published({**roles.settings(theirs), **of_method})
    return [
        f"{flag} {shown(flags[flag])} (published: {shown(value)})"
        for flag, value in sorted(relevant.items())
        if flag in flags and shown(flags[flag]) != shown(value) and flag not in derived
    ]


def rule(figure: ledger.Figure) -> str:
    """Our selection rule that corresponds to the figure's."""
    return {ledger.TEST: BEST_ON_TEST, ledger.LAST: LAST}.get(figure.condition("selection"), SELECTED)


def compare(group: Group, figure: ledger.Figure) -> tuple[inference.Estimate, inference.Comparison]:
    """Our estimate, with ddof 0 like the published one, and its comparison (by deviations with ddof 1)."""
    theirs = inference.with_ddof_1(figure.value, figure.deviation, figure.seeds, ddof=0)
    ours = group.joined(figure.column) if joined(group, figure) else group.values(figure.column, rule(figure))
    return inference.estimate(ours, ddof=0), inference.compare(inference.estimate(ours), theirs)


def is_joined(figure: ledger.Figure) -> bool:
    """Whether the figure is of the folds' concatenated embeddings, as test values over folds are."""
    return figure.column.split == "test" and figure.condition("split") in FOLDED


def joined(group: Group, figure: ledger.Figure) -> bool:
    """Whether the figure asks for the concatenated embeddings of our folds, and these were measured."""
    return is_joined(figure) and bool(np.isfinite(group.joined(figure.column)).any())
