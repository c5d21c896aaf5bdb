"""Base of the losses on graded pairs of images, `--trainer pairs`: what has a higher grade is to be more similar."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp, softplus
from utilities.reference import Reference
from utilities.tensors import normalize


class GradedCriterion(PairCriterion):
    """log(1 + sum over pairs i, j with grade_j < grade_i of exp(scale (s_j - s_i))), s the similarity of a pair.

    Without grades the pairs are all (anchor, other image) of the batch and its reference, with grade 1 for positives
    and 0 for negatives.
    """

    SPACE = "cosine"

    def turned(self, points: torch.Tensor) -> torch.Tensor:
        """What is multiplied with the second image of a pair, of unit vectors `(N, D)` of the first; here the same."""
        return points

    def similarity(self, products: torch.Tensor) -> torch.Tensor:
        """The similarity of pairs by their products; here the same."""
        return products

    def measure(self, points, reference_points, norms) -> torch.Tensor:
        """See `PairCriterion`."""
        return self.similarity(self.turned(points) @ reference_points.T)

    def forward(
        self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, grades=None, pairs=None, **kwargs
    ) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)`.

        Args:
            grades: `(P,)`, of pairs of the batch; None: by `labels` `(B,)` and `reference`.
            pairs: `(P, 2)` rows of the batch; None: rows 0 and 1, 2 and 3, and so on.
        """
        if grades is None:
            return super().forward(batch, labels, reference)
        if pairs is None:
            pairs = torch.arange(2 * len(grades), device=batch.device).view(-1, 2)
        pairs = torch.as_tensor(pairs, device=batch.device)
        unit = normalize(batch)
        first = self.turned(unit).index_select(0, pairs[:, 0])
        values = self.similarity((first * unit.index_select(0, pairs[:, 1])).sum(1))  # (P,)
        grades = torch.as_tensor(grades, device=batch.device)
        is_lower = grades[None, :] < grades[:, None]
        excesses = self.scale * (values[None, :] - values[:, None])  # (P, P), s_j - s_i
        self.stats = {
            "misordered_share": ((excesses.detach() > 0) & is_lower).sum() / is_lower.sum().clamp(min=1),
        }
        terms = excesses.masked_fill(~is_lower, -torch.inf).flatten()
        return torch.logsumexp(torch.cat([terms.new_zeros(1), terms]), 0) + 0 * batch.sum()

    def formula(self, values, positives, negatives, labels) -> dict:
        """The masses `(b,)` of the positives and of the negatives of each anchor."""
        scaled = self.scale * values
        return {"of_positives": log_sum_exp(-scaled, positives), "of_negatives": log_sum_exp(scaled, negatives)}

    def join(self, results) -> torch.Tensor:
        """See the class."""
        masses = [torch.logsumexp(results[name], 0) for name in ("of_positives", "of_negatives")]
        return softplus(masses[0] + masses[1])
