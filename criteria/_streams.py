"""All negatives of a large reference, such as a memory, met a few columns at a time: no matrix `(B, M)` is made, kept or masked.

What is no negative, positives and own images, is a list of pairs, short beside `(B, M)`; see `Apart`. A block of columns stays in a CPU's
cache, so that what is done to it costs little beside the product that makes it. The backward pass makes the products again.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from criteria._ranking import sums_per_anchor
from utilities.reference import Reference
from utilities.tensors import FLOOR
from utilities.tuples import Classes, spread

BLOCK = {"cpu": 1 << 18, "cuda": 1 << 25}  # numbers of a block `(B, columns)`: a megabyte of cache, and enough work for a GPU
SHORT = 8  # a list of at most 1 / SHORT of all pairs is worth it
LOG2E = 1 / math.log(2)
SMALL = 60  # exponents of 2: sums of such powers stay far from the bounds of float32
SMALL_SUM = 100


class Apart(NamedTuple):
    """The pairs that are no negatives: positives, `(P,)` each; all with the anchors' own images, `(Q,)` each, by column; own images alone."""

    anchors: torch.Tensor
    positives: torch.Tensor
    all: tuple[torch.Tensor, torch.Tensor]
    own: tuple[torch.Tensor, torch.Tensor]


class Form(NamedTuple):
    """What becomes of a block of products `(B, columns)`: `value` in place, `slope` its derivative from what was there."""

    value: Callable
    slope: Callable


def apart(labels: torch.Tensor, reference: Reference) -> Apart | None:
    """The pairs of anchors with `labels` `(B,)` that are no negatives; None where these are many. Asks the device once, for both numbers."""
    classes, have_own = Classes(labels, reference), reference.own >= 0
    n_positives, n_own = torch.stack([classes.n_positives.sum(), have_own.sum()]).tolist()
    if n_positives * SHORT > len(labels) * len(reference):
        return None
    anchors, numbers = spread(classes.n_positives, n_positives)
    positives = classes.positives(anchors, numbers)
    own_anchors = torch.nonzero_static(have_own, size=n_own).squeeze(1)
    own = _by_column(own_anchors, reference.own[own_anchors])
    return Apart(anchors, positives, _by_column(torch.cat([anchors, own[0]]), torch.cat([positives, own[1]])), own)


