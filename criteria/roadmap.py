"""ROADMAP (Ramzi et al., Robust and Decomposable Average Precision for Image Retrieval, NeurIPS 2021, arXiv
2110.01445): average precision with a bound for its ranks, SupAP, and a calibration of similarities across batches.

The query is not in its own list, as in `smoothap`; the authors' code ranks it too, among its own positives.
"""

import functools

import torch

from criteria._pairs import PairCriterion, positive_pairs
from criteria._ranking import bounding_step, sums_of_pairs
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import masked_mean

# delta is used in comparisons
FIXED = ("delta",)

FLAGS = {
    "temperature": Flag(number(1e-6), 0.01, "temperature of the step below a difference of delta (tau)"),
    "rho": Flag(number(0), 100, "slope of the step beyond a difference of delta"),
    "delta": Flag(number(0), 0.05, "difference of similarities from which on the step is a line"),
    "offset": Flag(number(), 1.44, "the line's value at delta; the authors' 1.44 goes with start .5, 1 with 0"),
    "start": Flag(number(), 0.5, "what is added to the sigmoid between 0 and delta (the authors' on iNaturalist: 0)"),
    "pos_margin": Flag(number(-1, 1), 0.9, "cosine that positive pairs are calibrated to reach"),
    "neg_margin": Flag(number(-1, 1), 0.6, "cosine that negative pairs are calibrated to stay below"),
    "weight": Flag(number(0), 1, "weight of the calibration"),
}


class Criterion(PairCriterion):
    """1 - mean over anchors of SupAP + weight * (mean [pos_margin - s]+ + mean [s - neg_margin]+), the means over the
    positive and the negative pairs whose terms are above 0.

    SupAP = mean_k r_k / (r_k + b_k) over the anchor's positives k; r_k = 1 + how many other positives have at least the
    similarity of k, without gradient; b_k = the sum over negatives n of step(s_n - s_k), see `bounding_step`. Anchors
    without a positive are left out.
    """

    SPACE = "cosine"

    def formula(self, values, positives, negatives, labels) -> dict[str, torch.Tensor]:
        """See the class."""
        anchors, partners = positive_pairs(positives)  # (P,) each
        precisions = functools.partial(self._precisions, values, positives, negatives)
        sums = sums_of_pairs(precisions, values, anchors, partners)
        missing = torch.relu(self.pos_margin - values) * positives
        excess = torch.relu(values - self.neg_margin) * negatives
        return {
            # 0 * values: the loss has a graph even without pairs
            "loss": 1 - sums / positives.sum(1).clamp(min=1) + 0 * values.sum(1),
            "missing": missing.sum(),
            "n_missing": missing.detach().count_nonzero(),
            "excess": excess.sum(),
            "n_excess": excess.detach().count_nonzero(),
        }

    def join(self, results) -> torch.Tensor:
        """See the class."""
        ranking = masked_mean(results["loss"], results["n_positives"] > 0)
        calibration = sum(results[name] / results[f"n_{name}"].clamp(min=1) for name in ("missing", "excess"))
        self.stats |= {"sup_ap": 1 - ranking.detach(), "calibration": calibration.detach()}
        return ranking + self.weight * calibration

    def _precisions(self, values, positives, negatives, anchors, partners) -> torch.Tensor:
        """r_k / (r_k + b_k) `(P',)` of some pairs of an anchor and a positive k."""
        rows = values.index_select(0, anchors)
        differences = rows - rows.gather(1, partners[:, None])
        rivals = positives.index_select(0, anchors).scatter(1, partners[:, None], 0.0)
        ranks = 1 + ((differences >= 0).to(values.dtype) * rivals).sum(1)
        steps = bounding_step(differences, self.temperature, self.rho, self.delta, self.offset, self.start)
        before = (steps * negatives.index_select(0, anchors)).sum(1)
        return ranks / (ranks + before)
