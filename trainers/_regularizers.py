"""Regularisers of the embeddings and of class vectors, beside the criterion.

`lp` and `zero_mean` as pytorch-metric-learning defines them (arXiv 2008.09164); `center_invariant`: Wu et al., ICCV
workshops 2017; `regular_face`: Zhao et al., RegularFace, CVPR 2019; `sparse_centers`: Qian et al., SoftTriple, ICCV
2019, arXiv 1909.05235; `anticollapse`: Jiang et al., Anti-Collapse Loss for Deep Metric Learning, TMM 2024, arXiv
2407.03106; `koleo`: Sablayrolles et al., Spreading vectors for similarity search, ICLR 2019, arXiv 1806.03198, as
DINOv2 (arXiv 2304.07193, weight .1) has it.
"""

import argparse

import torch

from criteria._proxies import ProxyCriterion, spread_of_centres
from options.flags import Flag, roles
from trainers._added_losses import AddedLoss
from utilities.errors import UserError
from utilities.numbers import number
from utilities.tensors import masked_mean, normalize, safe_sqrt
from utilities.tuples import same_class

# the squared distortion of the coding rate, as in all the authors' runs
CODING_EPS = 0.5
KOLEO_EPS = 1e-8
EMBEDDINGS = "embed_regularizer"
CLASS_VECTORS = "weight_regularizer"

FLAGS = {
    "--embed_regularizer": Flag(
        str,
        None,
        "add to the loss the mean over embeddings x of |x|_p^power (lp), |sum_d x_d| (zero_mean), or -log of the "
        "distance at unit length to the nearest embedding of another image (koleo; DINOv2's weight is .1)",
        choices=["koleo", "lp", "zero_mean"],
    ),
    "--embed_regularizer_weight": Flag(number(0), None, argparse.SUPPRESS, role=roles.weight_of(EMBEDDINGS)),
    "--embed_regularizer_p": Flag(number(1), 2.0, "norm of lp", rules={"only_with": {"embed_regularizer": ["lp"]}}),
    "--embed_regularizer_power": Flag(
        number(above=0), 1.0, "power of the norm in lp", rules={"only_with": {"embed_regularizer": ["lp"]}}
    ),
    "--weight_regularizer": Flag(
        str,
        None,
        "add to the loss, of the class vectors w: mean_c (|w_c|^2 - their mean)^2 / 4 (center_invariant), the mean "
        "over classes of the cosine to the nearest other class (regular_face), the distances between the centres "
        "of a class (sparse_centers), exp(-coding rate) of the vectors of the batch's classes (anticollapse)",
        choices=["anticollapse", "center_invariant", "regular_face", "sparse_centers"],
    ),
    "--weight_regularizer_weight": Flag(number(0), None, argparse.SUPPRESS, role=roles.weight_of(CLASS_VECTORS)),
}


def lp(embeddings: torch.Tensor, p: float, power: float) -> torch.Tensor:
    """mean_i |x_i|_p^power of `(B, D)`; the gradient at 0 is 0."""
    if p == 2:
        norms = safe_sqrt(embeddings.square().sum(1))
    else:
        norms = torch.linalg.vector_norm(embeddings, p, dim=1)
    if power != 1:
        norms = norms.clamp(min=torch.finfo(norms.dtype).tiny) ** power
    return norms.mean()


def zero_mean(embeddings: torch.Tensor) -> torch.Tensor:
    """mean_i |sum_d x_id| of `(B, D)`."""
    return embeddings.sum(1).abs().mean()


