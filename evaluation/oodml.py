"""ooDML splits (arXiv 2107.09562) as a network sees them: the FID of a run's split.

New splits are made by `python -m evaluation.oodml`, `tools/oodml.py`.
"""

from typing import NamedTuple

import numpy as np

import evaluation
from datasets import _oodml, _shift
from engine.loading import evaluation_loader
from engine.random_state import random_states, set_random_states
from evaluation import outputs
from runs.folder import run_folder
from utilities.evaltypes import BARE


class LabelledFeatures(NamedTuple):
    """Pooled features `(N, F)` and the class numbers `(N,)` of one side of a split."""

    features: np.ndarray
    labels: np.ndarray


def recorded(splits: dict, loaders: dict, network, opt, runtime) -> dict:
    """The data as environment.yaml describes them;
    for a new run of `--split_scheme oodml` also how hard its split is: its FID.

    Both are of the untrained network's features: `fid` of the class means, as in the authors' code and the published
    files, `fid_images` of all images.
    """
    data = outputs.about_data(splits, loaders, opt)
    is_recorded = opt.resume is not None and (run_folder(opt) / "environment.yaml").exists()
    if opt.split_scheme != _oodml.SCHEME or is_recorded:
        return data
    states = random_states()
    training, testing = pooled_features(splits, network, opt, runtime)
    # a resumed run skips this, and must draw the same
    set_random_states(states)
    fid_in_file = _oodml.of_file(opt).get("fid")
    facts = {
        "id": opt.oodml_id,
        "fid": _shift.fid(_shift.class_means(*training), _shift.class_means(*testing)),
        "fid_images": _shift.fid(training.features, testing.features),
        "fid_in_file": None if fid_in_file is None else float(fid_in_file),
    }
    by_file = "" if fid_in_file is None else f", by the file {fid_in_file:.4g}"
    runtime.say_once(
        f"ooDML split {opt.oodml_id}: FID {facts['fid']:.4g} of the class means{by_file}, "
        f"{facts['fid_images']:.4g} of all images"
    )
    return {**data, "oodml": facts}


def pooled_features(splits: dict, network, opt, runtime) -> tuple[LabelledFeatures, LabelledFeatures]:
    """The backbone's pooled features of training and validation together, and of test; without distractors."""
    embedded = {}
    for split in ("evaluation", "validation", "testing"):
        if splits[split] is not None:
            loader = evaluation_loader(splits[split], opt, runtime.ranks)
            title = f"features of {split}"
            settings = evaluation.EmbedSettings(bare=True, normalize=False)
            result = evaluation.embed(network, loader, runtime, title, settings)
            has_class = result.labels >= 0
            embedded[split] = LabelledFeatures(result.features[BARE][has_class], result.labels[has_class])
    training = embedded["evaluation"]
    if "validation" in embedded:
        training = _joined(
            training, splits["evaluation"].class_names, embedded["validation"], splits["validation"].class_names
        )
    return training, embedded["testing"]


def _joined(
    training: LabelledFeatures, training_names: dict, validation: LabelledFeatures, validation_names: dict
) -> LabelledFeatures:
    """Both parts, their classes numbered together: those of training first. Names: label -> name of the class."""
    names = dict.fromkeys([*training_names.values(), *validation_names.values()])
    numbers = {name: number for number, name in enumerate(names)}
    training_labels = [numbers[training_names[label]] for label in training.labels]
    validation_labels = [numbers[validation_names[label]] for label in validation.labels]
    return LabelledFeatures(
        np.concatenate([training.features, validation.features]),
        np.array(training_labels + validation_labels),
    )


if __name__ == "__main__":
    from evaluation.__main__ import run

    run("oodml")
