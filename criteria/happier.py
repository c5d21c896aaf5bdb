"""HAPPIER (Ramzi et al., ECCV 2022, arXiv 2207.04873): hierarchical average precision with steps for its ranks, beside
a normalised softmax.

`set_levels` tells the levels of the classes; without them all others are alike, and H-AP is average precision. The
query is not in its own list, and relevances are by the sizes of the others' levels; the official code ranks it too,
among its own positives. As in all configurations of the authors, the numerator (H-rank) has no gradient.
"""

import functools

import numpy as np
import torch

import criteria
from criteria._pairs import PairCriterion, positive_pairs
from criteria._ranking import bounding_step, sums_of_pairs
from options.flags import Flag
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import masked_mean

REQUIRES_OPTIM = True
# delta is used in comparisons, cluster_temperature in the softmax inside
FIXED = ("delta", "cluster_temperature")
# images of other classes are graded, not negatives
TAKES_GUIDE = False

FLAGS = {
    "weight": Flag(number(0, 1), 0.1, "share of the normalised softmax in the loss (lambda)"),
    "temperature": Flag(number(1e-6), 0.01, "temperature of the step below a difference of delta (tau)"),
    "rho": Flag(number(0), 100, "slope of the step beyond a difference of delta"),
    "delta": Flag(number(0), 0.05, "difference of similarities from which on the step is a line"),
    "offset": Flag(number(), 1.44, "the line's value at delta; the authors' 1.44 goes with start .5, 1 with 0"),
    "start": Flag(number(), 0.5, "what is added to the sigmoid between 0 and delta"),
    "lr": Flag(number(0), 5e-5, "learning rate of the class weights; the authors' on SOP is 10"),
    "cluster_temperature": Flag(number(1e-6), 0.05, "divides the similarities to the class weights"),
}


class Criterion(PairCriterion):
    """(1 - weight) (1 - mean over anchors of H-AP) + weight * the normalised softmax over the classes
    of the finest level.

    H-AP = sum_k H_k / rank_k / sum_k rel_k over the samples k that share any level with the anchor. Of L levels, one
    that shares l has rel = l / L / (how many share exactly l). With t_jk = s_j - s_k the differences of similarities,
    H_k = rel_k + sum_{j: t_jk >= 0} min(rel_j, rel_k) and rank_k = 1 + sum_j step(t_jk). The step is 1 at t >= 0, else
    0, where j shares at least the levels that k shares; where j shares fewer it is sigmoid(t / temperature), + start at
    t > 0, and rho (t - delta) + offset at t > delta. Anchors without relatives are left out.
    """

    several_labels = False

    def __init__(self, opt):
        super().__init__(opt)
        flags = {
            "loss_softmax_lr": self.lr,
            "loss_softmax_temperature": self.cluster_temperature,
        }
        self.cluster = criteria.select("softmax", opt, loss_learn=[], **flags)
        self.optim_dict_list = self.cluster.optim_dict_list
        self.register_buffer("class_levels", None, persistent=False)  # (C, L), of the data
        self.expect_classes(opt.n_classes)

    def set_levels(self, levels: np.ndarray) -> None:
        """The number of each class at each level, `(C, L)`, column 0 the finest."""
        self.class_levels = torch.from_numpy(levels).to(self.cluster.proxies.device)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`; the softmax is that of the batch."""
        cluster = self.cluster(batch, labels)
        reference = reference if len(reference) else reference.with_own_row()
        ranking = self.finish(
            self.compare(
                batch, labels, reference, formula=functools.partial(self.formula, reference_labels=reference.labels)
            ),
            batch,
        )
        self.stats |= {"h_ap": 1 - ranking.detach(), "cluster_loss": cluster.detach(), **self.cluster.stats}
        return (1 - self.weight) * ranking + self.weight * cluster

    def formula(self, values, positives, negatives, labels, reference_labels) -> dict[str, torch.Tensor]:
        """See the class. `reference_labels` `(M,)`: the labels of the reference."""
        counted = positives + negatives  # (b, M), 0 with the anchor's own image
        levels = self.shared_levels(labels, reference_labels) * counted
        relevances = self.relevances(levels)
        anchors, related = positive_pairs(levels)  # (P,) each
        precisions = functools.partial(self._precisions, values, levels, relevances, counted)
        sums = sums_of_pairs(precisions, values, anchors, related)
        n_related = (levels > 0).sum(1)
        return {"loss": 1 - sums / torch.where(n_related > 0, relevances.sum(1), 1), "n_related": n_related}

    def join(self, results) -> torch.Tensor:
        """See the class."""
        return masked_mean(results["loss"], results["n_related"] > 0)

    def shared_levels(self, labels: torch.Tensor, reference_labels: torch.Tensor) -> torch.Tensor:
        """How many levels classes `labels` `(b,)` and `reference_labels` `(M,)` share, `(b, M)`."""
        if self.class_levels is None:
            return (labels[:, None] == reference_labels[None, :]).long()
        anchor_levels, reference_levels = (
            self.class_levels.index_select(0, classes) for classes in (labels, reference_labels)
        )
        return sum(
            (anchor_levels[:, column, None] == reference_levels[None, :, column]).long()
            for column in range(anchor_levels.shape[1])
        )

    def relevances(self, levels: torch.Tensor) -> torch.Tensor:
        """The relevances `(b, M)` of samples that share `levels` `(b, M)`."""
        relevances = torch.zeros_like(levels)
        n_levels = 1 if self.class_levels is None else self.class_levels.shape[1]
        for level in range(1, n_levels + 1):
            at_level = (levels == level).to(levels.dtype)
            relevances = relevances + at_level * (level / n_levels) / at_level.sum(1, keepdim=True).clamp(min=1)
        return relevances

    def _precisions(self, values, levels, relevances, counted, anchors, related) -> torch.Tensor:
        """H_k / rank_k `(P',)` of some pairs of an anchor and a relative k."""
        # (P', M), 0 with the own image and k
        rivals = counted.index_select(0, anchors).scatter(1, related[:, None], 0.0)
        excesses, of_j, rel_j = (matrix.index_select(0, anchors) for matrix in (values, levels, relevances))
        excesses = excesses - excesses.gather(1, related[:, None])
        of_k = of_j.gather(1, related[:, None])
        rel_k = rel_j.gather(1, related[:, None])
        ahead = (excesses >= 0).to(excesses.dtype)
        steps = bounding_step(excesses, self.temperature, self.rho, self.delta, self.offset, self.start)
        ranks = 1 + (torch.where(of_j < of_k, steps, ahead) * rivals).sum(1)
        return (rel_k.squeeze(1) + (ahead * torch.minimum(rel_j, rel_k) * rivals).sum(1)) / ranks
