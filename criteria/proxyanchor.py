"""Proxy-Anchor loss (Kim et al., CVPR 2020, arXiv 2003.13911)."""

import functools

import torch

from criteria._shards import ShardedCriterion
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import amax_at

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False

FLAGS = {
    "alpha": Flag(number(above=0), 32, "scale of the similarities"),
    "delta": Flag(number(), 0.1, "margin on the similarities"),
    "lrmulti": Flag(number(0), 100, "learning rate of the proxies, in multiples of --lr"),
}


class Criterion(ShardedCriterion):
    """mean over classes in the batch of log(1 + sum_{x of class} exp(-alpha (s - delta)))

    + mean over all classes of log(1 + sum_{x not of class} exp(alpha (s + delta))). The official code adds 1e-12 to
    squared lengths before it takes their root; here a zero row stays zero.
    """

    def __init__(self, opt):
        start = functools.partial(torch.nn.init.kaiming_normal_, mode="fan_out")
        super().__init__(opt, start=start, pml_start=start)

    def terms(self, similarities, class_columns, labels, batch, n) -> tuple:
        """The sum of the positive terms, the number of classes in the batch, the sum of the negative terms, the number
        of classes: `(4,)`.
        """
        positive_logits = -self.alpha * (similarities.gather(1, class_columns[:, None]).squeeze(1) - self.delta)  # (B,)
        # log(1 + sum exp) of each class's samples, shifted by its largest logit; a class that is not in the batch gives
        # log 1
        zeros = positive_logits.new_zeros(similarities.shape[1])
        largest = amax_at(zeros, 0, class_columns, positive_logits)  # (C,), at least 0
        sums = torch.exp(-largest).index_add(
            0, class_columns, torch.exp(positive_logits - largest.index_select(0, class_columns))
        )
        n_present = zeros.index_fill(0, class_columns, 1)[:n].sum()
        negative_logits = self.alpha * (similarities + self.delta)
        negative_logits = self.own_domain(negative_logits, labels, torch.finfo(negative_logits.dtype).min)
        negative_logits = negative_logits.scatter(1, class_columns[:, None], torch.finfo(negative_logits.dtype).min)
        negative_terms = -torch.nn.functional.logsigmoid(-torch.logsumexp(negative_logits, 0))
        compared = zeros.add(1) if self.own_domain.domains is None else self.own_domain.compared(labels).to(zeros)
        return (
            torch.stack([(largest + sums.log())[:n].sum(), n_present, negative_terms[:n].sum(), compared[:n].sum()]),
        )

    def join(self, sums: torch.Tensor) -> torch.Tensor:
        """The two means; of drawn classes the second is over these."""
        positives, n_present, negatives, n_classes = self.shard.total(sums.sum(0))
        return positives / n_present + negatives / n_classes

    def loss(self, similarities: torch.Tensor, labels: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        """See `ShardedCriterion`."""
        return self.join(torch.stack(self.terms(similarities, labels, labels, batch, self.n_classes)))
