"""Packages that only a part of the program needs, and how to install one that is missing.

The extras are those of pyproject.toml. A clone has all of them, by requirements.txt.
"""

import functools
import importlib.util
import sys

from utilities import programs

DISTRIBUTIONS = {"sklearn": "scikit-learn", "faiss": "faiss-cpu"}  # module -> what pip calls it
EXTRAS = {  # extra -> the modules that it installs
    "export": ("onnx", "onnxscript", "onnxruntime", "huggingface_hub"),
    "timm": ("timm", "safetensors", "pretrainedmodels", "six"),
    "search": ("optuna", "plotly"),
    "online": ("wandb", "tensorboard"),
    "results": ("pandas", "jinja2", "matplotlib", "sklearn", "statsmodels", "faiss"),
    "slurm": ("submitit",),
    "completion": ("shtab",),
}


def way_out(module: str) -> str:
    """How to install the package of a missing module: `pip install 'dmlkit[results]'`."""
    name = module.partition(".")[0]
    for extra, modules in EXTRAS.items():
        if name in modules and programs.IS_PACKAGE:
            return f"pip install 'dmlkit[{extra}]'"
    return f"pip install {DISTRIBUTIONS.get(name, name)}"


@functools.cache
def is_installed(module: str, otherwise: str) -> bool:
    """Whether a package that a run can do without is installed. Prints once in a process what is left out.

    Args:
        otherwise: what happens without it, "no pictures are drawn".
    """
    if importlib.util.find_spec(module) is not None:
        return True
    print(f"note: {otherwise}: the package {module} is missing ({way_out(module)})", file=sys.stderr)
    return False


def missing(error: BaseException) -> str | None:
    """The message for a package of an extra that is missing; None for any other error."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    name = error.name.partition(".")[0]
    if not any(name in modules for modules in EXTRAS.values()):
        return None
    return f"this needs the package {name}, which is missing: {way_out(name)}"
