"""The ranges of a search, and all other flags of its trials.

A range is `--flag~BAYESIAN~ [0,1]` on the command line or `flag~BAYESIAN~: [0, 1]` in a --config file. Suffixes:
BAYESIAN (float, linear), LOG_BAYESIAN (float, logarithmic), INT_BAYESIAN (whole numbers), CHOICE (one of several).

`parse` takes the ranges out of a command line and its files: a `Command`. `Flags` then reads the flags of a trial: the
other words and lines, with the values of the ranges.
"""

import argparse
import difflib
import itertools
import math
import re
from typing import NamedTuple

import yaml

from options.flags import configs, roles
from utilities.errors import OneLineParser, UserError
from utilities.numbers import OneOrTwo

SUFFIXES = ("BAYESIAN", "LOG_BAYESIAN", "INT_BAYESIAN", "CHOICE")
# A --config file may set it: the reproductions are measured on test, trials never.
NO_PART_OF_A_TRIAL = {"final_test"}
# combinations of choices that are tried on the parser before a search starts
MOST_COMBINATIONS = 500


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
        # with =, because a value may begin with a minus
        return [f"--{self.flag}={value}"]

    @property
    def text(self) -> str:
        """The range as it is written in a file."""
        return f"{self.flag}~{self.kind}~: [{', '.join(map(str, self.values))}]"


class Command(NamedTuple):
    """The command line of a search, taken apart.

    Attributes:
        ranges: flag -> its range.
        arguments: for the main program's parser, without the ranges and --config.
        files: name in --config -> those of its lines that are flags of a trial.
        named: the flags that the command line or a file gives a value.
    """

    ranges: dict[str, Range]
    arguments: list[str]
    files: dict[str, dict[str, yaml.Node]]
    named: set[str]


