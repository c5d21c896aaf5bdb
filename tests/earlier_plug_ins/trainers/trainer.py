"""A classifier on the embedding beside the criterion; in the first epochs it trains alone."""

import torch
from torch.nn.functional import cross_entropy

from trainers import Base
from utilities.numbers import WIDEST, whole


def add_arguments(group) -> None:
    """Declare the flags."""
    group.add_argument(
        "--mine_hidden", type=whole(1, WIDEST), default=32, help="units of the classifier's hidden layer"
    )
    group.add_argument("--mine_head_epochs", type=whole(0), default=1, help="epochs in which the network rests")


class Trainer(Base):
    """metric_loss = the criterion on the batch; head_loss = cross-entropy of a classifier on the embeddings."""

    WEIGHTS = {"head_loss": 0.5}  # --loss_weights head_loss=.1 says otherwise

    def __init__(self, opt, network, criterion):
        super().__init__(opt, network, criterion)
        layers = [
            torch.nn.LazyLinear(opt.mine_hidden),
            torch.nn.ReLU(),
            torch.nn.Linear(opt.mine_hidden, opt.n_classes),
        ]
        self.head = torch.nn.Sequential(*layers)
        self.head(torch.zeros(1, network.embed_dim))  # gives the first layer its size
        self.head_epochs = opt.mine_head_epochs

    def outputs(self, images: torch.Tensor) -> dict:
        """`embeddings` (B, D) and `logits` (B, C) of `images` (B, 3, H, W)."""
        outputs = super().outputs(images)
        return {**outputs, "logits": self.head(outputs["embeddings"])}

    def losses(self, outputs: dict, batch) -> dict:
        """Two scalars, and those that flags add: a memory's, a regulariser's."""
        return {**super().losses(outputs, batch), "head_loss": cross_entropy(outputs["logits"], batch.labels)}

    def start_epoch(self, epoch: int) -> None:
        """A network that rests needs no gradient, and the optimiser leaves it as it is."""
        self.network.requires_grad_(epoch > self.head_epochs)
