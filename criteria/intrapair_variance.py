"""Intra-pair variance loss (Yu & Tao, Deep Metric Learning with Tuplet Margin Loss, ICCV 2019),
there beside the tuplet margin loss.
"""

import functools

import torch

from criteria._pairs import PairCriterion, chosen_mean
from criteria._reductions import Reduction
from options.flags import Flag
from utilities.numbers import number
from utilities.reference import Reference

MINES_PAIRS = True
REDUCES = True

FLAGS = {
    "pos_eps": Flag(number(0, 1), 0.01, "share by which a positive pair may lie below their mean"),
    "neg_eps": Flag(number(0, 1), 0.01, "share by which a negative pair may lie above their mean"),
}


class Criterion(PairCriterion):
    """mean_P [(1 - pos_eps) E[s_P] - s_ap]+^2 + mean_N [s_an - (1 + neg_eps) E[s_N]]+^2,
    s cosines, E their mean over such pairs.
    """

    SPACE = "cosine"

    def __init__(self, opt, batchminer=None):
        super().__init__(opt, batchminer)
        self.reduction = Reduction(opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """See the base. Pairs are compared with the mean of all pairs,
        so a reference other than the batch is gone through twice.
        """
        mined = None if self.batchminer is None else self.pair_masks(batch, labels, reference)
        formula = self.formula
        if not reference.plain:
            results = self.compare(batch, labels, reference, mined, _sums)
            means = (results[kind] / results[f"n_{kind}"].sum().clamp(min=1) for kind in ("positives", "negatives"))
            formula = functools.partial(formula, means=tuple(means))
        return self.finish(self.compare(batch, labels, reference, mined, formula), batch)

    def formula(self, values, positives, negatives, labels, means=None) -> dict:
        """What the reduction needs of the squared deviations from `means`, of all positives and of all negatives
        (default: those here).
        """
        of_positives, of_negatives = means or (chosen_mean(values, positives), chosen_mean(values, negatives))
        below = torch.relu((1 - self.pos_eps) * of_positives - values).square()
        above = torch.relu(values - (1 + self.neg_eps) * of_negatives).square()
        return {
            **self.reduction.of_pairs("positives", below, positives),
            **self.reduction.of_pairs("negatives", above, negatives),
        }

    def join(self, results) -> torch.Tensor:
        """See the class."""
        return self.reduction.join("positives", results) + self.reduction.join("negatives", results)


def _sums(values, positives, negatives, labels) -> dict:
    """The first look: sums of the cosines, with their graph."""
    return {"positives": (values * positives).sum(), "negatives": (values * negatives).sum()}
