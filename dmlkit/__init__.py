"""Deep metric learning from Python: `dmlkit.train(data=FOLDER)`, `dmlkit.Run(folder)`, and the program's folders under
one name, `dmlkit.criteria`, `dmlkit.metrics`, …

`pip install` puts these into this package. In a clone they lie beside it, and the names here lead to them. All are
imported when they are first used.
"""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported
import importlib

from utilities import imports

OF_TRAINING = ("Run", "train", "use_plugins")


def __getattr__(name: str):
    if name in OF_TRAINING:
        return getattr(importlib.import_module(f"{__name__}.training"), name)
    if name == "UserError":
        from utilities.errors import UserError

        return UserError
    if name in imports.NAMES:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            return importlib.import_module(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
