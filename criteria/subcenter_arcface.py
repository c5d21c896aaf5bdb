"""Sub-center ArcFace (Deng et al., ECCV 2020): ArcFace on the nearest of several centres a class."""

import torch

from criteria import _angular_margin
from criteria._shards import SoftmaxCriterion
from options.flags import Flag
from utilities.numbers import number, whole
from utilities.tensors import normalize

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False

# samples whose class centres are gathered at once
CHUNK = 4096

FLAGS = {
    "lr": Flag(number(0), 0.0005, "learning rate of the centres"),
    "n_centers": Flag(whole(1, 1000), 3, "centres a class"),
    "angular_margin": Flag(number(0, 3.1416), 0.5, "radians by which the angle to the own class is widened"),
    "feature_scale": Flag(number(above=0), 64, "multiplies the cosines"),
}


class Criterion(SoftmaxCriterion):
    """ArcFace on each class's largest cosine; centres `(C * n_centers, D)`, those of class 0 first."""

    def __init__(self, opt):
        super().__init__(opt, per_class=opt.loss_subcenter_arcface_n_centers)

    def similarities(self, batch: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """See `ShardedCriterion`: the cosine to the nearest of a class's centres."""
        return self.centre_cosines(batch, self.unit_centres(batch, vectors)).amax(1)

    def logits(self, similarities, class_columns, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        return _angular_margin.logits(similarities, class_columns, self.angular_margin, self.feature_scale)

    @torch.no_grad()
    def angles_to_dominant(self, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Angle `(B,)` in degrees of each embedding to its class's dominant centre,
        the one nearest to most of the class's samples.

        Of tied centres the first is taken. `batch` `(B, D)` should hold all samples of a class.
        """
        centres = self.unit_proxies(batch).view(self.n_classes, self.per_class, -1)
        # without products across classes
        chunks = []
        for rows, classes in zip(normalize(batch).split(CHUNK), labels.split(CHUNK), strict=True):
            chunks.append(torch.einsum("nd,nkd->nk", rows, centres.index_select(0, classes)))
        to_own = torch.cat(chunks)  # (B, K)
        cells = labels * self.per_class + to_own.argmax(1)
        counts = torch.bincount(cells, minlength=self.n_classes * self.per_class).view(self.n_classes, self.per_class)
        dominant = counts.argmax(1).index_select(0, labels)
        cosines = to_own.gather(1, dominant[:, None]).squeeze(1)
        return cosines.clamp(-1, 1).acos().rad2deg()