def _by_column(rows: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    order = columns.argsort()
    return rows[order], columns[order]


class _Block(NamedTuple):
    columns: slice
    apart: torch.Tensor  # places, counted along the rows of the block, of the pairs that are left out


def _blocks(points: torch.Tensor, others: torch.Tensor, pairs: tuple[torch.Tensor, torch.Tensor]) -> list[_Block]:
    """Blocks of columns of `points` `(B, D)` times `others` `(M, D)`, without `pairs`, sorted by column."""
    rows, columns = pairs
    width = max(BLOCK.get(points.device.type, BLOCK["cuda"]) // max(len(points), 1), 1)
    starts, edges = list(range(0, len(others), width)), [0, len(columns)]
    if len(starts) > 1:  # the one place where a reference wider than a block asks the device again
        edges = torch.searchsorted(columns, torch.arange(0, len(others) + width, width, device=columns.device)).tolist()
    blocks = []
    for start, first, last in zip(starts, edges, edges[1:], strict=False):
        stop = min(start + width, len(others))
        blocks.append(_Block(slice(start, stop), rows[first:last] * (stop - start) + columns[first:last] - start))
    return blocks


class _LogSumExp(torch.autograd.Function):
    """See `log_sum_exp`. By powers of 2: exp is slow on a CPU where it underflows."""

    @staticmethod
    def forward(ctx, points, others, pairs, least, form):
        ctx.blocks, ctx.form = _blocks(points, others, pairs), form
        ctx.least = None if least is None else least[:, None] * LOG2E
        ctx.small = form is None and _are_small(points, others)
        low = -torch.finfo(points.dtype).max / 4
        most = points.new_full((len(points),), -torch.inf)
        highest, sums, kept = torch.full_like(most, low), torch.zeros_like(most), torch.zeros_like(most)
        if ctx.small:
            highest.zero_()
        scaled = points * LOG2E if form is None else points
        for block in ctx.blocks:
            logits = _logits(scaled @ others[block.columns].T, block, form)
            if ctx.least is not None or not ctx.small:
                most = torch.maximum(most, logits.amax(1))
            counting = None if ctx.least is None else _above(logits, ctx.least)
            if not ctx.small:
                raised = torch.maximum(highest, most)  # what counts is above what does not
                sums.mul_((highest - raised).exp2_())
                highest = raised
                logits.sub_(highest[:, None])
            powers = logits.exp2_()
            if counting is not None:
                powers.mul_(counting)
                kept += counting.sum(1)
            sums += powers.sum(1)
        exponents = sums.log2().add_(highest).clamp_(min=low)
        ctx.save_for_backward(points, others, exponents)
        most = most / LOG2E
        ctx.mark_non_differentiable(most, kept)
        return exponents / LOG2E, most, kept

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient, *_):
        points, others, exponents = ctx.saved_tensors
        if ctx.small:  # rows without a logit have no share
            gradient = gradient * torch.where(exponents > -SMALL_SUM, (-exponents.clamp(min=-SMALL_SUM)).exp2(), 0.0)

        def weights(products, block):
            slopes = None if ctx.form is None else ctx.form.slope(products)
            logits = _logits(products, block, ctx.form)
            counting = None if ctx.least is None else _above(logits, ctx.least)
            if not ctx.small:
                logits.sub_(exponents[:, None])
                if counting is not None:
                    logits.clamp_(max=1)  # what does not count may be far above a sum of nothing
            shares = logits.exp2_().mul_(gradient[:, None])
            for factor in (counting, slopes):
                if factor is not None:
                    shares.mul_(factor)
            return shares

        return *_gradients(ctx, points, others, weights, LOG2E if ctx.form is None else 1), None, None, None


def _above(logits: torch.Tensor, least: torch.Tensor | float) -> torch.Tensor:
    """1 where a logit counts, else 0, in its precision: a product with them is quicker than a mask."""
    return torch.gt(logits, least, out=torch.empty_like(logits))


def _are_small(points: torch.Tensor, others: torch.Tensor) -> bool:
    """Whether powers of 2 of all products can be added up as they are. On a GPU it is not asked: the answer would hold up the step."""
    if points.device.type != "cpu" or not len(points) or not len(others):
        return False
    longest = [float(torch.linalg.vector_norm(part.detach(), dim=1).max()) for part in (points, others)]
    return longest[0] * longest[1] * LOG2E < SMALL


def _logits(products: torch.Tensor, block: _Block, form: Form | None) -> torch.Tensor:
    """In place: what becomes of products, for powers of 2; -inf for what is left out. Without a form they are so already."""
    if form is not None:
        form.value(products)
        products.mul_(LOG2E)
    products.view(-1).index_fill_(0, block.apart, -torch.inf)
    return products


class _Sum(torch.autograd.Function):
    """See `sums`."""

    @staticmethod
    def forward(ctx, points, others, pairs, form):
        ctx.blocks, ctx.form = _blocks(points, others, pairs), form
        total, active = points.new_zeros(len(points)), points.new_zeros(len(points))
        for block in ctx.blocks:
            values = points @ others[block.columns].T
            form.value(values)
            values.view(-1).index_fill_(0, block.apart, 0.0)
            total += values.sum(1)
            active += _above(values, 0).sum(1)
        ctx.save_for_backward(points, others)
        ctx.mark_non_differentiable(active)
        return total, active

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient, _):
        points, others = ctx.saved_tensors

        def weights(products, block):
            slopes = ctx.form.slope(products).mul_(gradient[:, None])
            slopes.view(-1).index_fill_(0, block.apart, 0.0)
            return slopes

        return *_gradients(ctx, points, others, weights, 1), None, None


