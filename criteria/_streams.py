"""Sums over all negatives of a large reference, such as a memory, a block of columns at a time: no `(B, M)` matrix is made, kept or masked.

The other pairs (positives and own images) are listed in `Apart`, which is short beside `(B, M)`. A block stays in a CPU's cache, so
element-wise work costs little beside the matrix product. The backward pass recomputes the products.
"""

import math
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import NamedTuple

import torch

from criteria._ranking import sums_per_anchor
from utilities.reference import Reference
from utilities.tuples import spread

BLOCK = {
    "cpu": 1 << 19,
    "cuda": 1 << 25,
}  # entries of a block `(B, columns)`: on a CPU what the caches of two cores hold, on a GPU enough to keep it busy
SHORT = 8  # blocks are used where `Apart` lists at most 1 / SHORT of all pairs
CHUNK = 1 << 10  # pairs whose embeddings are gathered at once, to stay in the cache
LOG2E = 1 / math.log(2)
MOST = 126  # largest absolute exponent of 2 at which float32 keeps all its digits


class Apart(NamedTuple):
    """The Q pairs that are not negatives: positives and the anchors' own images, sorted by column."""

    rows: torch.Tensor  # (Q,)
    columns: torch.Tensor  # (Q,)
    positive: torch.Tensor  # indices of the positives among the Q pairs, (P,)
    own: torch.Tensor  # indices of the own images, (Q - P,)
    anchors: torch.Tensor  # rows of the positives, (P,)


class Form(NamedTuple):
    """Element-wise function of a block of products `(B, columns)` times `scale`, a number or `(B, 1)`.

    `value(products, spare)` works in place. `slope(products, spare)` returns the derivative by the unscaled products: for `sums` that of
    the value, in either tensor; for `log_sum_exp` that of the logit, in `spare`, with `products` left as they are.
    """

    scale: float | torch.Tensor
    value: Callable | None = None
    slope: Callable | None = None


PRODUCTS = Form(LOG2E)  # the products are the logits, to base 2: exp is slower than exp2 on a CPU


def apart(labels: torch.Tensor, reference: Reference) -> Apart | None:
    """The pairs of anchors with `labels` `(B,)` that are not negatives; None where they are many. Waits for the device once."""
    sorted_labels, by_label = labels.sort(stable=True)
    others, by_other = reference.labels.sort(stable=True)  # sorted queries make searchsorted quicker
    first = torch.searchsorted(sorted_labels, others)
    counts = torch.searchsorted(sorted_labels, others, right=True) - first
    have_own = reference.own >= 0
    # an arbitrary label where an anchor has no own image
    own_labels = torch.cat([reference.labels, labels[:1]]).index_select(0, reference.own.clamp(min=0))
    strange = have_own & (own_labels != labels)
    n_same, n_own, n_strange = torch.stack([counts.sum(), have_own.sum(), strange.sum()]).tolist()
    n_positives = n_same - n_own + n_strange
    if n_positives * SHORT > len(labels) * len(reference):
        return None
    first, counts = (torch.empty_like(by_other).scatter_(0, by_other, values) for values in (first, counts))
    columns, numbers = spread(counts, n_same)
    rows = by_label.index_select(0, first.index_select(0, columns) + numbers)
    if n_strange:
        anchors = torch.nonzero_static(strange, size=n_strange).squeeze(1)
        columns, order = torch.cat([columns, reference.own[anchors]]).sort()
        rows = torch.cat([rows, anchors])[order]
    are_own = reference.own.index_select(0, rows) == columns
    positive, own = (torch.nonzero_static(mask, size=n).squeeze(1) for mask, n in ((~are_own, n_positives), (are_own, n_own)))
    return Apart(rows, columns, positive, own, rows.index_select(0, positive))


