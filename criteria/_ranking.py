"""Soft ranks for the losses on rankings, in chunks that the backward pass recomputes."""

import functools
from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

from criteria._pairs import own_columns

# entries computed at once: positive pairs of a chunk times the size of the reference
CHUNK = 1 << 21


class SoftRanks(torch.autograd.Function):
    """Soft rank of positive p in the list of anchor q, its own image o left out: 1 + sum_{j not o, p} sigma((s_qj -
    s_qp) / T).

    `apply(similarities (B, M), anchors (P,), positives (P,), left_out (P,), temperature, among)` -> ranks `(1, P)` in
    the whole list. With weights `among` `(B, M)` it is `(2, P)`: the second row holds the ranks among the samples whose
    weight in the anchor's row is 1. The P x M sigmoids exist a chunk at a time, forward and backward, so memory is O(B
    M + P).
    """

    @staticmethod
    def forward(ctx, similarities, anchors, positives, left_out, temperature, among):
        """See the class."""
        ctx.save_for_backward(similarities, anchors, positives, left_out, among)
        ctx.temperature = temperature
        n_lists = 1 if among is None else 2
        ranks = similarities.new_empty(n_lists, len(anchors))
        for chunk in _chunks(len(anchors), similarities.shape[1]):
            sigmoids = _sigmoids(similarities, anchors[chunk], positives[chunk], left_out[chunk], temperature)
            ranks[0, chunk] = 1 + sigmoids.sum(1)
            if among is not None:
                ranks[1, chunk] = 1 + sigmoids.mul_(among.index_select(0, anchors[chunk])).sum(1)
        return ranks

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        """Gradient of the similarities only."""
        similarities, anchors, positives, left_out, among = ctx.saved_tensors
        result = torch.zeros_like(similarities)
        for chunk in _chunks(len(anchors), similarities.shape[1]):
            sigmoids = _sigmoids(similarities, anchors[chunk], positives[chunk], left_out[chunk], ctx.temperature)
            # (P', M), 0 at the own image and at the positive
            slopes = sigmoids.mul_(1 - sigmoids).div_(ctx.temperature)
            weights = gradient[0, chunk, None]
            if among is not None:
                weights = weights + gradient[1, chunk, None] * among.index_select(0, anchors[chunk])
            slopes = slopes.mul_(weights)
            slopes.scatter_(1, positives[chunk, None], -slopes.sum(1, keepdim=True))
            result.index_add_(0, anchors[chunk], slopes)
        return result, None, None, None, None, None


def soft_ranks(similarities, anchors, positives, left_out, temperature, among=None) -> torch.Tensor:
    """`SoftRanks`; a learned temperature gets a gradient too."""
    if isinstance(temperature, torch.Tensor):
        return SoftRanks.apply(similarities / temperature, anchors, positives, left_out, 1.0, among)
    return SoftRanks.apply(similarities, anchors, positives, left_out, temperature, among)


def left_out(
    positives: torch.Tensor, negatives: torch.Tensor, anchors: torch.Tensor, partners: torch.Tensor
) -> torch.Tensor:
    """The column `(P,)` left out of each pair's list: the anchor's own image or,
    without one, the positive, which is no rival either.

    Args:
        positives, negatives: weights `(B, M)` of all pairs.
        anchors, others: the positive pairs, `(P,)` each.
    """
    own_rows = own_columns(positives, negatives).index_select(0, anchors)
    return torch.where(own_rows < 0, partners, own_rows)


def _chunks(n_pairs: int, n_others: int):
    """Slices of the pairs, each with about CHUNK sigmoids."""
    size = max(CHUNK // max(n_others, 1), 1)
    return [slice(first, first + size) for first in range(0, n_pairs, size)]


def _sigmoids(similarities, anchors, positives, left_out, temperature):
    """sigma((s_qj - s_qp) / T), `(P', M)`, 0 at the own image and at p."""
    rows = similarities.index_select(0, anchors)
    sigmoids = rows.sub_(rows.gather(1, positives[:, None])).div_(temperature).sigmoid_()
    return sigmoids.scatter_(1, left_out[:, None], 0.0).scatter_(1, positives[:, None], 0.0)


def sums_per_anchor(values: torch.Tensor, anchors: torch.Tensor, batch_size: int) -> torch.Tensor:
    """Sums `(B, ...)` of `values` `(P, ...)` over the pairs of each anchor."""
    return values.new_zeros(batch_size, *values.shape[1:]).index_add(0, anchors, values)


def sums_of_pairs(
    terms: Callable, values: torch.Tensor, anchors: torch.Tensor, positives: torch.Tensor
) -> torch.Tensor:
    """Sums `(B,)` over the positive pairs of each anchor of `terms(anchors, positives)`, see `terms_of_pairs`."""
    return sums_per_anchor(terms_of_pairs(terms, values, anchors, positives), anchors, len(values))


def terms_of_pairs(
    terms: Callable, values: torch.Tensor, anchors: torch.Tensor, positives: torch.Tensor, columns: int | None = None
) -> torch.Tensor:
    """`terms(anchors, positives)` of all positive pairs, `(P,)` or `(P, columns)`, CHUNK matrix entries at a time.

    With several chunks the backward pass computes the terms again. `values`: the similarities `(B, M)`.
    """
    size = max(CHUNK // max(values.shape[1], 1), 1)
    if len(anchors) > size:
        terms = functools.partial(checkpoint, terms, use_reentrant=False, preserve_rng_state=False)
    parts = [terms(*pairs) for pairs in zip(anchors.split(size), positives.split(size), strict=True)]
    shape = (0,) if columns is None else (0, columns)
    return torch.cat([values.new_zeros(shape), *parts])


def bounding_step(
    differences: torch.Tensor, temperature: float, rho: float, delta: float, offset: float, start: float
) -> torch.Tensor:
    """An upper bound of the step function, of the shape of `differences` t, whose gradient does not vanish above 0:
    sigmoid(t / temperature), + start at t > 0, and rho (t - delta) + offset at t > delta.
    """
    sigmoids = torch.sigmoid(differences / temperature)
    line = rho * (differences - delta) + offset
    near = torch.where(differences > 0, start + sigmoids, sigmoids)
    return torch.where(differences > delta, line, near)
