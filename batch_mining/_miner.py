"""What miners share: full precision at the door, the number of mined tuples, weighted draws."""

import torch

from utilities.tensors import raise_half


class Miner:
    """Base of the miners here: a subclass gives `mine(embeddings, labels)`.

    `stats`: name -> detached device scalar, averaged over an epoch by the logger.
    """

    def __init__(self, opt=None):
        self.stats = {}

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor):
        """Tuples of `embeddings` `(B, D)`, float32 or float64, with `labels` `(B,)`."""
        raise NotImplementedError

    @torch.no_grad()
    def __call__(self, batch: torch.Tensor, labels: torch.Tensor):
        """Mine embeddings `batch` `(B, D)` with `labels` `(B,)`. Draws from torch's global generator."""
        self.stats = {}
        mined = self.mine(raise_half(batch.detach()), labels.to(batch.device))
        number = len(mined[0]) + (len(mined[2]) if len(mined) == 4 else 0)  # Pairs are positive and negative ones
        self.stats["tuples"] = torch.full((), float(number), dtype=torch.float32, device=batch.device)
        return mined


def drawn(weights: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """One column index a row, `(R,)`, with probability proportional to the non-negative `weights` `(R, C)`, boolean or float.

    By the inverse of the cumulative sum: one random number a row. Rows whose weights are all 0 take `otherwise` `(R,)`.
    """
    weights = weights.float() if weights.dtype == torch.bool else weights
    cumulative = weights.cumsum(1)
    thresholds = torch.rand(len(weights), 1, dtype=torch.float32, device=weights.device) * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, thresholds.to(weights.dtype), right=True).clamp_(max=weights.shape[1] - 1)
    possible = weights.gather(1, chosen) > 0
    return torch.where(possible, chosen, otherwise[:, None]).squeeze(1)


def hard_share(positive_distances: torch.Tensor, negative_distances: torch.Tensor) -> torch.Tensor:
    """Share of triplets whose negative is nearer than their positive; 0 of none."""
    return (negative_distances < positive_distances).sum() / max(len(positive_distances), 1)
