"""A moving average of a network's weights, as key encoders are (He et al., MoCo, arXiv 1911.05722)."""

import copy

import torch


class MovingAverage(torch.nn.Module):
    """A copy of `network` that is never trained: after each step its weights move by 1 - `decay` towards the network's.

    What is no weight, such as BatchNorm's running statistics, is its own: it sees the same images.
    """

    def __init__(self, network: torch.nn.Module, decay: float):
        super().__init__()
        self.network, self.decay = copy.deepcopy(network).requires_grad_(False), decay

    @torch.no_grad()
    def update(self, network: torch.nn.Module) -> None:
        """Move towards `network`."""
        torch._foreach_lerp_(list(self.network.parameters()), [p.detach() for p in network.parameters()], 1 - self.decay)

    def forward(self, images: torch.Tensor):
        """What the averaged network makes of `images`."""
        return self.network(images)
