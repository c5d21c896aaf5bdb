"""VICReg, variance-invariance-covariance (Bardes et al., ICLR 2022, arXiv 2105.04906), on two images of a label.

These are two views of an image under `--trainer unsupervised`, as in the paper; elsewhere two images of a class. As in
the official code and pytorch-metric-learning, the invariance is a mean over dimensions and the variance term the mean
over the two views; the paper's formulas have sums.
"""

import torch

from criteria._sets import warn_of_normalized
from options.flags import Flag
from utilities.criterion import MetricCriterion
from utilities.numbers import number

FLAGS = {
    "invariance": Flag(number(0), 25, "weight of the distance between views (lambda)"),
    "variance": Flag(number(0), 25, "weight of the shortfall of the deviations from 1 (mu)"),
    "covariance": Flag(number(0), 1, "weight of the covariances between dimensions (nu)"),
    "eps": Flag(number(above=0), 1e-4, "added to variances before the root"),
}


class Criterion(MetricCriterion):
    """invariance mean (z - z')^2 + variance (v(Z) + v(Z')) / 2 + covariance (c(Z) + c(Z')).

    v(Z) = mean over dimensions of [1 - sqrt(var + eps)]+; c(Z) = sum of the squared covariances off the diagonal / D.
    The samples of a label are taken two by two in the order of the batch, the first of each two into Z, the second into
    Z'; one that is left has no part.
    """

    def __init__(self, opt):
        super().__init__(opt)
        warn_of_normalized("vicreg", opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`; 0 where no label occurs twice."""
        ordered, order = torch.sort(labels, stable=True)
        sorted_batch = batch.index_select(0, order)
        places = torch.arange(len(labels), device=labels.device)
        # whether a place has the first of two images of its label
        is_first = (places - torch.searchsorted(ordered, ordered)) % 2 == 0
        # (B - 1, 1), of each place with the next
        pairs = (is_first[:-1] & (ordered[1:] == ordered[:-1])).to(batch.dtype)[:, None]
        number = pairs.sum().clamp(min=1)
        views = torch.stack([sorted_batch[:-1], sorted_batch[1:]]) * pairs  # (2, B - 1, D); places without a pair are 0
        centred = (views - views.sum(1, keepdim=True) / number) * pairs
        covariances = centred.transpose(1, 2) @ centred / (number - 1).clamp(min=1)  # (2, D, D)
        variances = covariances.diagonal(dim1=1, dim2=2)  # (2, D)
        invariance = (views[0] - views[1]).square().sum() / (number * batch.shape[1])
        spread = (torch.relu(1 - (variances + self.eps).sqrt()) * (pairs.sum() > 0)).mean()
        redundancy = (covariances.square().sum() - variances.square().sum()) / batch.shape[1]
        self.stats = {
            name: value.detach()
            for name, value in (("invariance", invariance), ("variance", spread), ("covariance", redundancy))
        }
        return self.invariance * invariance + self.variance * spread + self.covariance * redundancy