class _Blocks(NamedTuple):
    """Blocks of `width` columns, the last one perhaps narrower. Computed once, for the forward and the backward pass."""

    width: int
    sizes: list[int]  # number of pairs of `Apart` in each block
    places: tuple[torch.Tensor, ...]  # their indices in each flattened block

    @classmethod
    def of(cls, points: torch.Tensor, others: torch.Tensor, apart: Apart) -> "_Blocks":
        """The blocks of the products of `points` `(B, D)` with `others` `(M, D)`."""
        width = max(BLOCK.get(points.device.type, BLOCK["cuda"]) // max(len(points), 1), 1)
        starts, edges = range(0, len(others), width), [0, len(apart.columns)]
        if not starts:
            return cls(width, [], ())
        if len(starts) > 1:  # the second and last wait for the device, only where the reference is wider than a block
            edges = torch.searchsorted(apart.columns, torch.arange(0, len(others) + width, width, device=points.device)).tolist()
        sizes = [last - first for first, last in zip(edges, edges[1:], strict=False)][: len(starts)]
        widths = torch.where(apart.columns < starts[-1], width, len(others) - starts[-1])
        return cls(width, sizes, (apart.rows * widths + apart.columns % width).split(sizes))

    def split(self, *of_pairs: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
        """Of each block its `places` and their entries of each of `of_pairs` `(Q,)`."""
        return zip(self.places, *(values.split(self.sizes) for values in of_pairs), strict=True)

    def products(self, points: torch.Tensor, others: torch.Tensor) -> Iterator[tuple]:
        """Of each block its columns `(D, columns)`, the products `(B, columns)`, their flat memory, spare memory shaped like the products.

        All blocks share these two pieces of memory. The flat one has the size of the widest block.
        """
        n_points, parts = points.shape[0], others.T.split(self.width, 1) if self.sizes else ()
        room = points.new_empty(2, n_points * min(self.width, others.shape[0]))
        flat, sized = room[0], None
        for part in parts:
            if part.shape[1] != sized:
                sized = part.shape[1]
                products, spare = room[:, : n_points * sized].view(2, n_points, sized)
            yield part, torch.mm(points, part, out=products), flat, spare


class _LogSumExp(torch.autograd.Function):
    """See `log_sum_exp`. Without a bound, the running sums are relative to the largest exponent so far."""

    @staticmethod
    def forward(ctx, points, others, apart, penalties, bound, least, mean, form):
        ctx.blocks = _Blocks.of(points, others, apart)
        ctx.form, ctx.penalties = form, penalties
        ctx.least = None if least is None else least[:, None] * LOG2E
        bounded = bound is not None and least is None and fits(bound, len(others))
        low = -torch.finfo(points.dtype).max / 4
        highest = points.new_full((len(points),), 0.0 if bounded else low)
        sums, kept, weighted = (torch.zeros_like(highest) for _ in range(3))
        picked = points.new_empty(len(apart.rows))
        blocks = zip(ctx.blocks.products(points * form.scale, others), ctx.blocks.split(picked, penalties), strict=False)
        for (_, products, flat, spare), (places, found, left_out) in blocks:
            torch.index_select(flat, 0, places, out=found)
            if form.value is not None:
                form.value(products, spare)
            flat.index_add_(0, places, left_out)  # from here `products` holds logits to base 2
            if least is not None:
                kept.add_(_above(products, ctx.least, spare).sum(1))
            exponents = products
            if not bounded:
                raised = torch.maximum(highest, products.amax(1))  # over all logits: those that count are the largest
                lowered, highest = (highest - raised).exp2_(), raised
                sums.mul_(lowered)
                weighted.mul_(lowered)
                exponents = torch.sub(products, highest.unsqueeze(1), out=spare if mean else products)
            powers = torch.exp2(exponents, out=spare if mean else products)
            if least is not None:
                powers.mul_(spare)
            sums.add_(powers.sum(1))
            if mean:
                powers.mul_(products).view(-1).index_fill_(0, places, 0.0)  # their logits are -inf
                weighted.add_(powers.sum(1))
        exponents = sums.log2().add_(highest).clamp_(min=low)
        ctx.save_for_backward(points, others, torch.where(exponents == low, -low, exponents))  # shares of an empty sum are 0
        most = torch.where(highest == low, -torch.inf, highest / LOG2E)
        means = weighted / torch.where(sums == 0, LOG2E, sums * LOG2E)
        ctx.mark_non_differentiable(most, kept, means)
        scales = form.scale[apart.rows, 0] if isinstance(form.scale, torch.Tensor) else form.scale
        return exponents / LOG2E, picked / scales, most, kept, means

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient, of_pairs, *_):
        points, others, exponents = ctx.saved_tensors
        form, exponents, gradient = ctx.form, exponents[:, None], gradient[:, None]

        def weights(products, flat, spare, places, left_out, of_picked):
            slopes = None if form.slope is None else form.slope(products, spare)
            if form.value is not None:
                form.value(products, spare)
            flat.index_add_(0, places, left_out)
            if ctx.least is not None:
                slopes = _above(products, ctx.least, spare)
            shares = products.sub_(exponents).exp2_().mul_(gradient)
            if slopes is not None:
                shares.mul_(slopes)
            flat.index_add_(0, places, of_picked)
            return shares

        return *_gradients(ctx, points, others, weights, ctx.penalties, of_pairs), *[None] * 6


class _BothLogSumExp(torch.autograd.Function):
    """See `both_log_sum_exp`. A block holds whole columns; of the rows the running sums are relative to the largest exponent so far."""

    @staticmethod
    def forward(ctx, points, others, apart, form):
        ctx.blocks, ctx.form = _Blocks.of(points, others, apart), form
        low = -torch.finfo(points.dtype).max / 4
        highest = points.new_full((len(points),), low)
        sums, of_others = torch.zeros_like(highest), []
        for (_, products, flat, spare), places in zip(ctx.blocks.products(points * form.scale, others), ctx.blocks.places, strict=False):
            form.value(products, spare)
            flat.index_fill_(0, places, -torch.inf)
            raised = torch.maximum(highest, products.amax(1))
            powers = torch.sub(products, raised.unsqueeze(1), out=spare).exp2_()
            sums, highest = sums.mul_((highest - raised).exp2_()).add_(powers.sum(1)), raised
            tops = products.amax(0).clamp_(min=low)
            of_others.append(products.sub_(tops).exp2_().sum(0).log2_().add_(tops).clamp_(min=low))
        exponents = sums.log2_().add_(highest).clamp_(min=low), torch.cat([highest[:0], *of_others])
        ctx.save_for_backward(points, others, *(torch.where(part == low, -low, part) for part in exponents))  # shares of an empty sum are 0
        return tuple(part / LOG2E for part in exponents)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, of_rows, of_columns):
        points, others, rows, columns = ctx.saved_tensors
        rows, of_rows = rows[:, None], of_rows[:, None]
        parts = zip(columns.split(ctx.blocks.width), of_columns.split(ctx.blocks.width), strict=True)

        def weights(products, flat, spare, places):
            columns, of_columns = next(parts)
            slopes = ctx.form.slope(products, spare)
            ctx.form.value(products, spare)
            flat.index_fill_(0, places, -torch.inf)
            shares = (products - rows).exp2_().mul_(of_rows)
            return shares.add_(products.sub_(columns).exp2_().mul_(of_columns)).mul_(slopes)

        return *_gradients(ctx, points, others, weights), None, None


