"""Index tuples of a batch, as miners give and criteria take them, and how one form becomes the other."""

from typing import NamedTuple

import torch


class Triplets(NamedTuple):
    """Triplet t is (anchors[t], positives[t], negatives[t]), each `(T,)` long, indices into the batch."""

    anchors: torch.Tensor
    positives: torch.Tensor
    negatives: torch.Tensor


class Pairs(NamedTuple):
    """Positive pairs (anchors_p[i], positives[i]), each `(P,)`; negative pairs (anchors_n[j], negatives[j]), each `(N,)`."""

    anchors_p: torch.Tensor
    positives: torch.Tensor
    anchors_n: torch.Tensor
    negatives: torch.Tensor


def same_class(labels: torch.Tensor, others: torch.Tensor | None = None) -> torch.Tensor:
    """Boolean `(B, B')`: do two samples share their class? The diagonal is True."""
    return labels[:, None] == (labels if others is None else others)[None, :]


def positive_mask(labels: torch.Tensor) -> torch.Tensor:
    """Boolean `(B, B)`: same class, not the sample itself."""
    return same_class(labels).fill_diagonal_(False)


def from_user(tuples, device) -> "Triplets | Pairs":
    """What a miner returned as `Triplets` or `Pairs`: a list of `(a, p, n)` from a user's own miner is accepted.

    Raises TypeError for anything else.
    """
    if isinstance(tuples, (Triplets, Pairs)):
        return tuples
    if isinstance(tuples, tuple) and all(isinstance(part, torch.Tensor) for part in tuples) and len(tuples) in (3, 4):
        return (Triplets if len(tuples) == 3 else Pairs)(*(part.to(device) for part in tuples))
    if isinstance(tuples, (list, tuple)) and all(len(triplet) == 3 for triplet in tuples):
        columns = torch.as_tensor([[int(i) for i in triplet] for triplet in tuples], dtype=torch.long, device=device)
        return Triplets(*columns.reshape(-1, 3).unbind(1))
    raise TypeError(f"a miner returns Triplets, Pairs or a list of (a, p, n), not {type(tuples).__name__}")


def as_pairs(tuples: "Triplets | Pairs") -> Pairs:
    """Triplets become pairs with their multiplicity: every triplet gives one positive and one negative pair."""
    if isinstance(tuples, Pairs):
        return tuples
    return Pairs(tuples.anchors, tuples.positives, tuples.anchors, tuples.negatives)


def as_triplets(tuples: "Triplets | Pairs") -> Triplets:
    """Pairs become triplets by joining on the anchor: every positive pair meets every negative pair of its anchor.

    The number of triplets is the one size that is asked of the device.
    """
    if isinstance(tuples, Triplets):
        return tuples
    by_anchor = torch.argsort(tuples.anchors_n, stable=True)
    sorted_anchors = tuples.anchors_n[by_anchor]
    first = torch.searchsorted(sorted_anchors, tuples.anchors_p)
    counts = torch.searchsorted(sorted_anchors, tuples.anchors_p, right=True) - first  # negatives that each pair meets
    pair = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    start = torch.cumsum(counts, 0) - counts
    offset = torch.arange(len(pair), device=pair.device) - start[pair]
    negatives = tuples.negatives[by_anchor[first[pair] + offset]]
    return Triplets(tuples.anchors_p[pair], tuples.positives[pair], negatives)


def pair_masks(tuples: "Triplets | Pairs", size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Boolean `(B, B)` masks of the distinct positive and negative pairs (row = anchor) that occur in `tuples`."""
    pairs = as_pairs(tuples)
    positives = torch.zeros(size, size, dtype=torch.bool, device=pairs.positives.device)
    negatives = torch.zeros_like(positives)
    positives.view(-1).index_fill_(0, pairs.anchors_p * size + pairs.positives, True)
    negatives.view(-1).index_fill_(0, pairs.anchors_n * size + pairs.negatives, True)
    return positives, negatives
