"""Deep metric learning from Python: `dmlkit.train(data=FOLDER)`, `dmlkit.Run(folder)`, and the program's folders under
one name, `dmlkit.criteria`, `dmlkit.metrics`, …

`pip install` puts these into this package. In a clone they lie beside it, and the names here lead to them. All are
imported when they are first used. Type checkers and editors see them in `__init__.pyi`, which packing/backend.py
writes.
"""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported
import importlib

from utilities.imports import PUBLIC, ROOMS
from utilities.programs import IS_PACKAGE, ROOT


def __getattr__(name: str):
    if name == "__version__":
        return _version()
    if name in PUBLIC:
        return getattr(_module(PUBLIC[name]), name)
    if name in ROOMS:
        return _module(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    described = [name for name in globals() if name.startswith("__")]
    return sorted({*described, *PUBLIC, *ROOMS, "__version__"})


def _module(name: str):
    """A module of the package; in a clone it may be one that lies beside this folder."""
    full_name = f"{__name__}.{name}"
    try:
        return importlib.import_module(full_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{full_name}.".startswith(f"{error.name}."):
            raise
        return importlib.import_module(name)


def _version() -> str:
    """The version of the installed package, or of the clone."""
    if IS_PACKAGE:
        from importlib import metadata

        return metadata.version(__name__)
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
