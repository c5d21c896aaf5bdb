"""The blocks of a backbone in order of depth, for layer-wise learning rates and gradient checkpointing."""

import contextlib
import itertools

import torch
from torch.utils.checkpoint import checkpoint

from utilities.batchnorm import resting_statistics

STAGES = ("layer1", "layer2", "layer3", "layer4")


def of_backbone(backbone: torch.nn.Module) -> list[torch.nn.Module]:
    """Encoder layers of a ViT, residual blocks of a ResNet, else the modules in `features` that have children.

    Empty if there are none. A convolution with its norm, the stem and in some networks the last layer, is no block.
    """
    layers = getattr(getattr(backbone, "encoder", None), "layers", None)
    if isinstance(layers, torch.nn.Sequential):
        return list(layers)
    if all(hasattr(backbone, stage) for stage in STAGES):
        return list(itertools.chain.from_iterable(getattr(backbone, stage).children() for stage in STAGES))
    blocks = []
    for module in _unrolled(getattr(backbone, "features", None)):
        if list(module.children()) and type(module).__name__ != "Conv2dNormActivation":
            blocks.append(module)
    return blocks


def _unrolled(module):
    """The modules of nested Sequentials, in order."""
    if type(module) is torch.nn.Sequential:
        for child in module:
            yield from _unrolled(child)
    elif isinstance(module, torch.nn.Module):
        yield module


def by_depth(backbone: torch.nn.Module, blocks: list[torch.nn.Module]) -> dict[int, list[torch.nn.Parameter]]:
    """Depth, counted from the end -> parameters.

    Depth 0 is behind the last block, 1 the last block, len(blocks) + 1 before the first block. Layers between two
    blocks have the depth of the first of them.
    """
    # id of a parameter -> number of its block
    block_of = {}
    for number, block in enumerate(blocks):
        block_of |= dict.fromkeys(map(id, block.parameters()), number)
    depth = len(blocks) + 1
    parameters = {}
    # Parameters come in the order of registration, so one between two blocks takes the depth of the block before it.
    for parameter in backbone.parameters():
        if id(parameter) in block_of:
            depth = len(blocks) - block_of[id(parameter)]
        elif depth == 1:
            depth = 0
        parameters.setdefault(depth, []).append(parameter)
    return dict(sorted(parameters.items(), reverse=True))


def recomputed(function, module: torch.nn.Module, *args, **kwargs):
    """`function(*args)` of a `module` without keeping its activations: the backward pass recomputes them.

    Random draws are the same in both runs; BatchNorm's running statistics move in the first run only.
    """
    # not `module.training`: in evaluation mode it may hold low-rank updates, or precede trained layers
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    return checkpoint(
        function,
        *args,
        use_reentrant=False,
        context_fn=lambda: (contextlib.nullcontext(), resting_statistics(module)),
        **kwargs,
    )


class Recomputing:
    """A module's `forward` through `recomputed`; an object, so that a deep copy of the module is bound to the copy."""

    def __init__(self, module: torch.nn.Module):
        self.module = module
        self.forward = module.forward

    def __call__(self, *args, **kwargs):
        """The module's own `forward`."""
        return recomputed(self.forward, self.module, *args, **kwargs)
