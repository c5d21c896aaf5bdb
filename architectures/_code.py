"""The code that defines a network: its modules' sources and its packages' versions, for keys of its features."""

import importlib.metadata
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import torch

from utilities.provenance import sha256

PACKAGES = {  # module that builds the networks of a package -> the package
    "architectures._torchvision": "torchvision", "architectures._pretrainedmodels": "pretrainedmodels",
    "architectures._timm": "timm",
}  # fmt: skip
MISSING = "missing"  # instead of a hash
HELPERS = "utilities"  # of the whole program: they compute no features
INSTALLED = tuple(
    {str(Path(sysconfig.get_path(kind)).resolve()) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def code_of(module: ModuleType) -> dict[str, str]:
    """Name -> SHA-256 of the source of a network's module and of those that it imports from; package -> version.

    Modules of installed packages are not read: their version stands for them. A module whose file was deleted since its
    import has `MISSING`.
    """
    sources = _defining(module)
    packages = ["torch", *(PACKAGES[name] for name in sorted(sources) if name in PACKAGES)]
    hashes = {name: sha256(path) or MISSING for name, path in sorted(sources.items())}
    return {**hashes, **{package: _version(package) for package in packages}}


def _defining(module: ModuleType) -> dict[str, Path]:
    """Name -> file of the module and of those that it takes anything from, directly or through others."""
    found, waiting = {}, [module]
    while waiting:
        module = waiting.pop()
        path = Path(getattr(module, "__file__", None) or "").resolve()
        is_ours = (
            path.suffix == ".py"
            and not str(path).startswith(INSTALLED)
            and module.__name__.partition(".")[0] != HELPERS
        )
        if not is_ours or module.__name__ in found:
            continue
        found[module.__name__] = path
        waiting += filter(None, map(_module_of, list(vars(module).values())))
    return found


def _module_of(value) -> ModuleType | None:
    """The module that a value is, or that a class or function is from."""
    if isinstance(value, ModuleType):
        return value
    name = getattr(value, "__module__", None)
    return sys.modules.get(name) if isinstance(name, str) else None


def _version(package: str) -> str:
    if package == "torch":
        return torch.__version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
