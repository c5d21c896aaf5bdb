"""ooDML splits (arXiv 2107.09562) as a network sees them: the FID of a run's split.

New splits are made by `python -m evaluation.oodml`, `tools/oodml.py`.
"""

import numpy as np

import evaluation
from datasets import _oodml, _shift
from engine.loading import evaluation_loader
from engine.random_state import random_states, set_random_states
from evaluation import outputs
from runs.folder import run_folder
from utilities.evaltypes import BARE


def recorded(splits: dict, loaders: dict, network, opt, runtime) -> dict:
    """The data as environment.yaml describes them; for a new run of `--split_scheme oodml` also how hard its split is:
    its FID.

    Both are of the untrained network's features: `fid` of the class means, as in the authors' code and the published
    files, `fid_images` of all images.
    """
    data = outputs.about_data(splits, loaders, opt)
    if opt.split_scheme != _oodml.SCHEME or (
        opt.resume is not None and (run_folder(opt) / "environment.yaml").exists()
    ):
        return data
    states = random_states()
    features, labels = pooled_features(splits, network, opt, runtime)
    set_random_states(states)  # a resumed run skips this, and must draw the same
    means = [_shift.class_means(*one) for one in zip(features, labels, strict=True)]
    by_file = _oodml.of_file(opt).get("fid")
    facts = {
        "id": opt.oodml_id,
        "fid": _shift.fid(*means),
        "fid_images": _shift.fid(*features),
        "fid_in_file": None if by_file is None else float(by_file),
    }
    of_file = "" if by_file is None else f", by the file {by_file:.4g}"
    runtime.say_once(
        f"ooDML split {opt.oodml_id}: FID {facts['fid']:.4g} of the class means{of_file}, "
        f"{facts['fid_images']:.4g} of all images"
    )
    return {**data, "oodml": facts}


def pooled_features(splits: dict, network, opt, runtime) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The backbone's pooled features `(N, F)` and the labels `(N,)` of training and validation together, and of
    test.
    """
    found = {}
    for split in ("evaluation", "validation", "testing"):
        if splits[split] is not None:
            loader = evaluation_loader(splits[split], opt, runtime.ranks)
            found[split] = evaluation.embed(
                network, loader, runtime, f"features of {split}", bare=True, normalize=False
            )
    found = {split: _of_classes(one) for split, one in found.items()}
    training = found["evaluation"]
    testing = found["testing"]
    features = [training.features[BARE], testing.features[BARE]]
    labels = [training.labels, testing.labels]
    if "validation" in found:
        names = list(splits["evaluation"].class_names.values())
        places = {
            name: number
            for number, name in enumerate(dict.fromkeys([*names, *splits["validation"].class_names.values()]))
        }
        numbers = np.array([places[splits["validation"].class_names[label]] for label in found["validation"].labels])
        own = np.array([places[splits["evaluation"].class_names[label]] for label in training.labels])
        features[0] = np.concatenate([features[0], found["validation"].features[BARE]])
        labels[0] = np.concatenate([own, numbers])
    return features, labels


def _of_classes(one):
    """What a split gave, without the distractors."""
    kept = one.labels >= 0
    return one._replace(features={name: rows[kept] for name, rows in one.features.items()}, labels=one.labels[kept])


if __name__ == "__main__":
    from evaluation.__main__ import run

    run("oodml")
