"""The searched flags, `--flag~BAYESIAN~ [0,1]` on the command line or `flag~BAYESIAN~: [0, 1]` in a file, and all other
flags.

Suffixes: BAYESIAN (float, linear), LOG_BAYESIAN (float, logarithmic), INT_BAYESIAN (whole numbers), CHOICE (one of
several).
"""

import argparse
import difflib
import itertools
import math
import re
from pathlib import Path
from typing import NamedTuple

import yaml

from utilities import configs, roles
from utilities.errors import OneLineParser, UserError
from utilities.numbers import OneOrTwo

SUFFIXES = ("BAYESIAN", "LOG_BAYESIAN", "INT_BAYESIAN", "CHOICE")
NO_PART_OF_A_TRIAL = {
    "final_test"
}  # a --config file may ask for it: the reproductions are measured on test, trials never
MOST_COMBINATIONS = 500  # of choices that are tried on the parser before a search starts


class Range(NamedTuple):
    """One searched flag: its name without dashes, one of `SUFFIXES`, (low, high) or the choices.

    `switch`: the flag takes no value; its choices are true and false.
    """

    flag: str
    kind: str
    values: tuple
    switch: bool = False

    def distribution(self):
        """The range as Optuna takes it."""
        from optuna import distributions

        if self.kind == "CHOICE":
            return distributions.CategoricalDistribution(self.values)
        if self.kind == "INT_BAYESIAN":
            return distributions.IntDistribution(*self.values)
        return distributions.FloatDistribution(*self.values, log=self.kind == "LOG_BAYESIAN")

    def suggest(self, trial):
        """A trial's value."""
        if self.kind == "CHOICE":
            return trial.suggest_categorical(self.flag, self.values)
        suggest = trial.suggest_int if self.kind == "INT_BAYESIAN" else trial.suggest_float
        return suggest(self.flag, *self.values, log=self.kind == "LOG_BAYESIAN")

    def arguments(self, value) -> list[str]:
        """A value as the command line takes it."""
        if self.switch:
            return [f"--{self.flag}"] if value else []
        return [f"--{self.flag}={value}"]  # with =, because a value may begin with a minus

    @property
    def text(self) -> str:
        """The range as it is written in a file."""
        return f"{self.flag}~{self.kind}~: [{', '.join(map(str, self.values))}]"


class Command(NamedTuple):
    """The command line of a search, taken apart.

    Attributes:
        ranges: flag -> its range.
        rest: arguments for the main program's parser, without the ranges and --config.
        files: name in --config -> those of its lines that are flags of a trial; None: all.
        given: the flags that the command line or a file gives a value.
    """

    ranges: dict[str, Range]
    rest: list[str]
    files: dict[str, dict[str, yaml.Node] | None]
    given: set[str]


def parse(argv: list[str], parser: argparse.ArgumentParser) -> Command:
    """Take the ranges out of a command line and out of the files that it names. Raises UserError.

    Args:
        parser: the main program's.
    """
    actions = {option.removeprefix("--"): action for action in parser._actions for option in action.option_strings}
    if (refusal := parser.refusal(argv, searches=True)) is not None:
        raise UserError(refusal)
    written, rest = _split(argv)
    ranges = _ranges(written, parser, actions, "the command line")
    names = {token.removeprefix("--").partition("=")[0] for token in rest if token.startswith("--")}
    names |= {name.removeprefix("no-") for name in names}  # --no-NAME switches NAME off
    given = {actions[name].dest if name in actions else name for name in names}  # --source is --source_path
    if "savename" in given:
        raise UserError("--savename, --experiment_name: --group names a search and its trials: write --group NAME")
    _refuse_both(ranges, given, "the command line")
    from_files = {}
    files = {}
    in_files = set()
    kept_whole = {}
    config = OneLineParser(add_help=False, allow_abbrev=False)
    config.add_argument("--config", nargs="+", default=[])
    config.exits = False
    asked, rest = config.parse_known_args(rest)
    for name in asked.config:
        nodes = configs.nodes(configs.find(name))
        found = _ranges([(key, _texts(node)) for key, node in nodes.items() if "~" in key], parser, actions, name)
        ends = {key for key in NO_PART_OF_A_TRIAL & set(nodes) if nodes[key].tag.endswith(":bool")}
        values = {key: node for key, node in nodes.items() if "~" not in key and key not in ends}
        _refuse_both(found, values, name)
        from_files = {
            flag: a_range for flag, a_range in from_files.items() if flag not in values
        } | found  # a later file wins
        in_files |= set(values)
        files = {
            earlier: {key: node for key, node in lines.items() if not _replaced(key, found)}
            for earlier, lines in files.items()
        }
        files[name] = {key: node for key, node in values.items() if not _replaced(key, ranges)}
        kept_whole[name] = nodes.keys()
    files = {name: None if lines.keys() == kept_whole[name] else lines for name, lines in files.items()}
    ranges = {flag: found for flag, found in from_files.items() if flag not in given} | ranges
    if not ranges:
        raise UserError("nothing to search: give at least one flag a range, such as --lr~LOG_BAYESIAN~ [1e-6,1e-3]")
    return Command(ranges, rest, files, (given | in_files) - set(ranges))


