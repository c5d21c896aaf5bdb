"""Deep metric learning: the program's folders under one name, `dmlkit.criteria`, `dmlkit.metrics`, …

`pip install` puts them into this package. In a clone they lie beside it, and the names here lead to them.
"""

import importlib

ROOMS = (
    *("architectures", "batch_mining", "criteria", "datasampler", "datasets", "engine", "evaluation", "launch"),
    *("metrics", "options", "parameters", "pictures", "results", "retrieval", "runs", "search", "tools", "trainers"),
    "utilities",
)


def __getattr__(name: str):
    if name in ROOMS:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            return importlib.import_module(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
