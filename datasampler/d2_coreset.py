"""D2 coresets: anchors by a Gaussian of the pool times the distance to those chosen
(arXiv 2002.08473; k-means++ seeding).
"""

import torch

from datasampler._memory import CoresetSampler
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import FLOOR

USES_SAMPLES_PER_CLASS = True
# towards the mean variance on the diagonal, so that a pool smaller than the dimension has a density
SHRINKAGE = 0.1

FLAGS = {
    "d2_coreset_lambda": Flag(
        number(0), 1, "exponent of the squared distance to the chosen anchors", attribute="power"
    ),
}


class Sampler(CoresetSampler):
    """First anchor: nearest to a draw from the pool's Gaussian, with covariance (1 - .1) S + .1 tr(S)/D I.

    Next anchors: with probability proportional to Gaussian density * (min squared distance to the chosen)^lambda. The
    published code summed the distances to the chosen anchors; D2 sampling takes the minimum. Where every remaining
    sample coincides with an anchor, the density alone decides.
    """

    def gaussian(self, embeddings: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One draw from each pool's Gaussian `(b, 1, D)`; log densities of its samples `(b, P)`, up to a constant."""
        _, size, dim = embeddings.shape
        mean = embeddings.mean(1, keepdim=True)
        centred = embeddings - mean
        covariance = centred.mT @ centred / max(size - 1, 1)  # (b, D, D)
        mean_variance = covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
        identity = torch.eye(dim, dtype=embeddings.dtype, device=embeddings.device)
        covariance = (1 - SHRINKAGE) * covariance + (SHRINKAGE * mean_variance + FLOOR) * identity
        factor = torch.linalg.cholesky(covariance)
        whitened = torch.linalg.solve_triangular(factor, centred.mT, upper=False)  # (b, D, P)
        noise = torch.randn(len(embeddings), 1, dim, dtype=torch.float32).to(embeddings)
        return mean + noise @ factor.mT, -0.5 * whitened.square().sum(1)

    def first_anchors(self, embeddings: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Nearest sample to a draw from the pool's Gaussian `(b,)`, and the log densities `(b, P)`."""
        draws, log_densities = self.gaussian(embeddings)
        return (embeddings - draws).square().sum(2).argmin(1), log_densities

    def next_anchors(self, nearest: torch.Tensor, is_anchor: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """One draw per pool, `(b,)`."""
        log_weights = (context + torch.special.xlogy(self.power, nearest)).masked_fill_(is_anchor, -torch.inf)
        no_distance = (log_weights == -torch.inf).all(1, keepdim=True)
        log_weights = torch.where(no_distance, context.masked_fill(is_anchor, -torch.inf), log_weights)
        # The Gumbel-max trick, in logarithms: densities in 128 dimensions span more than a float's exponent.
        # on the CPU, as all draws of samplers
        times = torch.empty(log_weights.shape, dtype=log_weights.dtype).exponential_().to(log_weights)
        times.clamp_(min=torch.finfo(log_weights.dtype).tiny)
        return (log_weights - times.log()).argmax(1)
