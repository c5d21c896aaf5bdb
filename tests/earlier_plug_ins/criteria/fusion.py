"""Triplet and softmax together: a fusion of two criteria."""

import torch

import criteria
from utilities.criterion import MetricCriterion
from utilities.numbers import number

REQUIRES_BATCHMINER = True  # handed to __init__; False: Criterion(opt)
REQUIRES_OPTIM = True  # it has parameters
ALLOWED_MINING_OPS = None  # None: any miner of triplets or pairs; or a list of names


def add_arguments(group) -> None:
    """Declare the flags, each with the prefix --loss_mine_."""
    group.add_argument("--loss_mine_weight", type=number(least=0), default=0.5, help="weight of the softmax part")


class Criterion(MetricCriterion):
    """triplet + weight * softmax."""

    def __init__(self, opt, batchminer):
        super().__init__(batchminer)
        self.weight = opt.loss_mine_weight
        self.triplet = criteria.select("triplet", opt, batchminer)
        self.softmax = criteria.select("softmax", opt)
        self.optim_dict_list = [{"params": list(self.softmax.parameters()), "lr": opt.loss_softmax_lr}]

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        loss = self.triplet(batch, labels) + self.weight * self.softmax(batch, labels)
        self.stats = {**self.triplet.stats, **self.softmax.stats}
        return loss
