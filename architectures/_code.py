"""The code that defines a network: its modules' sources and its packages' versions, for keys of its features."""

import ast
import importlib.metadata
import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import torch

from utilities.programs import IS_PACKAGE, name_in_clone
from utilities.provenance import sha256

# module that builds the networks of a package -> the package
PACKAGES = {
    "architectures._torchvision": "torchvision",
    "architectures._pretrainedmodels": "pretrainedmodels",
    "architectures._timm": "timm",
}
MISSING = "missing"  # instead of a hash
HELPERS = "utilities"  # of the whole program: they compute no features
INSTALLED = {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
# names of the folders of packages, also where a user or a distribution installs them
PACKAGE_FOLDERS = {"site-packages", "dist-packages"}


def code_of(module: ModuleType) -> dict[str, str]:
    """Name -> SHA-256 of the source of a network's module and of those that it imports from; package -> version.

    Modules of installed packages are not read: their version stands for them. A module whose file was deleted since its
    import has `MISSING`.
    """
    sources = _defining(module)
    packages = ["torch", *(PACKAGES[name] for name in sorted(sources) if name in PACKAGES)]
    if IS_PACKAGE:
        # The modules of an installed dmlkit are not read either: its version stands for them.
        packages.append("dmlkit")
    hashes = {name: sha256(path) or MISSING for name, path in sorted(sources.items())}
    return {**hashes, **{package: _version(package) for package in packages}}


def _defining(module: ModuleType) -> dict[str, Path]:
    """Name -> file of the module and of those that it takes anything from, directly or through others."""
    paths = {}
    waiting = [module]
    while waiting:
        module = waiting.pop()
        path = Path(getattr(module, "__file__", None) or "").resolve()
        is_read = path.suffix == ".py" and not _is_installed(path) and not _is_helper(module)
        if not is_read or module.__name__ in paths:
            continue
        paths[module.__name__] = path
        waiting += filter(None, map(_module_of, list(vars(module).values())))
        waiting += _imported(module, path)
    return paths


def _is_helper(module: ModuleType) -> bool:
    return name_in_clone(module.__name__).partition(".")[0] == HELPERS


def _is_installed(path: Path) -> bool:
    """Whether a file is Python's, or that of an installed package."""
    return not (INSTALLED.isdisjoint(path.parents) and PACKAGE_FOLDERS.isdisjoint(path.parts))


def _imported(module: ModuleType, path: Path) -> list[ModuleType]:
    """The loaded modules that import statements name: numbers and tables do not tell where they are from."""
    try:
        statements = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        # edited or deleted since its import
        return []
    names = []
    for statement in statements:
        if isinstance(statement, ast.Import):
            names += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            relative = "." * statement.level + (statement.module or "")
            parent = importlib.util.resolve_name(relative, module.__package__ or module.__name__)
            for alias in statement.names:
                name = f"{parent}.{alias.name}"
                if name not in sys.modules:
                    name = parent
                names.append(name)
    return [sys.modules[name] for name in names if name in sys.modules]


def _module_of(value) -> ModuleType | None:
    """The module that a value is, or that a class or function is from.

    Packages are left to `_imported`, as they have all of their loaded modules as values.
    """
    if isinstance(value, ModuleType):
        return None if hasattr(value, "__path__") else value
    name = getattr(value, "__module__", None)
    return sys.modules.get(name) if isinstance(name, str) else None


def _version(package: str) -> str:
    if package == "torch":
        return torch.__version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
