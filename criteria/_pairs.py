"""What the criteria on all pairs of a batch share: pairs as weights, sums over them, soft histograms, statistics.

Pairs are chosen by weights 0 and 1 in the precision of the batch, not by boolean masks: on a CPU a product or a sum of two
`(B, B)` matrices costs a small part of what `where`, `masked_fill` or a mask's cast costs, and needs no mask in its backward.
"""

import torch

from utilities.criterion import MetricCriterion
from utilities.tensors import normalize


class PairCriterion(MetricCriterion):
    """Base of the criteria on all pairs of the batch, or on a miner's distinct ones where it is given one."""

    def pair_weights(self, batch: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights `(B, B)`, 1 or 0, of the positive and of the negative pairs, in the precision of `batch`."""
        positives, negatives = self.pair_masks(batch, labels)
        return as_weights(positives, batch), as_weights(negatives, batch)


def cosines(batch: torch.Tensor) -> torch.Tensor:
    """Cosine similarities `(B, B)` of the rows of `batch` `(B, D)`."""
    unit = normalize(batch)
    return unit @ unit.T


def as_weights(mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A boolean mask as weights 0 and 1 in the precision of `like`."""
    return mask.view(torch.uint8).to(like.dtype)  # the same bytes; booleans themselves cast slowly


def log_sum_exp(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """log sum exp `(B,)` over the entries of each row of `values` `(B, B)` whose weight is 1.

    A row without any gives a value so low that its exp is 0, and that two of them still add up: callers leave such rows out.
    """
    penalties = (weights - 1) * (torch.finfo(values.dtype).max / 4)  # 0 where chosen
    return torch.logsumexp(values + penalties, 1)


def softplus(values: torch.Tensor) -> torch.Tensor:
    """log(1 + exp(values)) without torch's threshold, beyond which its softplus is off by 2e-9."""
    return -torch.nn.functional.logsigmoid(-values)


def chosen_mean(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Mean of `values` where `weights` are 1; a zero that keeps the graph where none is. `values` are finite throughout."""
    return (values * weights).sum() / weights.sum().clamp(min=1)


def pair_means(name: str, values: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> dict:
    """`{"positive_<name>", "negative_<name>"}`: detached means of `values` `(B, B)` by two weights `(B, B)`, for `stats`."""
    values = values.detach()
    return {f"positive_{name}": chosen_mean(values, positives), f"negative_{name}": chosen_mean(values, negatives)}


def soft_counts(positions: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor, n_nodes: int) -> torch.Tensor:
    """Linear soft histograms `(B, 2, n_nodes)` of each row's positives and negatives.

    Args:
        positions: `(B, B)` in [0, n_nodes - 1]; node k stands at k, a pair shares its 1 between its two nearest nodes.
        positives, negatives: weights `(B, B)`, 0 or 1, of the pairs that count.
    """
    lower = positions.detach().floor().clamp_(max=n_nodes - 2).nan_to_num_(0.0)  # NaN is to reach the loss, not an index
    above = positions - lower  # (B, B), the share of the upper node
    # 0 positive, 1 negative, 2 no pair: a third histogram that is dropped; what an ablation miner chose as both counts as positive
    third = (2 - 2 * positives - negatives).clamp(min=0)
    nodes = lower.add_(third, alpha=n_nodes).long()
    counts = positions.new_zeros(len(positions), 3 * n_nodes)
    counts = counts.scatter_add(1, nodes, 1 - above).scatter_add(1, nodes + 1, above)
    return counts.view(-1, 3, n_nodes)[:, :2]


def positive_pairs(positives: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Anchors and positives, each `(P,)`, of weights `(B, B)`, anchor by anchor. P is the one size asked of the device."""
    anchors, others = positives.nonzero().unbind(1)
    return anchors, others
