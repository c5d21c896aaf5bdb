"""HIER beside any loss (Kim et al., HIER: Metric Learning Beyond Class Labels via Hierarchical Regularization, CVPR
2023, arXiv 2212.14258).

Proxies without classes are the ancestors in a hierarchy in the Poincare ball. As in the authors' code, a sample counts
among its own `topk` nearest, and samples of its class come first among them. Unlike there, an anchor with one
reciprocal neighbour takes part, and no anchor is its own k; gradients are Euclidean (there those of the ball's points
are rescaled by the metric), and distances exact up to the border.
"""

import math

import torch

import criteria
from criteria._sets import warn_of_normalized
from options.flags import Flag
from utilities.criterion import MetricCriterion
from utilities.errors import UserError
from utilities.hyperbolic import Ball
from utilities.numbers import number, whole

REQUIRES_OPTIM = True
INNER_LOSS = "loss_hier_base"
# They shape the random draws, where the straight-through gradient is not a true derivative.
FIXED = ("tau", "c", "clip_r")

# entries of a matrix (triplets, proxies) computed at once
CHUNK = 1 << 18

FLAGS = {
    "base": Flag(str, "proxyanchor", "loss to which the regulariser is added (--list losses)", metavar="LOSS"),
    "weight": Flag(number(0), 0.5, "weight of the regulariser"),
    "n_proxies": Flag(whole(1, 4096), 512, "hierarchical proxies (P)"),
    "lrmulti": Flag(number(0), 50, "learning rate of these proxies, in multiples of --lr"),
    "topk": Flag(whole(1, 10**5), 20, "nearest ones among which reciprocal neighbours are, itself counted in"),
    "per_anchor": Flag(whole(1, 1000), 50, "triplets per anchor, drawn with replacement", attribute="n_per_anchor"),
    "margin": Flag(number(), 0.1, "by which a common ancestor is to be nearer"),
    "tau": Flag(number(1e-6), 0.1, "temperature of the draw of an ancestor"),
    "c": Flag(number(0, 100), 0.1, "the ball's curvature is -c; 0: the sphere, with 2 - 2 cos"),
    "clip_r": Flag(number(above=0), 2.3, "length to which embeddings and proxies are clipped"),
}


def derived(opt) -> dict:
    """The flags of the loss that it stands beside. Raises UserError where that is hier itself."""
    if opt.loss_hier_base == "hier":
        raise UserError("--loss_hier_base hier: choose another loss, such as proxyanchor")
    return criteria.REGISTRY.derived(opt.loss_hier_base, opt)


