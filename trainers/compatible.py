"""A new network whose embeddings search the index of an old one (Shen et al., BCT, CVPR 2020, arXiv 2003.11942;
hot-refresh: Zhang et al., ICLR 2022, arXiv 2201.09724).
"""

import torch
from torch.nn.functional import cross_entropy

from options.flags import Flag
from trainers._heads import width
from trainers._trainer import METRIC_LOSS, evaluated_embeddings
from trainers._trainer import Trainer as Base
from utilities.errors import UserError
from utilities.numbers import number
from utilities.tensors import normalize
from utilities.tuples import same_class

COMPATIBLE_LOSS = "compatible_loss"
FLAG = "--compatible_with"
CLASSES = "classes"
POINTS = "points"

FLAGS = {
    "with": Flag(
        str,
        None,
        "the old network: the folder of its run, or an .npz file with its features (N, d) and paths (N,) of the "
        "training images, as --dump_embeddings writes embeddings_train.npz",
        metavar="RUN|FILE.npz",
    ),
    "form": Flag(
        str,
        CLASSES,
        "classes: each new embedding against the mean old embedding of every training class (BCT); points: against "
        "the image's own old embedding, with old and new ones of other classes as negatives (hot-refresh)",
        choices=[CLASSES, POINTS],
    ),
    "logits": Flag(
        str,
        "cosine",
        "of classes: cosines times --compatible_scale, or linear, the products as they are (openBCT)",
        choices=["cosine", "linear"],
        rules={"only_with": {"compatible_form": [CLASSES]}},
    ),
    "scale": Flag(
        number(above=0),
        16.0,
        "factor of the cosines",
        rules={"only_with": {"compatible_form": [CLASSES], "compatible_logits": ["cosine"]}},
    ),
    "T": Flag(number(1e-6), 0.05, "temperature of points", rules={"only_with": {"compatible_form": [POINTS]}}),
}


def check(opt) -> None:
    """See `trainers.check`."""
    if opt.compatible_with is None:
        raise UserError(f"--trainer compatible needs {FLAG} RUN or FILE.npz, the old network or its embeddings")


def by_classes(
    embeddings: torch.Tensor, labels: torch.Tensor, vectors: torch.Tensor, scale: float | None = 16.0
) -> torch.Tensor:
    """Cross-entropy of new embeddings `(B, d)` against the old class vectors `(C, d)`, which are fixed.

    scale: of their cosines; None: the products as they are.
    """
    if scale is None:
        return cross_entropy(embeddings @ vectors.T, labels)
    return cross_entropy(scale * (normalize(embeddings) @ normalize(vectors).T), labels)


def by_points(
    embeddings: torch.Tensor, labels: torch.Tensor, old: torch.Tensor, temperature: float = 0.05
) -> torch.Tensor:
    """-mean log of p / (p + n): p = exp(cos(new, own old) / T), n the sum over old and new embeddings of other classes.

    embeddings: `(B, d)`. old: `(B, d)` of the same images, fixed. A batch of one class gives 0.
    """
    new = normalize(embeddings)
    old = normalize(old)
    positive = (new * old).sum(1, keepdim=True)
    same_class_pairs = same_class(labels)
    negatives = [(new @ rows.T).masked_fill(same_class_pairs, -torch.inf) for rows in (old, new)]
    logits = torch.cat([positive, *negatives], 1) / temperature
    return (torch.logsumexp(logits, 1) - logits[:, 0]).mean()


def class_means(rows: torch.Tensor, labels: torch.Tensor, n_classes: int) -> torch.Tensor:
    """Plain means `(C, d)` of the rows `(N, d)` of each class, summed in float64; of the type of the rows."""
    sums = torch.zeros(n_classes, rows.shape[1], dtype=torch.float64).index_add_(0, labels, rows.double())
    counts = torch.bincount(labels, minlength=n_classes)
    return (sums / counts[:, None]).to(rows.dtype)


class Trainer(Base):
    """`metric_loss` = the criterion on the embeddings; `compatible_loss` draws the evaluated embedding to an old space.

    The old embeddings are made once, of the training images as they are evaluated, before the first step:
    `take_old` sets them, and no old network is in the step. If the new embedding has more dimensions than the old one,
    its first d are compared.
    """

    LOSSES = (METRIC_LOSS, COMPATIBLE_LOSS)

    def __init__(self, opt, network, criterion):
        super().__init__(opt, network, criterion)
        self.form = opt.compatible_form
        self.scale = opt.compatible_scale
        if opt.compatible_logits == "linear":
            self.scale = None
        self.temperature = opt.compatible_T
        self.dimensions = width(network, opt)
        # not in checkpoints: the run keeps them in a file
        self.register_buffer("old", None, persistent=False)

    def check_width(self, old_width: int, source: str) -> None:
        """Raise UserError where old embeddings have more dimensions than the new network gives."""
        if old_width > self.dimensions:
            raise UserError(
                f"{FLAG} {source}: its embeddings have {old_width} dimensions, those of the new network "
                f"{self.dimensions}, with which an index of {old_width} cannot be searched: --embed_dim {old_width}"
            )

    def rows_of(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """What the loss reads of the old embeddings `(N, d)` of the training images, in the order of their indices.

        Class vectors `(C, d)`, or for `points` the embeddings as they are. `labels`: `(N,)`.
        """
        if self.form == POINTS:
            return features
        return class_means(features, labels, int(labels.max()) + 1)

    def take_old(self, rows: torch.Tensor) -> None:
        """Set what `rows_of` gave. Raises UserError for rows of too many dimensions."""
        self.check_width(rows.shape[1], "FILE")
        self.old = rows.to(next(self.network.parameters()).device)

    def losses(self, outputs: dict, batch) -> dict:
        """See `trainers._trainer.Trainer.losses`."""
        if self.old is None:
            raise UserError("--trainer compatible: this program embeds nothing with the old network: take main.py")
        old = self.old.to(outputs["embeddings"])
        embeddings = evaluated_embeddings(outputs)[:, : old.shape[1]]
        if self.form == CLASSES:
            value = by_classes(embeddings, batch.labels, old, self.scale)
        else:
            old_of_images = old.index_select(0, batch.indices.to(old.device))
            value = by_points(embeddings, batch.labels, old_of_images, self.temperature)
        return {**super().losses(outputs, batch), COMPATIBLE_LOSS: value}
