"""ooDML splits (arXiv 2107.09562) as a network sees them: the FID of a run's split, and the making of new ones (--oodml_make)."""

from pathlib import Path

import numpy as np

import architectures
import datasets
import evaluation
from datasets import _oodml, _shift
from evaluation import outputs, spaces
from runs.folder import run_folder
from training.loading import evaluation_loader
from training.random_state import random_states, set_random_states
from training.runtime import Runtime
from utilities.errors import UserError


def recorded(splits: dict, loaders: dict, network, opt, runtime) -> dict:
    """The data as environment.yaml describes them; for a new run of `--split_scheme oodml` also how hard its split is: its FID.

    Both are of the untrained network's features: `fid` of the class means, as in the authors' code and the published files, `fid_images` of
    all images.
    """
    data = outputs.about_data(splits, loaders, opt)
    if opt.split_scheme != _oodml.SCHEME or (opt.resume is not None and (run_folder(opt) / "environment.yaml").exists()):
        return data
    states = random_states()
    features, labels = _pooled(splits, network, opt, runtime)
    set_random_states(states)  # a resumed run skips this, and must draw the same
    means = [_shift.class_means(*one) for one in zip(features, labels, strict=True)]
    by_file = _oodml.of_file(opt).get("fid")
    facts = {
        "id": opt.oodml_id, "fid": _shift.fid(*means), "fid_images": _shift.fid(*features),
        "fid_in_file": None if by_file is None else float(by_file),
    }  # fmt: skip
    of_file = "" if by_file is None else f", by the file {by_file:.4g}"
    runtime.say_once(
        f"ooDML split {opt.oodml_id}: FID {facts['fid']:.4g} of the class means{of_file}, {facts['fid_images']:.4g} of all images"
    )
    return {**data, "oodml": facts}


def _pooled(splits: dict, network, opt, runtime) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The backbone's pooled features `(N, F)` and the labels `(N,)` of training and validation together, and of test."""
    found = {}
    for split in ("evaluation", "validation", "testing"):
        if splits[split] is not None:
            loader = evaluation_loader(splits[split], opt, runtime.ranks)
            found[split] = evaluation.embed(network, loader, runtime, f"features of {split}", bare=True)
    training, testing = found["evaluation"], found["testing"]
    features, labels = [training.features[spaces.BARE], testing.features[spaces.BARE]], [training.labels, testing.labels]
    if "validation" in found:
        names = list(splits["evaluation"].class_names.values())
        places = {name: number for number, name in enumerate(dict.fromkeys([*names, *splits["validation"].class_names.values()]))}
        numbers = np.array([places[splits["validation"].class_names[label]] for label in found["validation"].labels])
        own = np.array([places[splits["evaluation"].class_names[label]] for label in training.labels])
        features[0] = np.concatenate([features[0], found["validation"].features[spaces.BARE]])
        labels[0] = np.concatenate([own, numbers])
    return features, labels


def make(opt) -> Path:
    """`--oodml_make`: write a progression of splits of `--dataset` to `--oodml_file`, by the pooled features of `--arch`. Returns the file."""
    runtime = Runtime(opt).begin()
    datasets.locate(opt)
    network = runtime.place(architectures.select(opt.arch, opt))
    splits = datasets.select(opt.dataset, opt, opt.source_path, **datasets.shape_for(network))
    runtime.say_once(datasets.describe(splits))
    path = Path(opt.oodml_file).expanduser()
    if opt.dry_run:
        return path
    features, labels = _pooled(splits, network, opt, runtime)
    names = [splits[split].class_names[label] for split in ("evaluation", "testing") for label in sorted(splits[split].class_names)]
    if len(set(names)) < len(names):
        shared = next(name for name in names if names.count(name) > 1)
        raise UserError(f"--oodml_make: class {shared!r} is in training and in test; classes of the two are swapped, so they must differ")
    means = [_shift.class_means(*one) for one in zip(features, labels, strict=True)]
    swaps = opt.oodml_swaps or max(round(len(means[0]) / 50), 1)
    if swaps > min(map(len, means)):
        raise UserError(f"--oodml_swaps {swaps}: training has {len(means[0]):,} classes and test {len(means[1]):,}, no more can be swapped")
    below = _shift.easier(*means, swaps) if opt.oodml_easier else []
    steps = _shift.evenly(below + _shift.progression(*means, swaps, opt.oodml_removed), opt.oodml_splits)
    content = {
        number: {
            "train": [names[c] for c in step["train"]], "test": [names[c] for c in step["test"]], "fid": step["fid"],
            "swapped": step["swapped"], "removed": step["removed"],
        } for number, step in enumerate(steps, start=1)
    }  # fmt: skip
    if runtime.ranks.writes:
        _oodml.write(path, content)
    for number, step in enumerate(steps, start=1):
        runtime.say_once(
            f"split {number}: FID {step['fid']:.4g}, {len(step['train']):,} training and {len(step['test']):,} test classes, "
            f"{step['swapped']:,} of each side swapped, {step['removed']:,} left out"
        )
    runtime.say_once(f"written to {path}: --split_scheme oodml --oodml_file {path} --oodml_id N")
    return path