class Criterion(MetricCriterion):
    """base + weight * (R of the embeddings + R of the proxies themselves).

    R is the mean over triplets (i, j, k), j a reciprocal neighbour of i and k not, of

        [d(i, r_ij) - d(i, r_ijk) + margin]+ + [d(j, r_ij) - d(j, r_ijk) + margin]+
        + [d(k, r_ijk) - d(k, r_ij) + margin]+,

    0 where r_ij is r_ijk. The lowest common ancestor r_ij is drawn from the proxies r by straight-through Gumbel
    softmax of -max(d(i, r), d(j, r)) / tau; r_ijk likewise, of the maximum of three.
    """

    def __init__(self, opt):
        super().__init__(opt)
        if opt.embed_dim < 1:
            raise UserError(
                f"embed_dim {opt.embed_dim}: hierarchical proxies need at least 1: select('hier', opt, embed_dim=128)"
            )
        self.base = criteria.select(self.base, opt, loss_learn=[])
        start = torch.randn(self.n_proxies, opt.embed_dim) / math.sqrt(opt.embed_dim) * self.clip_r * 0.9
        self.ancestors = torch.nn.Parameter(start)
        groups = getattr(self.base, "optim_dict_list", None) or []
        base_parameters = list(self.base.parameters())
        if base_parameters and not groups:
            groups = [{"params": base_parameters, "lr": getattr(self.base, "lr", opt.lr)}]
        self.optim_dict_list = [*groups, {"params": [self.ancestors], "lr": opt.lr * self.lrmulti}]
        warn_of_normalized("hier", opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`. Draws from torch's global generator."""
        loss = self.base(batch, labels, **kwargs)
        ball = Ball(self.c, self.clip_r)
        ancestors = self.ancestors.to(batch)
        _check_width(batch, ancestors)
        with torch.no_grad():
            distances = ball.distances(batch, batch)
            # Samples of one class are the closest; a larger number than this would round distances away.
            bonus = torch.where(labels[:, None] == labels[None, :], distances.amax() + 1, 0.0)
            closeness = bonus - distances
        of_samples = self.regulariser(ball.distances(batch, ancestors), closeness)
        ancestor_distances = ball.distances(ancestors, ancestors)
        of_proxies = self.regulariser(ancestor_distances, -ancestor_distances.detach())
        self.stats = {
            **getattr(self.base, "stats", {}),
            "hierarchy": of_samples.detach(),
            "hierarchy_of_proxies": of_proxies.detach(),
        }
        return loss + self.weight * (of_samples + of_proxies)

    def regulariser(self, distances: torch.Tensor, closeness: torch.Tensor) -> torch.Tensor:
        """R of N points, given their `distances` `(N, P)` to the proxies
        and their `closeness` `(N, N)` to each other.
        """
        i, j, k = reciprocal_triplets(closeness, self.topk, self.n_per_anchor)
        margin = self.margin
        # A margin that is not learned is a number.
        if not isinstance(margin, torch.Tensor):
            margin = distances.new_full((), margin)
        return _Hierarchy.apply(distances, i, j, k, margin.to(distances), self.tau)


def _check_width(batch: torch.Tensor, ancestors: torch.Tensor) -> None:
    if batch.shape[1] != ancestors.shape[1]:
        raise UserError(
            f"embeddings of {batch.shape[1]} dimensions, hierarchical proxies of {ancestors.shape[1]}: embed_dim "
            "is another"
        )


def reciprocal_triplets(
    closeness: torch.Tensor, topk: int, per_anchor: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Indices i, j, k `(T,)`: j a reciprocal nearest neighbour of i by `closeness` `(N, N)`, k neither that nor i;
    both drawn uniformly.
    """
    nearest = closeness.topk(min(topk, len(closeness)), dim=1).indices
    is_near = torch.zeros_like(closeness, dtype=torch.bool).scatter_(1, nearest, True)
    is_itself = torch.eye(len(closeness), dtype=torch.bool, device=closeness.device)
    is_reciprocal = is_near & is_near.T
    j, have_j = _draw_columns(is_reciprocal & ~is_itself, per_anchor)
    k, have_k = _draw_columns(~is_reciprocal & ~is_itself, per_anchor)
    # waits for the device, for its size
    anchors = (have_j & have_k).nonzero().squeeze(1)
    i = anchors[:, None].expand(-1, per_anchor).reshape(-1)
    return i, j.index_select(0, anchors).reshape(-1), k.index_select(0, anchors).reshape(-1)


def _draw_columns(mask: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """For each row of `mask` `(N, N)` `count` True columns `(N, count)`, drawn uniformly with replacement; whether it
    has any `(N,)`.
    """
    counts = mask.cumsum(1)
    sizes = counts[:, -1:]
    draws = torch.rand(len(mask), count, dtype=torch.float32, device=mask.device)
    # the first, the second … True of the row
    ordinals = (draws * sizes).long().minimum(sizes - 1) + 1
    return torch.searchsorted(counts, ordinals).clamp(max=len(mask) - 1), sizes.squeeze(1) > 0


def gumbel(size: tuple, like: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise in the precision of `like`, drawn in float32, so that every precision gets the same."""
    draws = torch.rand(size, dtype=torch.float32, device=like.device).clamp_(min=torch.finfo(torch.float32).tiny)
    # From rand, as exponential_ takes five times as long on a CPU.
    return draws.log_().neg_().log_().neg_().to(like.dtype)


class _Hierarchy(torch.autograd.Function):
    """R and its gradient, a few triplets at a time.

    `apply(distances (N, P), i (T,), j (T,), k (T,), margin, tau)`. The idea: in the value, a drawn ancestor is a
    one-hot vector; in the derivative it is the softmax of the same logits (straight-through). Both are known as soon as
    the ancestors are drawn. So the forward pass adds up the gradient by the `distances` too, which the backward pass
    only scales: of the matrices (triplets, proxies) those of one chunk exist at a time, and none is kept.
    tests/criteria/test_hier.py has the same by torch's autograd, in 25 lines.
    """

    @staticmethod
    def forward(ctx, distances, i, j, k, margin, tau):
        """See the class."""
        total = distances.new_zeros(())
        gradient = torch.zeros_like(distances)
        margin_gradient = torch.zeros_like(margin)
        size = max(CHUNK // distances.shape[1], 1)
        for first in range(0, len(i), size):
            rows = [corner[first : first + size] for corner in (i, j, k)]  # (T',) each
            chunk_total, n_active, slopes = _chunk(*(distances.index_select(0, corner) for corner in rows), margin, tau)
            total += chunk_total
            margin_gradient += n_active
            for corner, slope in zip(rows, slopes, strict=True):
                gradient.index_add_(0, corner, slope)
        count = max(len(i), 1)
        ctx.save_for_backward(gradient / count, margin_gradient / count)
        return total / count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        """Gradients of the distances and the margin."""
        distances_gradient, margin_gradient = ctx.saved_tensors
        return gradient * distances_gradient, None, None, None, gradient * margin_gradient, None


def _chunk(to_i: torch.Tensor, to_j: torch.Tensor, to_k: torch.Tensor, margin: torch.Tensor, tau: float) -> tuple:
    """Of some triplets: the sum of their terms, how many terms are active, and the sum's three gradients `(T, P)`.

    Args:
        to_i, to_j, to_k: distances `(T, P)` from the three samples of each triplet to the proxies.
    """
    # The lowest common ancestors r_ij of two samples and r_ijk of three.
    farther_of_two = torch.maximum(to_i, to_j)
    farthest_of_three = torch.maximum(farther_of_two, to_k)
    two_logits = gumbel(to_i.shape, to_i) - farther_of_two / tau
    three_logits = gumbel(to_i.shape, to_i) - farthest_of_three / tau
    r_ij = two_logits.argmax(1, keepdim=True)  # (T, 1)
    r_ijk = three_logits.argmax(1, keepdim=True)
    differences = [
        to_i.gather(1, r_ij) - to_i.gather(1, r_ijk),
        to_j.gather(1, r_ij) - to_j.gather(1, r_ijk),
        to_k.gather(1, r_ijk) - to_k.gather(1, r_ij),
    ]
    terms = torch.cat(differences, 1) + margin  # (T, 3)
    active = (r_ij != r_ijk) & (terms > 0)
    total = torch.where(r_ij != r_ijk, terms.relu(), 0.0).sum()

    # By the distances to the two ancestors, which are one-hot vectors.
    pulls = active.to(to_i.dtype)
    # d total / d (distance to r_ij - distance to r_ijk)
    pulls = torch.cat([pulls[:, :2], -pulls[:, 2:]], 1)
    one_hots = torch.zeros_like(to_i).scatter_(1, r_ij, 1.0)
    one_hots = one_hots.scatter_add_(1, r_ijk, torch.full_like(r_ij, -1, dtype=to_i.dtype))

    # By the choice of the ancestors: through the two softmaxes, then through the maxima that are their logits. That of
    # the shares of r_ij is the negative of that of r_ijk.
    share_gradient = pulls[:, :1] * to_i + pulls[:, 1:2] * to_j + pulls[:, 2:] * to_k
    two_slope = _through_softmax(two_logits, share_gradient)
    three_slope = -_through_softmax(three_logits, share_gradient)
    k_slope = _maximum_slope(to_k, farther_of_two) * three_slope
    # slope of the maximum of two, directly and through the maximum of three
    two_slope = two_slope + three_slope - k_slope
    i_slope = _maximum_slope(to_i, to_j) * two_slope
    slopes = (i_slope, two_slope - i_slope, k_slope)
    gradients = [pull[:, None] * one_hots - slope / tau for pull, slope in zip(pulls.unbind(1), slopes, strict=True)]
    return total, active.sum(), gradients


def _through_softmax(logits: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient `(T, P)` of `logits` from the `gradient` `(T, P)` of their softmax."""
    soft = torch.softmax(logits, 1)
    return soft * (gradient - (soft * gradient).sum(1, keepdim=True))


def _maximum_slope(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The derivative of max(x, y) by x: 1 where it is larger, one half where they are equal."""
    return (torch.sign(x - y) + 1) / 2
