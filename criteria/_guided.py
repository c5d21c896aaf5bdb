"""The negatives of each positive pair of an anchor, where a guide drops some beside one positive and not another.

A criterion whose terms are those of positive pairs sets `GUIDES_PAIRS`, and gets the guide as an argument of `formula`.
"""

import torch

from criteria._pairs import log_sum_exp
from criteria._ranking import terms_of_pairs
from utilities.guide import Guide


def negative_masses(
    values: torch.Tensor,
    negatives: torch.Tensor,
    anchors: torch.Tensor,
    partners: torch.Tensor,
    guide: Guide | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """log sum exp `(P,)` over the negatives of each positive pair, and whether it has any, boolean `(P,)`.

    Without a guide once an anchor, not once a pair. With one the `(P, M)` weights exist a part at a time.

    Args:
        values, negatives: `(b, M)`, with weights 0 and 1. anchors, partners: the positive pairs, `(P,)` each.
    """
    if guide is None:
        masses = log_sum_exp(values, negatives)
        return masses.index_select(0, anchors), (negatives.sum(1) > 0).index_select(0, anchors)

    def of_some(some_anchors, some_partners):
        weights = negatives.index_select(0, some_anchors) * guide.keeps(some_anchors, some_partners)
        return torch.stack([log_sum_exp(values.index_select(0, some_anchors), weights), weights.sum(1)], 1)

    masses, counts = terms_of_pairs(of_some, values, anchors, partners, columns=2).unbind(1)
    return masses, counts > 0
