"""As many pairs from each bin of distance: easy and hard ones alike
(the miner UniformHistogramMiner of pytorch-metric-learning).
"""

import torch

from batch_mining._miner import Miner
from options.flags import Flag
from utilities.numbers import whole
from utilities.reference import Reference
from utilities.tensors import pairwise_distances
from utilities.tuples import Pairs, below, pairs_of_masks

YIELDS = "pairs"

FLAGS = {
    "bins": Flag(whole(1, 10**5), 100, "equally wide bins from the smallest distance to the largest"),
    "pos_per_bin": Flag(whole(1, 1000), 10, "positive pairs drawn from each bin that has any"),
    "neg_per_bin": Flag(whole(1, 1000), 10, "negative pairs drawn from each bin that has any"),
}


class BatchMiner(Miner):
    """Pairs drawn with replacement from every bin of distance; positive and negative pairs have bins of their own.

    The miner does not normalise embeddings. Pairs of samples that have only positives or only negatives take part.
    """

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Pairs:
        """The set number of pairs of each kind from each bin; a pair may occur several times."""
        distances = pairwise_distances(embeddings, reference.embeddings)  # (B, M)
        pairs = pairs_of_masks(*reference.masks(labels))
        kinds = [self._sorted(distances[anchors, partners]) for anchors, partners in (pairs[:2], pairs[2:])]
        # waits for the device, as do the numbers of pairs
        n_filled = torch.stack([(sizes > 0).sum() for _, sizes in kinds]).tolist()
        columns = ()
        for anchors, partners, kind, n, count in zip(
            pairs[::2], pairs[1::2], kinds, n_filled, (self.pos_per_bin, self.neg_per_bin), strict=True
        ):
            chosen = _drawn(*kind, n, count)
            columns += (anchors[chosen], partners[chosen])
        return Pairs(*columns)

    def _sorted(self, distances: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Indices into `distances` `(P,)`, sorted by bin, and the bins' sizes `(n_bins,)`."""
        sizes = torch.zeros(self.bins, dtype=torch.long, device=distances.device)
        if not len(distances):
            return torch.zeros_like(distances, dtype=torch.long), sizes
        edges = torch.linspace(0, 1, self.bins + 1, dtype=distances.dtype, device=distances.device)
        low, high = distances.aminmax()
        bins = torch.searchsorted(
            edges, (distances - low) / (high - low).clamp(min=torch.finfo(distances.dtype).tiny), right=True
        )
        bins, order = torch.sort((bins - 1).clamp(max=self.bins - 1), stable=True)
        # bincount would wait for the device
        return order, sizes.scatter_add_(0, bins, torch.ones_like(bins))


def _drawn(order: torch.Tensor, sizes: torch.Tensor, n_filled: int, count: int) -> torch.Tensor:
    """`count` draws from the indices `order` `(P,)` of each of the `n_filled` bins that are not empty,
    sorted by bin.
    """
    starts = sizes.cumsum(0) - sizes
    filled = torch.nonzero_static(sizes, size=n_filled)  # (filled bins, 1)
    return order[(starts[filled] + below(sizes[filled].expand(-1, count))).flatten()]
