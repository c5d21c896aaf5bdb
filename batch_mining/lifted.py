"""Sets for the lifted-structure loss (Hermans et al., arXiv 1703.07737): all positives and all negatives of an anchor."""

import torch

from batch_mining._miner import Miner
from utilities.tuples import Classes, Sets, same_class

YIELDS = "sets"


class BatchMiner(Miner):
    """`Sets` with masks of positives and negatives, each boolean `(A, B)`."""

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor) -> Sets:
        """Anchors that have a positive and a negative, each once."""
        anchors = Classes(labels).anchors()
        same = same_class(labels[anchors], labels)  # (A, B)
        return Sets(anchors, same.scatter(1, anchors[:, None], False), ~same)
