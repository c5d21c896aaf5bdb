"""What every folder may use: registry, errors, files, flags, tensors, tuples, criterion base, runtime, loading. Imports no other folder."""


def __getattr__(name: str):
    if name == "load_run":  # users' name for it; runs/ stands above, so it is looked up when it is asked for
        from runs import load_run

        return load_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
