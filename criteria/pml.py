"""Any loss of the package pytorch-metric-learning (Musgrave et al., arXiv 2008.09164), by its class name."""

import copy

import torch

from options.flags import Flag
from utilities import pml
from utilities.criterion import MetricCriterion
from utilities.errors import UserError
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tuples import pairs_of_masks

REQUIRES_OPTIM = True
# the package's own messages
_NO_REFERENCE = ("ref_emb is not supported", "indices_tuple is not supported")
# what the package's losses change from step to step outside their state: DynamicSoftMarginLoss's histogram
MOVING = {"hist_"}
# the package's losses find their pairs themselves
TAKES_GUIDE = False

FLAGS = {
    "class": Flag(
        str,
        None,
        "class of pytorch_metric_learning.losses, e.g. CircleLoss; required with --loss pml",
        attribute="class_name",
    ),
    "kwargs": Flag(
        str,
        None,
        "arguments of the class, e.g. m=0.4 gamma=80 (num_classes and embedding_size are filled in)",
        nargs="*",
        metavar="KEY=VALUE",
    ),
    "lr": Flag(number(0), 0.0005, "learning rate of the loss's own parameters, if it has any"),
}


class Criterion(MetricCriterion):
    """The loss `--loss_pml_class`, on all tuples that it forms by itself.

    The package does not know own images: with a reference that holds them, the loss is given all other pairs as tuples.
    A class that would sample its triplets then takes them all.
    """

    def __init__(self, opt):
        super().__init__(opt)
        self.loss = pml.build(
            "losses",
            self.class_name,
            self.kwargs,
            num_classes=getattr(opt, "n_classes", None),
            embedding_size=opt.embed_dim,
        )
        for name in MOVING & vars(self.loss).keys():
            self.loss.register_buffer(name, vars(self.loss).pop(name))
        self.embed_dim = opt.embed_dim
        parameters = list(self.loss.parameters())
        self.optim_dict_list = [{"params": parameters, "lr": self.lr}] if parameters else []

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`.

        Raises UserError for a reference where the class takes none, or cannot leave out own images.
        """
        loss = self.plain(batch, labels) if reference.plain else self.with_reference(batch, labels, reference)
        # These buffers hold the graph of this step.
        for name in MOVING & dict(self.loss.named_buffers(recurse=False)).keys():
            setattr(self.loss, name, getattr(self.loss, name).detach())
        # without tuples the package returns a zero with a gradient for the embeddings only, not for the loss's
        # parameters
        return loss + sum((0.0 * parameter.sum() for parameter in self.loss.parameters()), 0.0 * batch.sum())

    def _load_from_state_dict(self, state_dict, prefix, *arguments) -> None:
        """As in torch; checkpoints of earlier versions lack what moves, which then begins anew."""
        for name, value in self.loss.named_buffers(recurse=False):
            if name in MOVING:
                state_dict.setdefault(f"{prefix}loss.{name}", value)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def plain(self, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The package's loss of a batch alone. Raises UserError where the class refuses it."""
        try:
            return self.loss(batch, labels)
        except ValueError as error:
            raise UserError(f"--loss_pml_class {type(self.loss).__name__}: {' '.join(str(error).split())}") from error

    def try_reference(self) -> None:
        """Raises UserError where the class cannot be compared with a memory: a copy is tried with four rows."""
        rows = torch.eye(4, self.embed_dim)
        labels = torch.tensor([0, 0, 1, 1])
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            tried = copy.deepcopy(self).cpu()
            tried(
                batch=rows, labels=labels, reference=rows.clone(), reference_labels=labels.clone(), own=torch.arange(4)
            )

    def with_reference(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference) -> torch.Tensor:
        """The package's loss with `ref_emb`, plus a zero that gives the whole reference a gradient."""
        name = type(self.loss).__name__
        tuples = None
        if bool((reference.own >= 0).any()):
            if name in pml.OWN_PAIRS:
                raise UserError(
                    f"--loss_pml_class {name} cannot leave an anchor's own image out of a reference: choose "
                    "another loss"
                )
            tuples = tuple(pairs_of_masks(*reference.masks(labels)))
        try:
            if name in pml.MISREADS:
                raise ValueError(_NO_REFERENCE[0])
            loss = self.loss(batch, labels, tuples, reference.embeddings, reference.labels) if len(reference) else 0.0
        except ValueError as error:
            if not str(error).startswith(_NO_REFERENCE):
                raise
            raise UserError(f"--loss_pml_class {name} cannot be used with a memory: choose another loss") from error
        return loss + 0.0 * reference.embeddings.sum()
