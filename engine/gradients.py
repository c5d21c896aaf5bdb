"""The size of the entries of a network's gradient, which the ICML 2020 pipeline logs as `Grad L2` and `Grad Max`."""

import math

import torch


class GradientEntries:
    """`measure()` keeps in `values` the root mean square and largest magnitude of all entries of a network's gradient.

    What that pipeline calls L2 is this root mean square: the norm divided by the root of the number of entries.
    Parameters without a gradient have no part; where none has one, `values` is empty.
    """

    def __init__(self, network: torch.nn.Module):
        self.parameters = list(network.parameters())
        self.values = {}

    def measure(self, norm_of: dict[torch.nn.Parameter, torch.Tensor]) -> None:
        """Take the present gradients, as device scalars `gradient_rms` and `gradient_max`.

        The host does not wait for them.

        Args:
            norm_of: the norm of the gradient of each parameter that the optimiser steps,
            which the step computes anyway.
        """
        gradients = []
        norms = []
        count = 0
        for parameter in self.parameters:
            if parameter in norm_of:
                norms.append(norm_of[parameter])
                if parameter.grad.numel():
                    gradients.append(parameter.grad)
                    count += parameter.grad.numel()
        self.values = {}
        if gradients:
            norm = torch.nn.utils.get_total_norm(norms)
            self.values = {"gradient_rms": norm / math.sqrt(count), "gradient_max": largest_magnitude(gradients)}


def largest_magnitude(tensors: list[torch.Tensor]) -> torch.Tensor:
    """The largest magnitude of the entries of tensors, a scalar on their device; NaN where an entry is NaN."""
    if tensors[0].device.type != "cpu":
        # one kernel for many tensors
        return torch.nn.utils.get_total_norm(tensors, math.inf)
    # On a CPU torch's norm of this order takes nine times as long as a pass over the entries.
    ends = []
    for tensor in tensors:
        ends += tensor.aminmax()
    return torch.stack(ends).abs().max()
