"""Three spaces that are equal by R@1 and NMI but not by MAP@R: the toy comparison of A Metric Learning Reality Check.

    python toy_experiments/reality_check_spaces.py --out reality_check_spaces.png

Each class is a square in the plane, evenly filled. In all three spaces almost every sample has its own class as its
nearest neighbour (R@1) and k-means finds the classes (NMI, F1). But the squares nearly touch in the first space, and
lie far apart in the last. In the first, a sample at an edge has many samples of other classes among its R nearest,
which only R-precision and MAP@R see. After Musgrave et al., arXiv 2003.08505; the points here are our own. k-means
starts once, from random samples, and now and then misses the classes even where they lie far apart (--seed 0): NMI and
F1 then fall for a reason that is not in the space at all.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported

import metrics
from pictures import toys
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.numbers import whole

# gap between squares of side 1
SPACES = {"classes almost touch": 0.04, "a narrow gap": 0.25, "far apart": 1.5}
SHOWN = {"e_recall@1": "R@1", "nmi": "NMI", "f1": "F1", "r_precision": "R-precision", "map_r": "MAP@R"}


def space(gap: float, per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features `(4 * per_class, 2)` of four square classes in two rows, and labels; the same points for each gap."""
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]) * (1.0 + gap)
    labels = np.repeat(np.arange(4), per_class)
    return corners[labels] + np.random.default_rng(seed).random((len(labels), 2)), labels


def measure(per_class: int = 150, seed: int = 1) -> dict[str, dict[str, float]]:
    """Space -> metric -> value."""
    return {name: metrics.compute(list(SHOWN), *space(gap, per_class, seed), seed=seed) for name, gap in SPACES.items()}


def draw(results: dict, path: Path, per_class: int, seed: int) -> None:
    """Save the spaces side by side, their values below them, as PNG."""
    panels = []
    for name, values in results.items():
        percents = {SHOWN[metric]: 100 * value for metric, value in values.items()}
        panels.append((name, *space(SPACES[name], per_class, seed), percents))
    toys.spaces(path, panels, {"MAP@R", "R-precision"}, "The same to R@1, NMI and F1, not to R-precision and MAP@R (%)")


def main(argv=None) -> None:
    """Measure, print, draw."""
    texts = {"description": __doc__.partition("\n\n")[0], "formatter_class": argparse.ArgumentDefaultsHelpFormatter}
    parser = OneLineParser(allow_abbrev=False, **texts)
    parser.add_argument("--out", type=Path, default=Path("reality_check_spaces.png"), help="the figure")
    parser.add_argument("--per_class", type=whole(2, 10**5), default=150, help="samples a class")
    parser.add_argument("--seed", type=whole(0), default=1, help="of the points and of k-means")
    options = parser.parse_args(argv)
    if options.out.suffix != ".png":
        raise UserError(f"--out {options.out}: the name of a figure ends in .png")
    results = measure(options.per_class, options.seed)
    print(f"{'':24}" + "".join(f"{name:>13}" for name in SHOWN.values()))
    for name, values in results.items():
        print(f"{name:24}" + "".join(f"{100 * value:13.1f}" for value in values.values()))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw(results, options.out, options.per_class, options.seed)
    print(f"figure: {options.out}")


if __name__ == "__main__":
    with one_line_errors("reality_check_spaces.py"):
        main()
