"""torchvision without torch's compiler: 170 MB and two seconds less.

torchvision imports the compiler to ask whether it is supported, and to mark one function as not to be compiled. Search compiles nothing,
so the function gives the same without the mark.
"""

import importlib
import sys
import types

import torch

COMPILER = "torch._dynamo.utils"


def import_torchvision() -> None:
    """Import torchvision and its transforms; the compiler is imported on first use. Does nothing where either is imported already."""
    if "torchvision" in sys.modules or COMPILER in sys.modules:
        return
    stand_in = types.ModuleType(COMPILER)
    stand_in.is_compile_supported = _is_compile_supported
    stand_in.__getattr__ = _of_the_compiler
    disable, torch.compiler.disable = torch.compiler.disable, _unmarked
    sys.modules[COMPILER] = stand_in
    try:
        importlib.import_module("torchvision.transforms.v2")
    finally:
        torch.compiler.disable = disable
        if sys.modules.get(COMPILER) is stand_in:
            del sys.modules[COMPILER]


def _unmarked(function=None, *_, **__):
    """Replaces the decorator `torch.compiler.disable`, with and without arguments."""
    return (lambda decorated: decorated) if function is None else function


def _compiler():
    return importlib.import_module("torch._dynamo.utils")


def _is_compile_supported(device_type):
    return _compiler().is_compile_supported(device_type)


def _of_the_compiler(name: str):
    """Any other attribute that a version of torchvision asks for: imports the real compiler."""
    if name.startswith("__"):  # the import system asks for these
        raise AttributeError(name)
    sys.modules.pop(COMPILER, None)
    return getattr(_compiler(), name)
