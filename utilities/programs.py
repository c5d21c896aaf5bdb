"""How the program is called: `python main.py …` in a clone, `dmlkit …` where it is installed as a package.

The package has the program's folders under its own name, so that `datasets` and `metrics` are no names of other
libraries. Where code needs a module by name or a command, it asks here. All messages are written for a clone;
`as_typed` turns their commands into those of the package.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# "dmlkit." as a package, "" in a clone
PREFIX = __name__.removesuffix("utilities.programs")
IS_PACKAGE = bool(PREFIX)
# as in a clone, in a message -> as a package
COMMANDS = {
    r"torchrun ([^\n`]*?)(?<![\w/.])main\.py": r"torchrun \1-m dmlkit.main",
    r"python main\.py": "dmlkit",
    r"python Result_Evaluations\.py": "dmlkit-results",
    r"python -m evaluation(?![\w.])": "dmlkit-evaluate",
    r"python -m (appraise|launch|search|retrieval)\b": r"dmlkit-\1",
    r"(torchrun [^\n`]*)-m (evaluation|launch|search)\b": r"\1-m dmlkit.\2",
    r"python -m tools\.": "python -m dmlkit.tools.",
    r"python -m (datasets|evaluation)\.": r"python -m dmlkit.\1.",
    r"(?<![\w/.-])main\.py\b": "dmlkit",
    r"(?<![\w/.-])Result_Evaluations\.py\b": "dmlkit-results",
}


def is_command() -> bool:
    """Whether the package runs as one of its own commands, not imported by another program."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return IS_PACKAGE and (
        Path(sys.argv[0]).name.startswith("dmlkit") or (spec is not None and spec.name.startswith(PREFIX))
    )


def module_name(name: str) -> str:
    """The full name of one of the program's modules: `criteria.margin`, or `dmlkit.criteria.margin`."""
    return PREFIX + name


def name_in_clone(module: str) -> str:
    """The name that a module has in a clone: `criteria.margin` of `dmlkit.criteria.margin`."""
    return module.removeprefix(PREFIX)


def as_typed(text: str) -> str:
    """A message with its commands as this installation takes them."""
    if not IS_PACKAGE:
        return text
    for pattern, command in COMMANDS.items():
        text = re.sub(pattern, command, text)
    return text


def program_words(words: tuple[str, ...]) -> list[str]:
    """What Python is called with to run a program, `("main.py",)` or `("-m", "search")`."""
    if words[0] == "-m":
        return ["-m", module_name(words[1])]
    if IS_PACKAGE:
        return ["-m", module_name(words[0].removesuffix(".py"))]
    return [str(ROOT / words[0])]
