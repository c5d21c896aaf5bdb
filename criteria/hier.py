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
from utilities.criterion import MetricCriterion
from utilities.errors import UserError
from utilities.hyperbolic import Ball
from utilities.numbers import number, whole
from utilities.plug_ins import Flag

REQUIRES_OPTIM = True
INNER_LOSS = "loss_hier_base"
FIXED = (
    "tau",
    "c",
    "clip_r",
)  # they shape the random draws, where the straight-through gradient is not a true derivative

CHUNK = 1 << 18  # entries of a matrix (triplets, proxies) computed at once

FLAGS = {
    "base": Flag(str, "proxyanchor", "loss to which the regulariser is added (--list losses)", metavar="LOSS"),
    "weight": Flag(number(0), 0.5, "weight of the regulariser"),
    "n_proxies": Flag(whole(1, 4096), 512, "hierarchical proxies (P)"),
    "lrmulti": Flag(number(0), 50, "learning rate of these proxies, in multiples of --lr"),
    "topk": Flag(whole(1, 10**5), 20, "nearest ones among which reciprocal neighbours are, itself counted in"),
    "per_anchor": Flag(whole(1, 1000), 50, "triplets an anchor, drawn with replacement", attribute="n_per_anchor"),
    "margin": Flag(number(), 0.1, "by which a common ancestor is to be nearer"),
    "tau": Flag(number(1e-6), 0.1, "temperature of the draw of an ancestor"),
    "c": Flag(number(0, 100), 0.1, "the ball's curvature is -c; 0: the sphere, with 2 - 2 cos"),
    "clip_r": Flag(number(above=0), 2.3, "length to which embeddings and proxies are clipped"),
}


def derived(opt) -> dict:
    """The flags of the loss that it stands beside. Raises UserError where that is hier itself."""
    if opt.loss_hier_base == "hier":
        raise UserError("--loss_hier_base hier: the loss that it stands beside is another one, such as proxyanchor")
    return criteria.REGISTRY.derived(opt.loss_hier_base, opt)


class Criterion(MetricCriterion):
    """base + weight * (R of the embeddings + R of the proxies themselves).

    R is the mean over triplets (i, j, k), j a reciprocal neighbour of i and k not, of [d(i, r_ij) - d(i, r_ijk) +
    margin]+
    + [d(j, r_ij) - d(j, r_ijk) + margin]+ + [d(k, r_ijk) - d(k, r_ij) + margin]+, 0 where r_ij is r_ijk. The lowest
    common ancestor r_ij is drawn from the proxies r by straight-through Gumbel softmax of -max(d(i, r), d(j, r)) / tau;
    r_ijk likewise, of the maximum of three.
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
        base = {"params": list(self.base.parameters()), "lr": getattr(self.base, "lr", opt.lr)}
        groups = getattr(self.base, "optim_dict_list", None) or ([base] if base["params"] else [])
        self.optim_dict_list = [*groups, {"params": [self.ancestors], "lr": opt.lr * self.lrmulti}]
        warn_of_normalized("hier", opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`. Draws from torch's global generator."""
        loss = self.base(batch, labels, **kwargs)
        ball = Ball(self.c, self.clip_r)
        ancestors = self.ancestors.to(batch)
        _check_width(batch, ancestors)
        with torch.no_grad():
            distances = ball.distances(
                batch, batch
            )  # those of one class are the closest; a larger number would round distances away
            closeness = torch.where(labels[:, None] == labels[None, :], distances.amax() + 1, 0.0) - distances
        of_samples = self.regulariser(ball.distances(batch, ancestors), closeness)
        among_ancestors = ball.distances(ancestors, ancestors)
        of_proxies = self.regulariser(among_ancestors, -among_ancestors.detach())
        self.stats = {
            **getattr(self.base, "stats", {}),
            "hierarchy": of_samples.detach(),
            "hierarchy_of_proxies": of_proxies.detach(),
        }
        return loss + self.weight * (of_samples + of_proxies)

    def regulariser(self, distances: torch.Tensor, closeness: torch.Tensor) -> torch.Tensor:
        """R of N points, given their `distances` `(N, P)` to the proxies and their `closeness` `(N, N)` to each
        other.
        """
        margin = (
            self.margin.to(distances) if isinstance(self.margin, torch.Tensor) else distances.new_full((), self.margin)
        )
        return _Hierarchy.apply(
            distances, *reciprocal_triplets(closeness, self.topk, self.n_per_anchor), margin, self.tau
        )


def _check_width(batch: torch.Tensor, ancestors: torch.Tensor) -> None:
    if batch.shape[1] != ancestors.shape[1]:
        raise UserError(
            f"embeddings of {batch.shape[1]} dimensions, hierarchical proxies of {ancestors.shape[1]}: embed_dim "
            "is another"
        )


