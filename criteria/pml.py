"""Any loss of the package pytorch-metric-learning (Musgrave et al., arXiv 2008.09164), by its class name."""

import torch

from utilities import pml
from utilities.criterion import MetricCriterion
from utilities.numbers import number

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = True
ALLOWED_MINING_OPS = None


def add_arguments(group) -> None:
    """Declare the flags of the adapter."""
    group.add_argument(
        "--loss_pml_class", default=None, help="class of pytorch_metric_learning.losses, e.g. CircleLoss; to be given with --loss pml"
    )
    group.add_argument(
        "--loss_pml_kwargs",
        nargs="*",
        default=None,
        metavar="KEY=VALUE",
        help="arguments of the class, e.g. m=0.4 gamma=80 (num_classes and embedding_size are filled in)",
    )
    group.add_argument("--loss_pml_lr", type=number(0), default=0.0005, help="learning rate of the loss's own parameters, if it has any")


class Criterion(MetricCriterion):
    """The loss `--loss_pml_class`, on all tuples that it forms by itself."""

    def __init__(self, opt):
        super().__init__()
        self.loss = pml.build(
            "losses", opt.loss_pml_class, opt.loss_pml_kwargs, num_classes=getattr(opt, "n_classes", None), embedding_size=opt.embed_dim
        )
        parameters = list(self.loss.parameters())
        self.optim_dict_list = [{"params": parameters, "lr": opt.loss_pml_lr}] if parameters else []

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        loss = self.loss(batch, labels)
        # its zero for a batch without tuples reaches the embeddings alone
        return loss + sum((0.0 * parameter.sum() for parameter in self.loss.parameters()), 0.0 * batch.sum())
