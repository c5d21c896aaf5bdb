"""Tuplet margin loss (Yu & Tao, Deep Metric Learning with Tuplet Margin Loss, ICCV 2019).

Every positive pair is compared with all negatives of its anchor, as in pytorch-metric-learning; the paper draws one of each other class.
"""

import torch

from criteria import _streams
from criteria._angular_margin import LIMIT
from criteria._pairs import PairCriterion, log_sum_exp, pair_means, pair_sums, positive_pairs, softplus
from criteria._reductions import Reduction
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import normalize, take_pairs

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
MINES_PAIRS = True
REDUCES = True


def add_arguments(group) -> None:
    """Declare the flags of the tuplet margin loss."""
    group.add_argument(
        "--loss_tupletmargin_margin",
        type=number(0, 3.1416),
        default=0.1,
        help="radians taken off the angle of a positive pair: one this near is drawn no nearer (the paper's beta; 5.73 degrees)",
    )
    group.add_argument("--loss_tupletmargin_scale", type=number(above=0), default=64, help="multiplies the cosines (the paper's s)")


class Criterion(PairCriterion):
    """Mean over positive pairs of log(1 + sum_n exp(scale (cos t_an - cos(t_ap - margin)))), t the angle between two embeddings.

    A positive pair whose anchor has no negative gives 0.
    """

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.margin = opt.loss_tupletmargin_margin
        self.scale = opt.loss_tupletmargin_scale
        self.reduction = Reduction(opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        apart = self.streamed(labels, reference)
        if apart is None:
            similarities, positives, negatives = self.cosine_pairs(batch, labels, reference)  # (B, M) each
            anchors, others = positive_pairs(positives)  # (P,) each
            of_positives = take_pairs(similarities, anchors, others)
            near_negatives = log_sum_exp(self.scale * similarities, negatives)  # (B,)
            sums = pair_sums(similarities, positives, negatives)
        else:
            anchors = apart.anchors
            unit, others = reference.mapped(normalize, batch)
            bound = None if isinstance(self.scale, torch.Tensor) else self.scale
            near_negatives, logits, *_ = _streams.log_sum_exp(self.scale * unit, others.embeddings, apart, bound=bound)
            of_positives = logits / self.scale
            sums = _streams.pair_sums(unit, others, apart, of_positives)
        narrowed = torch.cos(of_positives.clamp(-LIMIT, LIMIT).acos() - self.margin)
        terms = softplus(near_negatives.index_select(0, anchors) - self.scale * narrowed)  # log(1 + sum_n exp(...))
        self.stats = pair_means("similarity", sums)
        return self.reduction(terms, anchors, labels)
