"""All negatives of a large reference, such as a memory, met a few columns at a time: no matrix `(B, M)` is made, kept or masked.

What is no negative, positives and own images, is a list of pairs, short beside `(B, M)`; see `Apart`. A block of columns stays in a CPU's
cache, so that what is done to it costs little beside the product that makes it. The backward pass makes the products again.
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
}  # numbers of a block `(B, columns)`: what two cores' caches hold; work for a GPU
SHORT = 8  # a list of at most 1 / SHORT of all pairs is worth it
CHUNK = 1 << 10  # pairs whose embeddings are looked up at once, for the cache
LOG2E = 1 / math.log(2)
MOST = 126  # of exponents of 2: beyond it, up or down, float32 loses digits
TINY = 1e-24  # of squared distances, and their rounding: no division by 0


class Apart(NamedTuple):
    """The pairs that are no negatives, positives and the anchors' own images, `(Q,)`, by column."""

    rows: torch.Tensor
    columns: torch.Tensor
    positive: torch.Tensor  # which of them are positives, (P,)
    own: torch.Tensor  # which are own images, the others
    anchors: torch.Tensor  # of the positives, (P,)


class Form(NamedTuple):
    """What becomes of a block of products `(B, columns)` times `scale`, a number or `(B, 1)`.

    `value(products, spare)` works in place, `slope(products, spare)` gives its derivative by the products themselves, in either piece of memory.
    """

    scale: float | torch.Tensor
    value: Callable | None = None
    slope: Callable | None = None


PRODUCTS = Form(LOG2E)  # as they are, as powers of 2: exp is slow on a CPU


