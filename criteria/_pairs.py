"""Base of the criteria on all pairs of a batch: pairs as weights, sums over them, soft histograms, statistics.

Pairs are chosen by weights 0 and 1 in the precision of the batch, not by boolean masks: on a CPU a product or a sum of two
`(B, M)` matrices costs a small part of what `where`, `masked_fill` or a mask's cast costs, and needs no mask in its backward.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch.utils.checkpoint import checkpoint

from criteria import _streams
from utilities.criterion import MetricCriterion
from utilities.reference import Reference
from utilities.tensors import normalize

CHUNK = 1 << 21  # entries of a matrix `(B, M)` computed at once, where the reference is not the batch


class PairCriterion(MetricCriterion):
    """Base of the criteria on all pairs of batch and reference or, given a miner, on its distinct pairs."""

    def compared(
        self,
        terms: Callable,
        batch: torch.Tensor,
        labels: torch.Tensor,
        reference: Reference,
        mapping: Callable | None = None,
        keep: bool = False,
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Results of `terms` for all anchors, after `mapping` the embeddings of batch and reference (default: as they are).

        `terms(batch (B, D), labels (B,), reference, positives (B, M), negatives (B, M))`, with the pairs as weights 0 and 1 in the
        precision of `batch`, returns two tuples: values of each anchor, which are concatenated, and sums over all anchors, which are
        added up. With a large reference `terms` is called for a few anchors at a time, and again in the backward pass, so that no
        `(B, M)` matrix is kept. With `keep` it is not called again: what autograd saves stays, for `terms` that save only one or two
        matrices.
        """
        mined = None if self.batchminer is None else self.pair_masks(batch, labels, reference)
        points, reference = (batch, reference) if mapping is None else reference.mapped(mapping, batch)

        def part(points, labels, reference, mined):
            positives, negatives = reference.masks(labels) if mined is None else mined
            return terms(points, labels, reference, as_weights(positives, points), as_weights(negatives, points))

        size = anchors_at_once(len(reference))
        if reference.plain or size >= len(batch):
            return part(points, labels, reference, mined)
        anchors = reference.split(size)
        masks = [None] * len(anchors) if mined is None else zip(*(mask.split(size) for mask in mined), strict=True)
        parts = few_at_a_time(part, zip(points.split(size), labels.split(size), anchors, masks, strict=True), keep)
        values, sums = (zip(*columns, strict=True) for columns in zip(*parts, strict=True))
        return [torch.cat(column) for column in values], [torch.stack(column).sum(0) for column in sums]

    def streamed(self, labels: torch.Tensor, reference: Reference) -> _streams.Apart | None:
        """The pairs that are not negatives, for a sum over the negatives by `_streams`.

        None where `_streams` does not serve: the reference is the batch, a miner chooses the pairs, or the listed pairs would be many.
        """
        return None if reference.plain or self.batchminer is not None else _streams.apart(labels, reference)

    def weighted_pairs(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference) -> tuple[torch.Tensor, torch.Tensor]:
        """The positive and the negative pairs as weights `(B, M)` 0 and 1, in the precision of `batch`."""
        positives, negatives = self.pair_masks(batch, labels, reference)
        return as_weights(positives, batch), as_weights(negatives, batch)

    def cosine_pairs(
        self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Cosines `(B, M)` of batch and reference, and `weighted_pairs`, for formulas that need the whole matrix at once."""
        positives, negatives = self.weighted_pairs(batch, labels, reference)
        unit, others = reference.mapped(normalize, batch)
        return unit @ others.embeddings.T, positives, negatives


def anchors_at_once(n_others: int) -> int:
    """How many anchors meet `n_others` samples of a large reference at once."""
    return max(CHUNK // max(n_others, 1), 1)


def few_at_a_time(part: Callable, given: Iterable[tuple], keep: bool = False) -> list:
    """`part(*few)` of each `few` that is `given`; computed again in the backward pass unless `keep`."""
    return [part(*few) if keep else checkpoint(part, *few, use_reentrant=False, preserve_rng_state=False) for few in given]


def as_weights(mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A boolean mask as weights 0 and 1 in the precision of `like`."""
    return mask.view(torch.uint8).to(like.dtype)  # the same bytes; booleans themselves cast slowly


class _LogSumExp(torch.autograd.Function):
    """`log_sum_exp` in few in-place passes over the matrix; keeps one matrix. Uses exp2, as exp is slow on a CPU where it underflows."""

    @staticmethod
    def forward(ctx, values, weights):
        shares = (weights - 1).mul_(torch.finfo(values.dtype).max / 4).add_(values)
        highest = shares.amax(1, keepdim=True)
        shares.sub_(highest).mul_(1 / math.log(2)).exp2_()
        sums = shares.sum(1, keepdim=True)
        ctx.save_for_backward(shares, sums)
        return sums.log().add_(highest).squeeze(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        shares, sums = ctx.saved_tensors
        return shares * (gradient[:, None] / sums), None


def log_sum_exp(values: torch.Tensor, weights: torch.Tensor, of_batch: bool = True) -> torch.Tensor:
    """log sum exp `(B,)` over the entries of each row of `values` `(B, M)` whose weight is 1.

    A row without any gives a value so low that its exp is 0; the sum of two such values is still finite. Callers leave such rows out.
    `of_batch`: M is about B, where torch's own function is quick enough.
    """
    if not of_batch and values.shape[1]:
        return _LogSumExp.apply(values, weights)
    penalties = (weights - 1) * (torch.finfo(values.dtype).max / 4)  # 0 where chosen
    return torch.logsumexp(values + penalties, 1)


def softplus(values: torch.Tensor) -> torch.Tensor:
    """log(1 + exp(values)) without torch's threshold, beyond which its softplus is off by 2e-9."""
    return -torch.nn.functional.logsigmoid(-values)


def chosen_mean(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Mean of `values` where `weights` are 1; where none is, 0 with a graph. All `values` must be finite."""
    return (values * weights).sum() / weights.sum().clamp(min=1)


def pair_sums(values: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of `values` `(B, M)`, detached, the sum over the positives and their number, the sum over the negatives and their number."""
    values = values.detach()
    return (values * positives).sum(), positives.sum(), (values * negatives).sum(), negatives.sum()


def pair_means(name: str, sums) -> dict:
    """`{"positive_<name>", "negative_<name>"}`: the two means of the four `pair_sums`, for `stats`; 0 without pairs."""
    positive, n_positives, negative, n_negatives = sums
    return {f"positive_{name}": positive / n_positives.clamp(min=1), f"negative_{name}": negative / n_negatives.clamp(min=1)}


def active_means(name: str, sums) -> tuple[torch.Tensor, torch.Tensor, dict]:
    """Means of the active violations of positives and of negatives, and the shares of active pairs with `pair_means`, for `stats`.

    `sums`: sum and number of the active violations, of positives and of negatives, and the four `pair_sums`.
    """
    positive_sum, active_positives, negative_sum, active_negatives, *of_pairs = sums
    _, n_positives, _, n_negatives = of_pairs
    stats = {
        "active_positive_share": active_positives / n_positives.clamp(min=1),
        "active_negative_share": active_negatives / n_negatives.clamp(min=1),
        **pair_means(name, of_pairs),
    }
    return positive_sum / active_positives.clamp(min=1), negative_sum / active_negatives.clamp(min=1), stats


def soft_counts(positions: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor, n_nodes: int) -> torch.Tensor:
    """Linear soft histograms `(B, 2, n_nodes)` of each row's positives and negatives.

    Args:
        positions: `(B, M)` in [0, n_nodes - 1]; node k stands at k, a pair splits its weight 1 between the two nearest nodes.
        positives, negatives: weights `(B, M)`, 0 or 1, of the pairs that count.
    """
    lower = positions.detach().floor().clamp_(max=n_nodes - 2).nan_to_num_(0.0)  # NaN must reach the loss, not an index
    above = positions - lower  # (B, M), the share of the upper node
    # 0 positive, 1 negative, 2 no pair: a third histogram, dropped. A pair that an ablation miner chose as both counts as positive
    third = (2 - 2 * positives - negatives).clamp(min=0)
    nodes = lower.add_(third, alpha=n_nodes).long()
    counts = positions.new_zeros(len(positions), 3 * n_nodes)
    counts = counts.scatter_add(1, nodes, 1 - above).scatter_add(1, nodes + 1, above)
    return counts.view(-1, 3, n_nodes)[:, :2]


def positive_pairs(positives: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Anchors and positives, each `(P,)`, of weights `(B, M)`, sorted by anchor. Waits for the device once, for P."""
    anchors, others = positives.nonzero().unbind(1)
    return anchors, others
