"""Center loss (Wen et al., ECCV 2016), as the code of "Bag of Tricks" for re-identification
(arXiv 1903.07071) trains it.
"""

import torch

from criteria._proxies import ProxyCriterion
from options.flags import Flag
from utilities.numbers import number

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False
# theirs is of plain SGD; an adaptive optimiser moves every entry by about its rate in each step
SGD_RATE = 0.5
OTHER_RATE = 5e-4

FLAGS = {
    "lr": Flag(
        number(0),
        None,
        f"learning rate of the centres (unset: {SGD_RATE:g} under --optim sgd, as published, else {OTHER_RATE:g})",
    ),
    "weight": Flag(number(0), 5e-4, "weight of the loss for the embeddings; the centres' gradient is without it"),
}


def derived(opt) -> dict:
    """The centres' rate belongs to the optimiser."""
    return {"loss_center_lr": SGD_RATE if getattr(opt, "optim", None) == "sgd" else OTHER_RATE}


class Criterion(ProxyCriterion):
    """weight * mean_i |x_i - c_{y_i}|^2 for the embeddings; the centres descend the same mean without the weight.

    Published beside a classifier: `--trainer classifier --loss center`. By itself it has all embeddings fall together.
    With `--optim sgd --momentum 0 --loss_decay 0` the centres move as in the published code, which has an optimiser of
    their own. They start from a unit normal, as theirs.
    """

    def __init__(self, opt):
        super().__init__(opt, start=lambda proxies: proxies.normal_())

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        own_centres = self.proxies.to(batch).index_select(0, labels)  # (B, D)
        of_embeddings = (batch - own_centres.detach()).square().sum(1).mean()
        of_centres = (batch.detach() - own_centres).square().sum(1).mean()
        self.stats = {"squared_distance": of_embeddings.detach()}
        # the second is 0, with the centres' gradient
        return self.weight * of_embeddings + (of_centres - of_centres.detach())
