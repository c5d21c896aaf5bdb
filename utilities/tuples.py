"""Index tuples of a batch, as miners give and criteria take them, and how one form becomes the other."""

import inspect
import operator
from typing import NamedTuple

import torch

from utilities.errors import UserError
from utilities.spans import span


class Triplets(NamedTuple):
    """Triplet t is (anchors[t], positives[t], negatives[t]), each `(T,)` long: anchors are rows of the batch, the
    others of the reference.
    """

    anchors: torch.Tensor
    positives: torch.Tensor
    negatives: torch.Tensor


class Pairs(NamedTuple):
    """Positive pairs (anchors_p[i], positives[i]), each `(P,)`;
    negative pairs (anchors_n[j], negatives[j]), each `(N,)`.
    """

    anchors_p: torch.Tensor
    positives: torch.Tensor
    anchors_n: torch.Tensor
    negatives: torch.Tensor


def same_class(labels: torch.Tensor, reference_labels: torch.Tensor | None = None) -> torch.Tensor:
    """Boolean `(B, B')`: do two samples share their class? The diagonal is True."""
    if reference_labels is None:
        reference_labels = labels
    return labels[:, None] == reference_labels[None, :]


def positive_mask(labels: torch.Tensor) -> torch.Tensor:
    """Boolean `(B, B)`: same class, not the sample itself."""
    return same_class(labels).fill_diagonal_(False)


def from_user(tuples, device) -> "Triplets | Pairs":
    """A miner's result, which may be a list of `(a, p, n)`, as `Triplets` or `Pairs`.
    Raises TypeError for anything else.
    """
    if isinstance(tuples, (Triplets, Pairs)):
        return tuples
    if isinstance(tuples, tuple) and all(isinstance(part, torch.Tensor) for part in tuples):
        if len(tuples) == 3:
            return Triplets(*(part.to(device) for part in tuples))
        if len(tuples) == 4:
            return Pairs(*(part.to(device) for part in tuples))
    if isinstance(tuples, (list, tuple)) and all(len(triplet) == 3 for triplet in tuples):
        rows = []
        for triplet in tuples:
            rows.append([operator.index(index) for index in triplet])
        table = torch.as_tensor(rows, dtype=torch.long, device=device)
        return Triplets(*table.reshape(-1, 3).unbind(1))
    raise TypeError(f"a miner returns Triplets, Pairs or a list of (a, p, n), not {type(tuples).__name__}")


def check_reference(miner) -> None:
    """Raises UserError where a miner mines within batches alone."""
    if isinstance(miner, TupleMiner):
        miner = miner.miner
    if not getattr(miner, "takes_reference", True):
        raise UserError(
            f"the miner {type(miner).__name__} cannot be used with a memory: its mine(embeddings, labels) has no third "
            "argument, reference"
        )
    if "reference" not in inspect.signature(miner).parameters:
        raise UserError(
            f"the miner {type(miner).__name__} cannot be used with a memory: its call has no reference, "
            "reference_labels and own"
        )


def check_relevance(miner) -> None:
    """Raises UserError where a miner goes by a single label of each image."""
    if isinstance(miner, TupleMiner):
        miner = miner.miner
    if not getattr(miner, "several_labels", False):
        raise UserError(
            f"the miner {type(miner).__module__.rpartition('.')[2]} takes one label per image, and these have several: "
            "choose another miner, such as distance"
        )


class TupleMiner:
    """A miner as criteria see it: it returns `Triplets`, `Pairs` or sets, whatever the miner gives. Other attributes
    are the miner's.
    """

    def __init__(self, miner):
        self.miner = miner

    def __call__(self, batch: torch.Tensor, labels: torch.Tensor, reference=None):
        """The miner's tuples, with partners in `reference` (default: the batch). UserError if it takes none, TypeError
        for no tuples.
        """
        compared = {}
        if reference is not None and not reference.plain:
            check_reference(self.miner)
            compared = {
                "reference": reference.embeddings.detach(),
                "reference_labels": reference.labels,
                "own": reference.own,
            }
        if reference is not None and reference.relevance is not None:
            check_relevance(self.miner)
            compared["relevance"] = reference.anchor_relevance
            if not reference.plain:
                compared["reference_relevance"] = reference.relevance
        with span("miner"), torch.no_grad():
            # a user's loss may pass an array
            mined = self.miner(batch.detach(), torch.as_tensor(labels, device=batch.device), **compared)
        if hasattr(mined, "_fields"):
            return mined
        return from_user(mined, batch.device)

    def __getattr__(self, name: str):
        # A copy that is being made has no miner yet: the lookup below would never end.
        if name == "miner":
            raise AttributeError(name)
        return getattr(self.miner, name)

    def __setattr__(self, name: str, value) -> None:
        if name == "miner":
            object.__setattr__(self, name, value)
        else:
            setattr(self.miner, name, value)


def _not_sets(tuples) -> None:
    if not isinstance(tuples, (Triplets, Pairs)):
        raise UserError(
            "the miner yields sets, this criterion takes triplets or pairs: choose another miner, such as distance"
        )


