"""The ensemble of all folds' networks: their embeddings of the test images, at unit length, concatenated (arXiv
2003.08505).
"""

import numpy as np

import datasets
import evaluation
from engine.runtime import Runtime
from evaluation import from_splits, outputs
from runs import RunFolder
from runs.folder import run_folder
from utilities.errors import UserError

# the only one that no fold's network has seen
SPLIT = "test"


def evaluate(cross) -> dict:
    """Evaluate the ensemble of all folds' networks on test, one network in memory at a time.

    cross: the `runs.folds.CrossValidation`. Returns {"test": {metric: value}}.
    """
    opt = options(cross.opt)
    runtime = Runtime(opt).begin()
    members = []
    for fold in cross.options(range(cross.n_folds)):
        network = runtime.place(RunFolder(run_folder(fold)).network(evaltypes=opt.evaltypes))
        shape = datasets.shape_for(network)
        splits = datasets.select(opt.dataset, fold.but(label_level_train=0), opt.source_path, **shape)
        loaders = evaluation.loaders(splits, opt, runtime.ranks)
        members.append(evaluation.embed_all(network, loaders, opt, runtime)[SPLIT])
    embedded = join(members)
    # the networks may be of different epochs
    runtime.ranks.first(lambda: outputs.dump_requested(cross.meta.path, embedded, opt, epoch=-1))
    return evaluation.score(embedded, opt, runtime)


def options(opt):
    """The flags of an evaluation on test alone.
    Raises UserError where they ask for a reference that folds do not share.
    """
    if opt.eval_reference_set == from_splits.TRAINING:
        raise UserError(
            f"--eval_reference_set {from_splits.TRAINING}: the folds train on different images; an ensemble has no "
            "such set"
        )
    return opt.but(splits_to_eval=[SPLIT])


def join(members: list) -> dict:
    """`{"test": Embedded}` of the folds' test embeddings: L2-normalised, concatenated, L2-normalised.

    Args:
        members: one `evaluation.Embedded` a fold, of the same images in the same order.
    """
    first = members[0]
    for member in members[1:]:
        if getattr(member.dataset, "paths", None) != getattr(first.dataset, "paths", None):
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
