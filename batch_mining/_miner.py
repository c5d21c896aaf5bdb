"""Base of the miners.

Full precision for half-precision input, the number of mined tuples, distances that are compared, weighted draws.
"""

import inspect

import torch

from options.flags import plug_ins
from utilities.reference import Reference
from utilities.tensors import first_equal_rows, pairwise_distances, raise_half
from utilities.tuples import check_reference, check_relevance


class Miner:
    """Base of the miners: a subclass defines `mine(embeddings, labels, reference)`; without `reference` it can mine
    only within batches.

    The flags of the file's table `FLAGS` are attributes: `self.margin`. `stats`: name -> detached device scalar,
    averaged over an epoch by the logger. `several_labels`: whether images may have several labels; False in a file that
    compares `labels` itself, and does not ask the reference which images are of a class.
    """

    takes_reference = True
    several_labels = True

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.takes_reference = "reference" in inspect.signature(cls.mine).parameters
        cls.several_labels = cls.several_labels and cls.takes_reference

    def __init__(self, opt=None):
        self.stats = {}
        if opt is not None:
            plug_ins.set_flags(self, opt)

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference):
        """Tuples whose anchors are `embeddings` `(B, D)`, float32 or float64, with `labels` `(B,)`.
        `reference` is never empty.
        """
        raise NotImplementedError

    @torch.no_grad()
    def __call__(
        self,
        batch: torch.Tensor,
        labels: torch.Tensor,
        reference=None,
        reference_labels=None,
        own=None,
        relevance=None,
        reference_relevance=None,
    ):
        """Mine embeddings `batch` `(B, D)` with `labels` `(B,)`. Draws from torch's global generator.

        Args:
            reference: embeddings `(M, D)` with `reference_labels` `(M,)` that hold the positives and negatives;
            default: the batch.
            own: `(B,)`, row of the anchor's own image in the reference, neither its positive nor its negative;
            -1: not there.
            relevance, reference_relevance: `(B, L)` and `(M, L)`, the labels of images that have several.

        Raises UserError where a user's miner takes no reference, ValueError where a reference does not fit.
        """
        # Full precision, also inside a program's `torch.autocast`.
        with torch.autocast(batch.device.type, enabled=False):
            batch = raise_half(batch.detach())
            form = (reference, reference_labels, own, relevance, reference_relevance)
            return self._mine(batch, labels.to(batch.device), *form)

    def _mine(self, batch, labels, reference, reference_labels, own, *relevance):
        self.stats = {}
        if relevance[0] is not None:
            check_relevance(self)
        if getattr(reference, "plain", reference is None) and reference_labels is None and own is None:
            compared = Reference.build(batch, labels, None, None, None, *relevance)
            mined = self.mine(batch, labels, compared) if self.takes_reference else self.mine(batch, labels)
        else:
            mined = self._mine_in(batch, labels.long(), reference, reference_labels, own, *relevance)
        # Pairs are positive and negative ones
        number = len(mined[0]) + (len(mined[2]) if len(mined) == 4 else 0)
        self.stats["tuples"] = torch.full((), float(number), dtype=torch.float32, device=batch.device)
        return mined

    def _mine_in(self, batch: torch.Tensor, labels: torch.Tensor, *reference_form):
        """Tuples from a reference given by the caller."""
        check_reference(self)
        reference = Reference.build(batch, labels, *reference_form)
        if len(reference):
            return self.mine(batch, labels, reference)
        mined = self.mine(batch, labels, reference.with_own_row())
        # An empty reference gives no tuples: every dimension is cut to length 0.
        return type(mined)(*(column[(slice(0),) * column.ndim] for column in mined))


def comparable_distances(embeddings: torch.Tensor, reference: Reference) -> torch.Tensor:
    """Euclidean distances `(B, M)` from anchors `(B, D)`, for rules that compare those of an anchor with each other.

    A matrix product may round the columns of equal rows differently, which would decide ties between duplicates. Here
    equal rows of the reference are exactly equally far from an anchor, and a row equal to the anchor is exactly 0 away.
    """
    candidates = reference.embeddings
    if reference.plain:
        columns = anchors = first_equal_rows(candidates)  # (M,), (B,)
    else:
        first = first_equal_rows(torch.cat([candidates, embeddings]))
        columns = first[: len(candidates)]
        anchors = first[len(candidates) :]
    distances = pairwise_distances(embeddings, candidates).index_select(1, columns)
    return distances.masked_fill_(anchors[:, None] == columns[None, :], 0)


def draw_columns(weights: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """One column index per row, `(R,)`, with probability proportional to the non-negative `weights` `(R, C)`,
    boolean or float.

    Inverts the cumulative sum: one random number per row. Rows whose weights are all 0 take `otherwise` `(R,)`.
    """
    weights = weights.float() if weights.dtype == torch.bool else weights
    cumulative = weights.cumsum(1)
    thresholds = torch.rand(len(weights), 1, dtype=torch.float32, device=weights.device) * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, thresholds.to(weights.dtype), right=True).clamp_(max=weights.shape[1] - 1)
    possible = weights.gather(1, chosen) > 0
    return torch.where(possible, chosen, otherwise[:, None]).squeeze(1)


def hard_share(positive_distances: torch.Tensor, negative_distances: torch.Tensor) -> torch.Tensor:
    """Share of triplets whose negative is nearer than their positive; 0 without triplets."""
    return (negative_distances < positive_distances).sum() / max(len(positive_distances), 1)
