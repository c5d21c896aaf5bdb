"""Contextual similarity: pairs are alike where their neighbourhoods are (Liao et al., ICML 2023, arXiv 2210.01908).

The authors' code gives NaN where a neighbourhood is the whole batch (k or eps reach that far, all embeddings fall
together); here what is outside it then counts 0. Its two parts have one letter with opposite meanings: at 224 pixels
lam weighs the contrastive part and 1 - lam the contextual one, at 256 lam weighs the contextual part and 1 - lam -
gamma the contrastive one. Here each weight is a flag of its own.
"""

import torch

from utilities.criterion import MetricCriterion
from utilities.numbers import WIDEST, number, whole
from utilities.tensors import masked_mean, normalize
from utilities.tuples import same_class

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = True  # the projection
ALLOWED_MINING_OPS = None
FIXED = ("eps",)  # in a comparison

SLOPE = 10.0  # of the step in the backward pass


def add_arguments(group) -> None:
    """Declare the flags of contextual similarity."""
    group.add_argument(
        "--loss_contextual_context_weight", type=number(0), default=0.95, help="weight of the contextual part"
    )
    group.add_argument(
        "--loss_contextual_contrastive_weight", type=number(0), default=0.05, help="weight of the contrastive part"
    )
    group.add_argument(
        "--loss_contextual_mean_weight",
        type=number(0),
        default=0.1,
        help="weight of the regulariser of the mean cosine (gamma there)",
    )
    group.add_argument(
        "--loss_contextual_k",
        type=whole(2, 10**5),
        default=4,
        help="neighbours, the own image counted: images a class in a batch",
    )
    group.add_argument(
        "--loss_contextual_eps",
        type=number(0),
        default=0.05,
        help="squared distance beyond the k-th neighbour that still is in the neighbourhood",
    )
    group.add_argument(
        "--loss_contextual_pos_margin",
        type=number(),
        default=0.75,
        help="cosine above which positives cost nothing in the contrastive part",
    )
    group.add_argument(
        "--loss_contextual_neg_margin",
        type=number(),
        default=0.6,
        help="cosine below which negatives cost nothing there",
    )
    group.add_argument(
        "--loss_contextual_mean",
        type=number(-1, 1),
        default=0.3,
        help="mean cosine of the batch that the regulariser asks for",
    )
    group.add_argument(
        "--loss_contextual_projection",
        type=whole(0, WIDEST),
        default=0,
        metavar="D",
        help=(
            "compute the loss on a trained linear projection of the embedding to D dimensions, which evaluation does "
            "not use (0: on the embedding)"
        ),
    )
    group.add_argument(
        "--loss_contextual_projection_lrmulti",
        type=number(0),
        default=2,
        help="learning rate of that map, in multiples of --lr",
    )


class Criterion(MetricCriterion):
    """context_weight * (sum_pos (1 - J)^2 + sum_neg J^2) / B^2 + contrastive_weight * contrastive + mean_weight * (mean
    of all s - mean)^2.

    J_ij is the mean over i's reciprocal k/2 neighbours of the overlap W of their k-neighbourhoods with that of j, made
    symmetric: N_ij = 1 if D_ij - eps is at most the k-th smallest of D = 2 - 2 s in row i; W = (N N^T / |N_i| + N' N'^T
    / |N'_i|) / 2 * N with N' = 1 - N. In the backward pass the step of N has slope 10. contrastive: mean of [pos_margin
    - s]+ over the positives above 0 + mean of [s - neg_margin]+.
    """

    def __init__(self, opt):
        super().__init__()
        self.context_weight = opt.loss_contextual_context_weight
        self.contrastive_weight = opt.loss_contextual_contrastive_weight
        self.mean_weight = opt.loss_contextual_mean_weight
        self.mean = opt.loss_contextual_mean
        self.k = opt.loss_contextual_k
        self.eps = opt.loss_contextual_eps
        self.pos_margin = opt.loss_contextual_pos_margin
        self.neg_margin = opt.loss_contextual_neg_margin
        width = opt.loss_contextual_projection
        self.projection = torch.nn.Linear(opt.embed_dim, width, bias=False) if width else None
        self.optim_dict_list = (
            [{"params": list(self.parameters()), "lr": opt.lr * opt.loss_contextual_projection_lrmulti}]
            if width
            else []
        )

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        unit = normalize(batch if self.projection is None else batch @ self.projection.weight.to(batch).T)
        cosines = unit @ unit.T
        same = same_class(labels)
        alike = self.alikeness(cosines)
        context = torch.where(same, 1 - alike, alike).square().fill_diagonal_(0).mean()
        others = same.clone().fill_diagonal_(False)
        far = torch.relu(self.pos_margin - cosines)
        near = torch.relu(cosines - self.neg_margin)
        contrastive = masked_mean(far, others & (far > 0)) + masked_mean(near, ~same & (near > 0))
        of_mean = (cosines.mean() - self.mean).square()
        self.stats = {
            "context": context.detach(),
            "contrastive": contrastive.detach(),
            "mean_cosine": cosines.detach().mean(),
        }
        return (
            self.context_weight * context
            + self.contrastive_weight * contrastive
            + self.mean_weight * of_mean
            + 0 * batch.sum()
        )  # NaN reaches the loss

    def alikeness(self, cosines: torch.Tensor) -> torch.Tensor:
        """J `(B, B)`."""
        closeness = -(2 - 2 * cosines).clamp(min=0)
        k = min(self.k, len(closeness))
        nearest = closeness.detach().topk(k).values
        near = _AtLeast.apply(closeness + self.eps, nearest[:, -1:])  # N
        half = _AtLeast.apply(closeness + self.eps, nearest[:, max(k // 2, 1) - 1, None])
        overlap = _overlap(near) + _overlap(1 - near)
        reciprocal = half * half.T
        sizes = reciprocal.sum(1, keepdim=True)
        alike = (
            reciprocal @ (overlap / 2 * near) / (sizes + (sizes.detach() == 0))
        )  # a zero row is not its own neighbour; clamp would stop the gradient at 1
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
