"""The blocks of a backbone, in the order of their depth: rates that fall with depth, activations that are computed again."""

import contextlib

import torch
from torch.utils.checkpoint import checkpoint

from utilities.chunks import drawn_alike, resting_statistics

STAGES = ("layer1", "layer2", "layer3", "layer4")


def of_backbone(backbone: torch.nn.Module) -> list[torch.nn.Module]:
    """Encoder layers of a ViT, residual blocks of a ResNet, else the modules with children in `features`; empty where there are none."""
    layers = getattr(getattr(backbone, "encoder", None), "layers", None)
    if isinstance(layers, torch.nn.Sequential):
        return list(layers)
    if all(hasattr(backbone, stage) for stage in STAGES):
        return [block for stage in STAGES for block in getattr(backbone, stage).children()]
    return [block for block in _unrolled(getattr(backbone, "features", None)) if any(True for _ in block.children())]


def _unrolled(module):
    """The modules of nested Sequentials, one after the other."""
    if type(module) is torch.nn.Sequential:
        for child in module:
            yield from _unrolled(child)
    elif isinstance(module, torch.nn.Module):
        yield module


def by_depth(backbone: torch.nn.Module, blocks: list[torch.nn.Module]) -> dict[int, list[torch.nn.Parameter]]:
    """Depth, counted from the end, -> parameters: 0 behind the last block, 1 the last block, len(blocks) + 1 what lies before the first.

    What lies between two blocks is as deep as the first of them.
    """
    block_of = {id(parameter): number for number, block in enumerate(blocks) for parameter in block.parameters()}
    depth, found = len(blocks) + 1, {}
    for parameter in backbone.parameters():  # in the order of registration
        if id(parameter) in block_of:
            depth = len(blocks) - block_of[id(parameter)]
        elif depth == 1:
            depth = 0
        found.setdefault(depth, []).append(parameter)
    return dict(sorted(found.items(), reverse=True))


def recomputed(function, module: torch.nn.Module, *args, **kwargs):
    """`function(*args)` of a `module` whose activations are not kept: in the backward pass they are computed again, as they were.

    Random draws are the same; BatchNorm's running statistics move in the first run alone.
    """
    if not torch.is_grad_enabled():  # a module in evaluation mode may hold low-rank updates, or stand before what trains
        return function(*args, **kwargs)
    alike = drawn_alike()
    return checkpoint(
        function, *args, use_reentrant=False, context_fn=lambda: (contextlib.nullcontext(), _second_run(module, alike)), **kwargs
    )


@contextlib.contextmanager
def _second_run(module: torch.nn.Module, alike):
    with resting_statistics(module), alike():
        yield


class Recomputing:
    """A module's `forward` through `recomputed`; copied with its module."""

    def __init__(self, module: torch.nn.Module):
        self.module, self.forward = module, module.forward

    def __call__(self, *args, **kwargs):
        """As the module's own."""
        return recomputed(self.forward, self.module, *args, **kwargs)
