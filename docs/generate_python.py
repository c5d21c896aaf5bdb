"""Write signatures and docstrings into docs/python.md: `python docs/generate_python.py`.

A test checks that they are current. The page is written by hand but for its blocks, from `<!-- site` to
`<!-- /site -->`. The site shows the directive in the comment, which mkdocstrings fills (docs/site_hooks.py); a reader
of the file sees the text below the comment, which this program writes.
"""

import inspect
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from generate_reference import prose

TARGET = Path(__file__).with_name("python.md")
BLOCK = re.compile(r"<!-- site\n(::: ([\w.]+)\n.*?)-->\n.*?<!-- /site -->", re.DOTALL)
MOST_COLUMNS = 100  # of a signature in one line
MODULES = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")  # before the name of a type


def text() -> str:
    """The whole of docs/python.md, its blocks written anew."""
    return BLOCK.sub(_block, TARGET.read_text(encoding="utf-8"))


def for_site(markdown: str) -> str:
    """The page with its directives in place of the blocks."""
    return BLOCK.sub(lambda match: match[1], markdown)


def _block(match) -> str:
    directive = match[1]
    name = match[2]
    lines = described(name, pkgutil.resolve_name(name))
    return "\n".join([f"<!-- site\n{directive}-->", "", *lines, "<!-- /site -->"])


def described(name: str, documented) -> list[str]:
    """The lines on a function, a class or a module."""
    lines = [f"### `{name}`", ""]
    if not isinstance(documented, ModuleType):
        lines += ["```python", signature(name.rpartition(".")[2], documented), "```", ""]
    lines += prose(inspect.getdoc(documented))
    members = list(_members(documented))
    for member, function in members:
        caption = " ".join(prose(inspect.getdoc(function).partition("\n\n")[0])).strip()
        arguments = "" if isinstance(function, property) else _arguments(function)
        lines.append(f"- `{member}{arguments}`: {caption}")
    return [*lines, ""] if members else lines


def signature(name: str, documented) -> str:
    """`name(arguments) -> type`, in several lines if it is long; of an exception or a protocol its name alone."""
    is_protocol = getattr(documented, "_is_protocol", False)
    if is_protocol or (isinstance(documented, type) and issubclass(documented, BaseException)):
        return name
    spec = inspect.signature(documented)
    line = MODULES.sub("", f"{name}{spec}")
    if len(line) <= MOST_COLUMNS:
        return line
    arguments = str(spec).rpartition(" -> ")
    returned = f" -> {arguments[2]}" if spec.return_annotation is not spec.empty else ""
    return MODULES.sub("", f"{name}(\n{''.join(_lines_of(spec))}){returned}")


def _lines_of(spec: inspect.Signature):
    """A line for each argument, and one with a star before those that are given by name."""
    has_star = False
    for parameter in spec.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            yield "    *,\n"
        has_star = has_star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        yield f"    {parameter},\n"


def _arguments(function) -> str:
    """The arguments of a function or method in brackets, without `self` and types."""
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    return f"({', '.join(names)})"


def _members(documented):
    """(name, function or property) of what is public and documented in a class or a module itself."""
    if not isinstance(documented, type | ModuleType):
        return
    for name, member in vars(documented).items():
        is_own = isinstance(documented, type) or getattr(member, "__module__", None) == documented.__name__
        if isinstance(member, classmethod | staticmethod):
            member = member.__func__
        is_callable = inspect.isfunction(member) or isinstance(member, property)
        if is_callable and is_own and not name.startswith("_") and inspect.getdoc(member):
            yield name, member


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(f"wrote {TARGET}")
