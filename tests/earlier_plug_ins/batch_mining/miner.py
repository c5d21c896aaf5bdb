"""The first positive and the first negative of each anchor."""

import torch

YIELDS = "triplets"  # or "pairs", "sets"


class BatchMiner:
    """One triplet an anchor that has a positive and a negative."""

    def __init__(self, opt):
        self.stats = {}

    def __call__(self, batch: torch.Tensor, labels: torch.Tensor):
        """Mine embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        triplets = []
        for a in range(len(labels)):
            positives = [p for p in range(len(labels)) if labels[p] == labels[a] and p != a]
            negatives = [n for n in range(len(labels)) if labels[n] != labels[a]]
            if positives and negatives:
                triplets.append((a, positives[0], negatives[0]))
        return triplets
