"""The size of the entries of a network's gradient, which the ICML 2020 pipeline logs as `Grad L2` and `Grad Max`."""

import math

import torch


class GradientEntries:
    """`measure()` keeps in `values` the root mean square and the largest magnitude of all entries of a network's gradient.

    What that pipeline calls L2 is this root mean square: the norm divided by the root of the number of entries. Parameters
    without a gradient have no part; where none has one, `values` is empty.
    """

    def __init__(self, network: torch.nn.Module):
        self.network, self.values = network, {}

    def measure(self) -> None:
        """Take the present gradients, as device scalars `gradient_rms` and `gradient_max`."""
        gradients = [parameter.grad for parameter in self.network.parameters() if parameter.grad is not None]
        self.values = {}
        if gradients:
            count = sum(gradient.numel() for gradient in gradients)
            norm, largest = (torch.nn.utils.get_total_norm(gradients, norm_type) for norm_type in (2.0, math.inf))
            self.values = {"gradient_rms": norm / math.sqrt(count), "gradient_max": largest}
