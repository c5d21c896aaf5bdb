"""The file of runs: plain shell with `name=value` lines, comments, and one `python main.py …` or `python Bayesian_Optimization.py …` a line."""

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

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
        variables: name -> value; these stand above the assignments in the file, the environment below.

    Raises:
        UserError: no such file, or a line that is neither a comment, an assignment nor a run of one of the programs.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: no file of runs ({getattr(error, 'strerror', None) or 'not text'})") from error
    lines, known = [], {**os.environ, **variables}
    number, pending = 0, ""
    for number, part in enumerate(text.splitlines(), start=1):
        if part.endswith("\\"):
            pending += part[:-1] + " "
            continue
        line, pending = pending + part, ""
        words = _words(line, path, number)
        if words[:1] == ["export"]:
            words = words[1:]
        if not words:
            continue
        if all(re.fullmatch(r"[A-Za-z_]\w*=.*", word) for word in words):
            for word in words:
                name, _, value = word.partition("=")
                if name not in variables:
                    known[name] = _expand(value, known, path, number)
        elif len(words) > 1 and re.fullmatch(r"python[\d.]*", Path(words[0]).name) and Path(words[1]).name in KINDS:
            kind = KINDS[Path(words[1]).name]
            lines.append(kind(number, [_expand(word, known, path, number) for word in words[2:]]))
        else:
            programs = " or ".join(f"python {name} …" for name in KINDS)
            raise UserError(f"{path}, line {number}: expected a comment, name=value, {programs}, not {line.strip()[:60]!r}")
    if pending:
        raise UserError(f"{path}, line {number}: the file ends in the middle of a command (a backslash at the end of the line)")
    return lines


def _words(line: str, path: Path, number: int) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise UserError(f"{path}, line {number}: {error}") from error


def _expand(word: str, known: dict[str, str], path: Path, number: int) -> str:
    """The word with `$name`, `${name}` and `${name:-default}` replaced."""

    def value(match) -> str:
        name, default = match["plain"] or match["braced"], match["default"]
        if default is not None and not known.get(name):
            return default
        if name not in known:
            raise UserError(f"{path}, line {number}: ${name} has no value: set it in the file, or --datapath for $datapath")
        return known[name]

    return re.sub(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\})", value, word)


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
