"""BatchNorm layers of a module: whether they take batch statistics, and their running ones."""

import contextlib

import torch
from torch.nn.modules.batchnorm import _BatchNorm


@contextlib.contextmanager
def resting_statistics(module: torch.nn.Module):
    """Inside, BatchNorm layers in training mode update copies of their running statistics; the originals stay."""
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm) and layer.training]
    kept = [dict(layer._buffers) for layer in layers]
    for layer, buffers in zip(layers, kept, strict=True):
        layer._buffers.update({name: None if buffer is None else buffer.clone() for name, buffer in buffers.items()})
    try:
        yield
    finally:
        for layer, buffers in zip(layers, kept, strict=True):
            layer._buffers.update(buffers)


def uses_batch_statistics(module: torch.nn.Module) -> bool:
    """Whether a BatchNorm layer of `module` normalises by batch statistics (training mode)."""
    return any(isinstance(layer, _BatchNorm) and layer.training for layer in module.modules())


def running_statistics(module: torch.nn.Module, like: torch.nn.Module | None = None) -> list[torch.Tensor]:
    """Running means and variances of the BatchNorm layers in training mode. The modes are those of `like`, if `module` is a copy of it."""
    pairs = zip(module.modules(), module.modules() if like is None else like.modules(), strict=True)
    layers = [layer for layer, its in pairs if isinstance(layer, _BatchNorm) and its.training]
    return [value for layer in layers for value in (layer.running_mean, layer.running_var) if value is not None]
