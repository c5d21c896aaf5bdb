"""Verification: are two images of one class? `python -m evaluation pairs FEATURES.npz PAIRS`, as LFW is measured (Huang
et al., 2007).

FEATURES holds `features` `(N, D)`, and `paths` `(N,)` where PAIRS names images; `--dump_embeddings` writes both. PAIRS
is an .npz file with `first`, `second` `(P,)`, rows of the features, and `same` `(P,)`; or a text file such as LFW's
pairs.txt, or with two paths and 1 or 0 in each line (`pair_lists.py`).
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evaluation import file_arrays, from_files, outputs
from evaluation.file_kinds import TEXT, kind_of, refuse_others
from pictures import space as charts
from tools import pair_lists
from tools._command import PICTURES, check_output, new_parser, refuse_torchrun, words_of
from utilities.console import propose, propose_view, say
from utilities.errors import UserError
from utilities.files import write_json
from utilities.numbers import number, whole
from utilities.reading import Unreadable, read_arrays

PROGRAM = "python -m evaluation pairs"
# of the squared distance of unit vectors, from 0 to 3.99, as in InsightFace's verification.py
THRESHOLDS = np.arange(400) / 100
FOLDS = 10
# arrays of an .npz file of pairs
ARRAYS = ("first", "second", "same")
FARS = (0.001, 0.01, 0.1)
# false accepts below which a rate says little
FEW = 10


class Pairs(NamedTuple):
    """Rows of the features `(P,)` each, whether both are of one class,
    and how many folds there are, in the order of the pairs.
    """

    first: np.ndarray
    second: np.ndarray
    is_same: np.ndarray
    folds: int = FOLDS


class Accuracy(NamedTuple):
    """Mean and standard deviation (ddof 0) over the folds, and the threshold of each."""

    mean: float
    deviation: float
    thresholds: np.ndarray


def verification_accuracy(distances: np.ndarray, is_same: np.ndarray, folds: int = FOLDS) -> Accuracy:
    """Share of pairs that are judged rightly at the threshold that is best for the pairs of the other folds; a fold's
    pairs are consecutive.

    Two images are of one class where their squared distance is below the threshold;
    of equally good thresholds the first counts.
    """
    right = (distances[:, None] < THRESHOLDS) == is_same[:, None]  # (P, T)
    parts = np.array_split(np.arange(len(is_same)), folds)
    counts = np.stack([right[part].sum(0) for part in parts])  # (folds, T)
    best = [int((counts.sum(0) - counts[i]).argmax()) for i in range(folds)]
    accuracies = np.array([right[part, t].mean() for part, t in zip(parts, best, strict=True)])
    return Accuracy(float(accuracies.mean()), float(accuracies.std()), THRESHOLDS[best])


def roc(distances: np.ndarray, is_same: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """False and true accept rates at every threshold, ascending; equal distances are accepted together."""
    from sklearn.metrics import roc_curve

    far, tar, _ = roc_curve(is_same, -distances, drop_intermediate=False)
    return far, tar


def tar_at(far: float, rates: tuple[np.ndarray, np.ndarray]) -> float:
    """The largest true accept rate whose false accept rate is not above `far`; `rates` as `roc` gives them."""
    return float(rates[1][rates[0] <= far].max())


def read(path: str, size: int, paths: np.ndarray | None, folds: int | None = None) -> Pairs:
    """The pairs of a file, of `size` rows of features.
    Raises UserError for what cannot be pairs of these, or in so many folds.

    `folds`: None: as the file says, else `FOLDS`.
    """
    if kind_of(path) != TEXT:
        refuse_others(path, ARRAYS)
    try:
        arrays = read_arrays(path)
    except Unreadable as error:
        if error.is_missing:
            raise
        pairs = _of_text(path, paths)
    else:
        pairs = _of_arrays(path, arrays, size)
    if folds is not None:
        pairs = pairs._replace(folds=folds)
    count = len(pairs.is_same)
    of_one_class = pairs.is_same.sum()
    if not 0 < of_one_class < count:
        raise UserError(f"{path}: {count} pairs, {of_one_class} of one class: verification needs pairs of both kinds")
    if not 2 <= pairs.folds <= count:
        raise UserError(
            f"{path}: {count} pairs cannot be cut into {pairs.folds} folds: set their number, at least 2, by --folds"
        )
    return pairs


def _of_arrays(path: str, arrays: dict, size: int) -> Pairs:
    missing = [name for name in ARRAYS if name not in arrays]
    if missing:
        raise UserError(f"{path} has no {' and no '.join(missing)}; it holds {', '.join(arrays) or 'nothing'}")
    first, second, is_same = (arrays[name] for name in ARRAYS)
    have_one_shape = first.ndim == 1 and first.shape == second.shape == is_same.shape
    are_rows = first.dtype.kind in "iu" and second.dtype.kind in "iu"
    if not have_one_shape or not are_rows:
        raise UserError(
            f"{path}: first, second and same must be (P,), the first two rows of the features; they are "
            f"{first.shape}, {second.shape}, {is_same.shape}"
        )
    if is_same.dtype.kind not in "biu" or not np.isin(is_same, (0, 1)).all():
        raise UserError(f"{path}: same holds something else than true and false")
    rows = np.concatenate([first, second])
    if len(rows) and not 0 <= rows.min() <= rows.max() < size:
        raise UserError(
            f"{path}: row {rows[(rows < 0) | (rows >= size)][0]} is outside the features, which have {size}"
        )
    return Pairs(first, second, is_same.astype(bool))


def _of_text(path: str, paths: np.ndarray | None) -> Pairs:
    """LFW's pairs.txt, or a list of paths; see `pair_lists`."""
    listed = pair_lists.read(path, paths)
    first, second = listed.rows.T
    return Pairs(first, second, listed.is_same, listed.folds or FOLDS)


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = new_parser(PROGRAM, "Verification by pairs of embeddings.")
    parser.add_argument("features", help="an .npz file with features (N, D) and, for pairs by name, paths (N,)")
    help_pairs = (
        "an .npz file with first, second (rows of the features) and same, or a text file such as LFW's pairs.txt, or "
        "with two paths and 1 or 0 in each line"
    )
    parser.add_argument("pairs", help=help_pairs)
    parser.add_argument(
        "--folds",
        type=whole(2, 10**6),
        default=None,
        help=f"folds of consecutive pairs (default: as the text file says, else {FOLDS})",
    )
    parser.add_argument(
        "--far",
        type=number(0, 1),
        nargs="+",
        default=list(FARS),
        help="false accept rates of tar@far (default: %(default)s)",
    )
    parser.add_argument("--roc", default=None, metavar="FILE", help="draw the ROC curve to this file, .png or .svg")
    parser.add_argument("--out", default=None, metavar="FILE", help="also write the values to this JSON file")
    return parser


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Print and return `verification_accuracy`, its deviation over the folds, and `tar@far`, by name."""
    argv = words_of(argv)
    flags = parser().parse_args(argv)
    refuse_torchrun(PROGRAM)
    check_output("--out", flags.out)
    check_output("--roc", flags.roc, *PICTURES)
    arrays = file_arrays.read(flags.features, ("paths",), needs_labels=False)
    space = from_files.plain_space(flags.features, {"features": arrays["features"]}).normalised()
    pairs = read(flags.pairs, space.size, arrays.get("paths"), flags.folds)
    distances = space.squared_distances(pairs.first, pairs.second)
    accuracy = verification_accuracy(distances, pairs.is_same, pairs.folds)
    rates = roc(distances, pairs.is_same)
    n_different = int((~pairs.is_same).sum())
    values = {"verification_accuracy": accuracy.mean, "verification_accuracy_deviation": accuracy.deviation}
    values |= {f"tar@{far:g}": tar_at(far, rates) for far in flags.far}
    low = accuracy.thresholds.min()
    high = accuracy.thresholds.max()
    counts = f"{len(pairs.is_same):,} pairs, {n_different:,} of two classes; {pairs.folds} folds"
    say(f"{flags.pairs}: {counts}, thresholds of the squared distance {low:g} to {high:g}")
    for far in flags.far:
        n_accepts = far * n_different
        if n_accepts < FEW:
            counts = f"{far:g} of {n_different:,} pairs are {n_accepts:g} false accepts"
            say(f"tar@{far:g}: {counts}: a rate from so few is not reliable")
    print(f"\n{outputs.table({Path(flags.features).stem: values})}")
    if flags.roc is not None:
        print(f"written  {charts.roc(Path(flags.roc), *rates, Path(flags.features).stem)}")
    if flags.out is not None:
        write_json(flags.out, values)
    if flags.roc is None:
        features = Path(flags.features)
        propose(*PROGRAM.split(), *argv, "--roc", features.with_name(f"{features.stem}_roc.png"))
    else:
        propose_view(Path(flags.roc))
    return values
