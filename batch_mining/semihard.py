"""Semihard negatives (Schroff et al., FaceNet, arXiv 1503.03832): farther than the positive, but within the margin."""

import torch

from utilities.tensors import chosen_uniformly, pairwise_distances
from utilities.tuples import Triplets, positive_mask, same_class

YIELDS = "triplets"


def add_arguments(group) -> None:
    """Declare the flags of the semihard miner."""
    group.add_argument("--miner_semihard_margin", type=float, default=None, help="width of the band of semihard negatives (unset: --loss_<loss>_margin where the loss has one, else 0.2)")


class BatchMiner:
    """One triplet an anchor: a random positive; a random negative with d_ap < d_an < d_ap + margin, else any negative."""

    def __init__(self, opt):
        margin = opt.miner_semihard_margin
        self.margin = getattr(opt, f"loss_{opt.loss}_margin", 0.2) if margin is None else margin
        self.stats = {}

    @torch.no_grad()
    def __call__(self, batch: torch.Tensor, labels: torch.Tensor) -> Triplets:
        """Mine embeddings `batch` `(B, D)` with `labels` `(B,)`. Anchors without a positive or a negative are skipped."""
        distances = pairwise_distances(batch)  # (B, B)
        are_positive, are_negative = positive_mask(labels), ~same_class(labels)
        positives = chosen_uniformly(are_positive)  # (B,)
        positive_distances = distances.gather(1, positives[:, None])  # (B, 1)
        semihard = are_negative & (distances > positive_distances) & (distances < positive_distances + self.margin)
        has_semihard = semihard.any(1)
        negatives = chosen_uniformly(torch.where(has_semihard[:, None], semihard, are_negative))
        anchors = (are_positive.any(1) & are_negative.any(1)).nonzero().squeeze(1)  # the one size synchronisation
        self.stats = {"semihard_share": has_semihard.float().mean()}
        return Triplets(anchors, positives[anchors], negatives[anchors])
