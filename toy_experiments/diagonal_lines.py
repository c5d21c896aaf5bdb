"""Training on diagonal lines: what flipped negatives do to an embedding, and what dropping the pull term does (arXiv
2002.08473).

    python toy_experiments/diagonal_lines.py --out diagonal_lines.png

Four training classes lie along the diagonal of a square, four test classes along two lines that differ from each other
in a direction which training never needs. A small network embeds the points on the unit circle. The paper's script
compares a contrastive loss with a "regularised" one, in which each negative becomes the positive with probability .001
and in which the term that pulls positives together is gone as well. This script takes the two changes apart: each run
is one combination of pull term and flip probability, all runs of a seed start from the same points and weights, and the
report says what each change contributes.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported

import numpy as np
import torch
from tqdm import tqdm

import metrics
from pictures import toys
from utilities.counts import count_of
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.numbers import whole

TRAIN_LINES = ((0.1, 0.3), (0.35, 0.55), (0.6, 0.8), (0.85, 1.05))  # x = y from … to …
TEST_LINES = (  # the fixed coordinate (0: x, 1: y) and the range of the other
    (0, (0.2, 0.4)),
    (0, (0.55, 0.85)),
    (1, (0.4, 0.6)),
    (1, (0.7, 0.9)),
)
FIXED_AT = 0.2
# evenly spaced points of a line, and how many of them a class gets at random
POINTS = 100
KEPT = 15
MARGIN = 0.1
RATE = 0.03
BATCH = 24
ITERATIONS = 200
FORMATS = (".png", ".pdf")
FLIPS = (0.01, 0.1, 0.2, 0.5)  # further flip probabilities, beside the published one
LEVEL = 0.05  # of p, below which a difference counts as more than chance
PUBLISHED_FLIP = 0.001
MEASURES = {"sigma_2": "second singular value", "spread": "spread of test classes", "recall": "test R@1"}


class Loss(NamedTuple):
    """One kind of run: whether positives are pulled together, and how probably a negative is flipped."""

    pull: bool
    flip: float

    @property
    def name(self) -> str:
        """The run in words."""
        kind = "pull and push" if self.pull else "push only"
        note = {BASE: " (base)", PUBLISHED: " (as published)"}.get(self, "")
        return f"{kind}, p = {self.flip:g}{note}"


BASE = Loss(True, 0.0)
PUBLISHED = Loss(False, PUBLISHED_FLIP)
NO_FLIPS = Loss(False, 0.0)
RUNS = [
    BASE,
    PUBLISHED,
    NO_FLIPS,
    Loss(True, PUBLISHED_FLIP),
    *(Loss(pull, flip) for pull in (True, False) for flip in FLIPS),
]


class Result(NamedTuple):
    """Measurements of a run for each seed, `(S,)` each, and the embeddings `(S, 60, 2)` of training and test points."""

    sigma_2: np.ndarray
    spread: np.ndarray
    recall: np.ndarray
    training: np.ndarray
    test: np.ndarray


def training_points(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Points `(60, 2)` on the diagonal, and their labels `(60,)`."""
    return torch.cat([_some(*line, generator)[:, None].expand(-1, 2) for line in TRAIN_LINES]), _labels(TRAIN_LINES)