def as_pairs(tuples: "Triplets | Pairs") -> Pairs:
    """Every triplet becomes one positive and one negative pair.
    Raises UserError for the sets of a set miner, as `as_triplets` does.
    """
    _not_sets(tuples)
    if isinstance(tuples, Pairs):
        return tuples
    return Pairs(tuples.anchors, tuples.positives, tuples.anchors, tuples.negatives)


def as_triplets(tuples: "Triplets | Pairs") -> Triplets:
    """Pairs become triplets: every positive pair meets every negative pair of its anchor. Waits for the device."""
    _not_sets(tuples)
    if isinstance(tuples, Triplets):
        return tuples
    by_anchor = torch.argsort(tuples.anchors_n, stable=True)
    sorted_anchors = tuples.anchors_n[by_anchor]
    # columns of a matrix, of which torch warns
    anchors = tuples.anchors_p.contiguous()
    first = torch.searchsorted(sorted_anchors, anchors)
    # number of negatives that each pair meets
    counts = torch.searchsorted(sorted_anchors, anchors, right=True) - first
    pair, offset = spread(counts)
    negatives = tuples.negatives[by_anchor[first[pair] + offset]]
    return Triplets(anchors[pair], tuples.positives[pair], negatives)


def pair_masks(
    tuples: "Triplets | Pairs", n_anchors: int, n_others: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Boolean `(B, M)` masks of the distinct positive and negative pairs (row = anchor) that occur in `tuples`; M = B
    unless it is given.
    """
    pairs = as_pairs(tuples)
    if n_others is None:
        n_others = n_anchors
    positives = torch.zeros(n_anchors, n_others, dtype=torch.bool, device=pairs.positives.device)
    negatives = torch.zeros_like(positives)
    positives.view(-1).index_fill_(0, pairs.anchors_p * n_others + pairs.positives, True)
    negatives.view(-1).index_fill_(0, pairs.anchors_n * n_others + pairs.negatives, True)
    return positives, negatives


class Sets(NamedTuple):
    """What a set miner gives for anchors `(A,)` long: `positives` `(A,)` long or boolean `(A, M)`,
    `negatives` boolean `(A, M)`.
    """

    anchors: torch.Tensor
    positives: torch.Tensor
    negatives: torch.Tensor


def spread(counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`(owners, numbers)`, each `(sum of counts,)`: owner i occurs `counts[i]` times, numbered from 0.
    Waits for the device.
    """
    owners = torch.repeat_interleave(
        torch.arange(len(counts), device=counts.device), counts, output_size=int(counts.sum())
    )
    before = torch.cumsum(counts, 0) - counts
    return owners, torch.arange(len(owners), device=counts.device) - before[owners]


def pairs_of_masks(positives: torch.Tensor, negatives: torch.Tensor) -> Pairs:
    """The True entries of two boolean `(B, M)` masks (row = anchor). Waits for the device once."""
    n_positives, n_negatives = torch.stack([positives.sum(), negatives.sum()]).tolist()
    # (2, P), (2, N)
    positive_pairs = torch.nonzero_static(positives, size=n_positives).T.contiguous()
    negative_pairs = torch.nonzero_static(negatives, size=n_negatives).T.contiguous()
    return Pairs(*positive_pairs, *negative_pairs)


class Partners:
    """The positives and negatives of anchors, numbered from 0, so that some can be drawn.

    Attributes:
        n_positives, n_negatives: `(B,)`, without the anchor's own image.
        complete: `(B,)`, has the anchor a positive and a negative?
    """

    def anchors(self) -> torch.Tensor:
        """Anchors that have a positive and a negative, `(A,)`. The only method that waits for the device."""
        return self.complete.nonzero().squeeze(1)

    def draw_positives(self, anchors: torch.Tensor | None = None) -> torch.Tensor:
        """A uniformly drawn positive of each of `anchors` `(T,)` (default: of every anchor)."""
        if anchors is None:
            anchors = self.places
        return self.positives(anchors, below(self.n_positives[anchors]))

    def draw_negatives(self, anchors: torch.Tensor | None = None) -> torch.Tensor:
        """A uniformly drawn negative of each of `anchors` `(T,)` (default: of every anchor)."""
        if anchors is None:
            anchors = self.places
        return self.negatives(anchors, below(self.n_negatives[anchors]))


def partners(labels: torch.Tensor, reference=None) -> Partners:
    """The partners of anchors with `labels` `(B,)` in a `utilities.reference.Reference`, by default their own batch."""
    if reference is None or reference.relevance is None:
        return Classes(labels, reference)
    return Related(labels, reference)


class Related(Partners):
    """Partners of images with several labels: `(B, M)` matrices of columns, the positives first, or the negatives."""

    def __init__(self, labels: torch.Tensor, reference):
        masks = reference.masks(labels)
        self.places = torch.arange(len(labels), device=labels.device)
        self.n_positives, self.n_negatives = (mask.sum(1) for mask in masks)
        self.complete = (self.n_positives > 0) & (self.n_negatives > 0)
        self.columns = [mask.to(torch.uint8).argsort(dim=1, descending=True, stable=True) for mask in masks]

    def positives(self, anchors: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """See `Classes.positives`."""
        return self.columns[0][anchors, numbers]

    def negatives(self, anchors: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """See `Classes.negatives`."""
        return self.columns[1][anchors, numbers]


class Classes(Partners):
    """A reference sorted by class, in which positives and negatives are numbered and drawn without a `(B, M)` matrix.

    Args:
        labels: `(B,)`, of the anchors.
        reference: the `utilities.reference.Reference` that holds the partners; default: the batch itself.

    Attributes:
        order: `(M,)`, the samples of the reference, class after class.
        starts, counts: `(B,)`, where the anchor's class begins in `order`, and how many samples it has.
    """

    def __init__(self, labels: torch.Tensor, reference=None):
        self.reference = reference
        if reference is None or reference.plain:
            self.reference = None
            reference_labels = labels
        else:
            reference_labels = reference.labels
        self.size = len(reference_labels)
        self.places = torch.arange(len(labels), device=labels.device)
        # empty: no anchor is complete, and lookups that are made all the same find row 0
        if not self.size:
            reference_labels = labels.new_zeros(1)
        self.sorted_labels, self.order = torch.sort(reference_labels, stable=True)
        ranks = torch.empty_like(self.order).scatter_(
            0, self.order, torch.arange(len(reference_labels), device=labels.device)
        )
        self.starts, self.counts = self._block(labels)
        if self.reference is None:
            self.after_own = ranks - self.starts + 1
            own_positive = 1
            own_negative = 0
        else:
            at = reference.own.clamp(min=0)
            own_positive = ((reference.own >= 0) & (reference_labels[at] == labels)).long()
            own_negative = (reference.own >= 0).long() - own_positive
            self.after_own = own_positive * (ranks[at] - self.starts + 1)
            self.own_ranks = ranks[at]
            self.own_negative = own_negative
        self.reference_labels = reference_labels
        self.n_positives = self.counts - own_positive
        self.n_negatives = self.size - self.counts - own_negative
        self.complete = (self.n_positives > 0) & (self.n_negatives > 0)

    def _block(self, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.searchsorted(self.sorted_labels, labels)
        counts = torch.searchsorted(self.sorted_labels, labels, right=True) - starts
        if not self.size:
            counts = torch.zeros_like(counts)
        return starts, counts

    def positives(self, anchors: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """The `numbers`-th positive (0 to `n_positives` - 1) of each of `anchors` `(T,)`;
        arbitrary if there is none.
        """
        return self._at(self.starts[anchors] + (self.after_own[anchors] + numbers) % self.counts[anchors].clamp(min=1))

    def negatives(self, anchors: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """The `numbers`-th negative (0 to `n_negatives` - 1) of each of `anchors` `(T,)`;
        arbitrary if there is none.
        """
        block = self.starts[anchors], self.counts[anchors]
        if self.reference is None:
            return self._at(_past(numbers, *block))
        return self._at(_past_both(numbers, block, (self.own_ranks[anchors], self.own_negative[anchors])))

    def _at(self, places: torch.Tensor) -> torch.Tensor:
        return self.order[places.clamp(max=len(self.order) - 1)]

    def draw_strangers(self, anchors: torch.Tensor, negatives: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Samples `(T,)`, drawn uniformly, of another class than `anchors` and `negatives` `(T,)`; and `(T,)`: whether
        there is one.

        Where there is none, the sample is arbitrary.
        """
        starts, counts = self._block(self.reference_labels[negatives])
        block = self.starts[anchors], self.counts[anchors]
        # Of the same class, or where the anchor's is empty: skip the block once.
        negative_block = starts, torch.where(starts == block[0], counts - block[1], counts)
        available = self.size - block[1] - negative_block[1]
        return self._at(_past_both(below(available), block, negative_block)), available > 0


def _past(places: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Places among all, of `places` that are counted without a block:
    the `counts` places from `starts` on. Each `(T,)`.
    """
    return places + torch.where(places < starts, 0, counts)


def _past_both(places: torch.Tensor, first_block: tuple, second_block: tuple) -> torch.Tensor:
    """`_past` of two blocks `(starts, counts)` that do not overlap."""
    in_order = first_block[0] <= second_block[0]
    lower = []
    upper = []
    for first, second in zip(first_block, second_block, strict=True):
        lower.append(torch.where(in_order, first, second))
        upper.append(torch.where(in_order, second, first))
    return _past(_past(places, *lower), *upper)


def below(counts: torch.Tensor) -> torch.Tensor:
    """A uniformly drawn whole number from 0 to `counts` - 1, for each entry; 0 where the count is 0."""
    return (torch.rand(counts.shape, dtype=torch.float32, device=counts.device) * counts).long()