def parse(argv: list[str], parser: argparse.ArgumentParser) -> Command:
    """Take the ranges out of a command line and out of the files that it names. Raises UserError.

    Args:
        parser: the main program's.
    """
    actions = {}
    for action in parser._actions:
        for option in action.option_strings:
            actions[option.removeprefix("--")] = action
    if (refusal := parser.refusal(argv, searches=True)) is not None:
        raise UserError(refusal)
    written, words = _split(argv)
    ranges = _ranges(written, parser, actions, "the command line")
    names = {word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--")}
    # --no-NAME switches NAME off
    names |= {name.removeprefix("no-") for name in names}
    # --source is --source_path
    named = names - actions.keys() | {actions[name].dest for name in names & actions.keys()}
    if "savename" in named:
        raise UserError("--savename, --experiment_name: --group names a search and its trials: write --group NAME")
    _refuse_both(ranges, named, "the command line")
    config = OneLineParser(add_help=False, allow_abbrev=False)
    config.add_argument("--config", nargs="+", default=[])
    config.exits = False
    options, arguments = config.parse_known_args(words)
    file_ranges, files, named_in_files = _read_files(options.config, ranges, parser, actions)
    for flag in named & file_ranges.keys():
        del file_ranges[flag]
    ranges = file_ranges | ranges
    if not ranges:
        raise UserError("nothing to search: give at least one flag a range, such as --lr~LOG_BAYESIAN~ [1e-6,1e-3]")
    return Command(ranges, arguments, files, (named | named_in_files) - set(ranges))


def _read_files(config_names: list[str], ranges: dict[str, Range], parser, actions: dict) -> tuple[dict, dict, set]:
    """The ranges in --config files, the `files` of a `Command`, and the flags that the files give a value.

    A later file wins. `ranges`: of the command line.
    """
    file_ranges = {}
    files = {}
    named = set()
    for name in config_names:
        nodes = configs.nodes(configs.find(name))
        written = [(key, _texts(node)) for key, node in nodes.items() if "~" in key]
        new_ranges = _ranges(written, parser, actions, name)
        no_part = {key for key in NO_PART_OF_A_TRIAL & set(nodes) if nodes[key].tag.endswith(":bool")}
        values = {key: node for key, node in nodes.items() if "~" not in key and key not in no_part}
        _refuse_both(new_ranges, values, name)
        for flag in values:
            file_ranges.pop(flag, None)
        file_ranges |= new_ranges
        named |= set(values)
        for earlier in files:
            files[earlier] = _without_searched_switches(files[earlier], new_ranges)
        files[name] = _without_searched_switches(values, ranges)
    return file_ranges, files, named


def _without_searched_switches(lines: dict, ranges: dict[str, Range]) -> dict:
    """A file's lines without searched switches: a trial whose value is false has no word that would win over the line.

    Other searched flags of a trial stand behind --config and win.
    """
    return {key: node for key, node in lines.items() if not (key in ranges and ranges[key].switch)}


def _split(argv: list[str]) -> tuple[list[tuple[str, list[str]]], list[str]]:
    """The ranges of a command line, (flag~SUFFIX~, values), and its other words."""
    ranges = []
    words = []
    # the list that takes the values that follow
    receiver = words
    for word in argv:
        flag, _, value = word.partition("=")
        if not word.startswith("--"):
            receiver.append(word)
        elif "~" in flag:
            receiver = [value] if value else []
            ranges.append((flag.removeprefix("--"), receiver))
        else:
            receiver = words
            words.append(word)
    return ranges, words


def _texts(node: yaml.Node) -> list[str]:
    return [item.value for item in node.value] if isinstance(node, yaml.SequenceNode) else [str(node.value)]


def _refuse_both(ranges, values, source: str) -> None:
    for flag in sorted(set(ranges) & set(values)):
        raise UserError(f"{source}: {flag} has a range and a value: one of them")


def _ranges(written: list[tuple[str, list[str]]], parser, actions: dict, source: str) -> dict[str, Range]:
    """flag -> range, for the ranges written in one place. Raises UserError."""
    ranges = {}
    for key, values in written:
        searched = _range(key, values, parser, actions, f"{source}: {key}")
        if searched.flag in ranges:
            raise UserError(f"{source}: {searched.flag} has two ranges")
        ranges[searched.flag] = searched
    return ranges


def _range(key: str, values: list[str], parser, actions: dict, source: str) -> Range:
    """Check one range. Raises UserError."""
    flag, _, suffix = key.partition("~")
    kind = suffix.removesuffix("~")
    if kind not in SUFFIXES or not suffix.endswith("~"):
        nearest = difflib.get_close_matches(kind.upper(), SUFFIXES, n=1, cutoff=0.5)
        hint = f" Did you mean {flag}~{nearest[0]}~?" if nearest else ""
        raise UserError(f"{source}: a searched flag ends in ~{'~, ~'.join(SUFFIXES)}~.{hint}")
    if flag not in actions:
        nearest = difflib.get_close_matches(flag, actions, n=1)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        raise UserError(f"{source}: unknown flag {flag!r}.{hint}")
    action = actions[flag]
    if action.dest == "help" or not roles.declared(parser, roles.METHOD)[action.dest].searched:
        raise UserError(f"{source}: {flag} cannot be searched: trials may differ in flags of the method alone")
    if action.nargs not in (None, 0, "?") and not isinstance(action, OneOrTwo):
        raise UserError(f"{source}: {flag} takes several values: only flags of one value can be searched")
    texts = re.split(r"[,\s]+", " ".join(values).strip().removeprefix("[").removesuffix("]").strip())
    texts = [text for text in texts if text]
    source = f"{source} [{', '.join(texts)}]"
    if kind == "CHOICE":
        return _choice(parser, action, kind, texts, source)
    return _numbers(parser, action, kind, texts, source)


def _choice(parser, action, kind: str, texts: list[str], source: str) -> Range:
    if len(texts) < 2 or len(set(texts)) < len(texts):
        raise UserError(f"{source}: expected two or more different choices, [a,b]")
    if isinstance(action, argparse._StoreTrueAction):
        if {text.lower() for text in texts} != {"true", "false"}:
            raise UserError(f"{source}: a switch is true or false")
        return Range(action.dest, kind, tuple(text.lower() == "true" for text in texts), switch=True)
    return Range(action.dest, kind, tuple(configs.converted(parser, action, texts, source)))


def _numbers(parser, action, kind: str, texts: list[str], source: str) -> Range:
    # a type that has a range says what kind of number it is
    number = getattr(action.type, "kind", action.type)
    if number not in (int, float):
        raise UserError(f"{source}: {action.dest} is not a number; choices are written {action.dest}~CHOICE~ [a,b]")
    if len(texts) != 2:
        raise UserError(f"{source}: expected two bounds, [low, high]")
    if kind != "INT_BAYESIAN" and number is int:
        raise UserError(f"{source}: {action.dest} is a whole number: write {action.dest}~INT_BAYESIAN~")
    low, high = configs.converted(parser, action, texts, source)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UserError(f"{source}: bounds must be finite")
    if kind == "INT_BAYESIAN":
        if (low, high) != (int(low), int(high)):
            raise UserError(f"{source}: expected two whole numbers")
        low = int(low)
        high = int(high)
    if low >= high:
        fault = "swapped" if low > high else "equal"
        raise UserError(f"{source}: the bounds are {fault}; write the lower one first")
    if kind == "LOG_BAYESIAN" and low <= 0:
        raise UserError(f"{source}: a logarithmic range lies above 0")
    return Range(action.dest, kind, (low, high))


class Flags:
    """Reads one trial's flags through the main program's parser.

    Args:
        command: the search's.
        read: the main program's `resolve(argv, searched, config_files)`.
    """

    def __init__(self, command: Command, read):
        self.ranges = command.ranges
        self._arguments = command.arguments
        self._files = [(configs.find(name), lines) for name, lines in command.files.items()]
        self._read = read

    def read(self, values: dict, *flags: str):
        """The flags of these values of the searched flags. Raises UserError where the parser refuses them."""
        searched = [word for flag, value in values.items() for word in self.ranges[flag].arguments(value)]
        return self._read([*self._arguments, *searched, *flags], self.ranges.keys(), self._files)

    def check(self):
        """Read the ends of every range and every choice.

        Returns the flags of one combination that works, and those of them that are the same in every combination.

        Raises UserError where an end is refused, or a choice with every combination of the other choices.
        """
        choices = {flag: searched.values for flag, searched in self.ranges.items() if searched.kind == "CHOICE"}
        bounds = {flag: searched.values for flag, searched in self.ranges.items() if searched.kind != "CHOICE"}
        lows = {flag: low for flag, (low, _) in bounds.items()}
        read = []  # (values, flags) of the combinations that work
        errors = {}  # (flag, value) -> error of those that do not
        for combination in itertools.islice(itertools.product(*choices.values()), MOST_COMBINATIONS):
            values = lows | dict(zip(choices, combination, strict=True))
            try:
                read.append((values, self.read(values)))
            except UserError as error:
                errors = dict.fromkeys(values.items(), error) | errors
        if not read:
            raise next(iter(errors.values()))
        for flag, value in errors:
            if flag in choices and all(values[flag] != value for values, _ in read):
                raise UserError(f"{flag}~CHOICE~ {value}: {errors[flag, value]}")
        values, opt = read[0]
        namespaces = [namespace for _, namespace in read]
        for flag, (_, high) in bounds.items():
            namespaces.append(self.read({**values, flag: high}))
        fixed = {}
        for name, value in opt.saved().items():
            is_fixed = all(getattr(namespace, name) == value for namespace in namespaces)
            if is_fixed and name not in self.ranges:
                fixed[name] = value
        return opt, fixed
