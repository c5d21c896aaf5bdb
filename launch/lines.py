"""The file of runs: plain shell with `name=value` lines, comments, and one run or search a line.

A run is `python main.py …` or `dmlkit …`, a search `python -m search …` or `dmlkit-search …`. Words are read as `sh`
reads them: '…', "…", backslashes, a backslash at the end of a line, ~/, and $name, ${name}, ${name:-default}, whose
values are split at blanks unless they are quoted. Variables are replaced here, the rest is `shlex`. What `export` names
is given to the runs. All other shell syntax (pipes, several commands a line, $(…)) is refused.
"""

import dataclasses
import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from search.__main__ import secret_options
from utilities import secrets
from utilities.errors import UserError
from utilities.reading import Unreadable, read_text

NAME = r"[A-Za-z_]\w*"
OPERATORS = "$`|&;<>()"
# a default is plain text
VARIABLE = rf"""\$(?P<open>\{{)?(?P<name>{NAME})(?(open)(?::-(?P<default>[^}}$`"'\\]*))?\}})"""
# as the ICML authors' scripts have them
HEADING = re.compile(r'^[ \t]*"""(?:(?!""").)*"""[ \t]*$', re.MULTILINE | re.DOTALL)
# all that is more than plain text: quotes, an escaped character, a comment, a variable, other shell
SPECIAL = rf"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|(?<!\S)#.*|{VARIABLE}|[{OPERATORS}]"""
SPECIAL_IN_QUOTES = rf"\\.|{VARIABLE}|[$`]"


def masked(words: list[str]) -> list[str]:
    """The words of a command of main.py or a search, with *** in place of keys and passwords."""
    return secrets.mask_words(words, secret_options())


class Line(NamedTuple):
    """One run of a file: its line number, and the flags of its program, main.py."""

    number: int
    argv: list[str]
    # no fields: the same for all lines of a kind
    program = ("main.py",)
    installed = "dmlkit"

    @property
    def command(self) -> str:
        """The command as a shell takes it, its secrets masked."""
        return shlex.join(["python", *self.program, *masked(self.argv)])


class SearchLine(Line):
    """One search of a file."""

    program = ("-m", "search")
    installed = "dmlkit-search"


KINDS = (Line, SearchLine)


def read_lines(path: Path, variables: dict[str, str]) -> list[Line]:
    """The runs of a file. `variables` win over its assignments, these over the environment.

    `variables` are not split at blanks. What the file exports is put into this process's environment,
    which its runs inherit.

    Raises UserError if there is no such file, or a line is neither a comment,
    an assignment nor a run of one of the programs.
    """
    try:
        text = read_text(path)
    except Unreadable as error:
        raise UserError(f"{path}: no file of runs ({error.reason})") from error
    text = HEADING.sub(lambda heading: "\n" * heading[0].count("\n"), text)
    shell = _Shell({**os.environ, **variables}, frozenset(variables))
    lines = []
    begun = ""
    for number, written in enumerate([*text.splitlines(), ""], start=1):
        try:
            command = begun + shell.with_values(written)
            if command.endswith("\\"):
                begun = command[:-1]
                continue
            begun = ""
            words = [os.path.expanduser(word) if word.startswith("~/") else word for word in shlex.split(command)]
            if words and not shell.assign(words):
                lines.append(_line(number, words))
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}") from error
    os.environ |= shell.exported
    return lines


