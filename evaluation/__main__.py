"""`python -m evaluation …`: the programs of tools/, under the names that users know.

`python -m evaluation FILE …` is `tools/measure.py`; `python -m evaluation models …` and the other names of
`tools.COMMANDS` are the modules of these names. `python -m evaluation.overlap`, `.oodml` and `.pseudo_labels` call
`run`. No other file of the lower folders looks up to tools/.
"""

import importlib
import sys

from engine.ranks import one_run
from tools import COMMANDS
from utilities.programs import module_name

PROGRAM = "python -m evaluation"


def program(name: str):
    """The module of a program of tools/; imported where it is needed, as some take a second."""
    return importlib.import_module(module_name(f"tools.{name}"))


def main(argv: list[str] | None = None):
    """Run the program that the first word names, else measure the file that it names.
    Returns what the program returns.
    """
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] and argv[0] in COMMANDS:
        return program(argv[0]).main(argv[1:])
    return program("measure").main(argv)


def run(name: str) -> None:
    """Run a program of tools/ that has a command of its own."""
    module = program(name)
    with one_run(module.PROGRAM):
        module.main()


if __name__ == "__main__":
    with one_run(PROGRAM):
        main()
