"""What of a network rests for a while."""

import torch

from utilities.errors import UserError


class RestingBackbone:
    """In the first epochs the network's `backbone` rests: it gets no gradients and is in evaluation mode, its statistics and dropout too.

    Args:
        network: has a `backbone` where `epochs` is not 0.
        epochs: how many.

    Raises UserError where there is no backbone, or nothing but it.
    """

    def __init__(self, network: torch.nn.Module, epochs: int):
        self.backbone, self.epochs, self.resting = getattr(network, "backbone", None), epochs, []
        if epochs and self.backbone is None:
            raise UserError(f"--warmup_head_epochs {epochs}: the network does not say what its backbone is (attribute `backbone`)")
        if epochs and not set(network.parameters()) - set(self.backbone.parameters()):
            raise UserError(
                f"--warmup_head_epochs {epochs}: --embed_dim 0 leaves no layers behind the backbone that could train without it"
            )

    def end(self) -> None:
        """Wake what rested."""
        for parameter in self.resting:
            parameter.requires_grad_(True)
        self.resting = []

    def begin(self, epoch: int) -> None:
        """Let it rest, where `epoch`, counted from 1, is one of the first."""
        if epoch <= self.epochs:
            self.resting = [parameter for parameter in self.backbone.parameters() if parameter.requires_grad]
            for parameter in self.resting:
                parameter.requires_grad_(False)
            self.backbone.eval()