def _replaced(key: str, ranges: dict[str, Range]) -> bool:
    """Whether a file's line must go: of a searched switch, whose false is no word. Other flags of a trial stand behind
    --config and win.
    """
    return key in ranges and ranges[key].switch


def _split(argv: list[str]) -> tuple[list[tuple[str, list[str]]], list[str]]:
    """The ranges of a command line, (flag~SUFFIX~, values), and its other words."""
    ranges = []
    rest = []
    inside = False
    for word in argv:
        if word.startswith("--"):
            flag, _, value = word.partition("=")
            inside = "~" in flag
            if inside:
                ranges.append((flag.removeprefix("--"), [value] if value else []))
                continue
        (ranges[-1][1] if inside else rest).append(word)
    return ranges, rest


def _texts(node: yaml.Node) -> list[str]:
    return [item.value for item in node.value] if isinstance(node, yaml.SequenceNode) else [str(node.value)]


def _refuse_both(ranges, values, where: str) -> None:
    for flag in sorted(set(ranges) & set(values)):
        raise UserError(f"{where}: {flag} has a range and a value: one of them")


def _ranges(written: list[tuple[str, list[str]]], parser, actions: dict, where: str) -> dict[str, Range]:
    """flag -> range, for the ranges written in one place. Raises UserError."""
    ranges = {}
    for key, values in written:
        found = _range(key, values, parser, actions, f"{where}: {key}")
        if found.flag in ranges:
            raise UserError(f"{where}: {found.flag} has two ranges")
        ranges[found.flag] = found
    return ranges


def _range(key: str, values: list[str], parser, actions: dict, where: str) -> Range:
    """Check one range. Raises UserError."""
    flag, _, suffix = key.partition("~")
    kind = suffix.removesuffix("~")
    if kind not in SUFFIXES or not suffix.endswith("~"):
        nearest = difflib.get_close_matches(kind.upper(), SUFFIXES, n=1, cutoff=0.5)
        hint = f" Did you mean {flag}~{nearest[0]}~?" if nearest else ""
        raise UserError(f"{where}: a searched flag ends in ~{'~, ~'.join(SUFFIXES)}~.{hint}")
    if flag not in actions:
        nearest = difflib.get_close_matches(flag, actions, n=1)
        raise UserError(f"{where}: unknown flag {flag!r}." + (f" Did you mean {nearest[0]!r}?" if nearest else ""))
    action = actions[flag]
    if action.dest == "help" or not roles.declared(parser, roles.METHOD)[action.dest].searched:
        raise UserError(f"{where}: {flag} cannot be searched: trials may differ in flags of the method alone")
    if action.nargs not in (None, 0, "?") and not isinstance(action, OneOrTwo):
        raise UserError(f"{where}: {flag} takes several values: only flags of one value can be searched")
    texts = re.split(r"[,\s]+", " ".join(values).strip().removeprefix("[").removesuffix("]").strip())
    texts = [text for text in texts if text]
    where = f"{where} [{', '.join(texts)}]"
    return (_choice if kind == "CHOICE" else _numbers)(parser, action, kind, texts, where)


