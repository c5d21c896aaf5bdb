"""What is searched: `--flag~BAYESIAN~ [0,1]` on the command line or `flag~BAYESIAN~: [0, 1]` in a file, and everything else.

Suffixes: BAYESIAN (float, linear), LOG_BAYESIAN (float, logarithmic), INT_BAYESIAN (whole numbers), CHOICE (one of several).
"""

import argparse
import contextlib
import difflib
import io
import itertools
import math
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from runs._names import NEVER_SAVED
from utilities.errors import UserError

SUFFIXES = ("BAYESIAN", "LOG_BAYESIAN", "INT_BAYESIAN", "CHOICE")
NEVER_SEARCHED = NEVER_SAVED | {
    "help", "seed", "dataset", "source_path", "save_path", "savename", "group", "project", "storage_metrics", "evaluation_metrics",
}  # fmt: skip
NO_PART_OF_A_TRIAL = {"final_test"}  # what a --config file may say of a run's end: of a search, the reproductions have it
MOST_COMBINATIONS = 500  # of choices that are tried on the parser before a search starts


@dataclass(frozen=True)
class Range:
    """One searched flag.

    Attributes:
        flag: its name without dashes.
        kind: one of `SUFFIXES`.
        values: (low, high), or the choices.
        switch: the flag takes no value; its choices are true and false.
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
        if self.kind == "INT_BAYESIAN":
            return trial.suggest_int(self.flag, *self.values)
        return trial.suggest_float(self.flag, *self.values, log=self.kind == "LOG_BAYESIAN")

    def arguments(self, value) -> list[str]:
        """A value as the command line takes it."""
        if self.switch:
            return [f"--{self.flag}"] * bool(value)
        return [f"--{self.flag}={value}"]  # with =, because a value may begin with a minus

    @property
    def text(self) -> str:
        """The range as it is written in a file."""
        return f"{self.flag}~{self.kind}~: [{', '.join(map(str, self.values))}]"


@dataclass
class Command:
    """What a search was asked for.

    Attributes:
        ranges: flag -> its range.
        rest: arguments for the main program's parser, without the ranges.
        files: `--config` files that hold ranges, values of searched flags or what is no part of a trial -> their other lines.
        given: the flags that the command line or a file gives a value.
    """

    ranges: dict[str, Range]
    rest: list[str]
    files: dict[str, dict]
    given: set[str]


def parse(argv: list[str], parser: argparse.ArgumentParser, presets: Path) -> Command:
    """Take the ranges out of a command line and out of the files that it names. Raises UserError.

    Args:
        parser: the main program's.
        presets: where a bare name after `--config` is looked up.
    """
    actions = {option.removeprefix("--"): action for action in parser._actions for option in action.option_strings}
    ranges, rest = {}, []
    tokens = iter(_with_values_joined(argv))
    for flag, values in tokens:
        if "~" not in flag:
            rest += [flag, *values]
            continue
        _add(ranges, _range(flag.removeprefix("--"), values, actions, "the command line"), "the command line")
    names = {token.removeprefix("--").partition("=")[0] for token in rest if token.startswith("--")}
    fixed = {actions[name].dest if name in actions else name for name in names}  # --source is --source_path
    twice = sorted(fixed & set(ranges))
    if twice:
        raise UserError(f"--{twice[0]} has a range and a value on the command line: one of them")
    from_files, files, given, unread = {}, {}, set(fixed), False
    for name in _config_of(rest):
        content = _read(name, presets)
        if content is None:  # the main program's parser says what is wrong
            unread = True
            continue
        found, at_the_end = {}, {name for name in NO_PART_OF_A_TRIAL if isinstance(content.get(name), bool)}
        content = {key: value for key, value in content.items() if key not in at_the_end}
        for key in [key for key in content if "~" in str(key)]:
            values = content.pop(key)
            texts = [_text(value) for value in values] if isinstance(values, list) else [str(values)]
            _add(found, _range(str(key), texts, actions, name), name)
        twice = sorted(set(found) & set(content))
        if twice:
            raise UserError(f"{name}: {twice[0]} has a range and a value: one of them")
        for flag in content:  # a later file's value replaces an earlier file's range
            from_files.pop(flag, None)
        from_files |= found
        given |= set(content)
        if found or at_the_end or set(content) & set(ranges):
            files[name] = {key: value for key, value in content.items() if key not in ranges}
    ranges = {**{flag: found for flag, found in from_files.items() if flag not in fixed}, **ranges}
    if not ranges and not unread:
        raise UserError("nothing to search: give at least one flag a range, such as --lr~LOG_BAYESIAN~ [1e-6,1e-3]")
    return Command(ranges, rest, files, given - set(ranges))


def _with_values_joined(argv: list[str]):
    """(flag, its values), token by token; `--flag~X~=[0,1]` is split."""
    position = 0
    while position < len(argv):
        flag = argv[position]
        position += 1
        if "~" not in flag.partition("=")[0] or not flag.startswith("--"):
            yield flag, []
            continue
        flag, _, value = flag.partition("=")
        values = [value] if value else []
        while position < len(argv) and not argv[position].startswith("--"):
            values.append(argv[position])
            position += 1
        yield flag, values


def _config_of(rest: list[str]) -> list[str]:
    """The files that `--config` names."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", nargs="+", default=[])
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        return parser.parse_known_args(rest)[0].config
    return []


