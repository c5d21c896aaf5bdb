"""Published values beside our own: the ledger's figures that our run scripts reproduce.

The commands of Revisit_Runs.sh, MLRC_Runs.sh and Frontier_Runs.sh give the flags of published configurations,
docs/published/ledger.csv their figures. `match` finds a group's counterpart by name, or by data set, loss, miner and
flags of the loss; `from_ledger` compares groups with all figures of the same conditions.
"""

import csv
import math
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from results import inference, ledger
from results.columns import BEST_ON_TEST, LAST, SELECTED
from results.groups import Group
from results.roles import FlagRoles
from results.settings import flag_texts
from utilities.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
# source -> the script that reproduces it
SCRIPTS = {"published": "Revisit_Runs.sh", "mlrc": "experiments/MLRC_Runs.sh"}
# the script of the presets, for the ledger alone
PRESETS = "experiments/Frontier_Runs.sh"
LEDGER = "ledger"
SOURCES = (*SCRIPTS, LEDGER)
# splits of the ledger that have folds
FOLDED = ("mlrc",)
NOTES = {
    "published": (
        "published: ICML 2020 (arXiv 2002.08473), R@1 of each run's best epoch on test, mean and deviation with ddof 0 "
        "over 5 seeds; ours is computed likewise"
    ),
    "mlrc": (
        "published: A Metric Learning Reality Check (arXiv 2003.08505), MAP@R. Validation: mean over 4 folds of the "
        "best epoch of the best of 50 search trials (optimistic), no deviation. Test: read off a figure, about "
        "+-0.03, most likely of the four folds' embeddings joined (512 dimensions), so higher than a single fold's. "
        "Ours: the selected epoch; of cross-validations the mean of the folds, on test that of their concatenated "
        "embeddings if measured"
    ),
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
        if name not in self.words:
            return None
        return self.words[self.words.index(name) + 1]

    def loss(self, read) -> str:
        """Its --loss, in the command or in the preset that this names."""
        return self.flag("--loss") or str(self.flags(read)["loss"])

    def flags(self, read) -> dict:
        """All flags as resolved by `read` (parameters.unchecked)."""
        if not self._flags:
            opt = read(self.words)
            self._flags = {name: value for name, value in vars(opt).items() if name in opt.roles}
        return self._flags


def load(source: str) -> list[Published]:
    """The published configurations of `published` (ICML 2020) or `mlrc`: the figures of its script's runs."""
    commands = _commands(SCRIPTS[source])
    rho_of = {row["group"]: float(row["rho"]) for row in _revisit_runs()}
    figures_of = {}
    for figure in ledger.figures():
        if figure.group in commands:
            figures_of.setdefault(figure.group, []).append(figure)
    configurations = []
    for group, figures in figures_of.items():
        rho = rho_of.get(group, math.nan)
        first = figures[0]
        configurations.append(Published(first.dataset, group, first.method, commands[group], figures, rho, first.note))
    return configurations


def load_presets(names: set[str]) -> list[Published]:
    """The ledger's figures on the data sets `names` that presets repeat.

    A configuration has the name of its preset as its group.
    """
    commands = {words[words.index("--config") + 1]: words for words in _commands(PRESETS).values()}
    figures_of = {}
    for figure in ledger.figures():
        if figure.preset in commands and figure.dataset in names:
            figures_of.setdefault(figure.preset, []).append(figure)
    configurations = []
    for preset, figures in figures_of.items():
        first = figures[0]
        configurations.append(Published(first.dataset, preset, first.method, commands[preset], figures))
    return configurations


def methods() -> dict[tuple[str, str], str]:
    """(data set, group) -> the paper's name of the method, for the ICML paper's runs."""
    return {(row["dataset"], row["group"]): row["method"] for row in _revisit_runs()}


def _revisit_runs() -> list[dict]:
    with open(ledger.FILE.with_name("revisit_runs.csv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _commands(name: str) -> dict[str, list[str]]:
    """group -> words of its first command after `main.py` in a run script."""
    commands = {}
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("python main.py"):
            words = shlex.split(line, comments=True)[2:]
            commands.setdefault(words[words.index("--group") + 1], words)
    return commands


@dataclass
class Match:
    """A group and its published counterpart; `differences`: flags in which they differ."""

    group: Group
    published: Published
    differences: list[str]


def matches(groups: list[Group], sources: list[str], read) -> tuple[dict[str, list[Match]], list[str]]:
    """Source -> its matches, if there are any, and a note on each source that has none. `read`: parameters.unchecked.

    Raises UserError if none of the sources has a match, unless the ledger is among them, which reports by itself.
    """
    matched = {}
    notes = []
    recorded = sorted({f"{group.dataset}/{group.flags.get('loss')}" for group in groups})
    for source in sources:
        if source == LEDGER:
            continue
        configurations = load(source)
        source_matches = match(groups, configurations, read)
        if source_matches:
            matched[source] = source_matches
        else:
            covered = ", ".join(sorted({configuration.dataset for configuration in configurations}))
            reason = f"nothing in common: no group ({', '.join(recorded)}) has a counterpart there"
            notes.append(f"--compare_to {source}: {reason}; it has some on {covered}")
    if notes and not matched and LEDGER not in sources:
        raise UserError("; ".join(notes))
    return matched, notes


def match(groups: list[Group], configurations: list[Published], read) -> list[Match]:
    """Find each group's counterpart, if it has one.

    By its name, else by data set, loss, miner and the loss's own flags.
    """
    matched = []
    for group in groups:
        candidates = []
        for published in counterparts(group, configurations, read):
            candidates.append(Match(group, published, _differences(group, published, read)))
        if candidates:
            matched.append(min(candidates, key=lambda candidate: len(candidate.differences)))
    return matched


def counterparts(group: Group, configurations: list[Published], read) -> list[Published]:
    """The published configurations of the group's method on its data set.

    If one has the group's name, that one alone.
    """
    loss = str(group.flags.get("loss"))
    same_loss = [p for p in configurations if p.dataset == group.dataset and p.loss(read) == loss]
    namesakes = [p for p in same_loss if p.group == group.name]
    return namesakes or [p for p in same_loss if _same_method(group.flags, p, read)]


def from_ledger(
    groups_by_dataset: dict[str, list[Group]], flag_roles: FlagRoles, defaults: dict, read
) -> tuple[dict[str, ledger.Comparison], list[str]]:
    """Data set -> its groups beside the ledger's figures, and a note on the data sets without figures."""
    configurations = []
    for source in SCRIPTS:
        configurations += [p for p in load(source) if p.dataset in groups_by_dataset]
    configurations += load_presets(set(groups_by_dataset))
    trained = {p.group: ledger.training(p.flags(read), flag_roles) for p in configurations}
    # group -> the names of its published counterparts
    names_of = {}
    for groups in groups_by_dataset.values():
        for group in groups:
            names_of[group] = {p.group for p in counterparts(group, configurations, read)}

    def is_of_method(group: Group, figure: ledger.Figure) -> bool:
        return figure.configuration in names_of[group]

    comparisons = {}
    for dataset, groups in groups_by_dataset.items():
        comparison = ledger.compare(groups, defaults, trained, is_of_method)
        if comparison.comparable or comparison.refused:
            comparisons[dataset] = comparison
    absent = [dataset for dataset in groups_by_dataset if dataset not in comparisons]
    if not absent:
        return comparisons, []
    covered = ", ".join(dict.fromkeys(f"{figure.dataset} ({figure.column.metric})" for figure in ledger.figures()))
    note = (
        f"--compare_to {LEDGER}: no figures on {', '.join(absent)} in a metric that was recorded; there are some "
        f"on {covered}"
    )
    return comparisons, [note]


def _same_method(flags: dict, published: Published, read) -> bool:
    mining = published.flag("--batch_mining")
    if mining is not None and mining != flags.get("batch_mining"):
        return False
    published_flags = published.flags(read)
    prefix = f"loss_{published_flags['loss']}_"
    loss_flags = flag_texts({flag: value for flag, value in published_flags.items() if flag.startswith(prefix)})
    own_flags = flag_texts(flags)
    return all(own_flags.get(flag, text) == text for flag, text in loss_flags.items())


def _differences(group: Group, published: Published, read) -> list[str]:
    """Flags of a group that differ from the published ones.

    Of the flags of methods, only those of its own loss and miner are compared.

    Flags that neither sets, whose value follows from other flags, are no differences.
    """
    flags = flag_texts(group.flags)
    published_flags = published.flags(read)
    run = (group.counted or group.runs)[0]
    derived = {flag for flag in run.derived if f"--{flag}" not in published.words}
    of_method = group.roles.method(published_flags)
    # the loss mines nothing, so the flag has no effect
    if not published.flag("--batch_mining"):
        of_method.pop("batch_mining", None)
    relevant = group.roles.published({**group.roles.settings(published_flags), **of_method})
    texts = []
    for flag, value in sorted(flag_texts(relevant).items()):
        if flag in flags and flags[flag] != value and flag not in derived:
            texts.append(f"{flag} {flags[flag]} (published: {value})")
    return texts


def rule(figure: ledger.Figure) -> str:
    """Our selection rule that corresponds to the figure's."""
    return {ledger.TEST: BEST_ON_TEST, ledger.LAST: LAST}.get(figure.condition("selection"), SELECTED)


def compare(group: Group, figure: ledger.Figure) -> tuple[inference.Estimate, inference.Comparison]:
    """Our estimate, with ddof 0 like the published one, and its comparison (by deviations with ddof 1)."""
    theirs = inference.with_ddof_1(figure.value, figure.deviation, figure.seeds, ddof=0)
    if joined(group, figure):
        ours = group.joined(figure.column)
    else:
        ours = group.values(figure.column, rule(figure))
    return inference.estimate(ours, ddof=0), inference.compare(inference.estimate(ours), theirs)


def is_joined(figure: ledger.Figure) -> bool:
    """Whether the figure is of the folds' concatenated embeddings, as test values over folds are."""
    return figure.column.split == "test" and figure.condition("split") in FOLDED


def joined(group: Group, figure: ledger.Figure) -> bool:
    """Whether the figure asks for the concatenated embeddings of our folds, and these were measured."""
    return is_joined(figure) and bool(np.isfinite(group.joined(figure.column)).any())
