"""Training on diagonal lines: what flipped negatives do to an embedding, and what dropping the pull term does.

    python toy_experiments/diagonal_lines.py --out diagonal_lines.png

repeats the toy experiment of the ICML paper (arXiv 2002.08473), prints a report and draws a figure. The runs are in
`_diagonal_runs.py`, the report is in `_diagonal_report.py`.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported

import torch
from tqdm import tqdm

from pictures import toys
from toy_experiments._diagonal_report import report
from toy_experiments._diagonal_runs import (
    BASE,
    FLIPS,
    ITERATIONS,
    NO_FLIPS,
    PUBLISHED,
    PUBLISHED_FLIP,
    RUNS,
    Loss,
    Result,
    test_points,
    train,
    training_points,
)
from utilities.counts import count_of
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.numbers import whole

FORMATS = (".png", ".pdf")


def draw(results: dict[Loss, Result], seeds: list[int], path: Path) -> None:
    """Save data, base and regularised embedding of the first seed, and singular values over all seeds.

    The suffix is the format.
    """
    generator = torch.Generator().manual_seed(seeds[0])
    training, labels = (tensor.numpy() for tensor in training_points(generator))
    test, test_labels = (tensor.numpy() for tensor in test_points(generator))
    spaces = {
        "Data": (training, test),
        "Base: pull and push": (results[BASE].training[0], results[BASE].test[0]),
        f"As published: push only, p = {PUBLISHED_FLIP:g}": (
            results[PUBLISHED].training[0],
            results[PUBLISHED].test[0],
        ),
    }
    panels = [(title, points, labels, new_points, test_labels) for title, (points, new_points) in spaces.items()]
    largest_flip = Loss(True, FLIPS[-2])
    bars = {
        "base": BASE,
        "as\npublished": PUBLISHED,
        "push only,\nno flips": NO_FLIPS,
        f"pull kept,\np = {largest_flip.flip:g}": largest_flip,
    }
    title = f"Singular values, training, {count_of(len(seeds), 'seed')}"
    toys.diagonal_lines(path, panels, {name: results[loss].sigma_2 for name, loss in bars.items()}, title)


def read_options(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line, and make the folders of its files.

    Raises UserError for impossible values, before anything is trained.
    """
    parser = OneLineParser(
        allow_abbrev=False,
        description=__doc__.partition("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--seeds", type=whole(0), nargs="+", default=list(range(20)), help="one network per seed; the first is drawn"
    )
    parser.add_argument(
        "--out", type=Path, nargs="+", default=[Path("diagonal_lines.png")], help="the figure: .png, .pdf or both"
    )
    parser.add_argument("--report", type=Path, default=None, help="also write the report to this Markdown file")
    parser.add_argument("--iterations", type=whole(1), default=ITERATIONS, help="steps of training")
    parser.exits = False
    options = parser.parse_args(argv)
    for seed in options.seeds:
        if options.seeds.count(seed) > 1:
            raise UserError(f"--seeds {seed} twice: each seed is one run")
    for path in options.out:
        if path.suffix not in FORMATS:
            raise UserError(f"--out {path}: a figure ends in {' or '.join(FORMATS)}")
    for path in filter(None, [*options.out, options.report]):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{path}: its folder cannot be made ({error.strerror})") from error
    return options


def main(argv: list[str] | None = None) -> None:
    """Train all runs, print the report, draw."""
    options = read_options(argv)
    results = {}
    for loss in tqdm(RUNS, desc="runs", leave=False, disable=None):
        results[loss] = train(loss, options.seeds, options.iterations)
    words = sys.argv[1:] if argv is None else argv
    command = f"python toy_experiments/diagonal_lines.py {' '.join(words)}"
    text = report(results, options.seeds, options.out[0].name, command.strip())
    print(text)
    if options.report is not None:
        options.report.write_text(text, encoding="utf-8")
    for path in options.out:
        draw(results, options.seeds, path)
        print(f"figure: {path}")


if __name__ == "__main__":
    # the tensors are too small for several threads
    torch.set_num_threads(1)
    with one_line_errors("diagonal_lines.py"):
        main()
