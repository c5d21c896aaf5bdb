"""Distance-weighted negatives, of which some are positives: rho-regularisation (Roth et al., arXiv 2002.08473).

With probability `cp` an anchor gives (a, a, p): a sample of its own class is pushed away, which keeps more directions
of the embedding space in use. With a reference the second a is the anchor's own image there; an anchor without one
gives no such triplet.
"""

import torch

from batch_mining._distance import DistanceMiner
from batch_mining._miner import hard_share
from options.flags import Flag
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tuples import Triplets

FLAGS = {
    "lower_cutoff": Flag(number(0, below=2), 0.5, "nearer negatives count as this far"),
    "upper_cutoff": Flag(number(0), None, "farther negatives are left out (unset: none)"),
    "cp": Flag(number(0, 1), 0.2, "probability that an anchor pushes its own class away"),
}


class BatchMiner(DistanceMiner):
    """One triplet an anchor: as the distance miner, but with probability `cp`
    (a, a, random sample of the same class).
    """

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """Exactly one triplet for every anchor that has a positive and a negative."""
        classes, positives, negatives, squared = self.partners(embeddings, labels, reference)
        anchors = classes.anchors()
        positives = positives[anchors]
        negatives = negatives[anchors]
        own_rows = reference.own[anchors]
        switched = torch.rand(len(anchors), dtype=torch.float32, device=anchors.device) < self.cp
        switched = switched if reference.plain else switched & (own_rows >= 0)
        mined = Triplets(
            anchors, torch.where(switched, own_rows, positives), torch.where(switched, positives, negatives)
        )
        self.stats["hard_share"] = hard_share(squared[anchors, mined.positives], squared[anchors, mined.negatives])
        self.stats["switched_share"] = switched.sum() / max(len(anchors), 1)
        return mined
