"""Overhead of a fold: an epoch of as many batches in a fold of a cross-validation beside one in a single run.

The two alternate, so that both see the same machine; medians are compared. Also: the time in which the folds of 22,634 classes and
120,053 images, the size of Stanford Online Products, are laid out.
"""

import statistics
import time

from loop import built, timed

import parameters
from datasets import _schemes
from datasets._images import Image
from utilities.errors import OneLineParser
from utilities.numbers import whole

TARGET, TARGET_SECONDS = 1.02, 2.0


def run(epochs: int, batches: int) -> tuple[list[float], list[float]]:
    """Seconds of each epoch: in a fold, and in a single run."""
    size = ("--iterations_per_epoch", str(batches))
    fold, single = built("--split_scheme", "class_disjoint", "--splits_to_eval", "val", *size, fold=1), built(*size)
    pairs = [(timed(epoch, *fold), timed(epoch, *single)) for epoch in range(1, epochs + 2)]
    return tuple(zip(*pairs[1:], strict=True))  # the first epoch starts workers and warms caches


def seconds_to_divide(scheme: str, n_classes: int = 22_634, n_images: int = 120_053) -> float:
    """Seconds to lay out and check all folds of so many classes and images."""
    opt = parameters.read(["--dataset", "glyphs", "--split_scheme", scheme])
    names = [f"class_{n * n_classes // n_images:05d}" for n in range(n_images)]
    classes = {name: [] for name in names}
    for number, name in enumerate(names):
        classes[name].append(Image(f"{name}/{number}.jpg", name))
    began = time.perf_counter()
    _schemes.divide(classes, opt, 0, "/data")
    return time.perf_counter() - began


if __name__ == "__main__":
    parser = OneLineParser(description=__doc__)
    parser.add_argument("--epochs", type=whole(1), default=7)
    parser.add_argument("--batches", type=whole(1), default=20)
    arguments = parser.parse_args()
    fold, single = run(arguments.epochs, arguments.batches)
    print(f"fold          {statistics.median(fold):.2f} s an epoch   {[round(x, 2) for x in fold]}")
    print(f"single run    {statistics.median(single):.2f} s an epoch   {[round(x, 2) for x in single]}")
    print(f"ratio         {statistics.median(a / b for a, b in zip(fold, single, strict=True)):.3f}   (target: at most {TARGET})")
    for scheme in (*_schemes.BY_CLASSES, *_schemes.BY_IMAGES):
        print(f"{scheme:13} {seconds_to_divide(scheme):.2f} s for the folds of 22,634 classes   (target: under {TARGET_SECONDS:g})")
