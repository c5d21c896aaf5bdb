"""Neighbourhood components analysis (Goldberger et al., NeurIPS 2004)."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp
from options.flags import Flag
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import masked_mean

MINES_PAIRS = True

FLAGS = {
    "scale": Flag(number(above=0), 1, "multiplies the squared distances"),
}


class Criterion(PairCriterion):
    """-log(sum_p exp(-scale d^2) / sum_{j != i} exp(-scale d^2)), mean over anchors with a positive."""

    SPACE = "squared"
    STATISTIC = "squared_distance"

    def prepare(self, batch: torch.Tensor, reference: Reference) -> tuple[torch.Tensor, Reference]:
        """Embeddings less the batch's mean, which leaves the distances and lessens their rounding error."""
        mean = batch.mean(0)
        return reference.mapped(lambda points: points - mean, batch)

    def measure(self, points: torch.Tensor, reference_points: torch.Tensor, norms: torch.Tensor | None) -> torch.Tensor:
        """Squared distances `(b, M)`. The base sets those of equal points to exactly 0,
        which this formula does not need.
        """
        point_norms = points.square().sum(1)
        reference_norms = point_norms if norms is None else norms
        return torch.addmm(point_norms[:, None] + reference_norms, points, reference_points.T, alpha=-2)

    def formula(self, values, positives, negatives, labels) -> torch.Tensor:
        """See the class."""
        logits = -self.scale * values
        return log_sum_exp(logits, torch.maximum(positives, negatives)) - log_sum_exp(logits, positives)

    def join(self, results) -> torch.Tensor:
        """See the class."""
        return masked_mean(results["loss"], results["n_positives"] > 0)
