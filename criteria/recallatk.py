"""Recall@k surrogate (Patel et al., CVPR 2022, arXiv 2108.11179).

The query is not in its own list; the official code ranks it too. SiMix mixes every pair of a class; the official code
lists the pairs by hand, for 3, 4 and 6 images per class.
"""

import torch

from criteria import _ranking
from criteria._pairs import PairCriterion, positive_pairs
from options.flags import Flag
from utilities.errors import UserError
from utilities.numbers import number, whole
from utilities.reference import Reference
from utilities.tensors import masked_mean

# soft ranks are those among all images
TAKES_GUIDE = False

FLAGS = {
    "temperature": Flag(number(1e-6), 0.01, "temperature of the sigmoids between similarities"),
    "k_temperature": Flag(number(1e-6), 1, "temperature of the sigmoid between rank and k"),
    "ks": Flag(
        whole(1),
        [1, 2, 4, 8, 16],
        "the k of recall@k, averaged; those above the batch size (of a reference: its size) less one are dropped",
        nargs="+",
    ),
    "simix": Flag(
        bool,
        False,
        "SiMix: every pair of a class in the batch also gives a virtual image of that class, a convex combination "
        "of the two whose weight is drawn uniformly; it is a query and is found, with the convex combinations of "
        "their similarities",
        aliases=("--simix",),
    ),
}


class Criterion(PairCriterion):
    """1 - mean over ks and anchors with a positive of min(k, sum_p sigma((k - rank_p) / T2)) / min(k, positives).

    With `simix` the batch is the images and the virtual ones. A batch that is compared with another reference, such as
    a memory, is not mixed.
    """

    def __init__(self, opt):
        super().__init__(opt)
        # virtual images are of one class
        self.several_labels = not self.simix
        if not self.ks:
            raise UserError("--loss_recallatk_ks: name one k at least")

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """See the base. Under `simix` the virtual images are drawn from torch's global generator."""
        if self.simix and reference.plain:
            batch, labels = mixed(batch, labels)
            reference = Reference.build(batch, labels)
        return super().forward(batch, labels, reference)

    def formula(self, values, positives, negatives, labels) -> torch.Tensor:
        """See the class."""
        # filled on the device: a list would have to be copied there
        ks = [values.new_full((), k) for k in self.ks if k < values.shape[1]]
        if not ks:
            return 0.0 * values.sum(1)
        # (K,), (b, 1)
        ks = torch.stack(ks)
        n_positives = positives.sum(1, keepdim=True)
        anchors, partners = positive_pairs(positives)  # (P,) each
        left_out = _ranking.left_out(positives, negatives, anchors, partners)
        ranks = _ranking.soft_ranks(values, anchors, partners, left_out, self.temperature, None).squeeze(0)
        # (b, K)
        hits = _ranking.sums_per_anchor(torch.sigmoid((ks - ranks[:, None]) / self.k_temperature), anchors, len(values))
        recalls = torch.minimum(hits, ks) / torch.minimum(ks, n_positives.clamp(min=1))
        return 1 - recalls.mean(1)

    def join(self, results) -> torch.Tensor:
        """See the class."""
        return masked_mean(results["loss"], results["n_positives"] > 0)


def mixed(batch: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings `(B, D)` and labels `(B,)`, followed by a x_i + (1 - a) x_j of every pair i < j of a class, each with
    its own a.

    Similarities are inner products, so those of a virtual image are the convex combinations of those of x_i and x_j.
    """
    first, second = (labels[:, None] == labels[None, :]).triu(1).nonzero().unbind(1)  # (P,) each
    shares = torch.rand(len(first), 1, dtype=torch.float32, device=batch.device).to(batch.dtype)
    virtual = shares * batch.index_select(0, first) + (1 - shares) * batch.index_select(0, second)
    return torch.cat([batch, virtual]), torch.cat([labels, labels.index_select(0, first)])