def koleo(embeddings: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """-mean_i log(|x_i - x_n + 1e-8| + 1e-8) of unit rows x of `(B, D)`, n the nearest row of another of the `images`
    `(B,)`. The choice of n has no gradient; rows without another image are left out.
    """
    unit = normalize(embeddings)
    is_same = same_class(images)
    nearest = (unit @ unit.T).detach().masked_fill(is_same, -2.0).argmax(1)
    differences = unit - unit.index_select(0, nearest) + KOLEO_EPS
    distances = safe_sqrt(differences.square().sum(1))
    return -masked_mean((distances + KOLEO_EPS).log(), ~is_same.all(1))


def center_invariant(vectors: torch.Tensor) -> torch.Tensor:
    """mean_c (|w_c|^2 - mean_k |w_k|^2)^2 / 4 of `(C, D)`."""
    squares = vectors.square().sum(1)
    return ((squares - squares.mean()) ** 2).mean() / 4


def regular_face(vectors: torch.Tensor, per_class: int = 1) -> torch.Tensor:
    """mean_c max_{k of another class} cos(w_c, w_k) of `(C * per_class, D)`, class-major, C at least 2."""
    unit = normalize(vectors)
    classes = torch.arange(len(vectors), device=vectors.device) // per_class
    return (unit @ unit.T).masked_fill(same_class(classes), -torch.inf).amax(1).mean()


def anticollapse(vectors: torch.Tensor, labels: torch.Tensor, per_class: int = 1) -> torch.Tensor:
    """exp(-1/2 logdet(I + n / (D CODING_EPS) W W^T)), W the n unit vectors of the classes in `labels` `(B,)`.

    vectors: `(C * per_class, D)`.

    The factor is that of the authors' code; their coding rate (MCR^2, arXiv 2006.08558) has D / (n eps).
    """
    # The first sample of a class stands for it; the vectors of the others become 0, which leaves the determinant as it
    # is. Without a selection the number of rows is no size that the host waits for.
    is_first = torch.tril(same_class(labels), -1).any(1).logical_not()
    chosen = normalize(vectors).view(-1, per_class, vectors.shape[1]).index_select(0, labels) * is_first[:, None, None]
    chosen = chosen.flatten(0, 1)  # (B * per_class, D)
    scale = is_first.sum() * per_class / (vectors.shape[1] * CODING_EPS)
    gram = torch.eye(len(chosen), dtype=chosen.dtype, device=chosen.device) + scale * (chosen @ chosen.T)
    # its product is the root of the determinant
    diagonal = torch.linalg.cholesky_ex(gram).L.diagonal()
    return torch.exp(-diagonal.log().sum())


class EmbedRegularizer(AddedLoss):
    """`embed_regularizer`: of the embeddings that the step trains."""

    NAME = EMBEDDINGS
    FLAG = "--embed_regularizer"

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        super().__init__()
        self.kind = opt.embed_regularizer
        self.p = opt.embed_regularizer_p
        self.power = opt.embed_regularizer_power
        if self.kind == "lp" and self.p == 2 and getattr(network, "normalizes", False):
            raise UserError(
                f"--embed_regularizer lp: the embeddings of --arch {opt.arch} have length 1: take a network "
                "without _normalize"
            )

    def loss(self, trainer, outputs: dict, batch) -> torch.Tensor:
        """See `trainers._added_losses.AddedLoss.loss`."""
        embeddings = outputs["embeddings"]
        if self.kind == "koleo":
            return koleo(embeddings, batch.indices.to(embeddings.device, non_blocking=True))
        if self.kind == "zero_mean":
            return zero_mean(embeddings)
        return lp(embeddings, self.p, self.power)


class WeightRegularizer(AddedLoss):
    """`weight_regularizer`: of the class vectors of the criterion."""

    NAME = CLASS_VECTORS
    FLAG = "--weight_regularizer"

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        super().__init__()
        self.kind = opt.weight_regularizer
        if not isinstance(criterion, ProxyCriterion):
            raise UserError(f"--weight_regularizer {self.kind}: --loss {opt.loss} trains no class vectors of its own")
        if self.kind == "sparse_centers" and criterion.per_class == 1:
            raise UserError(f"--weight_regularizer sparse_centers: --loss {opt.loss} has one vector a class")
        if self.kind == "anticollapse" and not criterion.of_classes:
            raise UserError(
                f"--weight_regularizer anticollapse: the vectors of --loss {opt.loss} are not each of a class"
            )
        if self.kind == "regular_face" and len(criterion.proxies) <= criterion.per_class:
            raise UserError(
                "--weight_regularizer regular_face compares the vectors of classes: there is one class alone"
            )

    def loss(self, trainer, outputs: dict, batch) -> torch.Tensor:
        """See `trainers._added_losses.AddedLoss.loss`."""
        vectors = trainer.criterion.proxies
        if self.kind == "sparse_centers":
            return spread_of_centres(trainer.criterion.unit_centres(outputs["embeddings"]))
        if self.kind == "anticollapse":
            return anticollapse(vectors, batch.labels, trainer.criterion.per_class)
        if self.kind == "center_invariant":
            return center_invariant(vectors)
        return regular_face(vectors, trainer.criterion.per_class)