def reciprocal_triplets(
    closeness: torch.Tensor, topk: int, per_anchor: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Indices i, j, k `(T,)`: j a reciprocal nearest neighbour of i by `closeness` `(N, N)`, k neither that nor i; both
    drawn uniformly.
    """
    nearest = closeness.topk(min(topk, len(closeness)), dim=1).indices
    near = torch.zeros_like(closeness, dtype=torch.bool).scatter_(1, nearest, True)
    own = torch.eye(len(closeness), dtype=torch.bool, device=closeness.device)
    reciprocal = near & near.T
    j, have_j = _drawn(reciprocal & ~own, per_anchor)
    k, have_k = _drawn(~reciprocal & ~own, per_anchor)
    anchors = (have_j & have_k).nonzero().squeeze(1)  # waits for the device, for its size
    i = anchors[:, None].expand(-1, per_anchor).reshape(-1)
    return i, j.index_select(0, anchors).reshape(-1), k.index_select(0, anchors).reshape(-1)


def _drawn(mask: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """For each row of `mask` `(N, N)` `count` True columns `(N, count)`, drawn uniformly with replacement; whether it
    has any `(N,)`.
    """
    places = mask.cumsum(1)
    sizes = places[:, -1:]
    draws = torch.rand(len(mask), count, dtype=torch.float32, device=mask.device)
    wanted = (draws * sizes).long().minimum(sizes - 1) + 1  # the first, the second … True of the row
    return torch.searchsorted(places, wanted).clamp(max=len(mask) - 1), sizes.squeeze(1) > 0


def gumbel(size: tuple, like: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise in the precision of `like`, drawn in float32, so that every precision gets the same."""
    draws = torch.rand(size, dtype=torch.float32, device=like.device).clamp_(min=torch.finfo(torch.float32).tiny)
    return (
        draws.log_().neg_().log_().neg_().to(like.dtype)
    )  # from rand, as exponential_ takes five times as long on a CPU


class _Hierarchy(torch.autograd.Function):
    """R, a few triplets at a time. The forward pass computes the gradient too, so that no matrix (triplets, proxies) is
    kept.

    `apply(distances (N, P), i (T,), j (T,), k (T,), margin, tau)`. The gradient is straight-through: a drawn ancestor
    is a one-hot vector in the value, and the softmax with the same noise in the derivative.
    """

    @staticmethod
    def forward(ctx, distances, i, j, k, margin, tau):
        """See the class."""
        total = distances.new_zeros(())
        gradient = torch.zeros_like(distances)
        of_margin = torch.zeros_like(margin)
        size = max(CHUNK // distances.shape[1], 1)
        for chunk in zip(i.split(size), j.split(size), k.split(size), strict=True) if len(i) else ():
            a, b, c = (distances.index_select(0, rows) for rows in chunk)  # (T', P) each
            of_two = torch.maximum(a, b)
            of_three = torch.maximum(of_two, c)
            # logits
            two = gumbel(a.shape, a) - of_two / tau
            three = gumbel(a.shape, a) - of_three / tau
            near = two.argmax(1, keepdim=True)
            far = three.argmax(1, keepdim=True)
            steps = torch.cat(
                [
                    x.gather(1, one) - x.gather(1, other)
                    for x, one, other in ((a, near, far), (b, near, far), (c, far, near))
                ],
                1,
            )
            terms = steps + margin  # (T', 3)
            active = (near != far) & (terms > 0)
            total += torch.where(near != far, terms.relu(), 0.0).sum()
            pulls = active.to(a.dtype)
            pulls = torch.cat([pulls[:, :2], -pulls[:, 2:]], 1)  # d loss / d (x at near - x at far)
            up = (
                pulls[:, :1] * a + pulls[:, 1:2] * b + pulls[:, 2:] * c
            )  # gradient of each proxy's share in r_ij; in r_ijk its negative
            slope_two = _through_softmax(two, up)
            slope_three = -_through_softmax(three, up)
            of_margin += active.sum()
            by_three = _share(c, of_two) * slope_three
            slope_two = (
                slope_two + slope_three - by_three
            )  # gradient of the maximum of two, directly and through that of three
            by_one = _share(a, b) * slope_two
            chosen = (
                torch.zeros_like(a)
                .scatter_(1, near, 1.0)
                .scatter_add_(1, far, torch.full_like(near, -1, dtype=a.dtype))
            )
            for rows, pull, slope in zip(chunk, pulls.unbind(1), (by_one, slope_two - by_one, by_three), strict=True):
                gradient.index_add_(0, rows, pull[:, None] * chosen - slope / tau)
        count = max(len(i), 1)
        ctx.save_for_backward(gradient / count, of_margin / count)
        return total / count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        """Gradients of the distances and the margin."""
        of_distances, of_margin = ctx.saved_tensors
        return gradient * of_distances, None, None, None, gradient * of_margin, None


def _through_softmax(logits: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The gradient `(T, P)` of `logits` from that of their softmax, `up`."""
    soft = torch.softmax(logits, 1)
    return soft * (up - (soft * up).sum(1, keepdim=True))


def _share(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The derivative of max(x, y) by x: 1 where it is larger, one half where they are equal."""
    return (torch.sign(x - y) + 1) / 2
