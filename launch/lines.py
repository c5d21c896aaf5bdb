"""The file of runs: plain shell with `name=value` lines, comments, and one `python main.py …` or `python Bayesian_Optimization.py …` a line."""

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from launch import shell
from utilities.errors import UserError


class Line(NamedTuple):
    """One run of a file: its line number, and the flags of its program, main.py."""

    number: int
    argv: list[str]
    program = "main.py"  # no field: a kind of line has one program

    @property
    def command(self) -> str:
        """The command as a shell takes it."""
        return shlex.join(["python", self.program, *self.argv])


class SearchLine(Line):
    """One search of a file."""

    program = "Bayesian_Optimization.py"


KINDS = {kind.program: kind for kind in (Line, SearchLine)}


def read_lines(path: Path, variables: dict[str, str]) -> list[Line]:
    """The runs of a file.

    Args:
        variables: name -> value; these stand above the assignments in the file, the environment below, and are not split at blanks.

    Raises:
        UserError: no such file, or a line that is neither a comment, an assignment nor a run of one of the programs.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: no file of runs ({getattr(error, 'strerror', None) or 'not text'})") from error
    lines, known = [], {**os.environ, **variables}
    for number, words in shell.Reader(text, str(path)).commands():
        try:
            line = _line(number, words, known, variables)
        except KeyError as error:
            raise UserError(
                f"{path}, line {number}: ${error.args[0]} has no value: set it in the file, or --datapath for $datapath"
            ) from error
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}") from error
        if line is not None:
            lines.append(line)
    return lines


def _line(number: int, words: list[shell.Word], known: dict[str, str], variables: dict[str, str]) -> Line | None:
    """The run of a command; None of one that sets variables, which are then `known`.

    Raises KeyError for a variable that is not known, ValueError for another command.
    """
    exports = words[0] == [shell.Text("export", False)]
    pairs = [shell.assignment(word) for word in words[exports:]]
    if pairs and all(pairs):
        for at_once in [pairs] if exports else [[pair] for pair in pairs]:  # a shell expands all words of `export` before it sets the first
            known |= {name: shell.value(word, known) for name, word in at_once if name not in variables}
        return None
    argv = [field for word in words for field in shell.fields(word, known, set(variables))]
    if len(argv) < 2 or not re.fullmatch(r"python[\d.]*", Path(argv[0]).name) or Path(argv[1]).name not in KINDS:
        programs = " or ".join(f"python {name} …" for name in KINDS)
        raise ValueError(f"expected a comment, name=value, {programs}, not {' '.join(argv)[:60]!r}")
    return KINDS[Path(argv[1]).name](number, argv[2:])


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
            chosen.setdefault((line.program, *argv), line._replace(argv=argv))
    return list(chosen.values())


def _without(argv: list[str], flag: str) -> list[str]:
    """The flags without `flag` and its value."""
    places = {place + step for place, word in enumerate(argv) if word == flag for step in (0, 1)}
    return [word for place, word in enumerate(argv) if place not in places and not word.startswith(f"{flag}=")]
