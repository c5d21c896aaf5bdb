"""Base of the losses on pairs: a loss gives its formula for the values of a few anchors, the base does the rest.

    MINES_PAIRS = True
    FLAGS = {"margin": Flag(number(), 0.2, "cosine between both"), "scale": Flag(number(above=0), 5, "of the cosines")}

    class Criterion(PairCriterion):
        \"\"\"Mean over anchors of log(1 + sum_n exp(scale (s_an - margin)) + sum_p exp(scale (margin - s_ap))).\"\"\"

        SPACE = "cosine"

        def formula(self, values, positives, negatives, labels):
            excesses = self.scale * (values - self.margin)  # (b, M)
            return softplus(torch.logaddexp(log_sum_exp(excesses, negatives), log_sum_exp(-excesses, positives)))

This works with a memory, a miner (`--mine_pairs`), `--chunk_size`, torchrun and `--loss_learn margin`. With
`PER_CLASS = ("margin",)` and `self.per_anchor("margin", labels, 2)` in the formula, `--loss_learn_per_class` works too.

Pairs are chosen by weights 0 and 1 in the precision of the batch, not by boolean masks: on a CPU a product or a sum
of two `(B, M)` matrices costs a small part of what `where`, `masked_fill` or a mask's cast costs, and needs no mask
in its backward.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterable

import torch
from torch.utils.checkpoint import checkpoint

from utilities.criterion import MetricCriterion
from utilities.reference import Reference
from utilities.tensors import Products, normalize, pairwise_distances, precision_of_products, squared_distances

ENTRIES = 1 << 26  # of a matrix (anchors, M) that is kept for the backward pass: 256 MiB in float32
ANCHORS = 16  # rows with which a matrix product is still efficient, however large the reference


class PairCriterion(MetricCriterion):
    """Base of the criteria on all pairs of batch and reference or, given a miner, on its distinct pairs. See the module
    for an example.

    A subclass gives `SPACE`, `formula` and, unless its loss is the mean of the anchors' terms, `join`. Against a
    reference with which the matrix `(B, M)` has more than `entries` numbers, the formula is computed for a few anchors
    at a time, and again in the backward pass, so that no such matrix is kept.
    """

    several_labels = True
    # None: `ENTRIES`; --memory_entries sets it
    entries: int | None = None

    # what `values` are: dot (products of the embeddings as given), cosine, euclidean, squared
    SPACE = "dot"
    # name of the mean values of positive and of negative pairs among the statistics; None: not recorded
    STATISTIC = "similarity"

    def formula(
        self, values: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """The terms `(b,)` of b anchors with `labels` `(b,)`.

        Args:
            values: `(b, M)`, of the anchors and all samples that they are compared with.
            positives, negatives: `(b, M)`, 1 where a pair counts, else 0.

        Returns the terms, or a dict `{"loss": …}` with what else `join` needs: tensors are joined along their first
        dimension in the order of the anchors, numbers are summed.
        """
        raise NotImplementedError

    def join(self, results: dict[str, torch.Tensor]) -> torch.Tensor:
        """The scalar loss from what `formula` found, of all anchors.

        Beside that, `results` holds `labels` `(B,)`, `n_positives` `(B,)` and `n_negatives` `(B,)` of the anchors. What
        `join` puts into `self.stats` is recorded.
        """
        return results["loss"].mean()

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        mined = None
        if self.batchminer is not None:
            mined = self.pair_masks(batch, labels, reference)
        return self.finish(self.compare(batch, labels, reference, mined), batch)

    def prepare(self, batch: torch.Tensor, reference: Reference) -> tuple[torch.Tensor, Reference]:
        """The embeddings that `measure` compares, of the batch and of the reference."""
        if self.SPACE != "cosine":
            return batch, reference
        return reference.mapped(normalize, batch)

    def measure(self, points: torch.Tensor, reference_points: torch.Tensor, norms: torch.Tensor | None) -> torch.Tensor:
        """The values `(b, M)` of prepared embeddings `(b, D)` and `(M, D)`; these are the same tensor where a batch is
        its own reference.

        `norms`: the squared lengths `(M,)` of others than the batch, where the values are distances.
        """
        if self.SPACE == "euclidean":
            return pairwise_distances(points, reference_points, norms)
        if self.SPACE == "squared":
            return squared_distances(points, reference_points, norms)
        return points @ reference_points.T

    def compare(
        self,
        batch: torch.Tensor,
        labels: torch.Tensor,
        reference: Reference,
        mined: tuple[torch.Tensor, torch.Tensor] | None = None,
        formula: Callable | None = None,
    ) -> dict[str, torch.Tensor]:
        """What `formula` (default: the criterion's) finds for all anchors,
        and the sums of the values for the statistics.

        `mined`: boolean masks `(B, M)` of the positive and the negative pairs; default: all pairs.
        """
        if not len(reference):
            reference = reference.with_own_row()
            mined = None
        points, reference = self.prepare(batch, reference)
        distances = self.SPACE in ("euclidean", "squared")
        norms = None
        if distances and not reference.plain:
            # once, not for each few anchors
            norms = reference.embeddings.square().sum(1)
        part = functools.partial(self._part, formula or self.formula, norms)
        size = anchors_at_once(len(reference), self.entries)
        if reference.plain or size >= len(batch):
            results = part(points, labels, reference, mined)
        else:
            anchors = reference.split(size)
            masks = [None] * len(anchors)
            if mined is not None:
                masks = zip(*(mask.split(size) for mask in mined), strict=True)
            parts = few_at_a_time(part, zip(points.split(size), labels.split(size), anchors, masks, strict=True))
            results = {name: joined([part[name] for part in parts]) for name in parts[0]}
        return {"labels": labels, **results}

    def _part(self, formula, norms, points, labels, reference, mined) -> dict[str, torch.Tensor]:
        positives, negatives = (as_weights(mask, points) for mask in (mined or reference.masks(labels)))
        values = self.measure(points, reference.embeddings, norms)
        if self.GUIDES_PAIRS and reference.guide is not None:
            formula = functools.partial(formula, guide=reference.guide)
        results = formula(values, positives, negatives, labels)
        if not isinstance(results, dict):
            results = {"loss": results}
        results = {**results, "n_positives": positives.sum(1), "n_negatives": negatives.sum(1)}
        if self.STATISTIC:
            values = values.detach()
            if self.SPACE == "euclidean":
                values = values.square()
            results |= {"positive_sum": (values * positives).sum(), "negative_sum": (values * negatives).sum()}
        return results

    def finish(self, results: dict[str, torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
        """The loss from what `compare` found;
        the mean values of positive and of negative pairs are put into `stats`.
        """
        self.stats = {}
        loss = self.join(results)
        if self.STATISTIC:
            for kind in ("positive", "negative"):
                number = results[f"n_{kind}s"].sum().clamp(min=1)
                self.stats[f"{kind}_{self.STATISTIC}"] = results[f"{kind}_sum"] / number
        # NaN embeddings give distances of 0: NaN must reach the loss
        return loss + 0 * batch.sum()


def anchors_at_once(n_others: int, entries: int | None = None) -> int:
    """How many anchors meet `n_others` samples at once: as many as give a matrix of at most `entries` numbers (None:
    `ENTRIES`), and at least `ANCHORS`.
    """
    return max((entries or ENTRIES) // max(n_others, 1), ANCHORS)


def few_at_a_time(part: Callable, argument_lists: Iterable[tuple]) -> list:
    """`part(*arguments)` of each of `argument_lists`, computed again in the backward pass, as exactly as now."""
    precision = precision_of_products()

    def contexts():
        return contextlib.nullcontext(), Products(precision)

    return [checkpoint(part, *arguments, use_reentrant=False, context_fn=contexts) for arguments in argument_lists]


def joined(parts: list[torch.Tensor]) -> torch.Tensor:
    """Rows one after the other, numbers summed."""
    if parts[0].ndim:
        return torch.cat(parts)
    return torch.stack(parts).sum(0)


def as_weights(mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A boolean mask as weights 0 and 1 in the precision of `like`."""
    # the same bytes; booleans themselves cast slowly
    return mask.view(torch.uint8).to(like.dtype)


def _far(like: torch.Tensor) -> float:
    """Beyond every value; the sum of two is finite, and the exp of its negative is 0."""
    return torch.finfo(like.dtype).max / 4


def hardest(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The largest value `(b,)` in each row of `values` `(b, M)` whose weight is 1; without any a very low one."""
    return (values + (weights - 1) * _far(values)).amax(1)


def easiest(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The smallest value `(b,)` in each row of `values` `(b, M)` whose weight is 1; without any a very high one."""
    return (values + (1 - weights) * _far(values)).amin(1)


class _LogSumExp(torch.autograd.Function):
    """`log_sum_exp` in few in-place passes over the matrix; keeps one matrix.
    Uses exp2, as exp is slow on a CPU where it underflows.
    """

    @staticmethod
    def forward(ctx, values, weights):
        """log sum exp `(b,)` of `values` `(b, M)` where `weights` is 1; saves the terms and their sums."""
        shares = (weights - 1).mul_(_far(values)).add_(values)
        highest = shares.amax(1, keepdim=True)
        shares.sub_(highest).mul_(1 / math.log(2)).exp2_()
        sums = shares.sum(1, keepdim=True)
        ctx.save_for_backward(shares, sums)
        return sums.log().add_(highest).squeeze(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        """The gradient `(b, M)` of `values`: that of its row, `(b,)`, times the softmax. None for the weights."""
        shares, sums = ctx.saved_tensors
        return shares * (gradient[:, None] / sums), None


def log_sum_exp(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """log sum exp `(b,)` over the entries of each row of `values` `(b, M)` whose weight is 1.

    A row without any gives a value so low that its exp is 0; the sum of two such values is still finite. Callers leave
    such rows out.
    """
    # a batch against itself, where torch's own function is quick enough
    if values.shape[0] == values.shape[1]:
        # The penalty is 0 where the weight is 1, else so large that the exp is 0.
        return torch.logsumexp(values + (weights - 1) * _far(values), 1)
    return _LogSumExp.apply(values, weights)


def softplus(values: torch.Tensor) -> torch.Tensor:
    """log(1 + exp(values)) without torch's threshold, beyond which its softplus is off by 2e-9."""
    return -torch.nn.functional.logsigmoid(-values)


def chosen_mean(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Mean of `values` where `weights` are 1; where none is, 0 with a graph. All `values` must be finite."""
    return (values * weights).sum() / weights.sum().clamp(min=1)


def soft_counts(
    positions: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor, n_nodes: int
) -> torch.Tensor:
    """Linear soft histograms `(B, 2, n_nodes)` of each row's positives and negatives.

    Args:
        positions: `(B, M)` in [0, n_nodes - 1]; node k stands at k, a pair splits its weight 1 between the two nearest
        nodes. positives, negatives: weights `(B, M)`, 0 or 1, of the pairs that count.
    """
    # NaN must reach the loss, not an index
    lower = positions.detach().floor().clamp_(max=n_nodes - 2).nan_to_num_(0.0)
    above = positions - lower  # (B, M), the share of the upper node
    # 0 positive, 1 negative, 2 no pair: a third histogram, dropped. A pair that an ablation miner chose as both counts
    # as positive
    third = (2 - 2 * positives - negatives).clamp(min=0)
    nodes = lower.add_(third, alpha=n_nodes).long()
    counts = positions.new_zeros(len(positions), 3 * n_nodes)
    counts = counts.scatter_add(1, nodes, 1 - above).scatter_add(1, nodes + 1, above)
    return counts.view(-1, 3, n_nodes)[:, :2]


def positive_pairs(positives: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Anchors and positives, each `(P,)`, of weights `(B, M)`, sorted by anchor. Waits for the device once, for P."""
    anchors, partners = positives.nonzero().unbind(1)
    return anchors, partners


def anchors_of(counts: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    """The anchor `(P,)` of each of `terms` `(P,)`, which stand anchor by anchor, `counts` `(B,)` of each."""
    places = torch.arange(len(counts), device=counts.device)
    return places.repeat_interleave(counts.long(), output_size=len(terms))


def own_columns(positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
    """The column `(b,)` that is an anchor's own image, which is neither its positive nor its negative; -1 without one.
    All pairs count.
    """
    counted, columns = (positives + negatives).min(1)
    return torch.where(counted > 0, -1, columns)