@dataclasses.dataclass
class _Shell:
    """The variables of a file, while its lines are read.

    Attributes:
        values: of all variables, by name.
        fixed: names that assignments do not change, and whose values are not split at blanks.
        exported: values that the runs' environment gets.
    """

    values: dict[str, str]
    fixed: frozenset[str]
    exported: dict[str, str] = dataclasses.field(default_factory=dict)

    def assign(self, words: list[str]) -> bool:
        """Whether the words are assignments, which then are made. Raises ValueError for a second value of an export."""
        is_export = words[0] == "export"
        assignments = words[1:] if is_export else words
        pairs = [word.partition("=") for word in assignments]
        if not all(equals and re.fullmatch(NAME, name) for name, equals, _ in pairs):
            return False
        for name, _, value in pairs:
            if name not in self.fixed:
                self.values[name] = os.path.expanduser(value)
        for name, _, _ in pairs:
            if is_export or name in self.exported:
                value = self.values[name]
                if self.exported.setdefault(name, value) != value:
                    raise ValueError(f"{name} is exported, and has two values: all runs of a file have one environment")
        return True

    def with_values(self, line: str) -> str:
        """A line without its comment, each variable replaced by its value in quotes, as `shlex` takes it.

        Raises ValueError for other shell.
        """
        # in an assignment nothing is split
        unquoted = self._word if re.match(rf"\s*(export\s+)?{NAME}=", line) else self._words

        def replace(match) -> str:
            special = match[0]
            if match["name"]:
                return unquoted(match)
            if special in OPERATORS:
                raise _not_understood(special)
            if special.startswith("#"):
                return ""
            if special.startswith('"') and len(special) > 1:
                return re.sub(SPECIAL_IN_QUOTES, self._in_quotes, special)
            return special

        return re.sub(SPECIAL, replace, line)

    def _value(self, variable) -> str:
        """The value of a match of VARIABLE."""
        value = self.values.get(variable["name"])
        if not value and variable["default"] is not None:
            value = variable["default"]
        if value is None:
            raise ValueError(f"${variable['name']} has no value: set it in the file, or --datapath for $datapath")
        return value

    def _word(self, variable) -> str:
        return shlex.quote(self._value(variable))

    def _words(self, variable) -> str:
        if variable["name"] in self.fixed:
            return self._word(variable)
        return shlex.join(self._value(variable).split())

    def _in_quotes(self, match) -> str:
        """What stands for a match of SPECIAL_IN_QUOTES, a variable or a character."""
        if match["name"]:
            return re.sub(r'(["\\])', r"\\\1", self._value(match))
        if match[0] in "$`":
            raise _not_understood(match[0])
        return match[0].replace("\\$", "$")


def _not_understood(character: str) -> ValueError:
    return ValueError(
        f"{character} is not understood here: one run a line, $name, ${{name}}, ${{name:-default}}, quotes around "
        f"a literal {character}"
    )


def _line(number: int, words: list[str]) -> Line:
    """The run of a command. Raises ValueError for another command."""
    called = Path(words[0]).name
    for kind in KINDS:
        if called == kind.installed:
            return kind(number, words[1:])
    if re.fullmatch(r"python[\d.]*", called):
        for kind in KINDS:
            *options, name = kind.program
            count = len(kind.program)
            program = words[1 : count + 1]
            if len(program) == count and program[:-1] == options and Path(program[-1]).name == name:
                return kind(number, words[count + 1 :])
    programs = " or ".join(f"python {' '.join(kind.program)} …" for kind in KINDS)
    raise ValueError(f"expected a comment, name=value, {programs}, not {' '.join(masked(words))[:60]!r}")


def select_lines(lines: list[Line], options) -> list[Line]:
    """The lines of --lines and --filter, once for each of --seeds, with the added flags; equal commands once."""
    chosen = {}
    for line in lines:
        if options.lines and line.number not in options.lines:
            continue
        if options.filter and not any(re.search(pattern, line.command) for pattern in options.filter):
            continue
        for seed in options.seeds or [None]:
            argv = list(line.argv)
            if seed is not None:
                argv = [*_without(argv, "--seed"), "--seed", str(seed)]
            argv += options.added
            chosen.setdefault((*line.program, *argv), line._replace(argv=argv))
    return list(chosen.values())


def _without(argv: list[str], flag: str) -> list[str]:
    """The flags without `flag` and its value."""
    words = []
    is_value = False
    for word in argv:
        if not is_value and word != flag and not word.startswith(f"{flag}="):
            words.append(word)
        is_value = word == flag
    return words