def apart(labels: torch.Tensor, reference: Reference) -> Apart | None:
    """The pairs of anchors with `labels` `(B,)` that are no negatives; None where these are many. Asks the device once, for all numbers."""
    sorted_labels, by_label = labels.sort(stable=True)
    others, by_other = reference.labels.sort(stable=True)  # in order they are quickly looked up
    first = torch.searchsorted(sorted_labels, others)
    counts = torch.searchsorted(sorted_labels, others, right=True) - first
    have_own = reference.own >= 0
    own_labels = torch.cat([reference.labels, labels[:1]]).index_select(
        0, reference.own.clamp(min=0)
    )  # whatever is there where there is none
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
    """Blocks of `width` columns, the last of what is left; what is made once for all of them costs each nothing."""

    width: int
    sizes: list[int]  # how many pairs of `Apart` lie in each
    places: tuple[torch.Tensor, ...]  # theirs, counted along the rows of the block

    @classmethod
    def of(cls, points: torch.Tensor, others: torch.Tensor, apart: Apart) -> "_Blocks":
        """Of the products of `points` `(B, D)` with `others` `(M, D)`."""
        width = max(BLOCK.get(points.device.type, BLOCK["cuda"]) // max(len(points), 1), 1)
        starts, edges = range(0, len(others), width), [0, len(apart.columns)]
        if not starts:
            return cls(width, [], ())
        if len(starts) > 1:  # the one place where a reference wider than a block asks the device again
            edges = torch.searchsorted(apart.columns, torch.arange(0, len(others) + width, width, device=points.device)).tolist()
        sizes = [last - first for first, last in zip(edges, edges[1:], strict=False)][: len(starts)]
        widths = torch.where(apart.columns < starts[-1], width, len(others) - starts[-1])
        return cls(width, sizes, (apart.rows * widths + apart.columns % width).split(sizes))

    def split(self, *of_pairs: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
        """Of each block its places, and what of each of `of_pairs` `(Q,)` belongs to them."""
        return zip(self.places, *(values.split(self.sizes) for values in of_pairs), strict=True)

    def products(self, points: torch.Tensor, others: torch.Tensor) -> Iterator[tuple]:
        """Of each block its columns `(D, columns)`, the products `(B, columns)`, all their memory, spare memory; the next block has both again."""
        n_points, parts = points.shape[0], others.T.split(self.width, 1) if self.sizes else ()
        room = points.new_empty(2, n_points * min(self.width, others.shape[0]))
        flat, sized = room[0], None
        for part in parts:
            if part.shape[1] != sized:
                sized = part.shape[1]
                products, spare = room[:, : n_points * sized].view(2, n_points, sized)
            yield part, torch.mm(points, part, out=products), flat, spare


class _LogSumExp(torch.autograd.Function):
    """See `log_sum_exp`. Where no bound is known, the sums so far are kept in units of the greatest power so far."""

    @staticmethod
    def forward(ctx, points, others, apart, penalties, bound, least, form):
        ctx.blocks = _Blocks.of(points, others, apart)
        ctx.form, ctx.penalties = form, penalties
        ctx.least = None if least is None else least[:, None] * LOG2E
        bounded = bound is not None and least is None and bound * LOG2E + math.log2(max(len(others), 1)) < MOST  # so is their sum
        low = -torch.finfo(points.dtype).max / 4
        highest = points.new_full((len(points),), 0.0 if bounded else low)
        sums, kept = torch.zeros_like(highest), torch.zeros_like(highest)
        picked = points.new_empty(len(apart.rows))
        blocks = zip(ctx.blocks.products(points * form.scale, others), ctx.blocks.split(picked, penalties), strict=False)
        for (_, products, flat, spare), (places, found, left_out) in blocks:
            torch.index_select(flat, 0, places, out=found)
            if form.value is not None:
                form.value(products, spare)
            flat.index_add_(0, places, left_out)  # products are logits as powers of 2 from here
            if least is not None:
                kept.add_(_above(products, ctx.least, spare).sum(1))
            if not bounded:
                raised = torch.maximum(highest, products.amax(1))  # what counts is above what does not
                sums.mul_((highest - raised).exp2_())
                highest = raised
                products.sub_(highest.unsqueeze(1))
            powers = products.exp2_()
            if least is not None:
                powers.mul_(spare)
            sums.add_(powers.sum(1))
        exponents = sums.log2().add_(highest).clamp_(min=low)
        ctx.save_for_backward(points, others, torch.where(exponents == low, -low, exponents))  # nothing has a share of nothing
        most = torch.where(highest == low, -torch.inf, highest / LOG2E)
        ctx.mark_non_differentiable(most, kept)
        return exponents / LOG2E, picked / form.scale, most, kept

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

        return *_gradients(ctx, points, others, weights, ctx.penalties, of_pairs), *[None] * 5


def _above(values: torch.Tensor, least: torch.Tensor | float, out: torch.Tensor) -> torch.Tensor:
    """1 where a value is above `least`, else 0, in its precision: a product with them is quicker than a mask."""
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
    """By `points` and, where they want one, by `others`; `weights` makes of scaled products the derivative by the products."""
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
    form: Form = PRODUCTS,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """log sum exp over each anchor's negatives of `form` of the products of `points` `(B, D)` with `others` `(M, D)`.

    Args:
        apart: the pairs that are left out.
        positives: whether the positives count too.
        bound: what no logit exceeds, up or down, where it is known.
        least: `(B,)`: only logits above it count; all of them where it is None.
        form: its values are logits as powers of 2, that is, times `LOG2E`.

    Returns:
        `(B,)`; the products of the positive pairs, `(P,)`; the greatest logit `(B,)`, above `least` or not; how many are above `least`, `(B,)`.
        The last two only where there is a `least`; they are constants for the gradient. Without a logit a value so low that its exp is 0, and
        -inf.
    """
    penalties = points.new_full(apart.rows.shape, -torch.inf)
    if positives:
        penalties.index_fill_(0, apart.positive, 0.0)
    total, picked, most, kept = _LogSumExp.apply(points, others, apart, penalties, bound, least, form)
    return total, picked.index_select(0, apart.positive), most, kept


def sums(points: torch.Tensor, others: torch.Tensor, apart: Apart, form: Form) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum `(B,)` over each anchor's negatives of `form` of the products of `points` `(B, D)` with `others` `(M, D)`, and how many are above 0.

    The form gives nothing below 0.
    """
    return _Sum.apply(points, others, apart, form)


def squared(points: torch.Tensor, others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`(B, D + 2)` and `(M, D + 2)`, whose products are the squared distances of `points` `(B, D)` and `others` `(M, D)`, up to rounding.

    The last column but one of the second is 1.
    """
    lengths, of_others = (torch.linalg.vector_norm(part, dim=1, keepdim=True).square() for part in (points, others))
    return torch.cat([-2 * points, lengths, torch.ones_like(lengths)], 1), torch.cat([others, torch.ones_like(of_others), of_others], 1)


def beyond(limit: float | torch.Tensor, points: torch.Tensor, others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`(B, D + 1)` and `(M, D + 1)`, whose products are those of `points` `(B, D)` and `others` `(M, D)` less `limit`."""
    return torch.cat([points, -limit * points.new_ones(len(points), 1)], 1), torch.cat([others, others.new_ones(len(others), 1)], 1)


def near(margin: float, points: torch.Tensor, others: torch.Tensor) -> tuple[Form, torch.Tensor]:
    """[margin - d]+ of the products d^2 of `squared` `points` and `others`, in units `(B,)` that are given beside the form.

    What may be but the products' rounding, as in `utilities.tensors.squared_distances`, is 0. The units are the roots of that rounding.
    """
    longest = others.detach()[:, -1].amax() if len(others) else 0.0
    noise = (8 * torch.finfo(points.dtype).eps * (points.detach()[:, -2:-1] + longest)).clamp(min=TINY)
    units = noise.sqrt()
    margins = max(margin, 0.0) / units

    def inverse(products, spare, cleared):
        return torch.pow(torch.nn.functional.threshold_(products, 1.0, cleared), -0.5, out=spare)  # a CPU's sqrt is three times as slow

    def value(products, spare):
        torch.addcmul(margins, products, inverse(products, spare, TINY), value=-1, out=products).relu_()

    def slope(products, spare):
        inverses = inverse(products, spare, torch.inf)  # at 0, where a root has no slope, it is 0
        return inverses.mul_(torch.lt(products, margins.square(), out=products)).mul_(-0.5 / noise)

    return Form(1 / noise, value, slope), units.squeeze(1)


def positive_pairs(points: torch.Tensor, others: torch.Tensor, apart: Apart) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The positive pairs' rows of `points` `(B, D)` and of `others` `(M, D)`, some at a time."""
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
    return pair_totals(points.detach(), reference.embeddings.detach(), apart, of_positives.detach())


def pair_totals(points: torch.Tensor, others: torch.Tensor, apart: Apart, of_positives: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What `pair_sums` gives, with a graph, of the products of `points` `(B, D)` with `others` `(M, D)`."""
    rows, columns = apart.rows.index_select(0, apart.own), apart.columns.index_select(0, apart.own)
    positive = of_positives.sum()
    of_own = (points.index_select(0, rows) * others.index_select(0, columns)).sum()
    n_positives, n_negatives = (positive.new_full((), n) for n in (len(apart.positive), len(points) * len(others) - len(apart.rows)))
    return positive, n_positives, points.sum(0) @ others.sum(0) - positive - of_own, n_negatives
