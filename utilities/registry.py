"""One registry class for every plug-in folder: the file name is the name on the command line.

A plug-in is a file of the folder whose name does not start with `_`. Its docstring's first paragraph is its caption,
its optional table `FLAGS` holds its own flags (`options.flags`), and its optional `derived(opt)` returns flag ->
value for those of them whose default depends on other flags. Constants in capitals say what it needs; one that the file
leaves out has the default that the folder's `__init__.py` gives.

A plug-in that cannot be imported, such as a user's unfinished file,
is left out with a printed line, and stops only who names it.
"""

import argparse
import ast
import copy
import difflib
import functools
import importlib
import importlib.util
import itertools
import sys
import traceback
from pathlib import Path

from options.flags import migration, plug_ins, roles, rules
from options.flags import shared as shared_flags
from utilities import plug_in_folders
from utilities.errors import UnknownName, UserError
from utilities.numbers import OutOfRange, Range
from utilities.programs import module_name

# folder -> the class that a plug-in must have
CLASSES = {
    "architectures": "Network",
    "batch_mining": "BatchMiner",
    "criteria": "Criterion",
    "datasampler": "Sampler",
    "metrics": "Metric",
    "trainers": "Trainer",
}


def unknown(kind: str, name: str, available) -> UnknownName:
    """The error for a name that does not exist: the name, the nearest match, what is available."""
    available = sorted(available)
    answer = None
    if kind in migration.FLAGS:
        answer = migration.answer_to_class(name, migration.FLAGS[kind], available)
    elif kind == "metric":
        answer = migration.answer(name)
    if answer is not None:
        return UnknownName(f"unknown {kind} {name!r}. Here: {answer}")
    return UnknownName(f"unknown {kind} {name!r}.{did_you_mean(name, available)} Available: {', '.join(available)}.")


def did_you_mean(name: str, available) -> str:
    """` Did you mean 'margin'?` of the nearest name, empty where none is near."""
    nearest = difflib.get_close_matches(str(name), available, n=1)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""


