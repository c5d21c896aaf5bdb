"""The ensemble of all folds' networks: their embeddings of the test images, at unit length, concatenated (arXiv
2003.08505).
"""

import numpy as np

import evaluation
from evaluation import spaces
from utilities.errors import UserError

SPLIT = "test"  # the only one that no fold's network has seen


def options(opt):
    """The flags of an evaluation on test alone. Raises UserError where they ask for a reference that folds do not
    share.
    """
    if opt.eval_reference_set == spaces.TRAINING:
        raise UserError(
            f"--eval_reference_set {spaces.TRAINING}: the folds train on different images; an ensemble has no such set"
        )
    return opt.but(splits_to_eval=[SPLIT])


def join(members: list) -> dict:
    """`{"test": Embedded}` of the folds' test embeddings: L2-normalised, concatenated, L2-normalised.

    Args:
        members: one `evaluation.Embedded` a fold, of the same images in the same order.
    """
    first = members[0]
    for other in members[1:]:
        if getattr(other.dataset, "paths", None) != getattr(first.dataset, "paths", None):
            raise UserError(
                "the folds' test images differ: they cannot be joined. Was the data set changed between folds?"
            )
    joined = {
        name: np.concatenate([unit(member.features[name]) for member in members], axis=1) for name in first.features
    }
    features = {name: unit(rows).astype(np.float32) for name, rows in joined.items()}
    return {
        SPLIT: evaluation.Embedded(features, first.labels, sum(member.seconds for member in members), first.dataset)
    }


def unit(features: np.ndarray) -> np.ndarray:
    """Features `(N, D)` at unit length, float64; zeros stay zeros."""
    return features / np.maximum(np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True), 1e-12)