def _read(name: str, presets: Path) -> dict | None:
    for path in (Path(name), presets / f"{name.removesuffix('.yaml')}.yaml"):
        if path.is_file():
            with contextlib.suppress(yaml.YAMLError, UnicodeDecodeError, OSError):
                content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
                return content if isinstance(content, dict) else None
            return None
    return None


def _text(value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _add(ranges: dict, found: Range, where: str) -> None:
    if found.flag in ranges:
        raise UserError(f"{where}: {found.flag} has two ranges")
    ranges[found.flag] = found


def _range(key: str, values: list[str], actions: dict, where: str) -> Range:
    """Check one range. Raises UserError."""
    match = re.fullmatch(r"([^~]*)~([^~]*)~", key)
    flag, kind = match.groups() if match else (key.partition("~")[0], None)
    if kind not in SUFFIXES:
        nearest = difflib.get_close_matches(key.partition("~")[2].strip("~").upper(), SUFFIXES, n=1, cutoff=0.5)
        hint = f" Did you mean {flag}~{nearest[0]}~?" if nearest else ""
        raise UserError(f"{where}: {key}: a searched flag ends in ~{'~, ~'.join(SUFFIXES)}~.{hint}")
    if flag not in actions:
        nearest = difflib.get_close_matches(flag, actions, n=1)
        raise UserError(f"{where}: unknown flag {flag!r}." + (f" Did you mean {nearest[0]!r}?" if nearest else ""))
    action = actions[flag]
    if action.dest in NEVER_SEARCHED:
        raise UserError(f"{where}: {flag} cannot be searched: trials must differ in nothing that decides what or how is measured")
    switch = isinstance(action, argparse._StoreTrueAction)
    if action.nargs not in (None, 0, "?"):
        raise UserError(f"{where}: {flag} takes several values: only flags of one value can be searched")
    texts = [text for text in re.split(r"[,\s]+", " ".join(values).strip().removeprefix("[").removesuffix("]").strip()) if text]
    if kind == "CHOICE":
        return _choice(action, texts, switch, f"{where}: {key}")
    if action.type not in (int, float):
        raise UserError(f"{where}: {key}: {flag} is not a number; choices are written {flag}~CHOICE~ [a,b]")
    return _numbers(action, kind, texts, f"{where}: {key}")


def _choice(action, texts: list[str], switch: bool, where: str) -> Range:
    if len(texts) < 2 or len(set(texts)) < len(texts):
        raise UserError(f"{where} {' '.join(texts) or 'without values'}: expected two or more different choices, [a,b]")
    if switch:
        if set(texts) != {"true", "false"}:
            raise UserError(f"{where} {' '.join(texts)}: a switch is true or false")
        return Range(action.dest, "CHOICE", tuple(text == "true" for text in texts), switch=True)
    try:
        return Range(action.dest, "CHOICE", tuple(action.type(text) if action.type else text for text in texts))
    except ValueError as error:
        raise UserError(f"{where} {' '.join(texts)}: expected {action.type.__name__} values") from error


def _numbers(action, kind: str, texts: list[str], where: str) -> Range:
    written = f"[{', '.join(texts)}]"
    if len(texts) != 2:
        raise UserError(f"{where} {written}: expected two bounds, [low, high]")
    try:
        low, high = (int(text) if kind == "INT_BAYESIAN" else float(text) for text in texts)
    except ValueError as error:
        raise UserError(f"{where} {written}: expected two {'whole ' * (kind == 'INT_BAYESIAN')}numbers") from error
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UserError(f"{where} {written}: bounds must be finite")
    if low >= high:
        raise UserError(f"{where} {written}: the bounds are {'swapped' if low > high else 'equal'}; write the lower one first")
    if kind == "LOG_BAYESIAN" and low <= 0:
        raise UserError(f"{where} {written}: a logarithmic range lies above 0")
    if kind != "INT_BAYESIAN" and action.type is int:
        raise UserError(f"{where}: {action.dest} is a whole number: write {action.dest}~INT_BAYESIAN~")
    return Range(action.dest, kind, (low, high))


class Flags:
    """Reads one trial's flags through the main program's parser.

    Args:
        command: the search's.
        read: the main program's `read(argv)`.
        folder: where files that held more than a trial's flags are written without it.
    """

    def __init__(self, command: Command, read, folder: Path):
        self.ranges, self._read, self._folder = command.ranges, read, folder
        self._originals = {}
        for number, (name, content) in enumerate(command.files.items()):
            path = folder / f"{number}_{Path(name).stem}.yaml"
            path.write_text(yaml.safe_dump(content), encoding="utf-8")
            self._originals[str(path)] = name
        replaced = {name: path for path, name in self._originals.items()}
        self._rest = _with_config(command.rest, [replaced.get(name, name) for name in _config_of(command.rest)])

    def read(self, values: dict, *more: str):
        """The flags of these values of the searched flags. Raises UserError where the parser refuses them."""
        searched = [token for flag, value in values.items() for token in self.ranges[flag].arguments(value)]
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                return self._read([*self._rest, *searched, *more])
        except SystemExit as error:
            if not error.code:
                raise
            message = said.getvalue().strip().splitlines()[-1].partition("error: ")[2] if said.getvalue().strip() else str(error)
            for path, name in self._originals.items():
                message = message.replace(path, name)
            raise UserError(message) from error

    def check(self):
        """Read the ends of every range and every choice.

        Returns the flags of one combination that works, and those of them that are the same in every combination.

        Raises UserError where an end is refused, or a choice in every combination with the other choices.
        """
        choices = {flag: found.values for flag, found in self.ranges.items() if found.kind == "CHOICE"}
        numbers = {flag: found.values for flag, found in self.ranges.items() if found.kind != "CHOICE"}
        lows = {flag: values[0] for flag, values in numbers.items()}
        good, refused, read = None, {}, []
        missing = {(flag, value) for flag, values in choices.items() for value in values}
        for combination in itertools.islice(itertools.product(*choices.values()), MOST_COMBINATIONS):
            chosen = dict(zip(choices, combination, strict=True))
            try:
                opt = self.read({**lows, **chosen})
            except UserError as error:
                refused |= {item: error for item in chosen.items() if item not in refused} or {None: error}
                continue
            good = good or (chosen, opt)
            read.append(opt)
            missing -= set(chosen.items())
        if good is None:
            raise next(iter(refused.values()))
        for item in sorted(missing & set(refused), key=str):
            raise UserError(f"{item[0]}~CHOICE~ {item[1]}: {refused[item]}")
        chosen, opt = good
        for flag, (_, high) in numbers.items():
            read.append(self.read({**lows, **chosen, flag: high}))
        fixed = {
            name: value for name, value in opt.saved().items() if name not in self.ranges and all(getattr(o, name) == value for o in read)
        }
        return opt, fixed


def _with_config(rest: list[str], files: list[str]) -> list[str]:
    """The arguments with `--config` once, in front."""
    kept, inside = [], False
    for token in rest:
        if token.partition("=")[0] == "--config":
            inside = "=" not in token
        elif not inside or token.startswith("--"):
            inside = False
            kept.append(token)
    return (["--config", *files] if files else []) + kept
