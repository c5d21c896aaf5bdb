"""Shared by the losses on sets: the cross-entropy over negatives,
the penalised norm, the warning about normalised embeddings.
"""

import math
import sys

import torch

from criteria._pairs import softplus
from options.flags.shared import rescaling_layer
from utilities.errors import UserError
from utilities.reference import Reference
from utilities.tensors import safe_sqrt
from utilities.tuples import Triplets


def is_normalized(arch: str) -> bool:
    """Whether a network of this name gives embeddings of length 1."""
    return "normalize" in arch.split("_")[1:]


def warn_of_normalized(loss: str, opt) -> None:
    """Print a one-line warning where the network gives unit vectors but the loss is meant for raw embeddings.

    Raises UserError where it would see them behind --neck, which scales them.
    """
    layer = rescaling_layer(opt)
    if layer is not None and opt.neck_feature == "after":
        raise UserError(
            f"{layer}: --loss {loss} is meant for embeddings of any length, which a neck scales: add "
            "--neck_feature before, or leave it out"
        )
    if is_normalized(opt.arch):
        print(
            f"warning: --loss {loss} is meant for embeddings of any length, --arch {opt.arch} normalises them",
            file=sys.stderr,
        )


def choice_terms(exponents: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
    """log(1 + sum_n exp(e_an - e_ap)), `(A,)`, of `exponents` `(A, M)`,
    `positives` `(A,)` long, `negatives` boolean `(A, M)`.

    It is the cross-entropy of picking the positive out of the positive and the negatives.
    """
    candidates = negatives.scatter(1, positives[:, None], True)  # (A, M)
    exponents = exponents.masked_fill(~candidates, torch.finfo(exponents.dtype).min)
    return torch.nn.functional.cross_entropy(exponents, positives, reduction="none")


def npair_terms(
    batch: torch.Tensor, reference: Reference, anchors: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor
) -> torch.Tensor:
    """log(1 + sum_n exp(s_an - s_ap)), `(A,)`, of embeddings `(B, D)` and the sets of the miner npair."""
    return choice_terms(batch.index_select(0, anchors) @ reference.embeddings.T, positives, negatives)


def npair_excesses(batch: torch.Tensor, reference: Reference, triplets: Triplets) -> torch.Tensor:
    """s_an - s_ap, `(T,)`, of embeddings `(B, D)` and triplets."""
    points = reference.embeddings
    towards = points.index_select(0, triplets.negatives) - points.index_select(0, triplets.positives)
    return (batch.index_select(0, triplets.anchors) * towards).sum(1)


def triplet_terms(excesses: torch.Tensor, opposite: bool) -> torch.Tensor:
    """log(1 + exp(e)), `(T,)`, of a single negative's `excesses` `(T,)` over the positive.

    `opposite`: log(1 + exp(-e)).

    The opposite is small where the negative is on the wrong side, which is what a generator of negatives learns from.
    """
    if opposite:
        excesses = -excesses
    return softplus(excesses)


def outweighed_share(terms: torch.Tensor) -> torch.Tensor:
    """Share of anchors whose sum over negatives exceeds 1, i.e. whose `terms` `(A,)` exceed log 2, for the logger."""
    return (terms.detach() > math.log(2)).sum() / max(len(terms), 1)


def mean_norm(batch: torch.Tensor) -> torch.Tensor:
    """mean_i |x_i| of embeddings `(B, D)`, with gradient 0 at 0."""
    return safe_sqrt(batch.square().sum(1)).mean()