def test_points(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Points `(60, 2)` on lines with x = .2 or y = .2, and their labels `(60,)`."""
    points = []
    for fixed, line in TEST_LINES:
        coordinates = [_some(*line, generator)] * 2
        coordinates[fixed] = torch.full((KEPT,), FIXED_AT)
        points.append(torch.stack(coordinates, 1))
    return torch.cat(points), _labels(TEST_LINES)


def _some(start: float, end: float, generator: torch.Generator) -> torch.Tensor:
    """A random 15 of 100 evenly spaced numbers, `(15,)`."""
    return torch.linspace(start, end, POINTS)[torch.randperm(POINTS, generator=generator)[:KEPT]]


def _labels(lines: tuple) -> torch.Tensor:
    return torch.arange(len(lines)).repeat_interleave(KEPT)


def network() -> torch.nn.Sequential:
    """2-30-30-2 with ReLU; its output is normalised by `embed`."""
    linear = torch.nn.Linear
    relu = torch.nn.ReLU
    return torch.nn.Sequential(linear(2, 30), relu(), linear(30, 30), relu(), linear(30, 2))


def contrastive(embeddings: torch.Tensor, labels: torch.Tensor, loss: Loss, draws: torch.Tensor) -> torch.Tensor:
    """Contrastive loss over all valid triplets of each of S batches, `(S,)`: mean d_ap + mean [margin - d_an]+.

    In a flipped triplet the positive replaces the negative.

    Args:
        embeddings: `(S, B, 2)`. labels: `(S, B)`.
        draws: uniform in [0, 1), `(S, B, B, B)`: triplet (a, p, n) is flipped where it is below the flip probability.
    """
    differences = embeddings[:, :, None] - embeddings[:, None, :]
    distances = differences.square().sum(-1).clamp(min=1e-12).sqrt()  # (S, B, B)
    same_class = labels[:, :, None] == labels[:, None, :]
    other_than_itself = ~torch.eye(labels.shape[1], dtype=torch.bool)
    triplets = (same_class & other_than_itself)[:, :, :, None] & ~same_class[:, :, None, :]  # (S, a, p, n)
    count = triplets.sum((1, 2, 3)).clamp(min=1)
    positive_distances = distances[:, :, :, None].expand(triplets.shape)
    negative_distances = torch.where(draws < loss.flip, positive_distances, distances[:, :, None, :])
    value = (torch.relu(MARGIN - negative_distances) * triplets).sum((1, 2, 3)) / count
    return value + (positive_distances * triplets).sum((1, 2, 3)) / count if loss.pull else value


def train(loss: Loss, seeds: list[int], iterations: int = ITERATIONS) -> Result:
    """Train one network per seed, all at once, and measure them.

    Every seed has its own generator for points, weights, batches and flips. So its run is the same alone as among
    others, and starts from the same state whatever the loss.
    """
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    points = torch.stack([training_points(generator)[0] for generator in generators])  # (S, 60, 2)
    test = torch.stack([test_points(generator)[0] for generator in generators])  # (S, 60, 2)
    labels = _labels(TRAIN_LINES)
    networks = []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            networks.append(network())
    weights, buffers = torch.func.stack_module_state(networks)

    def embed(inputs: torch.Tensor) -> torch.Tensor:
        """Each network on its own points: `(S, N, 2)` on the unit circle."""
        outputs = torch.func.vmap(lambda w, b, x: torch.func.functional_call(networks[0], (w, b), (x,)))(
            weights, buffers, inputs
        )
        return torch.nn.functional.normalize(outputs, dim=-1)

    optimizer = torch.optim.Adam(weights.values(), lr=RATE)
    for _ in range(iterations):
        batches = torch.stack([torch.randperm(points.shape[1], generator=g)[:BATCH] for g in generators])  # (S, B)
        draws = torch.stack([torch.rand(BATCH, BATCH, BATCH, generator=g) for g in generators])
        batch = points.gather(1, batches[:, :, None].expand(-1, -1, 2))
        optimizer.zero_grad()
        contrastive(embed(batch), labels[batches], loss, draws).sum().backward()  # no network sees another's loss
        optimizer.step()
    with torch.no_grad():
        return measured(embed(points).numpy(), embed(test).numpy(), _labels(TEST_LINES).numpy())


def measured(training: np.ndarray, test: np.ndarray, test_labels: np.ndarray) -> Result:
    """Second normalised singular value of training embeddings `(S, N, 2)`,
    spread and R@1 of test embeddings `(S, M, 2)`.
    """
    sigma_2 = []
    spread = []
    recall = []
    for on_training, on_test in zip(training, test, strict=True):  # one embedding space a seed
        spectrum = metrics.compute("rho_spectrum@0", on_training, np.zeros(len(on_training), dtype=int))[
            "rho_spectrum@0"
        ]
        sigma_2.append(spectrum[1])
        centres = np.stack([on_test[test_labels == label].mean(0) for label in np.unique(test_labels)])
        first, second = np.triu_indices(len(centres), 1)
        spread.append(np.linalg.norm(centres[first] - centres[second], axis=1).mean())
        recall.append(metrics.compute("e_recall@1", on_test, test_labels)["e_recall@1"])
    return Result(np.array(sigma_2), np.array(spread), np.array(recall), training, test)


def table(results: dict[Loss, Result]) -> str:
    """Markdown table of all runs: mean +- standard deviation (ddof 1) over seeds; of one seed its value alone."""
    rows = [f"| run | {' | '.join(MEASURES.values())} |", "|-" * (len(MEASURES) + 1) + "|"]
    for loss, result in results.items():
        cells = [loss.name, *(_cell(getattr(result, name), "") for name in MEASURES)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(values: np.ndarray, sign: str) -> str:
    """The mean of `(S,)` values, with their deviation for two or more; `sign`: `+` for the sign of a positive mean."""
    mean = f"{values.mean():{sign}.3f}"
    return f"{mean} ± {values.std(ddof=1):.3f}" if len(values) > 1 else mean


def contributions(results: dict[Loss, Result]) -> str:
    """The contributions of dropping the pull term and of flipping, as Markdown: differences of runs of one seed."""
    base = results[BASE]
    published = results[PUBLISHED]
    no_flips = results[NO_FLIPS]
    change = (published.sigma_2 - base.sigma_2).mean()
    cells = ", mean ± standard\ndeviation" if len(base.sigma_2) > 1 else ""
    lines = [
        "The published regularised run differs from the base run in two ways at once: it flips negatives, and it has "
        "no pull term.",
        f"Together they change the second singular value by {change:+.3f}. Differences between runs of the same seed"
        f"{cells}:",
        "",
        "| change | second singular value | P | share of the published change | spread | test R@1 | P |",
        "|-|-|-|-|-|-|-|",
    ]
    changes = {
        "the pull term is dropped, no flips": (BASE, NO_FLIPS),
        f"then negatives are flipped, p = {PUBLISHED_FLIP:g}": (NO_FLIPS, PUBLISHED),
    }
    flip_losses = [Loss(True, p) for p in (PUBLISHED_FLIP, *FLIPS)]
    for loss in flip_losses:
        changes[f"negatives are flipped, p = {loss.flip:g}, the pull term stays"] = BASE, loss
    recall_chances = {}
    for words, (before, after) in changes.items():
        differences = {name: getattr(results[after], name) - getattr(results[before], name) for name in MEASURES}
        sigma_2, spread, recall = (_cell(values, "+") for values in differences.values())
        p_sigma_2, p_recall = (_p(differences[name]) for name in ("sigma_2", "recall"))
        share = _percent(differences["sigma_2"].mean(), change)
        lines.append(f"| {words} | {sigma_2} | {p_sigma_2} | {share} | {spread} | {recall} | {p_recall} |")
        recall_chances[words] = chance(differences["recall"])
    dropped = (no_flips.sigma_2 - base.sigma_2).mean()
    best_flips = max(flip_losses, key=lambda loss: results[loss].sigma_2.mean())
    by_flips = results[best_flips].sigma_2 - base.sigma_2
    spread = f", where the deviation between seeds is {by_flips.std(ddof=1):.3f}" if len(by_flips) > 1 else ""
    lines += [
        "",
        f"So **dropping the pull term** contributes {dropped:+.3f} of {change:+.3f} ({_percent(dropped, change)}), and "
        "**the published flips** the",
        f"rest, {change - dropped:+.3f} ({_percent(change - dropped, change)}). With the pull term kept, flips alone "
        f"reach {by_flips.mean():+.3f} at best",
        f"({_percent(by_flips.mean(), change)}, at p = {best_flips.flip:g}){spread}.",
    ]
    if len(base.sigma_2) > 1:
        lines += ["", *_significance(chance(published.sigma_2 - no_flips.sigma_2), recall_chances)]
    return "\n".join(lines)


def _significance(flip_chance: float, recall_chances: dict[str, float]) -> list[str]:
    """Sentences on whether the published flips, and any change of test R@1, differ from chance, by the changes' p."""
    smallest = min(recall_chances, key=recall_chances.get)
    flips = "is told from chance" if flip_chance < LEVEL else "is not told from chance"
    recall = "Test R@1 moves" if recall_chances[smallest] < LEVEL else "That any change moves test R@1 is not shown"
    return [
        "P: chance of so large a mean difference where there is none, by a paired t-test over the seeds, two-sided, "
        "not corrected for the number of",
        f"changes. What the published flips add to the second singular value {flips} ({_p_value(flip_chance)}). "
        f"{recall}: the smallest P of",
        f"{len(recall_chances)} is {_rounded(recall_chances[smallest])} ({smallest}).",
    ]


def chance(differences: np.ndarray) -> float:
    """Two-sided p of a t-test of `(S,)` paired differences against 0; NaN for one seed, 1 where all are 0."""
    from scipy.stats import ttest_1samp

    if len(differences) < 2:
        return float("nan")
    return float(ttest_1samp(differences, 0).pvalue) if differences.any() else 1.0


def _p(differences: np.ndarray) -> str:
    return _rounded(chance(differences)) if len(differences) > 1 else "–"


def _p_value(p: float) -> str:
    return f"P {_rounded(p)}" if p < 0.001 else f"P = {_rounded(p)}"


def _rounded(p: float) -> str:
    return "< .001" if p < 0.001 else f"{p:.2g}"


def _percent(part: float, total: float) -> str:
    return f"{round(100 * part / total)} %" if total else "–"


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
    title = f"Singular values, training, {_counted(seeds)}"
    toys.diagonal_lines(path, panels, {name: results[loss].sigma_2 for name, loss in bars.items()}, title)


def report(results: dict[Loss, Result], seeds: list[int], figure: str, command: str) -> str:
    """The whole report as Markdown."""
    introduction = " ".join(__doc__.split("\n\n", 2)[2].split())
    values = "Mean ± standard deviation over" if len(seeds) > 1 else "The values of"
    return "\n".join(
        [
            "# The toy experiment on diagonal lines\n",
            f"Generated by `{command}`.\n",
            f"{introduction}\n",
            f"![Data, embeddings, singular values]({figure})\n",
            f"{values} {_counted(seeds)}. Second singular value: of the training embeddings, the two sum to 1. Spread: "
            "mean distance",
            "between the centres of the test classes. R@1: on the 60 test points.\n",
            table(results) + "\n",
            "## What the flips contribute, and what dropping the pull term contributes\n",
            contributions(results) + "\n",
        ]
    )


def _counted(seeds: list[int]) -> str:
    return count_of(len(seeds), "seed")


def read_options(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line, and make the folders of its files.

    Raises UserError for impossible values, before anything is trained.
    """
    texts = {"description": __doc__.partition("\n\n")[0], "formatter_class": argparse.ArgumentDefaultsHelpFormatter}
    parser = OneLineParser(allow_abbrev=False, **texts)
    parser.add_argument(
        "--seeds", type=whole(0), nargs="+", default=list(range(20)), help="one network each; the first is drawn"
    )
    parser.add_argument(
        "--out", type=Path, nargs="+", default=[Path("diagonal_lines.png")], help="the figure: .png, .pdf or both"
    )
    parser.add_argument("--report", type=Path, default=None, help="write the report to this Markdown file too")
    parser.add_argument("--iterations", type=whole(1), default=ITERATIONS, help="steps of training")
    parser.exits = False
    options = parser.parse_args(argv)
    for seed in options.seeds:
        if options.seeds.count(seed) > 1:
            raise UserError(f"--seeds {seed} twice: it would count as two runs, and is one")
    for path in options.out:
        if path.suffix not in FORMATS:
            raise UserError(f"--out {path}: a figure ends in {' or '.join(FORMATS)}")
    for path in filter(None, [*options.out, options.report]):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{path}: cannot make its folder ({error.strerror})") from error
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
    torch.set_num_threads(1)  # the tensors are too small to be worth sharing out
    with one_line_errors("diagonal_lines.py"):
        main()
