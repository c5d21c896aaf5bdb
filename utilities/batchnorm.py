"""BatchNorm layers of a module: whether they take batch statistics, and their running ones; other buffers."""

import contextlib

import torch
from torch.nn.modules.batchnorm import _BatchNorm


class WholeBatchNorm(torch.nn.BatchNorm1d):
    """BatchNorm of what a loss makes of the whole batch, in the precision of its rows; of one row in training the
    result is its bias.
    """

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Normalised `rows` `(B, F)`."""
        mean = self.running_mean.to(rows)
        variance = self.running_var.to(rows)
        if self.training:
            variance, mean = torch.var_mean(rows, 0, correction=0)
            with torch.no_grad():
                self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
                self.running_var.lerp_(
                    (variance * (len(rows) / max(len(rows) - 1, 1))).to(self.running_var), self.momentum
                )
                self.num_batches_tracked += 1
        return (rows - mean) * torch.rsqrt(variance + self.eps) * self.weight.to(rows) + self.bias.to(rows)


@contextlib.contextmanager
def kept_buffers(module: torch.nn.Module, is_chosen=lambda part: True):
    """Inside, the parts of `module` that `is_chosen` accepts have copies of their buffers; the originals stay."""
    parts = [part for part in module.modules() if is_chosen(part)]
    originals = [dict(part._buffers) for part in parts]
    for part, buffers in zip(parts, originals, strict=True):
        copies = {name: buffer.clone() for name, buffer in buffers.items() if buffer is not None}
        part._buffers.update(copies)
    try:
        yield
    finally:
        for part, buffers in zip(parts, originals, strict=True):
            part._buffers.update(buffers)


def resting_statistics(module: torch.nn.Module):
    """Inside, BatchNorm layers in training mode update copies of their running statistics; the originals stay."""
    return kept_buffers(module, lambda layer: isinstance(layer, _BatchNorm) and layer.training)


def uses_batch_statistics(module: torch.nn.Module) -> bool:
    """Whether a BatchNorm layer of `module` normalises by the statistics
    (training mode) of what may be a part of the batch.
    """
    return any(
        isinstance(layer, _BatchNorm) and layer.training and not isinstance(layer, WholeBatchNorm)
        for layer in module.modules()
    )


def running_statistics(module: torch.nn.Module, like: torch.nn.Module | None = None) -> list[torch.Tensor]:
    """Running means and variances of the BatchNorm layers in training mode. The modes are those of `like`, if `module`
    is a copy of it.
    """
    if like is None:
        like = module
    pairs = zip(module.modules(), like.modules(), strict=True)
    layers = [layer for layer, original in pairs if isinstance(layer, _BatchNorm) and original.training]
    return [value for layer in layers for value in (layer.running_mean, layer.running_var) if value is not None]
