"""Of several candidate batches the one with the smallest Frechet distance to its pool (Roth et al., arXiv
2002.08473).

No matrix root is computed. The trace of a root is the sum of the roots of the eigenvalues, and those of
S_pool^1/2 S S_pool^1/2 are those of F^T S F with any F F^T = S_pool. With S = C^T C of the centred samples C that is
(C F)^T (C F), whose non-zero eigenvalues are those of (C F) (C F)^T: the smaller of the two matrices is decomposed.
"""

import torch

from datasampler._memory import BatchMatchSampler

USES_SAMPLES_PER_CLASS = True


class Sampler(BatchMatchSampler):
    """|m - m_pool|^2 + tr(S + S_pool - 2 (S_pool^1/2 S S_pool^1/2)^1/2), means and unbiased covariances of the
    embeddings.
    """

    def score(self, embeddings: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Squared Frechet distances `(b, candidates)`; see the base class."""
        # the root of a rounding error of 1e-7 is 3e-4, for each direction without variance
        embeddings = embeddings.double()
        size = candidates.shape[2]
        dim = embeddings.shape[2]
        pool_mean = embeddings.mean(1, keepdim=True)  # (b, 1, D)
        pool = (embeddings - pool_mean) / (embeddings.shape[1] - 1) ** 0.5
        members = self.members(embeddings, candidates)
        means = members.mean(2)  # (b, candidates, D)
        # S = centred^T centred
        centred = (members - means[:, :, None]) / (size - 1) ** 0.5
        variances, axes = torch.linalg.eigh(pool.mT @ pool)
        # F, (b, D, D)
        factor = axes * variances.clamp(min=0).sqrt()[:, None, :]
        # C F, (b, candidates, size, D)
        mixed = centred @ factor[:, None]
        products = mixed @ mixed.mT if size < dim else mixed.mT @ mixed
        root_traces = torch.linalg.eigvalsh(products).clamp(min=0).sqrt().sum(-1)
        traces = pool.square().sum((1, 2))[:, None] + centred.square().sum((2, 3))
        return (means - pool_mean).square().sum(2) + traces - 2 * root_traces