def _gradients(
    ctx, points: torch.Tensor, others: torch.Tensor, weights: Callable, scale: float
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """By `points` and, where they want one, by `others`: `weights(scale * products, block)` is the derivative by their products."""
    scaled = points if scale == 1 else scale * points
    of_points = torch.zeros_like(points)
    of_others = torch.zeros_like(others) if ctx.needs_input_grad[1] else None
    for block in ctx.blocks:
        part = others[block.columns]
        slopes = weights(scaled @ part.T, block)
        of_points.addmm_(slopes, part)
        if of_others is not None:
            torch.mm(slopes.T, points, out=of_others[block.columns])
    return of_points, of_others


def log_sum_exp(
    points: torch.Tensor, others: torch.Tensor, pairs: tuple[torch.Tensor, torch.Tensor], least=None, form: Form | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """log sum exp over each anchor's row of `form` (default: as they are) of the products of `points` `(B, D)` with `others` `(M, D)`.

    Args:
        pairs: rows and columns, by column, that are left out.
        least: `(B,)`: only logits above it count; all of them where it is None.

    Returns:
        `(B,)`; the greatest logit `(B,)`, above `least` or not; how many are above `least`, `(B,)`. Both only where there is a `least`; they are
        constants for the gradient. Without a logit a value so low that its exp is 0, and -inf.
    """
    return _LogSumExp.apply(points, others, pairs, least, form)


def sums(
    points: torch.Tensor, others: torch.Tensor, pairs: tuple[torch.Tensor, torch.Tensor], form: Form
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum `(B,)` over each anchor's row of `form` of the products of `points` `(B, D)` with `others` `(M, D)`, and how many are above 0, `(B,)`.

    `pairs`: rows and columns, by column, that are left out.
    """
    return _Sum.apply(points, others, pairs, form)


def squared(points: torch.Tensor, others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`(B, D + 2)` and `(M, D + 2)`, whose products are the squared distances of `points` `(B, D)` and `others` `(M, D)`, up to rounding."""
    lengths, ones = points.square().sum(1, keepdim=True), points.new_ones(len(points), 1)
    of_others = others.square().sum(1, keepdim=True)
    return torch.cat([points, lengths, ones], 1), torch.cat([-2 * others, torch.ones_like(of_others), of_others], 1)


def rounding(points: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """What squared distances of `points` `(B, D)` and `others` `(M, D)` may be off by, `(B, 1)`, as in `utilities.tensors.squared_distances`."""
    longest = others.detach().square().sum(1).amax() if len(others) else 0.0
    return 8 * torch.finfo(points.dtype).eps * (points.detach().square().sum(1, keepdim=True) + longest)


def near(margin: float, noise: torch.Tensor, root: bool) -> Form:
    """[margin - d]+ of products d, or of their square roots; what is not above `noise` `(B, 1)`, the products' rounding, is 0."""

    def distances(products):
        cleared = products.mul_(_above(products, noise))
        return cleared.sqrt_() if root else cleared

    def value(products):
        distances(products).neg_().add_(margin).relu_()

    def slope(products):
        found = distances(products)
        slopes = torch.lt(found, margin, out=torch.empty_like(found)).neg_()
        if root:  # at 0, where a root has no slope, it is 0
            slopes.mul_(_above(found, 0)).div_(found.mul_(2).clamp_(min=FLOOR))
        return slopes

    return Form(value, slope)


def positive_products(points: torch.Tensor, others: torch.Tensor, apart: Apart) -> torch.Tensor:
    """Products `(P,)` of the positive pairs of `points` `(B, D)` and `others` `(M, D)`."""
    return (points.index_select(0, apart.anchors) * others.index_select(0, apart.positives)).sum(1)


def sum_exp_per_anchor(values: torch.Tensor, anchors: torch.Tensor, n_anchors: int) -> torch.Tensor:
    """log sum exp `(B,)` of the `values` `(P,)` of each anchor; without one a value so low that its exp is 0."""
    low = values.new_full((n_anchors,), -torch.finfo(values.dtype).max / 4)
    highest = low.scatter_reduce(0, anchors, values.detach(), "amax")
    total = sums_per_anchor((values - highest.index_select(0, anchors)).exp(), anchors, n_anchors)
    empty = total == 0
    return torch.where(empty, low, torch.where(empty, 1.0, total).log() + highest)


def pair_sums(points: torch.Tensor, reference: Reference, apart: Apart, of_positives: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of the products of `points` `(B, D)` with the reference, detached, what `criteria._pairs.pair_sums` gives of their matrix.

    `of_positives` `(P,)`: those of the positive pairs.
    """
    points, others = points.detach(), reference.embeddings.detach()
    rows, columns = apart.own
    positive = of_positives.detach().sum()
    of_own = (points.index_select(0, rows) * others.index_select(0, columns)).sum()
    n_positives, n_negatives = (positive.new_full((), n) for n in (len(apart.anchors), len(points) * len(others) - len(apart.all[0])))
    return positive, n_positives, points.sum(0) @ others.sum(0) - positive - of_own, n_negatives
