"""Greedy k-centre coresets on stored embeddings (Sinha et al., Small-GAN, arXiv 1910.13540; in DML: arXiv
2002.08473).
"""

import math

import torch

from datasampler._memory import CoresetSampler
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import chosen_uniformly

USES_SAMPLES_PER_CLASS = True
# share of the pool from which the softened variant draws
SOFT_SHARE = 0.03

FLAGS = {
    "gc_coreset_lim": Flag(
        number(0),
        1e-9,
        "distances up to this value count as 0: where all remaining samples are this near, the next anchor is random",
    ),
    "gc_softened": Flag(bool, False, "the next anchor is drawn among the farthest 3 percent of the pool"),
}


class Sampler(CoresetSampler):
    """The first anchor is random; each next one is the sample farthest from its nearest anchor."""

    def first_anchors(self, embeddings: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The first sample of each pool, `(b,)`: a random one, as pools are in random order."""
        return torch.zeros(len(embeddings), dtype=torch.long, device=embeddings.device), None

    def next_anchors(self, nearest: torch.Tensor, is_anchor: torch.Tensor, context) -> torch.Tensor:
        """The farthest sample of each pool `(b,)`, or one of the farthest; the pool's random order breaks ties."""
        distances = nearest.sqrt()
        distances = torch.where(distances > self.gc_coreset_lim, distances, 0.0).masked_fill_(is_anchor, -1.0)
        if not self.gc_softened:
            return distances.argmax(1)
        farthest = distances.topk(math.ceil(SOFT_SHARE * distances.shape[1]), dim=1)
        # fewer than 3 % of the pool may be left; drawn on the CPU
        ranks = chosen_uniformly((farthest.values >= 0).cpu()).to(distances.device)
        return farthest.indices.gather(1, ranks[:, None]).squeeze(1)
