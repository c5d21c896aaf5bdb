"""Contextual similarity: pairs are alike where their neighbourhoods are (Liao et al., ICML 2023, arXiv 2210.01908).

The authors' code gives NaN where a neighbourhood is the whole batch (k or eps reach that far, all embeddings fall
together); here what is outside it then counts 0. Its two parts have one letter with opposite meanings: at 224 pixels
lam weighs the contrastive part and 1 - lam the contextual one, at 256 lam weighs the contextual part and 1 - lam -
gamma the contrastive one. Here each weight is a flag of its own.
"""

import torch

from options.flags import Flag
from utilities.criterion import MetricCriterion
from utilities.numbers import WIDEST, number, whole
from utilities.tensors import masked_mean, normalize
from utilities.tuples import same_class

REQUIRES_OPTIM = True  # the projection
FIXED = ("eps",)  # in a comparison

# slope of the step in the backward pass
SLOPE = 10.0

FLAGS = {
    "context_weight": Flag(number(0), 0.95, "weight of the contextual part"),
    "contrastive_weight": Flag(number(0), 0.05, "weight of the contrastive part"),
    "mean_weight": Flag(number(0), 0.1, "weight of the regulariser of the mean cosine (gamma there)"),
    "k": Flag(whole(2, 10**5), 4, "neighbours, including the image itself: images per class in a batch"),
    "eps": Flag(number(0), 0.05, "squared distance beyond the k-th neighbour that still is in the neighbourhood"),
    "pos_margin": Flag(number(), 0.75, "cosine above which positives cost nothing in the contrastive part"),
    "neg_margin": Flag(number(), 0.6, "cosine below which negatives cost nothing there"),
    "mean": Flag(number(-1, 1), 0.3, "target of the regulariser: mean cosine of the batch"),
    "projection": Flag(
        whole(0, WIDEST),
        0,
        "compute the loss on a trained linear projection of the embedding to D dimensions, which evaluation does "
        "not use (0: on the embedding)",
        metavar="D",
    ),
    "projection_lrmulti": Flag(
        number(0), 2, "learning rate of that map, in multiples of --lr", rules={"needs": "loss_contextual_projection"}
    ),
}


class Criterion(MetricCriterion):
    """context_weight * (sum_pos (1 - J)^2 + sum_neg J^2) / B^2 + contrastive_weight * contrastive + mean_weight * (mean
    of all s - mean)^2.

    J_ij is the mean over i's reciprocal k/2 neighbours of the overlap W of their k-neighbourhoods with that of j, made
    symmetric: N_ij = 1 if D_ij - eps is at most the k-th smallest of D = 2 - 2 s in row i; W = (N N^T / |N_i| + N' N'^T
    / |N'_i|) / 2 * N with N' = 1 - N. In the backward pass the step of N has slope 10. contrastive: mean of [pos_margin
    - s]+ over the positives above 0 + mean of [s - neg_margin]+.
    """

    def __init__(self, opt):
        super().__init__(opt)
        width = self.projection
        self.projection = torch.nn.Linear(opt.embed_dim, width, bias=False) if width else None
        self.optim_dict_list = (
            [{"params": list(self.parameters()), "lr": opt.lr * self.projection_lrmulti}] if width else []
        )

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        points = batch if self.projection is None else batch @ self.projection.weight.to(batch).T
        unit = normalize(points)
        cosines = unit @ unit.T
        same_classes = same_class(labels)
        alike = self.alikeness(cosines)
        context = torch.where(same_classes, 1 - alike, alike).square().fill_diagonal_(0).mean()
        are_positive = same_classes.clone().fill_diagonal_(False)
        far = torch.relu(self.pos_margin - cosines)
        near = torch.relu(cosines - self.neg_margin)
        contrastive = masked_mean(far, are_positive & (far > 0)) + masked_mean(near, ~same_classes & (near > 0))
        of_mean = (cosines.mean() - self.mean).square()
        self.stats = {
            "context": context.detach(),
            "contrastive": contrastive.detach(),
            "mean_cosine": cosines.detach().mean(),
        }
        # NaN reaches the loss
        return (
            self.context_weight * context
            + self.contrastive_weight * contrastive
            + self.mean_weight * of_mean
            + 0 * batch.sum()
        )

    def alikeness(self, cosines: torch.Tensor) -> torch.Tensor:
        """J `(B, B)`."""
        closeness = -(2 - 2 * cosines).clamp(min=0)
        k = min(self.k, len(closeness))
        nearest = closeness.detach().topk(k).values
        # N of the formula in the class's docstring
        near = _AtLeast.apply(closeness + self.eps, nearest[:, -1:])
        half = _AtLeast.apply(closeness + self.eps, nearest[:, max(k // 2, 1) - 1, None])
        overlap = _overlap(near) + _overlap(1 - near)
        reciprocal = half * half.T
        sizes = reciprocal.sum(1, keepdim=True)
        # a zero row is not its own neighbour; clamp would stop the gradient at 1
        alike = reciprocal @ (overlap / 2 * near) / (sizes + (sizes.detach() == 0))
        return (alike + alike.T) / 2


def _overlap(members: torch.Tensor) -> torch.Tensor:
    """The share `(B, B)` of row i's `members` `(B, B)` that row j has too; 0 where row i has none."""
    return members @ members.T / members.detach().sum(1, keepdim=True).clamp(min=1)


class _AtLeast(torch.autograd.Function):
    """Is a value at least the bound, as 0 or 1; the gradient goes to the values, times `SLOPE`, wherever they lie."""

    @staticmethod
    def forward(ctx, values, bounds):
        """See the class."""
        return (values >= bounds).to(values.dtype)

    @staticmethod
    def backward(ctx, gradient):
        """See the class."""
        return SLOPE * gradient, None
