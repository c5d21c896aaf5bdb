"""What every folder may use: registry, errors, files, numbers, tensors, tuples, the criteria's base.
Imports no other folder.
"""


def __getattr__(name: str):
    # users import it from here; runs/ imports utilities/, so it is imported on demand
    if name == "load_run":
        from runs import load_run

        return load_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
