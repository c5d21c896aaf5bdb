"""ooDML splits (arXiv 2107.09562) as a network sees them: the FID of a run's split, and a progression of new ones.

`python -m evaluation.oodml --dataset cars196 --out cars196_splits.pkl` writes ever harder splits of a data set: it
swaps the classes of training and test whose mean features lie nearest to the other side, then leaves such classes out.
Takes the flags of data set and network that main.py takes.
"""

import argparse
from pathlib import Path

import numpy as np

import architectures
import datasets
from datasets import _oodml, _shift
from engine.runtime import Runtime
from evaluation import oodml
from tools._command import add_data_flags, parser_of_page, words_of
from utilities.console import propose, without_flags
from utilities.errors import UserError
from utilities.files import expanded
from utilities.numbers import number, whole

PROGRAM = "python -m evaluation.oodml"
# flags that main.py does not have -> number of values
OWN_FLAGS = {"--out": 1, "--splits": 1, "--easier": 0, "--swaps": 1, "--removed": 1}


def parser() -> argparse.ArgumentParser:
    """The command's own flags, and those of data set and network."""
    parser = parser_of_page(PROGRAM, __doc__)
    add = parser.add_argument
    add("--out", required=True, metavar="FILE", help="where the splits are written, for --oodml_file; a new file")
    help_splits = "how many splits, evenly spaced in FID from the data set's own on (default: 8)"
    add("--splits", type=whole(2, 1000), default=8, help=help_splits)
    help_easier = "begin with easier splits than the data set's own, by the swaps turned round"
    add("--easier", action="store_true", help=help_easier)
    help_swaps = (
        "classes that are swapped, or left out, before distances are taken anew (default: 2 in a hundred training "
        "classes)"
    )
    add("--swaps", type=whole(1), default=None, metavar="N", help=help_swaps)
    help_removed = "greatest share of the classes that are left out, once swapping makes no harder split (default: 0.5)"
    add("--removed", type=number(0, below=1), default=0.5, help=help_removed)
    add_data_flags(parser)
    architectures.REGISTRY.add_arguments(parser)
    return parser


def check(opt) -> None:
    """Raise UserError for flags from which no progression can begin."""
    if expanded(opt.out).exists():
        raise UserError(f"--out {opt.out} exists: name another file, or move it away")
    if opt.split_scheme != "half" or opt.use_tv_split:
        raise UserError(
            "the progression begins with the data set's own split: leave out --split_scheme and --use_tv_split"
        )
    if opt.evaluate_all or datasets.is_test_only(opt):
        raise UserError(
            "the progression swaps classes of training and of test: take a data set that has both, and leave out "
            "--evaluate_all"
        )


def make(opt) -> Path:
    """Write a progression of splits of `--dataset` to `--out`, by the pooled features of `--arch`. Returns the file."""
    check(opt)
    runtime = Runtime(opt).begin()
    datasets.locate(opt)
    network = runtime.place(architectures.select(opt.arch, opt))
    splits = datasets.select(opt.dataset, opt, opt.source_path, **datasets.shape_for(network))
    runtime.say_once(datasets.describe(splits))
    if not splits["testing"].n_classes:
        raise UserError(
            f"--dataset {opt.dataset}: its test images have no classes, which the progression swaps: take another "
            "data set"
        )
    names = class_names(splits)
    training, testing = oodml.pooled_features(splits, network, opt, runtime)
    steps = progression(opt, _shift.class_means(*training), _shift.class_means(*testing))
    path = expanded(opt.out)
    if runtime.ranks.writes:
        _oodml.write(path, {number: _with_names(step, names) for number, step in enumerate(steps, start=1)})
    for index, step in enumerate(steps, start=1):
        runtime.say_once(
            f"split {index}: FID {step['fid']:.4g}, {len(step['train']):,} training and {len(step['test']):,} test "
            f"classes, {step['swapped']:,} of each side swapped, {step['removed']:,} left out"
        )
    runtime.say_once(f"written to {path}")
    return path


def class_names(splits: dict) -> list[str]:
    """The names of the classes, those of training (and validation) first, in the order of `oodml.pooled_features`.

    Raises UserError for a class of both sides.
    """
    names = []
    for split in ("evaluation", "validation"):
        if splits[split] is not None:
            names += _names_by_label(splits[split])
    names = [*dict.fromkeys(names), *_names_by_label(splits["testing"])]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"class {name!r} is in training and in test; classes of the two are swapped, so they must differ"
            )
    return names


def _names_by_label(dataset) -> list[str]:
    return [dataset.class_names[label] for label in sorted(dataset.class_names)]


def progression(opt, training: np.ndarray, testing: np.ndarray) -> list[dict]:
    """The splits of the flags, from the class means `(C, D)` and `(C', D)` of both sides.
    Raises UserError for too many `--swaps`.
    """
    swaps = opt.swaps or max(round(len(training) / 50), 1)
    if swaps > min(len(training), len(testing)):
        raise UserError(
            f"--swaps {swaps}: training has {len(training):,} classes and test {len(testing):,}, no more can be swapped"
        )
    steps = _shift.progression(training, testing, swaps, opt.removed)
    if opt.easier:
        steps = _shift.easier(training, testing, swaps) + steps
    return _shift.evenly(steps, opt.splits)


def _with_names(step: dict, names: list[str]) -> dict:
    """A split of `_shift` as the file holds it: names instead of numbers."""
    return {
        "train": [names[number] for number in step["train"]],
        "test": [names[number] for number in step["test"]],
        "fid": step["fid"],
        "swapped": step["swapped"],
        "removed": step["removed"],
    }


def main(argv: list[str] | None = None) -> Path:
    """Run the command. Returns the file."""
    words = words_of(argv)
    path = make(parser().parse_args(words))
    flags_of_split = ["--split_scheme", "oodml", "--oodml_file", path, "--oodml_id", 1]
    propose("python", "main.py", *without_flags(words, OWN_FLAGS), *flags_of_split)
    return path
