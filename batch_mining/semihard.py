"""Semihard negatives (Schroff et al., FaceNet, arXiv 1503.03832): farther than the positive, but within the margin."""

import torch

from batch_mining._miner import Miner, comparable_distances, draw_columns
from options.flags import Flag
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tuples import Triplets, partners

FLAGS = {
    "margin": Flag(
        number(inf=True),
        None,
        "width of the band of semihard negatives (unset: --loss_<loss>_margin where the loss that mines has one, "
        "else 0.2)",
    ),
}


def derived(opt) -> dict:
    """The margin of the loss, where it has one."""
    return {"miner_semihard_margin": getattr(opt, f"loss_{opt.loss}_margin", 0.2)}


class BatchMiner(Miner):
    """One triplet an anchor: a random positive; a random negative with d_ap < d_an < d_ap + margin,
    else any negative.
    """

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """Exactly one triplet for every anchor that has a positive and a negative."""
        classes = partners(labels, reference)
        distances = comparable_distances(embeddings, reference)  # (B, M)
        positives = classes.draw_positives()
        positive_distances = distances.gather(1, positives[:, None])  # (B, 1)
        semihard = (
            (distances > positive_distances)
            & (distances < positive_distances + self.margin)
            & reference.negatives(labels)
        )
        negatives = draw_columns(semihard, classes.draw_negatives())
        anchors = classes.anchors()
        self.stats["semihard_share"] = semihard.gather(1, negatives[:, None])[anchors].sum() / max(len(anchors), 1)
        return Triplets(anchors, positives[anchors], negatives[anchors])