class Registry:
    """The plug-ins of one folder.

    Args:
        package: the folder, `"criteria"`.
        kind: what messages call a plug-in, `"loss"`.
        role: the role of the plug-ins' flags.
        constants: name -> value of a plug-in's constant where its file leaves it out.
    """

    def __init__(self, package: str, kind: str, role: roles.Role = roles.METHOD, constants: dict | None = None):
        self.package = package
        self.kind = kind
        self.role = role
        self.constants = constants or {}
        plug_in_folders.extend(package)

    @property
    def folder(self) -> Path:
        """Where the program's own plug-ins lie."""
        return Path(importlib.import_module(module_name(self.package)).__file__).parent

    @property
    def files(self) -> dict[str, Path]:
        """Name -> file, of the plug-ins and of the helpers (`_*.py`) in the folder and in those of users."""
        paths = {}
        for folder in reversed(importlib.import_module(module_name(self.package)).__path__):
            paths |= {path.stem: path for path in Path(folder).glob("*.py")}
        return paths

    def names(self) -> list[str]:
        """The plug-ins' names, sorted."""
        return sorted(name for name in self.files if not name.startswith("_"))

    def resolve(self, name: str) -> str:
        """The plug-in that `name` means: itself, a class (`ArcFaceLoss`), another case (`CUB200`); `name` for none."""
        names = self.names()
        if name in names:
            return name
        return migration.plug_in(name, migration.FLAGS[self.kind], names) or name

    def caption(self, name: str) -> str:
        """First paragraph of the plug-in's docstring, in one line, read without importing it.

        Of a file that is no Python: that it cannot be imported.
        """
        try:
            docstring = ast.get_docstring(ast.parse(self.files[name].read_bytes()))
        except (SyntaxError, ValueError):
            return "cannot be imported"
        return " ".join((docstring or "").partition("\n\n")[0].split())

    def module(self, name: str):
        """The plug-in's module.

        Raises UnknownName for a name that the folder does not hold, UserError where it cannot be imported.
        """
        if name not in (available := self.names()):
            raise unknown(self.kind, name, available)
        return self._import(name)

    def modules(self) -> dict:
        """Name -> module, of all plug-ins but those that cannot be imported, of which a line is printed."""
        return self._importable(self.names())

    def _importable(self, names: list[str]) -> dict:
        modules = {}
        for name in names:
            try:
                modules[name] = self._complete(name, self._import(name))
            except UserError as error:
                self._leave_out(name, error)
        return modules

    def _leave_out(self, name: str, error: UserError) -> None:
        # where the command line names the plug-in, the error itself ends the program
        if not self._is_named(name):
            _say_once(f"{error}: it is left out")

    def _is_named(self, name: str) -> bool:
        """Whether the command line gives `name` to the flag that names this kind of plug-in."""
        words = sys.argv[1:]
        flag = f"--{migration.FLAGS.get(self.kind, self.kind)}"
        return f"{flag}={name}" in words or (flag, name) in itertools.pairwise(words)

    def _import(self, name: str):
        """The module of a file of the folder.

        Raises UserError, of one line, where it cannot be imported; a file is tried once for each state.
        """
        full_name = module_name(f"{self.package}.{name}")
        if full_name not in sys.modules:
            path = Path(importlib.util.find_spec(full_name).origin)
            if _state(path) in _FAILED:
                raise UserError(_FAILED[_state(path)])
            try:
                importlib.import_module(full_name)
            except (Exception, SystemExit) as error:
                raise self._failure(name, path, f"cannot be imported: {_cause(error, path)}") from error
        module = sys.modules[full_name]
        for constant, default in self.constants.items():
            vars(module).setdefault(constant, default)
        return module

    def _failure(self, name: str, path: Path, problem: str) -> UserError:
        """The error of one line for a file that cannot be used, also when it is requested again."""
        _FAILED[_state(path)] = f"{self.package}/{name}.py {problem}"
        sys.modules.pop(module_name(f"{self.package}.{name}"), None)
        return UserError(_FAILED[_state(path)])

    def _complete(self, name: str, module):
        """A plug-in's module. Raises UserError where the file lacks the class that makes it one."""
        required = CLASSES.get(self.package)
        if required is None or name.startswith("_") or hasattr(module, required):
            return module
        raise self._failure(name, Path(module.__file__), f"has no class {required}")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Let every plug-in declare its flags in a group of its own; first the helpers (`_*.py`), whose flags several
        of them read.
        """
        helpers = self._helpers()
        for name, module in self._importable([*helpers, *self.names()]).items():
            if hasattr(module, "FLAGS") or hasattr(module, "add_arguments"):
                title = self.package if name in helpers else f"{self.kind} {name}"
                self._declare(name, module, roles.group(parser, title, self.role))

    def _declare(self, name: str, module, group) -> None:
        """Let a plug-in declare its flags. One whose flags cannot be declared is left out, as one that cannot be
        imported.
        """
        try:
            plug_ins.declare(module, group)
        except Exception as error:
            path = Path(module.__file__)
            self._leave_out(name, self._failure(name, path, f"cannot declare its flags: {_cause(error, path)}"))

    def flags(self, name: str | None = None) -> set[str]:
        """The names of the flags that the plug-in `name` declares; without a name, those of the whole folder.

        Of one that cannot be imported: none.
        """
        parser = argparse.ArgumentParser(add_help=False)
        if name is None:
            self.add_arguments(parser)
        elif name not in self.names():
            self.module(name)
        else:
            for module in self._importable([name]).values():
                self._declare(name, module, parser)
        return set(vars(parser.parse_args([])))

    def derived(self, name: str, opt) -> dict:
        """Flag -> value of the flags whose default depends on other flags:
        of the plug-in `name` and of the folder's helpers.
        """
        modules = self._importable(self._helpers()).values()
        if name in self.names():
            modules = [*modules, self.module(name)]
        values = {}
        for module in modules:
            if hasattr(module, "derived"):
                values |= module.derived(opt)
        return values

    def _helpers(self) -> list[str]:
        return sorted(name for name in self.files if name.startswith("_") and not name.startswith("__"))

    def options(self, opt=None, plug_in: str | None = None, **flags) -> argparse.Namespace:
        """The namespace that the plug-in `plug_in` reads: declared defaults, over them `opt`, over them `flags`.

        Another program, which has no command line, can thus say `select("triplet", loss_triplet_margin=.1)`. The
        options of `parameters.read` are complete. Raises UserError for an undeclared flag, for a value that is not
        among its flag's choices or out of its range, and for `flags` that break a rule of `options.flags.rules`.
        """
        if hasattr(opt, "roles") and not flags:
            return opt
        if opt is None:
            opt = argparse.Namespace()
        actions = _declared(self.package, self.kind, tuple(self.names()))
        complete = _completed(opt, {action.dest: action.default for action in actions}, flags)
        for action in actions:
            _refuse_value(action, getattr(complete, action.dest))
        if flags:
            rules.refuse(actions, complete, typed=rules.changed(actions, complete) & flags.keys())
        if plug_in is None:
            return complete
        derived_values = self.derived(plug_in, complete)
        unset = {flag: value for flag, value in derived_values.items() if getattr(complete, flag) is None}
        if not unset:
            return complete
        return argparse.Namespace(**{**vars(complete), **unset})


_FAILED = {}  # (path, time of its last change) -> the line of a file that could not be imported or declared
_SAID = set()


def _state(path: Path) -> tuple[str, int]:
    return str(path), path.stat().st_mtime_ns


def _say_once(line: str) -> None:
    """Print a line to the error stream, once in a process."""
    if line not in _SAID:
        _SAID.add(line)
        print(f"note: {line}", file=sys.stderr)


def _cause(error: BaseException, path: Path) -> str:
    """Kind and first line of an error, with the last line of `path` that it passed."""
    text = str(error).strip().partition("\n")[0]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"line {error.lineno}: SyntaxError: {error.msg}"
    cause = type(error).__name__
    if text:
        cause += f": {text}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if lines:
        cause = f"line {lines[-1]}: {cause}"
    return cause


def _completed(opt, defaults: dict, flags: dict) -> argparse.Namespace:
    """The options with `flags`, and with defaults in place of what they lack. Raises UserError for an unknown flag."""
    known_flags = {*defaults, *shared_flags.DERIVED, *vars(opt)}
    for flag in flags:
        if flag not in known_flags:
            raise UserError(f"unknown flag {flag!r}.{did_you_mean(flag, known_flags)}")
    if not flags and defaults.keys() <= vars(opt).keys():
        return opt
    complete = copy.copy(opt)
    vars(complete).update({**defaults, **vars(opt), **flags})
    return complete


def _refuse_value(action: argparse.Action, value) -> None:
    """Raise UserError for a value that is neither the flag's default nor allowed by its choices and range."""
    if value == action.default:
        return
    if action.choices is not None and action.nargs is None and value not in action.choices:
        raise UserError(f"{action.dest} {value!r}: one of {', '.join(map(str, action.choices))}")
    if value is None or not isinstance(action.type, Range):
        return
    numbers = value if isinstance(value, list | tuple) else [value]
    for number in numbers:
        try:
            action.type.check(number)
        except OutOfRange as error:
            raise UserError(f"--{action.dest} {number!r} {error}") from None


@functools.lru_cache(maxsize=32)
def _declared(package: str, kind: str, names: tuple[str, ...]) -> tuple[argparse.Action, ...]:
    """The shared flags and those of one folder's plug-ins.

    `names` is part of the cache's key, so that a new file is seen.
    """
    parser = argparse.ArgumentParser(add_help=False)
    shared_flags.add_arguments(parser)
    Registry(package, kind).add_arguments(parser)
    return tuple(parser._actions)
