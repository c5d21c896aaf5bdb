"""The paired bootstrap of results/bootstrap.py: its time at SOP's size, and the coverage of its 95 % interval.

    python benchmarks/paired.py --time          # 10,000 draws, 60,502 queries in 11,316 classes, 2 methods x 5 seeds
    python benchmarks/paired.py --coverage      # 1,000 simulations of each kind of runs

Simulated hits: the logit of a query is a mean plus normal effects of its class, the query, the method within the class,
the seed, and the seed within the class; classes have 2 to 200 queries (lognormal). The true difference is that over the
populations of classes and seeds. Beside it stands the plain percentile interval: classes are drawn, seeds drawn inside
them, and nothing is scaled or widened.
"""

import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from results import bootstrap
from utilities.errors import OneLineParser
from utilities.numbers import whole

KINDS = {
    "5 seeds, 100 classes": {},
    "seeds far apart": {"of_seed": 0.3},
    "seeds close together": {"of_seed": 0.02, "both": 0.0},
    "seeds alike but for chance": {"of_seed": 0.0, "both": 0.0},
    "classes much alike": {"of_class": 0.3, "between": 0.1, "both": 0.1, "of_seed": 0.05},
    "30 classes": {"classes": 30},
    "3 seeds": {"seeds": 3},
    "2 seeds": {"seeds": 2},
    "10 seeds": {"seeds": 10},
    "3 seeds against 10": {"seeds": (3, 10)},
    "the same, seeds far apart": {"seeds": (3, 10), "of_seed": 0.3},
    "2 seeds against 10": {"seeds": (2, 10)},
    "5 seeds against 10": {"seeds": (5, 10)},
}
EFFECTS = {"of_seed": 0.1, "of_class": 1.0, "between": 0.3, "both": 0.3}
# logits: of the first method, and the gain of the second
MEAN = 0.5
BETTER = 0.1


def simulated(generator, classes: int = 100, seeds: int | tuple[int, int] = 5, **effects) -> list[bootstrap.Outcomes]:
    """The outcomes of two methods with as many seeds each, or with two numbers of seeds."""
    if isinstance(seeds, int):
        seeds = (seeds, seeds)
    deviations = EFFECTS | effects
    sizes = np.clip(np.round(np.exp(generator.normal(2.5, 0.8, classes))), 2, 200).astype(int)
    labels = np.repeat(np.arange(classes), sizes)
    shared = deviations["of_class"] * generator.normal(size=classes)[labels] + generator.normal(size=len(labels))
    outcomes = []
    for method in range(2):
        class_effects = deviations["between"] * generator.normal(size=classes)[labels]
        values = []
        for _ in range(seeds[method]):
            seed_effects = deviations["of_seed"] * generator.normal()
            seed_effects = seed_effects + deviations["both"] * generator.normal(size=classes)[labels]
            logits = MEAN + BETTER * method + shared + class_effects + seed_effects
            values.append((generator.random(len(labels)) < 1 / (1 + np.exp(-logits))).astype(float))
        outcomes.append(bootstrap.class_outcomes(values, labels))
    return outcomes


def truth(**effects) -> float:
    """The true difference, first minus second, by Gauss-Hermite quadrature over the sum of all effects.

    The sizes of classes are independent of them.
    """
    deviations = EFFECTS | {name: value for name, value in effects.items() if name in EFFECTS}
    # The 1 is the variance of the query itself.
    deviation = np.sqrt(sum(value**2 for value in deviations.values()) + 1)
    points, weights = np.polynomial.hermite_e.hermegauss(100)
    means = []
    for method in range(2):
        hits = 1 / (1 + np.exp(-(MEAN + BETTER * method + deviation * points)))
        means.append(float((weights * hits).sum() / weights.sum()))
    return means[0] - means[1]


def percentile(draws, generator) -> tuple[float, float]:
    """The plain percentile interval, of the means `(draws, seeds)` of two methods."""
    means = []
    for method_draws in draws:
        rows = np.arange(len(method_draws))[:, None]
        seeds = generator.integers(0, method_draws.shape[1], method_draws.shape)
        means.append(method_draws[rows, seeds].mean(1))
    return tuple(np.quantile(means[0] - means[1], [0.025, 0.975]))


def coverage(simulations: int, draws: int) -> None:
    """Print how often the intervals contain the truth, and how wide they are."""
    print(
        f"{simulations:,} simulations, {draws:,} draws each: share of intervals that hold the true difference, "
        "and their mean width in points"
    )
    print(f"{'':28}{'interval':>10}{'width':>8}{'plain percentile':>18}{'width':>8}")
    for title, kind in KINDS.items():
        true = truth(**kind)
        intervals = []
        for number in range(simulations):
            generator = np.random.default_rng([number, 3])
            outcomes = simulated(generator, **kind)
            means = tuple(bootstrap.drawn_means(outcomes, draws, number))
            ours = bootstrap.difference(*outcomes, means, number)
            intervals.append([(ours.low, ours.high), percentile(means, generator)])
        held = [np.mean([low <= true <= high for low, high in ends]) for ends in zip(*intervals, strict=True)]
        width = [100 * np.mean([high - low for low, high in ends]) for ends in zip(*intervals, strict=True)]
        print(f"{title:28}{100 * held[0]:9.1f}%{width[0]:8.2f}{100 * held[1]:17.1f}%{width[1]:8.2f}", flush=True)


def measure(draws: int, repeats: int) -> None:
    """Print the seconds that the bootstrap takes at SOP's size."""
    generator = np.random.default_rng(0)
    labels = np.concatenate([np.arange(11_316), generator.integers(0, 11_316, 60_502 - 11_316)])
    runs = [
        [(generator.random(60_502) < 0.75 + 0.01 * m).astype(np.uint8).astype(float) for _ in range(5)]
        for m in range(2)
    ]
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        outcomes = [bootstrap.class_outcomes(values, labels) for values in runs]
        difference = bootstrap.difference(*outcomes, tuple(bootstrap.drawn_means(outcomes, draws)))
        seconds.append(time.perf_counter() - began)
    print(
        f"{draws:,} draws, 60,502 queries in 11,316 classes, 2 methods x 5 seeds: {min(seconds):.2f} s (goal 10); "
        f"{difference}"
    )


def main() -> None:
    """Print the seconds, or the coverage of the intervals, as the flags select."""
    parser = OneLineParser(description=__doc__.partition("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--time", action="store_true", help="seconds at SOP's size")
    parser.add_argument("--coverage", action="store_true", help="simulate runs")
    parser.add_argument("--simulations", type=whole(1, 10**6), default=1000, help="of each kind")
    parser.add_argument(
        "--draws",
        type=whole(100, 10**6),
        default=None,
        help="draws of classes (default: 10,000 for --time, 2,000 for --coverage)",
    )
    parser.add_argument("--repeats", type=whole(1), default=3, help="number of runs; the best one counts")
    options = parser.parse_args()
    if options.time or not options.coverage:
        measure(options.draws or bootstrap.DRAWS, options.repeats)
    if options.coverage:
        coverage(options.simulations, options.draws or 2000)


if __name__ == "__main__":
    main()
