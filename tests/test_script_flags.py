"""The scripts' own flags: every number has a range, and what is out of it, or no text, is one line and status 2."""

import argparse
import importlib
import math
import re
import runpy
import signal
import sys
from pathlib import Path

import pytest
import torch

from tests.test_ranges import as_list
from utilities.numbers import LARGEST, MOST_64, Range

ROOT = Path(__file__).resolve().parent.parent
BAD = ["nan", "inf", "-inf", "-1", "0", "1e308", str(10**30), "x", ""]
FOLDERS = ("", "benchmarks", "docs", "experiments/objects", "experiments/study", "toy_experiments", "launch", "search")
# a script's own parser, or that of its room
PARSES = re.compile(r"Parser\(|from results\.flags import")
SCRIPTS = [
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in sorted((ROOT / folder).glob("*.py"))
    if "__main__" in (text := path.read_text(encoding="utf-8")) and PARSES.search(text)
]
TOOLS = [
    path.stem for path in sorted((ROOT / "tools").glob("*.py")) if "def parser(" in path.read_text(encoding="utf-8")
]


class Parsing(Exception):
    """A script has declared its flags and is about to read them: `args[0]` is its parser."""


@pytest.fixture(scope="module")
def parsers():
    """Script -> its parser, taken from it as it runs; of a program of tools/ what its `parser` returns."""
    parsers_by_script = {f"tools/{name}.py": importlib.import_module(f"tools.{name}").parser() for name in TOOLS}
    threads = torch.get_num_threads()
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def stop(parser, *_):
        raise Parsing(parser)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("parse_args", "parse_known_args"):
            patch.setattr(argparse.ArgumentParser, name, stop)
        patch.setattr(sys, "argv", ["script", "--x", "1"])
        # One of the scripts imports another
        patch.setattr(sys, "path", [*sys.path, str(ROOT / "benchmarks")])
        for script in SCRIPTS:
            with pytest.raises(Parsing) as parsing:
                runpy.run_path(str(ROOT / script), run_name="__main__")
            parsers_by_script[script] = parsing.value.args[0]
    torch.set_num_threads(threads)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return parsers_by_script


def parsed(parser, capsys, *words):
    """The flags of a command line, or None where the script ends with status 2 and one line."""
    flag = words[0].partition("=")[0]
    needed = ["x" for action in parser._positionals._group_actions if action.nargs in (None, "+")]
    for action in parser._optionals._group_actions:
        if action.required and action.option_strings[-1] != flag:
            needed += [action.option_strings[-1], "x"]
    parser.exits = True
    try:
        return parser.parse_args([*needed, *words])
    except SystemExit as stop:
        message = capsys.readouterr().err
        assert stop.code == 2 and message.count("\n") == 1 and flag in message, (words, message)
        message.encode()
        return None


def test_numbers_and_texts_of_every_script_are_taken_or_refused_in_one_line(parsers, capsys):
    assert {"launch/__main__.py", "search/__main__.py", "Result_Evaluations.py"} < set(SCRIPTS)
    assert {"measure", "models", "overlap", "pairs"} < set(TOOLS)
    assert {"toy_experiments/diagonal_lines.py", "benchmarks/metrics.py"} < set(SCRIPTS) and "main.py" not in SCRIPTS
    for script, parser in parsers.items():
        for action in parser._actions:
            flag = f"--{action.dest}"
            if action in parser._optionals._group_actions and action.nargs != 0 and action.type in (None, Path):
                words = [flag, *["a\ud800"] * (action.nargs if isinstance(action.nargs, int) else 1)]
                assert parsed(parser, capsys, *words) is None, (script, "half a character", words)
            assert action.type not in (int, float), f"{script} {flag}: declare its range, by utilities.numbers"
            if not isinstance(action.type, Range):
                continue
            refused = 0
            bound = MOST_64 if action.type.kind is int else LARGEST
            for text in BAD:
                options = parsed(parser, capsys, f"{flag}={text}")
                refused += options is None
                for item in as_list(vars(options or argparse.Namespace()).get(action.dest)):
                    assert item is None or (math.isfinite(item) and abs(item) <= bound), (script, flag, text, item)
            # all but -1, 0 and for a number without a bound 1e308
            assert refused >= 6, (script, flag)
            for value in as_list(action.default):
                assert value is None or action.type.check(value) is None
