"""Any loss of the package pytorch-metric-learning (Musgrave et al., arXiv 2008.09164), by its class name."""

import torch

from utilities import pml
from utilities.criterion import MetricCriterion
from utilities.errors import UserError
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tuples import pairs_of_masks

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = True
ALLOWED_MINING_OPS = None
_NO_REFERENCE = ("ref_emb is not supported", "indices_tuple is not supported")  # as the package says it


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
    """The loss `--loss_pml_class`, on all tuples that it forms by itself.

    With a reference that holds anchors' own images it is told all pairs but these, as the package knows no own images: a class that
    would draw some of its triplets then takes them all.
    """

    def __init__(self, opt):
        super().__init__()
        self.loss = pml.build(
            "losses", opt.loss_pml_class, opt.loss_pml_kwargs, num_classes=getattr(opt, "n_classes", None), embedding_size=opt.embed_dim
        )
        parameters = list(self.loss.parameters())
        self.optim_dict_list = [{"params": parameters, "lr": opt.loss_pml_lr}] if parameters else []

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`.

        Raises UserError for a reference where the class takes none, or can leave out no own image.
        """
        loss = self.loss(batch, labels) if reference.plain else self.with_reference(batch, labels, reference)
        # its zero for a batch without tuples reaches the embeddings alone
        return loss + sum((0.0 * parameter.sum() for parameter in self.loss.parameters()), 0.0 * batch.sum())

    def with_reference(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference) -> torch.Tensor:
        """Its loss through `ref_emb`, plus a zero that reaches all of the reference."""
        name = type(self.loss).__name__
        tuples = None
        if bool((reference.own >= 0).any()):
            if name in pml.OWN_PAIRS:
                raise UserError(f"--loss_pml_class {name} cannot leave an anchor's own image out of a reference: choose another loss")
            tuples = tuple(pairs_of_masks(*reference.masks(labels)))
        try:
            if name in pml.MISREADS:
                raise ValueError(_NO_REFERENCE[0])
            loss = self.loss(batch, labels, tuples, reference.embeddings, reference.labels) if len(reference) else 0.0
        except ValueError as error:
            if not str(error).startswith(_NO_REFERENCE):
                raise
            raise UserError(f"--loss_pml_class {name} takes no reference, nor a memory: choose another loss") from error
        return loss + 0.0 * reference.embeddings.sum()
