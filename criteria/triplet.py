"""Triplet loss (Schroff et al., FaceNet, arXiv 1503.03832)."""

import torch

import batch_mining
from criteria._pairs import softplus
from criteria._reductions import Reduction
from criteria._tuples import active_share, tuple_distances
from options.flags import Flag
from utilities.criterion import MetricCriterion
from utilities.errors import UserError
from utilities.numbers import number, whole
from utilities.reference import Reference
from utilities.tensors import pair_distances, pairwise_distances

REQUIRES_BATCHMINER = True
PER_CLASS = ("margin",)
REDUCES = True

FLAGS = {
    "margin": Flag(number(), 0.2, "how much farther a negative is to be than a positive"),
    "distance": Flag(str, "squared", "squared (FaceNet) or plain", choices=["squared", "euclidean"]),
    "reduction": Flag(
        str,
        "mean",
        "over all triplets or the active ones",
        choices=["mean", "nonzero"],
    ),
    "swap": Flag(bool, False, "take the negative's distance to the positive where it is the smaller one (anchor swap)"),
    "smooth": Flag(bool, False, "log(1 + exp(violation)) in place of the hinge"),
    "per_anchor": Flag(
        whole(1, 1000, word="all"),
        None,
        "with --batch_mining none: N random triplets of each anchor, its positives and negatives drawn with "
        "replacement, or all of them, as TripletMarginLoss's triplets_per_anchor without a miner (unset: all)",
        metavar="N",
        attribute="n_per_anchor",
    ),
    "own_positive": Flag(
        bool,
        False,
        "with --batch_mining batchhard: an anchor alone in its class counts too, with itself as its positive at "
        "distance 0, as in torchreid and FastReID",
    ),
}


class Criterion(MetricCriterion):
    """mean over triplets of [d_ap^2 - d_an^2 + margin]+ (or of plain distances, or over the active triplets only).

    swap: min(d_an, d_pn) in place of d_an (Balntas et al., Learning Local Feature Descriptors with Triplets, BMVC
    2016). smooth: softplus in place of the hinge (Hermans et al., arXiv 1703.07737, with margin 0), where every triplet
    is active. own_positive: anchors without a positive add a triplet of themselves, at distance 0, and their nearest
    negative. per_anchor: so many random triplets of each anchor in place of all, where no miner chooses any.

    Raises UserError for per_anchor with a miner that chooses.
    """

    several_labels = True

    def __init__(self, opt, batchminer):
        super().__init__(opt, drawn_per_anchor(opt.loss_triplet_per_anchor, batchminer, opt))
        self.squared = self.distance == "squared"
        self.reduction = Reduction(opt, self.reduction)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        triplets = self.triplets(batch, labels, reference)
        positive_distances, negative_distances = tuple_distances(batch, reference, triplets, self.squared)  # (T,) each
        if self.swap:
            swapped = pair_distances(reference.embeddings, triplets.positives, triplets.negatives, self.squared)
            negative_distances = torch.minimum(negative_distances, swapped)
        differences = positive_distances - negative_distances
        anchors = triplets.anchors
        if self.own_positive:
            lone_anchors, distances = self._alone(batch, labels, reference)
            differences = torch.cat([differences, -distances])
            anchors = torch.cat([anchors, lone_anchors])
        self.stats = at_margin(
            positive_distances, negative_distances, self.per_anchor("margin", labels[triplets.anchors])
        )
        margins = differences + self.per_anchor("margin", labels[anchors])
        violations = torch.relu(margins)
        self.stats["active_share"] = active_share(violations.detach())
        terms = softplus(margins) if self.smooth else violations
        return self.reduction(terms, anchors, labels)

    def _alone(
        self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The anchors `(A,)` that have negatives and no positive, and the distance of each to its nearest negative."""
        are_positive, are_negative = reference.masks(labels)
        lone_anchors = (are_negative.any(1) & ~are_positive.any(1)).nonzero().squeeze(1)
        distances = pairwise_distances(batch.detach()[lone_anchors], reference.embeddings.detach()).masked_fill(
            ~are_negative[lone_anchors], torch.inf
        )
        nearest = lone_anchors
        if len(lone_anchors):
            nearest = distances.argmin(1)
        return lone_anchors, pair_distances(batch, lone_anchors, nearest, self.squared, reference.embeddings)


@torch.no_grad()
def at_margin(positives: torch.Tensor, negatives: torch.Tensor, margins) -> dict[str, torch.Tensor]:
    """How a run sees that the loss stays at its margin: `excess` = mean(d_ap - d_an) / margin and `reach` =
    mean(d_ap + d_an) / (2 margin) of triplets. Device scalars; empty without triplets or a margin above 0.

    Args:
        positives, negatives: `(T,)` distances as the loss compares them. margins: a number, or `(T,)`.
    """
    if not len(positives) or (not isinstance(margins, torch.Tensor) and margins <= 0):
        return {}
    return {
        "excess": ((positives - negatives) / margins).mean(),
        "reach": ((positives + negatives) / (2 * margins)).mean(),
    }


def drawn_per_anchor(count: "int | str | None", batchminer, opt):
    """The miner, or where it chooses nothing one that draws `count` triplets of each anchor; "all" and None: the miner.

    Raises UserError for a count or "all" with a miner that chooses.
    """
    if count is None:
        return batchminer
    if not getattr(batchminer, "EVERY_PAIR", False):
        raise UserError(
            f"--loss_triplet_per_anchor {count}: a miner chooses the triplets; add --batch_mining none, or leave it out"
        )
    if count == "all":
        return batchminer
    return batch_mining.select("random", opt, miner_random_per_anchor=count)
