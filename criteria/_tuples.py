"""Shared by the losses on tuples: the distances of mined pairs, means over all or over the active terms."""

import torch

from utilities.reference import Reference
from utilities.tensors import pair_distances
from utilities.tuples import Pairs, Triplets, as_pairs


def tuple_distances(
    batch: torch.Tensor, reference: Reference, tuples: Triplets | Pairs, squared: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Distances of the positive pairs, `(P,)`, and of the negative pairs, `(N,)`, of mined tuples:
    from the batch to the reference.
    """
    pairs = as_pairs(tuples)
    rows = torch.cat([pairs.anchors_p, pairs.anchors_n])
    columns = torch.cat([pairs.positives, pairs.negatives])
    return pair_distances(batch, rows, columns, squared, reference.embeddings).split(
        [len(pairs.positives), len(pairs.negatives)]
    )


def mean_term(terms: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Mean of non-negative `terms` `(T,)`, over all (`"mean"`) or those that are not 0 (`"nonzero"`); without terms 0,
    with a graph.
    """
    if reduction == "nonzero":
        return terms.sum() / (terms > 0).sum().clamp(min=1)
    return terms.sum() / max(len(terms), 1)


def active_share(terms: torch.Tensor) -> torch.Tensor:
    """Share of `terms` `(T,)` that are not 0, for the logger."""
    return (terms > 0).sum() / max(len(terms), 1)
