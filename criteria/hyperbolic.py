"""Hyperbolic contrastive loss (Hyp-ViT; Ermolov et al., Hyperbolic Vision Transformers, CVPR 2022, arXiv 2203.10833).

The network gives tangent vectors, so its name has no `_normalize`. Distances are exact up to the ball's border, where
the authors' code pulls points back to .999 of its radius. With the default c and clip_r points stay far from the
border, and distances differ only by the 1e-5 that their code adds to two denominators.
"""

import functools

import torch

from criteria._pairs import PairCriterion, anchors_of, own_columns, positive_pairs, softplus
from criteria._sets import warn_of_normalized
from options.flags import Flag
from utilities.hyperbolic import Ball
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import amax_at, take_pairs

# an anchor is known by the only column that is no pair
TAKES_GUIDE = False

FLAGS = {
    "c": Flag(number(0, 100), 0.1, "the ball's curvature is -c; 0: the sphere, with cosines"),
    "clip_r": Flag(
        number(above=0), 2.3, "length to which embeddings are clipped", rules={"idle_with": {"loss_hyperbolic_c": [0]}}
    ),
    "T": Flag(number(1e-6), 0.2, "temperature that divides the distances", attribute="temperature"),
}


class Criterion(PairCriterion):
    """Sum over ordered pairs of views (i, j) of the mean over classes of the cross-entropy of x_i against x_j and the
    others' x_i and x_j.

    The logits are -distance / T, the target is the own class's x_j. View i of a class is its i-th image in the batch; a
    class with fewer images takes part in the views that it has. With a reference, x_j are its views, and the mean is
    over the anchors that are view i of the batch. The others' x_i are then the negatives in the view of the anchor's
    own image in the reference, or all negatives without one.
    """

    several_labels = False
    STATISTIC = "distance"

    def __init__(self, opt):
        super().__init__(opt)
        warn_of_normalized("hyperbolic", opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """See the base. The formula also needs the views of the reference, which values and weights do not tell."""
        if not len(reference):
            reference = reference.with_own_row()
        formula = functools.partial(self.formula, views=views_of(reference.labels))
        return self.finish(self.compare(batch, labels, reference, formula=formula), batch)

    def measure(self, points: torch.Tensor, reference_points: torch.Tensor, norms: torch.Tensor | None) -> torch.Tensor:
        """Distances `(b, M)` in the ball; of the sphere 2 - 2 cos."""
        return Ball(self.c, self.clip_r).distances(points, reference_points)

    def formula(self, values, positives, negatives, labels, views) -> dict:
        """Cross-entropy and view j `(P,)` of each positive pair, `views` `(M,)` being those of the reference."""
        temperature = self.temperature
        if Ball(self.c, self.clip_r).flat:
            temperature = 2 * temperature
        logits = -values / temperature
        masses = _masses(logits, negatives, views)  # (b, V)
        anchors, partners = positive_pairs(positives)  # (P,) each
        own_rows = own_columns(positives, negatives).index_select(0, anchors)
        j = views.index_select(0, partners)
        i = torch.where(own_rows < 0, j, views.index_select(0, own_rows.clamp(min=0)))
        of_j = take_pairs(masses, anchors, j)
        of_both = torch.where(i == j, of_j, torch.logaddexp(take_pairs(masses, anchors, i), of_j))
        of_all = torch.logsumexp(masses, 1).index_select(0, anchors)
        rivals = torch.where(own_rows < 0, of_all, of_both)  # (P,)
        return {"loss": softplus(rivals - take_pairs(logits, anchors, partners)), "views": j}

    def join(self, results) -> torch.Tensor:
        """See the class."""
        losses = results["loss"]
        of_anchors = views_of(results["labels"]).index_select(0, anchors_of(results["n_positives"], losses))
        groups = (of_anchors << 32) + results["views"]  # (i, j) of each positive pair
        ordered = groups.sort().values
        # the counts of torch.unique, which would wait for the device
        sizes = torch.searchsorted(ordered, groups, right=True) - torch.searchsorted(ordered, groups)
        return (losses / sizes).sum()


def views_of(labels: torch.Tensor) -> torch.Tensor:
    """For each label `(B,)` the number of equal ones before it."""
    order = torch.argsort(labels, stable=True)
    ranked = labels.index_select(0, order)
    places = torch.arange(len(labels), device=labels.device)
    first = torch.ones_like(ranked, dtype=torch.bool)
    first[1:] = ranked[1:] != ranked[:-1]
    starts = torch.cummax(torch.where(first, places, 0), 0).values if len(labels) else places
    return torch.empty_like(places).scatter_(0, order, places - starts)


def _masses(logits: torch.Tensor, negatives: torch.Tensor, views: torch.Tensor) -> torch.Tensor:
    """log sum exp `(B, V)` over each anchor's negatives in each view, of `logits` `(B, M)`; without negatives so low
    that its exp is 0.
    """
    # waits for the device, for a size
    n_views = int(views.max()) + 1 if len(views) else 0
    lowest = torch.finfo(logits.dtype).min / 4
    chosen = torch.where(negatives > 0, logits, lowest)
    index = views.expand_as(logits)
    highest = torch.full((len(logits), n_views), lowest, dtype=logits.dtype, device=logits.device)
    highest = amax_at(highest, 1, index, chosen)
    masses = torch.exp(chosen - highest.gather(1, index)) * negatives
    sums = torch.zeros_like(highest).index_add(1, views, masses)
    has_negatives = sums > 0
    return torch.where(has_negatives, torch.where(has_negatives, sums, 1.0).log() + highest, lowest)
