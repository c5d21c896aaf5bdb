"""Of several candidate batches the one most like its pool in mean, deviation and pairwise distances (Roth et al., arXiv
2002.08473).
"""

import torch

from datasampler._memory import BatchMatchSampler, pool_distances

USES_SAMPLES_PER_CLASS = True
BINS = 50
WASSERSTEIN_WEIGHT = 75


def histograms(distances: torch.Tensor, low: torch.Tensor, width: torch.Tensor) -> torch.Tensor:
    """Shares `(..., BINS)` of `distances` `(..., T)` in bins of `width` from `low`, both `(..., 1)`.

    Values outside go to the nearest bin.
    """
    smallest = torch.finfo(distances.dtype).tiny
    bins = ((distances - low) / width.clamp(min=smallest)).clamp_(0, BINS - 1).long()
    counts = distances.new_zeros(*distances.shape[:-1], BINS).scatter_add_(-1, bins, torch.ones_like(distances))
    return counts / distances.shape[-1]


class Sampler(BatchMatchSampler):
    """|m - m_pool| + |s - s_pool| + 75 * Wasserstein distance between the histograms of pairwise distances.

    m and s are the vectors `(D,)` of the embeddings' means and (biased) standard deviations, |.| is the Euclidean norm.
    Histograms have 50 bins between the pool's smallest and largest distance; the Wasserstein distance takes their
    shares as weights of the bin centres, where the published code took the heights as samples. Distances are those of
    distinct positions i < j.
    """

    def score(self, embeddings: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Scores `(b, candidates)`; see the base class."""
        size = embeddings.shape[1]
        matrix = pool_distances(embeddings).sqrt_().flatten(1)  # (b, P * P)
        first, second = torch.triu_indices(size, size, 1, device=matrix.device)
        pool = matrix.index_select(1, first * size + second)  # (b, P (P - 1) / 2)
        first, second = torch.triu_indices(candidates.shape[2], candidates.shape[2], 1, device=matrix.device)
        pairs = candidates[..., first] * size + candidates[..., second]  # (b, candidates, bs (bs - 1) / 2)
        batches = matrix.gather(1, pairs.flatten(1)).view(pairs.shape)
        low, high = pool.aminmax(dim=1, keepdim=True)
        width = (high - low) / BINS  # (b, 1)
        shares = histograms(batches, low[..., None], width[..., None])
        differences = shares - histograms(pool, low, width)[:, None]
        wasserstein = differences.cumsum(-1).abs().sum(-1) * width  # (b, candidates)
        members = self.members(embeddings, candidates)
        means = (members.mean(2) - embeddings.mean(1, keepdim=True)).norm(dim=2)  # (b, candidates)
        deviations = (members.std(2, correction=0) - embeddings.std(1, correction=0, keepdim=True)).norm(dim=2)
        return means + deviations + WASSERSTEIN_WEIGHT * wasserstein
