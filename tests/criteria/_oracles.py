"""Losses on the tuples of real miners, whatever the batch."""

import torch

import batch_mining
import criteria
from tests.batch_mining._reference import batch_of

N_CLASSES, DIMENSIONS = 5, 6
MIXED = [0, 0, 0, 1, 1, 2, 2, 2, 3]


class Fixed:
    """A user's miner that always returns the same."""

    def __init__(self, tuples):
        self.tuples = tuples

    def __call__(self, batch, labels):
        return self.tuples


def embeddings_of(labels=MIXED, dtype=torch.float64) -> torch.Tensor:
    """Embeddings `(B, D)` that want a gradient."""
    return batch_of(labels, DIMENSIONS, dtype=dtype)[0].requires_grad_()


def mined(name: str, x, labels=MIXED, **flags):
    """The tuples of a real miner, once."""
    torch.manual_seed(0)
    return batch_mining.select(name, **flags)(x, torch.tensor(labels))


def criterion_of(name: str, tuples, **flags) -> torch.nn.Module:
    """The criterion, its parameters as they come, on the same tuples whatever the batch."""
    about = {"batch_mining": "random", "arch": "resnet50", "n_classes": N_CLASSES, "embed_dim": DIMENSIONS}
    return criteria.select(name, batchminer=Fixed(tuples), **about, **flags)
