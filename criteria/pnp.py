"""PNP loss (Li et al., Only Penalizing Negative Instances before Positive Ones is Enough, AAAI 2022, arXiv 2102.04640).

The query is no positive of itself, as in `smoothap`; the official code and pytorch-metric-learning count it as one.
"""

import torch
from torch.utils.checkpoint import checkpoint

from criteria._pairs import PairCriterion, positive_pairs
from criteria._ranking import sums_per_anchor
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import masked_mean

# sigmoids computed at once: positive pairs of a chunk times the samples of the reference
CHUNK = 1 << 21

FLAGS = {
    "variant": Flag(
        str,
        "Dq",
        "what a positive with R negatives before it costs: R (O), (1 + R) log(1 + R) (Iu), (b R - log(1 + b R)) / "
        "b^2 (Ib), log(1 + R) (Ds), 1 - (1 + R)^-alpha (Dq, the authors' choice)",
        choices=["O", "Iu", "Ib", "Ds", "Dq"],
    ),
    "temperature": Flag(number(1e-6), 0.01, "temperature of the sigmoids between similarities"),
    "alpha": Flag(
        number(above=0),
        4,
        "exponent alpha (the authors' on SOP)",
        rules={"only_with": {"loss_pnp_variant": ["Dq"]}},
    ),
    "b": Flag(number(above=0), 2, "factor b", rules={"only_with": {"loss_pnp_variant": ["Ib"]}}),
}


class Criterion(PairCriterion):
    """mean over anchors with a positive of mean_p cost(R_p),
    R_p = sum_n sigmoid((s_an - s_ap) / temperature), s cosines.
    """

    SPACE = "cosine"

    def __init__(self, opt):
        super().__init__(opt)
        if self.variant != "Dq":
            self.alpha = None
        if self.variant != "Ib":
            self.b = None

    def formula(self, values, positives, negatives, labels) -> torch.Tensor:
        """See the class."""
        anchors, partners = positive_pairs(positives)  # (P,) each
        size = max(CHUNK // values.shape[1], 1)
        parts = zip(anchors.split(size), partners.split(size), strict=True)
        costs = [self._costs(values, negatives, *part, len(anchors) > size) for part in parts]
        means = sums_per_anchor(torch.cat([values.new_zeros(0), *costs]), anchors, len(values)) / positives.sum(
            1
        ).clamp(min=1)
        # 0 * values: the loss has a graph even without pairs, and NaN reaches it
        return means + 0 * values.sum(1)

    def join(self, results) -> torch.Tensor:
        """See the class."""
        return masked_mean(results["loss"], results["n_positives"] > 0)

    def _costs(self, similarities, negative_weights, anchors, positives, recomputes: bool) -> torch.Tensor:
        """Cost `(P',)` of each positive pair;
        with several chunks the backward pass recomputes the `(P', M)` sigmoids.
        """
        arguments = (similarities, negative_weights, anchors, positives, self.temperature)
        count = (
            checkpoint(_before, *arguments, use_reentrant=False, preserve_rng_state=False)
            if recomputes
            else _before(*arguments)
        )
        match self.variant:
            case "O":
                return count
            case "Iu":
                return (1 + count) * torch.log1p(count)
            case "Ib":
                return (self.b * count - torch.log1p(self.b * count)) / self.b**2
            case "Ds":
                return torch.log1p(count)
            case "Dq":
                return 1 - (1 + count) ** -self.alpha


def _before(similarities, negative_weights, anchors, positives, temperature) -> torch.Tensor:
    rows = similarities.index_select(0, anchors)
    nearer = torch.sigmoid((rows - rows.gather(1, positives[:, None])) / temperature)
    return (nearer * negative_weights.index_select(0, anchors)).sum(1)
