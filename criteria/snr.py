"""Signal-to-noise-ratio triplet loss (Yuan et al., Signal-to-Noise Ratio: A Robust Distance Metric, arXiv
1904.02616).
"""

import torch

from criteria._reductions import Reduction
from criteria._tuples import active_share, mean_term
from options.flags import Flag
from utilities.console import say
from utilities.criterion import MetricCriterion
from utilities.numbers import number
from utilities.programs import name_in_clone
from utilities.reference import Reference
from utilities.tensors import FLOOR, pair_distances

REQUIRES_BATCHMINER = True
PER_CLASS = ("margin",)
REDUCES = True

FLAGS = {
    "margin": Flag(number(), 0.2, "margin by which a negative is to be noisier than a positive"),
    "reg_lambda": Flag(
        number(0), 0.005, "weight of the anchors' absolute sums (0 with the miner `distance`, as published)"
    ),
}


class Criterion(MetricCriterion):
    """sum_T [D_ap - D_an + margin]+ / number active + reg_lambda mean_T |sum of x_a|, D(a, b) = var(x_a - x_b) /
    var(x_a).

    Variances are unbiased, over the dimensions of an embedding. The signal var(x_a) and the regularised sum are the
    anchor's; b may come from another reference.
    """

    several_labels = True

    def __init__(self, opt, batchminer):
        super().__init__(opt, batchminer)
        self.reduction = Reduction(opt, "nonzero")
        package, _, name = name_in_clone(type(batchminer).__module__).rpartition(".")
        if (name if package == "batch_mining" else opt.batch_mining) == "distance" and self.reg_lambda:
            say(
                f"--loss_snr_reg_lambda {self.reg_lambda} is taken as 0 with --batch_mining distance, as in the "
                "published runs"
            )
            self.reg_lambda = 0.0

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        anchors, positives, negatives = self.triplets(batch, labels, reference)
        # var(x_a - x_b) (D - 1) is the squared distance of centred embeddings, (B, D) and (M, D)
        centred, compared = reference.mapped(lambda points: points - points.mean(1, keepdim=True), batch)
        freedom = max(batch.shape[1] - 1, 1)
        signals = (centred.square().sum(1) / freedom).clamp(min=FLOOR).index_select(0, anchors)  # (T,)
        noises = (
            pair_distances(
                centred, anchors.repeat(2), torch.cat([positives, negatives]), True, compared.embeddings
            ).view(2, -1)
            / freedom
        )
        positive_ratios, negative_ratios = noises / signals  # (T,) each
        violations = torch.relu(positive_ratios - negative_ratios + self.per_anchor("margin", labels[anchors]))
        self.stats = {"active_share": active_share(violations.detach())}
        regularisation = mean_term(batch.sum(1).abs().index_select(0, anchors))
        return self.reduction(violations, anchors, labels) + self.reg_lambda * regularisation