def fits(bound: float, n: int) -> bool:
    """Whether float32 holds the sum of `n` exponentials of logits of at most `bound`, and of their inverses, with all its digits."""
    return bound * LOG2E + math.log2(max(n, 1)) < MOST


def _above(values: torch.Tensor, least: torch.Tensor | float, out: torch.Tensor) -> torch.Tensor:
    """1 where a value is above `least`, else 0, in the precision of `out`: multiplying is quicker than masking."""
    return torch.gt(values, least, out=out)


class _Sum(torch.autograd.Function):
    """See `sums`."""

    @staticmethod
    def forward(ctx, points, others, apart, form):
        ctx.blocks, ctx.form = _Blocks.of(points, others, apart), form
        total, active = points.new_zeros(len(points)), points.new_zeros(len(points))
        blocks = zip(ctx.blocks.products(points * form.scale, others), ctx.blocks.places, strict=False)
        for (_, values, flat, spare), places in blocks:
            form.value(values, spare)
            flat.index_fill_(0, places, 0.0)
            total.add_(values.sum(1))
            active.add_(values.gt_(0).sum(1))
        ctx.save_for_backward(points, others)
        ctx.mark_non_differentiable(active)
        return total, active

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient, _):
        points, others = ctx.saved_tensors
        gradient = gradient[:, None]

        def weights(products, flat, spare, places):
            slopes = ctx.form.slope(products, spare).mul_(gradient)
            slopes.view(-1).index_fill_(0, places, 0.0)
            return slopes

        return *_gradients(ctx, points, others, weights), None, None


def _gradients(ctx, points: torch.Tensor, others: torch.Tensor, weights: Callable, *of_pairs: torch.Tensor) -> tuple:
    """Gradients of `points` and, if needed, of `others`; `weights` turns a block of scaled products into the gradient of the products."""
    of_points = torch.zeros_like(points)
    of_others = torch.empty_like(others) if ctx.needs_input_grad[1] else None
    parts = repeat(None) if of_others is None else of_others.split(ctx.blocks.width)
    blocks = zip(ctx.blocks.products(points * ctx.form.scale, others), ctx.blocks.split(*of_pairs), parts, strict=False)
    for (part, products, flat, spare), given, of_part in blocks:
        slopes = weights(products, flat, spare, *given)
        of_points.addmm_(slopes, part.T)
        if of_part is not None:
            torch.mm(slopes.T, points, out=of_part)
    return of_points, of_others


