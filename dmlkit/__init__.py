"""Deep metric learning from Python: `dmlkit.train(data=FOLDER)`, `dmlkit.Run(folder)`, and the program's folders under
one name, `dmlkit.criteria`, `dmlkit.metrics`, …

`pip install` puts these into this package. In a clone they lie beside it, and the names here lead to them. All are
imported when they are first used.
"""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported
import importlib

NAMES = {"train": "training", "Run": "training", "use_plugins": "training"}  # name -> module of this package
ROOMS = (
    *("architectures", "batch_mining", "criteria", "datasampler", "datasets", "engine", "evaluation", "launch"),
    *("metrics", "options", "parameters", "pictures", "results", "retrieval", "runs", "search", "tools", "trainers"),
    "utilities",
)


def __getattr__(name: str):
    if name in NAMES:
        return getattr(importlib.import_module(f"{__name__}.{NAMES[name]}"), name)
    if name == "UserError":
        from utilities.errors import UserError

        return UserError
    if name in ROOMS:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            return importlib.import_module(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
