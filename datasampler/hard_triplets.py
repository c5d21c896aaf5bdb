"""Globally hard triplets: every epoch a new set, of which the hardest by stored embeddings are kept;
goes with the miner packaged.
"""

import torch

from datasampler._base import CHUNK
from datasampler._memory import StoringSampler
from datasampler._triplets import TripletSampler
from options.flags import Flag
from utilities.numbers import number, share_of

GIVES_TRIPLETS = True

FLAGS = {
    "hard_triplets_share": Flag(number(above=0, most=1), 0.5, "share of the drawn triplets that is kept, the hardest"),
}


class Sampler(TripletSampler, StoringSampler):
    """Every epoch draws --data_fixed_triplets_n triplets and keeps those with the largest d_ap - d_an; a batch has bs /
    3 of them.

    Distances are those of the stored embeddings, which every step updates for its images.
    """

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        self.n_drawn = self.n_triplets
        self.n_triplets = share_of(self.hard_triplets_share, self.n_triplets)
        self.require_batch(
            f"--data_fixed_triplets_n {opt.data_fixed_triplets_n} --data_hard_triplets_share "
            f"{self.hard_triplets_share:g}"
        )

    @torch.no_grad()
    def precompute_indices(self) -> None:
        """Draw the next epoch's triplets and keep the hardest."""
        stored = self.projected()
        triplets = self.draw_triplets(self.n_drawn)
        hardness = []
        for chunk in triplets.split(max(1, CHUNK // stored.shape[1])):
            anchors, positives, negatives = (
                stored.index_select(0, column) for column in chunk.to(stored.device).unbind(1)
            )
            hardness.append((anchors - positives).norm(dim=1) - (anchors - negatives).norm(dim=1))
        hardest = torch.cat(hardness).topk(self.n_triplets).indices.cpu()
        self.epoch = self.shuffled(triplets[hardest])
