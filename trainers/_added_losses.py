"""A loss that flags add to the criterion's in any trainer that calls the base's `losses`."""

import torch


class AddedLoss(torch.nn.Module):
    """Base of memory and regularisers. `--loss_weights NAME=W` weighs the loss in the step's sum.

    Attributes:
        NAME: the loss's name. FLAG: the flag that turns it on.
        used: whether a trainer has requested the loss.
    """

    NAME = ""
    FLAG = ""

    def __init__(self):
        super().__init__()
        self.used = False

    def outputs(self, images: torch.Tensor, named) -> dict:
        """Outputs for each image that it needs beside the trainer's own; `named`: the trainer's `Trainer.named`."""
        return {}

    def without_noise(self, outputs: dict, batch) -> tuple[dict, object]:
        """Outputs and batch of the images that all losses of the step see, called before any of them; here all."""
        return outputs, batch

    def loss(self, trainer, outputs: dict, batch) -> torch.Tensor | None:
        """The loss, a scalar; None while there is none.

        `outputs` and `batch`: as those of `trainers._trainer.Trainer.losses`.
        """
        raise NotImplementedError

    def after_step(self, network: torch.nn.Module) -> None:
        """Called after each optimiser step."""
