"""ooDML splits (arXiv 2107.09562) as a network sees them: the FID of a run's split, and a progression of new ones.

`python -m evaluation.oodml --dataset cars196 --out cars196_splits.pkl` writes ever harder splits of a data set: it
swaps the classes of training and test whose mean features lie nearest to the other side, then leaves such classes out.
Takes the flags of data set and network that main.py takes.
"""

import argparse
import sys
from pathlib import Path

import architectures
import datasets
from datasets import _oodml, _shift
from engine.runtime import Runtime
from evaluation import oodml
from utilities import flags
from utilities.console import propose, without_flags
from utilities.errors import OneLineParser, UserError
from utilities.files import expanded
from utilities.numbers import number, whole

PROGRAM = "python -m evaluation.oodml"
OWN_FLAGS = {
    "--out": 1,
    "--splits": 1,
    "--easier": 0,
    "--swaps": 1,
    "--removed": 1,
}  # not main.py's -> number of values
SETTINGS = {
    "precision": "float32",
    "clip_grad_norm": None,
    "fold": None,
}  # of the runtime and the data, which no flag here changes


def parser() -> argparse.ArgumentParser:
    """The command's own flags, and those of data set and network."""
    parser = OneLineParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--out", required=True, metavar="FILE", help="where the splits are written, for --oodml_file; a new file")
    add(
        "--splits",
        type=whole(2, 1000),
        default=8,
        help="how many splits, evenly spaced in FID from the data set's own on (default: 8)",
    )
    add(
        "--easier",
        action="store_true",
        help="begin with easier splits than the data set's own, by the swaps turned round",
    )
    help_swaps = (
        "classes that are swapped, or left out, before distances are taken anew (default: 2 in a hundred training "
        "classes)"
    )
    add("--swaps", type=whole(1), default=None, metavar="N", help=help_swaps)
    help_removed = "greatest share of the classes that are left out, once swapping makes no harder split (default: 0.5)"
    add("--removed", type=number(0, below=1), default=0.5, help=help_removed)
    add("--eval_bs", type=whole(1, 10**6), default=64, help="images a batch (default: 64)")
    add("--eval_kernels", type=whole(0), default=4, help="worker processes that load images (default: 4)")
    add("--gpu", type=whole(0), nargs=1, default=[0], help="which GPU, where there is one (default: 0)")
    flags.add_arguments(parser)
    datasets.REGISTRY.add_arguments(parser)
    architectures.REGISTRY.add_arguments(parser)
    return parser


def make(asked, opt) -> Path:
    """Write a progression of splits of `--dataset` to `--out`, by the pooled features of `--arch`. Returns the file.

    `asked`: the command's own flags; `opt`: those of data, network and runtime.
    """
    path = expanded(asked.out)
    if path.exists():
        raise UserError(f"--out {asked.out} exists: name another file, or move it away")
    if opt.split_scheme != "half" or opt.use_tv_split:
        raise UserError(
            "the progression begins with the data set's own split: leave out --split_scheme and --use_tv_split"
        )
    if opt.evaluate_all or datasets.is_test_only(opt):
        raise UserError(
            "the progression swaps classes of training and of test: take a data set that has both, and leave out "
            "--evaluate_all"
        )
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
    features, labels = oodml.pooled_features(splits, network, opt, runtime)
    of_split = [
        [one.class_names[label] for label in sorted(one.class_names)]
        for one in map(splits.get, ("evaluation", "validation", "testing"))
        if one is not None
    ]
    names = [
        *dict.fromkeys(name for part in of_split[:-1] for name in part),
        *of_split[-1],
    ]  # in the order of `pooled_features`
    if len(set(names)) < len(names):
        shared = next(name for name in names if names.count(name) > 1)
        raise UserError(
            f"class {shared!r} is in training and in test; classes of the two are swapped, so they must differ"
        )
    means = [_shift.class_means(*one) for one in zip(features, labels, strict=True)]
    swaps = asked.swaps or max(round(len(means[0]) / 50), 1)
    if swaps > min(map(len, means)):
        raise UserError(
            f"--swaps {swaps}: training has {len(means[0]):,} classes and test {len(means[1]):,}, no more can be "
            "swapped"
        )
    below = _shift.easier(*means, swaps) if asked.easier else []
    steps = _shift.evenly(below + _shift.progression(*means, swaps, asked.removed), asked.splits)
    content = {
        number: {
            "train": [names[c] for c in step["train"]],
            "test": [names[c] for c in step["test"]],
            "fid": step["fid"],
            "swapped": step["swapped"],
            "removed": step["removed"],
        }
        for number, step in enumerate(steps, start=1)
    }
    if runtime.ranks.writes:
        _oodml.write(path, content)
    for place, step in enumerate(steps, start=1):
        runtime.say_once(
            f"split {place}: FID {step['fid']:.4g}, {len(step['train']):,} training and {len(step['test']):,} test "
            "classes, "
            f"{step['swapped']:,} of each side swapped, {step['removed']:,} left out"
        )
    runtime.say_once(f"written to {path}")
    return path


def main(argv: list[str] | None = None) -> Path:
    """Run the command. Returns the file."""
    argv = sys.argv[1:] if argv is None else argv
    asked = parser().parse_args(argv)
    path = make(asked, argparse.Namespace(**SETTINGS, **vars(asked)))
    flags_of_split = ["--split_scheme", "oodml", "--oodml_file", path, "--oodml_id", 1]
    propose("python", "main.py", *without_flags(argv, OWN_FLAGS), *flags_of_split)
    return path