def log_sum_exp(
    points: torch.Tensor,
    others: torch.Tensor,
    apart: Apart,
    positives: bool = False,
    bound: float | None = None,
    least: torch.Tensor | None = None,
    mean: bool = False,
    form: Form = PRODUCTS,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """log sum exp over each anchor's negatives of `form` of the products of `points` `(B, D)` with `others` `(M, D)`.

    Args:
        apart: the pairs that are left out.
        positives: whether the positives count too.
        bound: a bound on the logits' absolute values, where one is known.
        least: `(B,)`: only logits above it count; default: all. Not together with a `form` that has a slope.
        mean: whether to average the logits too. Not together with `positives` or `least`.
        form: its values are logits to base 2, that is, times `LOG2E`.

    Returns:
        log sum exp `(B,)`; products of the positive pairs `(P,)`; largest logit `(B,)`, above `least` or not; number of logits above
        `least` `(B,)`; mean of the logits `(B,)`, weighted by their softmax. The last three are constants for the gradient, the largest
        and the number are valid only with a `least`. An anchor without a logit has a log sum exp so low that its exp is 0, -inf as its
        largest logit and 0 as its mean.
    """
    penalties = points.new_full(apart.rows.shape, -torch.inf)
    if positives:
        penalties.index_fill_(0, apart.positive, 0.0)
    total, picked, *constants = _LogSumExp.apply(points, others, apart, penalties, bound, least, mean, form)
    return total, picked.index_select(0, apart.positive), *constants


def both_log_sum_exp(points: torch.Tensor, others: torch.Tensor, apart: Apart, form: Form) -> tuple[torch.Tensor, torch.Tensor]:
    """log sum exp of `form` as of `log_sum_exp`, over each anchor's negatives `(B,)`, and over the anchors of which a sample is one `(M,)`.

    `form` has a slope, and its value leaves `spare` as it is.
    """
    return _BothLogSumExp.apply(points, others, apart, form)


def with_gradient(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`values`, a constant, with the gradient of `like`."""
    return values + (like - like.detach())


def sums(points: torch.Tensor, others: torch.Tensor, apart: Apart, form: Form) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum over each anchor's negatives of `form` of the products of `points` `(B, D)` with `others` `(M, D)`; how many values are above 0.

    Both are `(B,)`. The values of `form` must not be negative.
    """
    return _Sum.apply(points, others, apart, form)


def positive_pairs(points: torch.Tensor, others: torch.Tensor, apart: Apart) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Embeddings of the positive pairs from `points` `(B, D)` and `others` `(M, D)`, `CHUNK` pairs at a time."""
    partners = apart.columns.index_select(0, apart.positive)
    for rows, columns in zip(apart.anchors.split(CHUNK), partners.split(CHUNK), strict=True):
        yield points.index_select(0, rows), others.index_select(0, columns)


def positive_products(points: torch.Tensor, others: torch.Tensor, apart: Apart) -> torch.Tensor:
    """Products `(P,)` of the positive pairs of `points` `(B, D)` and `others` `(M, D)`."""
    return torch.cat([(rows * columns).sum(1) for rows, columns in positive_pairs(points, others, apart)])


def positive_distances(points: torch.Tensor, others: torch.Tensor, apart: Apart) -> torch.Tensor:
    """Squared distances `(P,)` of the positive pairs of `points` `(B, D)` and `others` `(M, D)`, by differences."""
    return torch.cat([(rows - columns).square().sum(1) for rows, columns in positive_pairs(points, others, apart)])


def sum_exp_per_anchor(values: torch.Tensor, anchors: torch.Tensor, n_anchors: int) -> torch.Tensor:
    """log sum exp `(B,)` of the `values` `(P,)` of each anchor; for an anchor without values it is so low that its exp is 0."""
    low = values.new_full((n_anchors,), -torch.finfo(values.dtype).max / 4)
    highest = low.scatter_reduce(0, anchors, values.detach(), "amax")
    total = sums_per_anchor((values - highest.index_select(0, anchors)).exp(), anchors, n_anchors)
    empty = total == 0
    return torch.where(empty, low, torch.where(empty, 1.0, total).log() + highest)


def pair_sums(points: torch.Tensor, reference: Reference, apart: Apart, of_positives: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """`criteria._pairs.pair_sums` of the products of `points` `(B, D)` with the reference, without their matrix; detached.

    `of_positives` `(P,)`: the products of the positive pairs.
    """
    return pair_totals(points.detach(), reference.embeddings.detach(), apart, of_positives.detach())


def pair_totals(points: torch.Tensor, others: torch.Tensor, apart: Apart, of_positives: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """`pair_sums` of the products of `points` `(B, D)` with `others` `(M, D)`, with a graph."""
    rows, columns = apart.rows.index_select(0, apart.own), apart.columns.index_select(0, apart.own)
    positive = of_positives.sum()
    of_own = (points.index_select(0, rows) * others.index_select(0, columns)).sum()
    n_positives, n_negatives = (positive.new_full((), n) for n in (len(apart.positive), len(points) * len(others) - len(apart.rows)))
    return positive, n_positives, points.sum(0) @ others.sum(0) - positive - of_own, n_negatives
