"""Margin loss with a learned boundary between positives and negatives (Wu et al., Sampling Matters, arXiv 1706.07567).

The sum is divided by the number of active terms of both kinds, as in the paper's code. The code of the published runs
counted a triplet once where both of its terms were active.
"""

import torch

from criteria._reductions import Reduction
from criteria._tuples import active_share, tuple_distances
from options.flags import Flag
from utilities.criterion import MetricCriterion
from utilities.errors import UserError
from utilities.numbers import number
from utilities.reference import Reference

REQUIRES_BATCHMINER = True
REQUIRES_OPTIM = True
PER_CLASS = ("margin",)
REDUCES = True

IF_LEARNED = {"idle_with": {"loss_margin_beta_constant": [True]}}

FLAGS = {
    "margin": Flag(number(), 0.2, "half the gap between positives and negatives around beta"),
    "beta_lr": Flag(number(0), 0.0005, "learning rate of beta", rules=IF_LEARNED),
    "beta": Flag(number(), 1.2, "boundary between positives and negatives at the start"),
    "nu": Flag(number(0), 0.0, "weight of the sum of betas"),
    "beta_constant": Flag(bool, False, "beta is not learned"),
    "beta_shared": Flag(bool, False, "one beta for all classes instead of one per class", rules=IF_LEARNED),
}


class Criterion(MetricCriterion):
    """sum_T ([d_ap - b_a + margin]+ + [b_a - d_an + margin]+ + nu b_a) / number of active terms,
    b_a = beta of the anchor's class.

    With `--loss_reduction` a term is the sum of a triplet's two hinges;
    nu times the triplets' mean b_a is added to the reduced terms.

    `beta`: parameter `(n_classes,)`, `(1,)` where it is shared, a number where it is constant. It has no weight decay.
    """

    def __init__(self, opt, batchminer):
        super().__init__(opt, batchminer)
        self.reduction = Reduction(opt)
        self.several_labels = self.beta_constant or self.beta_shared
        self.optim_dict_list = []
        if not self.beta_constant:
            if not self.beta_shared and not getattr(opt, "n_classes", None):
                raise UserError(
                    "margin with a beta a class needs n_classes: select('margin', opt, batchminer, n_classes=100)"
                )
            if not self.beta_shared:
                self.expect_classes(opt.n_classes)
            n_betas = 1 if self.beta_shared else opt.n_classes
            self.beta = torch.nn.Parameter(torch.full((n_betas,), float(self.beta)))
            self.optim_dict_list.append({"params": [self.beta], "lr": self.beta_lr, "weight_decay": 0})

    def betas(self, anchor_labels: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | float:
        """Beta of each anchor: `(T,)`, `(1,)` or a number."""
        if not isinstance(self.beta, torch.Tensor):
            return self.beta
        beta = self.beta.to(dtype)
        if self.beta_shared or not beta.ndim:
            return beta
        return beta.index_select(0, anchor_labels)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        triplets = self.triplets(batch, labels, reference)
        positive_distances, negative_distances = tuple_distances(batch, reference, triplets)  # (T,) each
        betas = self.betas(labels[triplets.anchors], batch.dtype)
        margins = self.per_anchor("margin", labels[triplets.anchors])
        far_positives = torch.relu(positive_distances - betas + margins)
        near_negatives = torch.relu(betas - negative_distances + margins)
        active = (far_positives > 0).sum() + (near_negatives > 0).sum()
        terms = far_positives + near_negatives
        regularisation = 0.0
        if isinstance(self.nu, torch.Tensor) or self.nu:
            of_triplets = betas.expand(len(terms)).sum() if isinstance(betas, torch.Tensor) else betas * len(terms)
            # without active terms the loss is 0
            regularisation = self.nu * of_triplets * (active > 0).to(batch.dtype)
        self.stats = {
            "active_positives": active_share(far_positives.detach()),
            "active_negatives": active_share(near_negatives.detach()),
        }
        if isinstance(self.beta, torch.Tensor):
            self.stats["beta"] = self.beta.detach().mean()
        if self.reduction.is_own:
            return (terms.sum() + regularisation) / active.clamp(min=1)
        return self.reduction(terms, triplets.anchors, labels) + regularisation / max(len(terms), 1)
