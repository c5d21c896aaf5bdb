"""As many pairs from each bin of distance: easy and hard ones alike (the miner UniformHistogramMiner of pytorch-metric-learning)."""

import torch

from batch_mining._miner import Miner
from utilities.numbers import whole
from utilities.reference import Reference
from utilities.tensors import pairwise_distances
from utilities.tuples import Pairs, below, pairs_of_masks

YIELDS = "pairs"


def add_arguments(group) -> None:
    """Declare the flags of the uniform_histogram miner."""
    group.add_argument(
        "--miner_uniform_histogram_bins",
        type=whole(1, 10**5),
        default=100,
        help="equally wide bins from the smallest distance to the largest",
    )
    group.add_argument(
        "--miner_uniform_histogram_pos_per_bin", type=whole(1, 1000), default=10, help="positive pairs drawn from each bin that has any"
    )
    group.add_argument(
        "--miner_uniform_histogram_neg_per_bin", type=whole(1, 1000), default=10, help="negative pairs drawn from each bin that has any"
    )


class BatchMiner(Miner):
    """Positive pairs and negative pairs, each with bins of its own over its distances, drawn from every bin with replacement.

    Distances are those of the embeddings as they are. Pairs of samples that have only positives or only negatives take part.
    """

    def __init__(self, opt):
        super().__init__()
        self.n_bins = opt.miner_uniform_histogram_bins
        self.per_bin = opt.miner_uniform_histogram_pos_per_bin, opt.miner_uniform_histogram_neg_per_bin

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Pairs:
        """So many pairs of each kind from each bin; a pair may come several times."""
        distances = pairwise_distances(embeddings, reference.embeddings)  # (B, M)
        pairs = pairs_of_masks(*reference.masks(labels))
        drawn = ()
        for anchors, others, count in ((*pairs[:2], self.per_bin[0]), (*pairs[2:], self.per_bin[1])):
            chosen = self._drawn(distances[anchors, others], count)
            drawn += (anchors[chosen], others[chosen])
        return Pairs(*drawn)

    def _drawn(self, distances: torch.Tensor, count: int) -> torch.Tensor:
        """Places in `distances` `(P,)`: `count` from each bin that has any, bin after bin."""
        if not len(distances):
            return torch.zeros_like(distances, dtype=torch.long)
        edges = torch.linspace(0, 1, self.n_bins + 1, dtype=distances.dtype, device=distances.device)
        low, high = distances.aminmax()
        bins = torch.searchsorted(edges, (distances - low) / (high - low).clamp(min=torch.finfo(distances.dtype).tiny), right=True)
        bins, order = torch.sort((bins - 1).clamp(max=self.n_bins - 1), stable=True)
        sizes = torch.bincount(bins, minlength=self.n_bins)
        starts = sizes.cumsum(0) - sizes
        filled = sizes.nonzero()  # (filled bins, 1)
        return order[(starts[filled] + below(sizes[filled].expand(-1, count))).flatten()]
