"""The file of runs: plain shell with `name=value` lines, comments, and one `python main.py …` or `python -m search …` a
line.

Words are read as `sh` reads them: '…', "…", backslashes, a backslash at the end of a line, ~/, and $name, ${name},
${name:-default}, whose values are split at blanks unless they are quoted. What `export` names is given to the runs. All
other shell syntax (pipes, several commands a line, $(…)) is refused.
"""

import os
import re
import shlex
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from search.__main__ import secret_options
from utilities import secrets
from utilities.errors import UserError
from utilities.reading import Unreadable, read_text

NAME = r"[A-Za-z_]\w*"
OPERATORS = "$`|&;<>()"
VARIABLE = (
    rf"""\$(?P<open>\{{)?(?P<name>{NAME})(?(open)(?::-(?P<default>[^}}$`"'\\]*))?\}})"""  # a default is plain text
)
HEADING = re.compile(
    r'^[ \t]*"""(?:(?!""").)*"""[ \t]*$', re.MULTILINE | re.DOTALL
)  # as the ICML authors' scripts have them
PART = rf"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|(?<!\S)#.*|{VARIABLE}|[{OPERATORS}]"""  # all that is more than plain text


def masked(words: list[str]) -> list[str]:
    """The words of a command of main.py or a search, with *** in place of keys and passwords."""
    return secrets.mask_words(words, secret_options())


class Line(NamedTuple):
    """One run of a file: its line number, and the flags of its program, main.py."""

    number: int
    argv: list[str]
    program = ("main.py",)  # no field: the same for all lines of a kind

    @property
    def command(self) -> str:
        """The command as a shell takes it, its secrets masked."""
        return shlex.join(["python", *self.program, *masked(self.argv)])


class SearchLine(Line):
    """One search of a file."""

    program = ("-m", "search")


KINDS = (Line, SearchLine)


def read_lines(path: Path, variables: dict[str, str]) -> list[Line]:
    """The runs of a file. `variables` win over its assignments, these over the environment; `variables` are not split
    at blanks.

    What the file exports is put into this process's environment, which its runs inherit.

    Raises UserError where there is no such file, or a line is neither a comment, an assignment nor a run of one of the
    programs.
    """
    try:
        text = read_text(path)
    except Unreadable as error:
        raise UserError(f"{path}: no file of runs ({error.reason})") from error
    text = HEADING.sub(lambda heading: "\n" * heading[0].count("\n"), text)
    lines = []
    known = {**os.environ, **variables}
    exported = {}
    begun = ""
    for number, written in enumerate([*text.splitlines(), ""], start=1):
        try:
            command = begun + _expanded(written, known, variables)
            if command.endswith("\\"):
                begun = command[:-1]
                continue
            begun = ""
            words = [os.path.expanduser(word) if word.startswith("~/") else word for word in shlex.split(command)]
            pairs = [word.partition("=") for word in words[words[:1] == ["export"] :]]
            if words and all(equals and re.fullmatch(NAME, name) for name, equals, _ in pairs):
                known |= {name: os.path.expanduser(value) for name, _, value in pairs if name not in variables}
                for name in (name for name, _, _ in pairs if words[0] == "export" or name in exported):
                    if exported.setdefault(name, known[name]) != known[name]:
                        raise ValueError(
                            f"{name} is exported, and has two values: all runs of a file have one environment"
                        )
            elif words:
                lines.append(_line(number, words))
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}") from error
    os.environ |= exported
    return lines


def _expanded(line: str, known: dict[str, str], whole: Container[str]) -> str:
    """A line without its comment, its variables replaced by their quoted values, as `shlex` takes it. Raises ValueError
    for other shell.

    Args:
        known: name -> value.
        whole: variables that are not split at blanks.
    """
    is_assignment = re.match(rf"\s*(export\s+)?{NAME}=", line)  # in it nothing is split

    def value(part) -> str:
        found = known.get(part["name"]) or (part["default"] if part["default"] is not None else known.get(part["name"]))
        if found is None:
            raise ValueError(f"${part['name']} has no value: set it in the file, or --datapath for $datapath")
        return found

    def in_double_quotes(part) -> str:
        if part["name"]:
            return re.sub(r'(["\\])', r"\\\1", value(part))
        return refused(part[0]) if part[0] in "$`" else part[0].replace("\\$", "$")

    def outside(part) -> str:
        if part["name"]:
            return shlex.join([value(part)] if is_assignment or part["name"] in whole else value(part).split())
        if part[0][0] == '"' and len(part[0]) > 1:
            return re.sub(rf"\\.|{VARIABLE}|[$`]", in_double_quotes, part[0])
        return refused(part[0]) if part[0] in OPERATORS else "" if part[0][0] == "#" else part[0]

    def refused(char: str):
        raise ValueError(
            f"{char} is not understood here: one run a line, $name, ${{name}}, ${{name:-default}}, quotes around "
            f"a literal {char}"
        )

    return re.sub(PART, outside, line)


def _line(number: int, words: list[str]) -> Line:
    """The run of a command. Raises ValueError for another command."""
    if re.fullmatch(r"python[\d.]*", Path(words[0]).name):
        for kind in KINDS:
            *options, name = kind.program
            if (
                words[1 : len(options) + 1] == options
                and Path("".join(words[len(options) + 1 : len(options) + 2])).name == name
            ):
                return kind(number, words[len(kind.program) + 1 :])
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
            argv = [*_without(line.argv, "--seed"), "--seed", str(seed)] if seed is not None else list(line.argv)
            argv += options.added
            chosen.setdefault((*line.program, *argv), line._replace(argv=argv))
    return list(chosen.values())


def _without(argv: list[str], flag: str) -> list[str]:
    """The flags without `flag` and its value."""
    places = {place + step for place, word in enumerate(argv) if word == flag for step in (0, 1)}
    return [word for place, word in enumerate(argv) if place not in places and not word.startswith(f"{flag}=")]
