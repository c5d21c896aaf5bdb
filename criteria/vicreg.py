"""VICReg, variance-invariance-covariance (Bardes et al., ICLR 2022, arXiv 2105.04906), on two views of every image.

As in the official code and pytorch-metric-learning, the invariance is a mean over dimensions and the variance term the mean over the two
views; the paper's formulas have sums.
"""

import torch

from criteria._sets import warn_of_normalized
from utilities.criterion import MetricCriterion
from utilities.errors import UserError
from utilities.numbers import number

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
COMPARES_SAMPLES = False  # its pairs are the two views of an image
NEEDS_TWO_VIEWS = True  # every label occurs exactly twice in a batch


def add_arguments(group) -> None:
    """Declare the flags of VICReg."""
    group.add_argument("--loss_vicreg_invariance", type=number(0), default=25, help="weight of the distance between views (lambda)")
    group.add_argument("--loss_vicreg_variance", type=number(0), default=25, help="weight of what deviations lack to 1 (mu)")
    group.add_argument("--loss_vicreg_covariance", type=number(0), default=1, help="weight of the covariances between dimensions (nu)")
    group.add_argument("--loss_vicreg_eps", type=number(above=0), default=1e-4, help="added to variances before the root")


class Criterion(MetricCriterion):
    """invariance mean (z - z')^2 + variance (v(Z) + v(Z')) / 2 + covariance (c(Z) + c(Z')).

    v(Z) = mean over dimensions of [1 - sqrt(var + eps)]+; c(Z) = sum of the squared covariances off the diagonal / D. Of a label's two
    samples the first in the batch belongs to Z, the second to Z'.
    """

    def __init__(self, opt):
        super().__init__()
        self.invariance = opt.loss_vicreg_invariance
        self.variance = opt.loss_vicreg_variance
        self.covariance = opt.loss_vicreg_covariance
        self.eps = opt.loss_vicreg_eps
        self.looked = False
        warn_of_normalized("vicreg", opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, each of which occurs twice.

        Raises UserError where a label does not; on a GPU it checks the first call only, as the check waits for the device.
        """
        order = torch.argsort(labels, stable=True)
        if labels.device.type == "cpu" or not self.looked:
            self.looked = True
            self._check(labels.index_select(0, order))
        views = batch.index_select(0, order).view(-1, 2, batch.shape[1]).transpose(0, 1)  # (2, n, D)
        centred = views - views.mean(1, keepdim=True)
        covariances = centred.transpose(1, 2) @ centred / max(views.shape[1] - 1, 1)  # (2, D, D)
        variances = covariances.diagonal(dim1=1, dim2=2)  # (2, D)
        invariance = (views[0] - views[1]).square().mean()
        spread = torch.relu(1 - (variances + self.eps).sqrt()).mean()
        redundancy = (covariances.square().sum() - variances.square().sum()) / batch.shape[1]
        self.stats = {
            name: value.detach() for name, value in (("invariance", invariance), ("variance", spread), ("covariance", redundancy))
        }
        return self.invariance * invariance + self.variance * spread + self.covariance * redundancy

    @staticmethod
    def _check(ordered: torch.Tensor) -> None:
        counts = torch.unique_consecutive(ordered, return_counts=True)[1]
        if not len(ordered) or not bool((counts == 2).all()):
            wrong = f"labels that occur {int(counts[counts != 2][0])} times" if len(ordered) else "an empty batch"
            raise UserError(
                f"--loss vicreg: {wrong}; it takes two views of every image, each label exactly twice: --trainer unsupervised with --views 2, or "
                "--data_sampler class_balanced with --samples_per_class 2"
            )
