"""A moving average of a network's weights, as key encoders are (He et al., MoCo, arXiv 1911.05722)."""

import copy

import torch


class MovingAverage(torch.nn.Module):
    """A copy of `network` that is never trained: after each step its weights move by 1 - `decay` towards the network's.

    What is no weight, such as BatchNorm's running statistics, is its own: it sees the same images. With `buffers`, for an average that
    sees none in training, it moves as the weights do, and what is no floating-point number is copied.
    """

    def __init__(self, network: torch.nn.Module, decay: float, buffers: bool = False):
        super().__init__()
        self.network, self.decay, self.buffers_move = copy.deepcopy(network).requires_grad_(False), decay, buffers

    @torch.no_grad()
    def update(self, network: torch.nn.Module) -> None:
        """Move towards `network`."""
        torch._foreach_lerp_(list(self.network.parameters()), [p.detach() for p in network.parameters()], 1 - self.decay)
        for ours, theirs in zip(self.network.buffers(), network.buffers(), strict=True) if self.buffers_move else ():
            if ours.is_floating_point():
                ours.lerp_(theirs, 1 - self.decay)
            else:
                ours.copy_(theirs)

    def forward(self, images: torch.Tensor):
        """What the averaged network makes of `images`."""
        return self.network(images)