def _choice(parser, action, kind: str, texts: list[str], where: str) -> Range:
    if len(texts) < 2 or len(set(texts)) < len(texts):
        raise UserError(f"{where}: expected two or more different choices, [a,b]")
    if isinstance(action, argparse._StoreTrueAction):
        if {text.lower() for text in texts} != {"true", "false"}:
            raise UserError(f"{where}: a switch is true or false")
        return Range(action.dest, kind, tuple(text.lower() == "true" for text in texts), switch=True)
    return Range(action.dest, kind, tuple(configs.converted(parser, action, texts, where)))


def _numbers(parser, action, kind: str, texts: list[str], where: str) -> Range:
    number = getattr(action.type, "kind", action.type)  # a type that has a range says what kind of number it is
    if number not in (int, float):
        raise UserError(f"{where}: {action.dest} is not a number; choices are written {action.dest}~CHOICE~ [a,b]")
    if len(texts) != 2:
        raise UserError(f"{where}: expected two bounds, [low, high]")
    if kind != "INT_BAYESIAN" and number is int:
        raise UserError(f"{where}: {action.dest} is a whole number: write {action.dest}~INT_BAYESIAN~")
    low, high = configs.converted(parser, action, texts, where)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UserError(f"{where}: bounds must be finite")
    if kind == "INT_BAYESIAN":
        if (low, high) != (int(low), int(high)):
            raise UserError(f"{where}: expected two whole numbers")
        low = int(low)
        high = int(high)
    if low >= high:
        raise UserError(f"{where}: the bounds are {'swapped' if low > high else 'equal'}; write the lower one first")
    if kind == "LOG_BAYESIAN" and low <= 0:
        raise UserError(f"{where}: a logarithmic range lies above 0")
    return Range(action.dest, kind, (low, high))


class Flags:
    """Reads one trial's flags through the main program's parser.

    Args:
        command: the search's.
        read: the main program's `resolve(argv)`.
        folder: gets copies of those files that held more than a trial's flags, without the rest.
    """

    def __init__(self, command: Command, read, folder: Path):
        self.ranges = command.ranges
        self._read = read
        self._originals = {}  # path of the file that is read -> name of the file that the user gave
        for number, (name, nodes) in enumerate(command.files.items()):
            path = name if nodes is None else str(folder / f"{number}_{Path(name).stem}.yaml")
            self._originals[path] = name
            if nodes is not None:
                lines = [(yaml.ScalarNode("tag:yaml.org,2002:str", key), node) for key, node in nodes.items()]
                Path(path).write_text(
                    yaml.serialize(yaml.MappingNode("tag:yaml.org,2002:map", lines)), encoding="utf-8"
                )
        self._rest = [*(["--config", *self._originals] if self._originals else []), *command.rest]

    def read(self, values: dict, *more: str):
        """The flags of these values of the searched flags. Raises UserError where the parser refuses them."""
        searched = [token for flag, value in values.items() for token in self.ranges[flag].arguments(value)]
        try:
            return self._read([*self._rest, *searched, *more])
        except UserError as error:
            message = str(error)
            for path, name in self._originals.items():
                message = message.replace(path, name)
            raise UserError(message) from error

    def check(self):
        """Read the ends of every range and every choice.

        Returns the flags of one combination that works, and those of them that are the same in every combination.

        Raises UserError where an end is refused, or a choice with every combination of the other choices.
        """
        choices = {flag: found.values for flag, found in self.ranges.items() if found.kind == "CHOICE"}
        highs = {flag: found.values[1] for flag, found in self.ranges.items() if flag not in choices}
        lows = {flag: self.ranges[flag].values[0] for flag in highs}
        # (values, flags) of the combinations that work; (flag, value) -> error of those that do not
        read = []
        errors = {}
        for combination in itertools.islice(itertools.product(*choices.values()), MOST_COMBINATIONS):
            values = lows | dict(zip(choices, combination, strict=True))
            try:
                read.append((values, self.read(values)))
            except UserError as error:
                errors = {item: error for item in values.items()} | errors
        if not read:
            raise next(iter(errors.values()))
        for flag, value in errors:
            if flag in choices and all(values[flag] != value for values, _ in read):
                raise UserError(f"{flag}~CHOICE~ {value}: {errors[flag, value]}")
        values, opt = read[0]
        every = [opt for _, opt in read] + [self.read({**values, flag: high}) for flag, high in highs.items()]
        flags = opt.saved()
        return opt, {
            name: value
            for name, value in flags.items()
            if name not in self.ranges and all(getattr(o, name) == value for o in every)
        }
