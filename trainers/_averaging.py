"""A moving average of a network's weights, such as a momentum encoder (He et al., MoCo, arXiv 1911.05722)."""

import copy

import torch


class MovingAverage(torch.nn.Module):
    """A copy of `network` that is never trained: after each step its weights move by 1 - `decay` towards the network's.

    Its buffers, such as BatchNorm's running statistics, are its own, as it sees the same images. With `buffers`, for an
    average that sees no images in training, they move like the weights; buffers that are not floating-point are copied.
    """

    def __init__(self, network: torch.nn.Module, decay: float, buffers: bool = False):
        super().__init__()
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.decay = decay
        self.buffers_move = buffers

    @torch.no_grad()
    def update(self, network: torch.nn.Module) -> None:
        """Move the weights towards those of `network`."""
        torch._foreach_lerp_(
            list(self.network.parameters()), [p.detach() for p in network.parameters()], 1 - self.decay
        )
        if not self.buffers_move:
            return
        for ours, theirs in zip(self.network.buffers(), network.buffers(), strict=True):
            if ours.is_floating_point():
                ours.lerp_(theirs, 1 - self.decay)
            else:
                ours.copy_(theirs)

    def forward(self, images: torch.Tensor):
        """The averaged network's outputs for `images`."""
        return self.network(images)
