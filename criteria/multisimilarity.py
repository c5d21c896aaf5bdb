"""Multi-similarity loss (Wang et al., CVPR 2019, arXiv 1904.06627).

The sum is divided by the batch size as in the official code; the ICML 2020 pipeline divided by the number of anchors that kept pairs.
"""

import math

import torch

from criteria import _streams
from criteria._pairs import PairCriterion, as_weights, log_sum_exp, pair_means, pair_sums, softplus
from utilities.numbers import number
from utilities.reference import Reference

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
PER_CLASS = ("pos_weight", "neg_weight", "margin", "thresh")
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of the multi-similarity loss."""
    group.add_argument(
        "--loss_multisimilarity_pos_weight",
        type=number(1e-6),
        default=2,
        help="exponential weight of positive pairs (the paper's alpha)",
    )
    group.add_argument(
        "--loss_multisimilarity_neg_weight",
        type=number(1e-6),
        default=40,
        help="exponential weight of negative pairs (the paper's beta)",
    )
    group.add_argument(
        "--loss_multisimilarity_margin",
        type=number(inf=True),
        default=0.1,
        help="slack in the comparison that keeps pairs (the paper's epsilon); inf compares nothing and keeps all",
    )
    group.add_argument(
        "--loss_multisimilarity_thresh", type=number(), default=0.5, help="similarity at which a pair weighs one half (the paper's lambda)"
    )


class Criterion(PairCriterion):
    """sum over anchors of 1/pos_weight log(1 + sum_p exp(-pos_weight (s - thresh))) and its mirror for negatives, over B.

    An anchor keeps the negatives with s + margin > its least similar positive and the positives with s - margin < its most similar
    negative; an anchor without positives or without negatives gives 0. With an infinite margin every pair is kept, and such an anchor
    gives the term of the kind it has, as in the official code without its miner.
    """

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.pos_weight = opt.loss_multisimilarity_pos_weight
        self.neg_weight = opt.loss_multisimilarity_neg_weight
        self.margin = opt.loss_multisimilarity_margin
        self.thresh = opt.loss_multisimilarity_thresh

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        apart = self.streamed(labels, reference)
        if apart is None:
            (losses,), (kept_positives, kept_negatives, *similarities) = self.compared(self.terms, batch, labels, reference, keep=True)
        else:
            losses, (kept_positives, kept_negatives, *similarities) = self.stream(batch, labels, reference, apart)
        _, n_positives, _, n_negatives = similarities
        self.stats = {
            "kept_positive_share": kept_positives / n_positives.clamp(min=1),
            "kept_negative_share": kept_negatives / n_negatives.clamp(min=1),
            **pair_means("similarity", similarities),
        }
        if isinstance(self.margin, torch.Tensor):  # learned: it only decides which pairs count, so its gradient is 0
            losses = losses + 0 * self.per_anchor("margin", labels)
        return losses.mean()

    @property
    def _compares(self) -> bool:
        return isinstance(self.margin, torch.Tensor) or self.margin != math.inf

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """Each anchor's loss; the numbers of kept pairs, sums of the similarities."""
        similarities = batch @ reference.embeddings.T  # (B, M)
        kept_positives, kept_negatives = self.kept(similarities.detach(), positives, negatives, self.per_anchor("margin", labels, 2))
        thresh, pos_weight, neg_weight = (self.per_anchor(name, labels, 2) for name in ("thresh", "pos_weight", "neg_weight"))
        positive_terms = softplus(log_sum_exp(pos_weight * (thresh - similarities), kept_positives, reference.plain))
        negative_terms = softplus(log_sum_exp(neg_weight * (similarities - thresh), kept_negatives, reference.plain))
        losses = positive_terms / self.per_anchor("pos_weight", labels) + negative_terms / self.per_anchor("neg_weight", labels)
        return (losses,), (kept_positives.sum(), kept_negatives.sum(), *pair_sums(similarities, positives, negatives))

    def kept(self, values: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor, margin) -> tuple[torch.Tensor, torch.Tensor]:
        """`positives` and `negatives`, weights `(B, M)`, of the pairs that similarities `values` `(B, M)` and `margin` keep."""
        if not self._compares or not values.shape[1]:
            return positives, negatives
        far = torch.finfo(values.dtype).max / 4  # beyond every similarity
        least_similar_positive = (values + (1 - positives) * far).amin(1, keepdim=True)
        most_similar_negative = (values - (1 - negatives) * far).amax(1, keepdim=True)
        # without a positive no negative is kept, and vice versa: both terms are then log 1
        least_similar_positive.masked_fill_(positives.sum(1, keepdim=True) == 0, torch.inf)
        most_similar_negative.masked_fill_(negatives.sum(1, keepdim=True) == 0, -torch.inf)
        kept_positives = positives * as_weights(values - margin < most_similar_negative, values)
        return kept_positives, negatives * as_weights(values + margin > least_similar_positive, values)

    def stream(self, batch, labels, reference, apart) -> tuple[torch.Tensor, tuple]:
        """The result of `terms` for all pairs with a large reference."""
        others, anchors, n_anchors = reference.embeddings, apart.anchors, len(batch)
        thresh, pos_weight, neg_weight = (self.per_anchor(name, labels) for name in ("thresh", "pos_weight", "neg_weight"))
        least = None
        if self._compares:
            found = _streams.positive_products(batch.detach(), others.detach(), apart)  # (P,)
            lowest = batch.new_full((n_anchors,), torch.inf).scatter_reduce(0, anchors, found, "amin")
            least = ((lowest - self.per_anchor("margin", labels)) * neg_weight).detach()
        points = self.per_anchor("neg_weight", labels, 2) * batch
        logits, of_positives, most, n_kept, _ = _streams.log_sum_exp(points, others, apart, least=least)
        of_positives = of_positives / self.per_anchor("neg_weight", labels[anchors])  # (P,)
        kept = torch.ones_like(of_positives)
        if self._compares:
            margin = self.per_anchor("margin", labels[anchors])
            kept = as_weights(of_positives.detach() - margin < (most / neg_weight).index_select(0, anchors), batch)
        exponents = self.per_anchor("pos_weight", labels[anchors]) * (self.per_anchor("thresh", labels[anchors]) - of_positives)
        rows = kept.nonzero().squeeze(1)
        positive_terms = softplus(_streams.sum_exp_per_anchor(exponents[rows], anchors[rows], n_anchors))
        losses = positive_terms / pos_weight + softplus(logits - neg_weight * thresh) / neg_weight
        similarities = _streams.pair_sums(batch, reference, apart, of_positives)
        kept_negatives = similarities[3] if least is None else n_kept.sum()
        return losses, (kept.sum(), kept_negatives, *similarities)
