"""Index tuples of a batch, as miners give and criteria take them, and how one form becomes the other."""

import operator
from typing import NamedTuple

import torch

from utilities.errors import UserError


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
        columns = torch.as_tensor([[operator.index(i) for i in triplet] for triplet in tuples], dtype=torch.long, device=device)
        return Triplets(*columns.reshape(-1, 3).unbind(1))
    raise TypeError(f"a miner returns Triplets, Pairs or a list of (a, p, n), not {type(tuples).__name__}")


class Taken:
    """A miner as criteria see it: what it returns is `Triplets`, `Pairs` or sets, a list of `(a, p, n)` included. The rest is the miner's."""

    def __init__(self, miner):
        self.miner = miner

    def __call__(self, batch: torch.Tensor, labels: torch.Tensor):
        """The miner's tuples, mined without a graph. Raises TypeError where they are none."""
        with torch.no_grad():
            mined = self.miner(batch.detach(), labels)
        return mined if hasattr(mined, "_fields") else from_user(mined, batch.device)

    def __getattr__(self, name: str):
        if name == "miner":  # of a copy in the making
            raise AttributeError(name)
        return getattr(self.miner, name)


def _not_sets(tuples) -> None:
    if not isinstance(tuples, (Triplets, Pairs)):
        raise UserError("the miner yields sets, this criterion takes triplets or pairs: choose another miner, such as distance")


def as_pairs(tuples: "Triplets | Pairs") -> Pairs:
    """Triplets become pairs with their multiplicity: every triplet gives one positive and one negative pair.

    Raises UserError for the sets of a set miner, as `as_triplets` does.
    """
    _not_sets(tuples)
    if isinstance(tuples, Pairs):
        return tuples
    return Pairs(tuples.anchors, tuples.positives, tuples.anchors, tuples.negatives)


def as_triplets(tuples: "Triplets | Pairs") -> Triplets:
    """Pairs become triplets by joining on the anchor: every positive pair meets every negative pair of its anchor.

    The number of triplets is the one size that is asked of the device.
    """
    _not_sets(tuples)
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


class Sets(NamedTuple):
    """What a set miner gives for anchors `(A,)` long: `positives` `(A,)` long or boolean `(A, B)`, `negatives` boolean `(A, B)`."""

    anchors: torch.Tensor
    positives: torch.Tensor
    negatives: torch.Tensor


def spread(counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Owner i occurs `counts[i]` times, numbered from 0: `(owners, numbers)`, each `(sum of counts,)`.

    The sum is the one size that is asked of the device.
    """
    owners = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts, output_size=int(counts.sum()))
    before = torch.cumsum(counts, 0) - counts
    return owners, torch.arange(len(owners), device=counts.device) - before[owners]


def pairs_of_masks(positives: torch.Tensor, negatives: torch.Tensor) -> Pairs:
    """The True entries of two boolean `(B, B)` masks (row = anchor). Both numbers are asked of the device at once."""
    sizes = torch.stack([positives.sum(), negatives.sum()]).tolist()
    positive_pairs, negative_pairs = (
        torch.nonzero_static(mask, size=size).T.contiguous() for mask, size in zip((positives, negatives), sizes, strict=True)
    )  # (2, P), (2, N)
    return Pairs(*positive_pairs, *negative_pairs)


class Classes:
    """The classes of a batch, laid side by side by one sort: partners are numbered and drawn without a `(B, B)` matrix.

    Args:
        labels: `(B,)`.

    Attributes:
        order: `(B,)`, the samples, class after class.
        ranks: `(B,)`, the place of each sample in `order`.
        starts, counts: `(B,)`, where the sample's class begins in `order`, and how many samples it has.
        complete: `(B,)`, has the sample a positive and a negative?
    """

    def __init__(self, labels: torch.Tensor):
        sorted_labels, self.order = torch.sort(labels, stable=True)
        self.places = torch.arange(len(labels), device=labels.device)
        self.ranks = torch.empty_like(self.order).scatter_(0, self.order, self.places)
        self.starts = torch.searchsorted(sorted_labels, labels)
        self.counts = torch.searchsorted(sorted_labels, labels, right=True) - self.starts
        self.n_positives, self.n_negatives = self.counts - 1, len(labels) - self.counts
        self.complete = (self.n_positives > 0) & (self.n_negatives > 0)

    def anchors(self) -> torch.Tensor:
        """Samples that have a positive and a negative, `(A,)`: the one size that is asked of the device."""
        return self.complete.nonzero().squeeze(1)

    def positives(self, anchors: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """The `numbers`-th positive (0 to `n_positives` - 1) of each of `anchors` `(T,)`; of a singleton: itself."""
        starts = self.starts[anchors]
        return self.order[starts + (self.ranks[anchors] - starts + 1 + numbers) % self.counts[anchors]]

    def negatives(self, anchors: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """The `numbers`-th negative (0 to `n_negatives` - 1) of each of `anchors` `(T,)`; arbitrary where there is none."""
        places = numbers + torch.where(numbers < self.starts[anchors], 0, self.counts[anchors])
        return self.order[places.clamp(max=len(self.order) - 1)]

    def draw_positives(self, anchors: torch.Tensor | None = None) -> torch.Tensor:
        """A uniformly drawn positive of each of `anchors` `(T,)` (default: of every sample)."""
        anchors = self.places if anchors is None else anchors
        return self.positives(anchors, below(self.n_positives[anchors]))

    def draw_negatives(self, anchors: torch.Tensor | None = None) -> torch.Tensor:
        """A uniformly drawn negative of each of `anchors` `(T,)` (default: of every sample)."""
        anchors = self.places if anchors is None else anchors
        return self.negatives(anchors, below(self.n_negatives[anchors]))

    def draw_strangers(self, anchors: torch.Tensor, negatives: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A uniformly drawn sample of neither class, `(T,)`, and where there is one, boolean `(T,)` (elsewhere arbitrary)."""
        one, two = self.starts[anchors], self.starts[negatives]
        first, second = torch.minimum(one, two), torch.maximum(one, two)
        first_count = self.counts[self.order[first]]
        second_count = torch.where(one == two, 0, self.counts[self.order[second]])  # one class is skipped once
        available = len(self.order) - first_count - second_count
        places = below(available)
        places = places + torch.where(places < first, 0, first_count)
        places = places + torch.where(places < second, 0, second_count)
        return self.order[places.clamp(max=len(self.order) - 1)], available > 0


def below(counts: torch.Tensor) -> torch.Tensor:
    """A uniformly drawn whole number from 0 to `counts` - 1, for each entry; 0 where the count is 0."""
    return (torch.rand(counts.shape, dtype=torch.float32, device=counts.device) * counts).long()
