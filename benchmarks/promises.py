"""How often a threshold for new classes fails, and what it costs: several rules on simulated populations of classes.

    python benchmarks/promises.py --write     # three minutes; writes the tables of docs/decisions.md

A draw sets n classes aside, `IMAGES` images each, and every rule names a threshold at which at most a = .05 of the
images of further classes are to be accepted, with confidence .95. The true share theta is known for a population:

normal  the centres of classes lie normally around 1, with deviation .1
heavy   centres have t with 2 degrees of freedom, times .1
twins   as normal, but 6 % of classes have their centre at .2, next to a class of the gallery

Images lie normally around the centre of their class, with deviation .1. Images of enrolled classes ("mates") lie at
.55 +- .12. Two images of two new classes are as far apart as the sum of their distances less 1, so that a class near to
the gallery is near to all others.
"""

import argparse
import functools
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from evaluation import promise, thresholds
from utilities.errors import OneLineParser
from utilities.numbers import whole

PAGE = ROOT / "docs" / "decisions.md"
START = "<!-- benchmarks/promises.py --write -->"
STOP = "<!-- end -->"
RATE = 0.05
RISK = 0.05
IMAGES = 20
DEVIATION = 0.1
TWINS = 0.06
SIZES = (20, 60, 200)
POPULATIONS = ("normal", "heavy", "twins")
RESAMPLES = 400
MATES = (0.55, 0.12)
# of the centres of classes, at equal steps of probability; every `PAIR_STEP`-th one makes pairs
STEPS = 20_000
PAIR_STEP = 100


def centres(population: str, count: int, generator: np.random.Generator) -> np.ndarray:
    """Centres `(count,)` of classes."""
    if population == "heavy":
        return 1 + DEVIATION * generator.standard_t(2, count)
    values = 1 + DEVIATION * generator.standard_normal(count)
    if population == "twins":
        values[generator.random(count) < TWINS] = 0.2
    return values


def draw_distances(population: str, count: int, generator: np.random.Generator) -> np.ndarray:
    """Distances `(count, IMAGES)` of a draw's classes."""
    noise = DEVIATION * generator.standard_normal((count, IMAGES))
    return centres(population, count, generator)[:, None] + noise


@functools.cache
def class_centres(population: str) -> np.ndarray:
    """Quantiles `(STEPS,)` of the centres."""
    from scipy.special import ndtri, stdtrit

    chances = (np.arange(STEPS) + 0.5) / STEPS
    if population == "heavy":
        return 1 + DEVIATION * stdtrit(2, chances)
    n_twins = int(TWINS * STEPS) if population == "twins" else 0
    return np.append(
        np.full(n_twins, 0.2), 1 + DEVIATION * ndtri((np.arange(STEPS - n_twins) + 0.5) / (STEPS - n_twins))
    )


def theta(population: str, threshold: float) -> float:
    """The true share of images of new classes that are nearer than the threshold."""
    from scipy.special import ndtr

    if population == "heavy":
        return float(ndtr((threshold - class_centres(population)) / DEVIATION).mean())
    share = float(ndtr((threshold - 1) / (DEVIATION * 2**0.5)))
    if population == "twins":
        share = (1 - TWINS) * share + TWINS * float(ndtr((threshold - 0.2) / DEVIATION))
    return share


def share_of_classes(population: str, threshold: float) -> float:
    """The true share of new classes that have one of `IMAGES` images nearer than the threshold."""
    from scipy.special import ndtr

    farther = 1 - ndtr((threshold - class_centres(population)) / DEVIATION)
    return float(1 - (farther**IMAGES).mean())


@functools.cache
def pair_shares(population: str) -> tuple[np.ndarray, np.ndarray]:
    """Thresholds `(T,)` and the true share of image pairs of two new classes that are nearer, `(T,)`."""
    from scipy.special import ndtr

    centres = class_centres(population)[PAIR_STEP // 2 :: PAIR_STEP]
    distances = centres[:, None] + centres - 1
    candidates = np.linspace(-1, 2, 601)
    return candidates, np.array([ndtr((value - distances) / (DEVIATION * 2**0.5)).mean() for value in candidates])


def share_of_pairs(population: str, threshold: float) -> float:
    """The true share of image pairs of two new classes that are nearer than the threshold."""
    return float(np.interp(threshold, *pair_shares(population)))


def far_of_images(distances: np.ndarray, generator) -> float:
    """The largest threshold at which at most a of the images are accepted."""
    return thresholds.far(distances.reshape(-1), RATE)


def binomial(distances: np.ndarray, generator) -> float | None:
    """The binomial bound, as if images of one class were independent."""
    return promise.kth_smallest(distances.reshape(-1), RATE, RISK)


def shares(distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Candidates `(T,)` for the threshold, ascending, up to three times the rate, and the share of each class's images
    that is nearer, `(n, T)`.
    """
    candidates = np.sort(distances.reshape(-1))
    candidates = candidates[: int(np.ceil(3 * RATE * len(candidates))) + 2]
    return candidates, (distances[:, :, None] < candidates).mean(1)


def bootstrap(distances: np.ndarray, generator: np.random.Generator) -> float | None:
    """The largest threshold at which 95 % of resamples of the classes have a mean share of at most a."""
    candidates, of_classes = shares(distances)
    count = len(distances)
    weights = generator.multinomial(count, np.full(count, 1 / count), size=RESAMPLES) / count
    bounds = np.quantile(weights @ of_classes, 1 - RISK, axis=0)
    return last_before_failure(candidates, bounds <= RATE)


def hoeffding_bentkus(distances: np.ndarray, generator) -> float | None:
    """The bound of risk-controlling prediction sets (arXiv 2101.02703) on the mean of the shares of classes."""
    from scipy.special import bdtr, xlogy

    candidates, of_classes = shares(distances)
    count = len(distances)
    means = of_classes.mean(0)
    low = np.minimum(means, RATE)
    divergence = xlogy(low, low / RATE) + xlogy(1 - low, (1 - low) / (1 - RATE))
    chances = np.minimum(np.exp(-count * divergence), np.e * bdtr(np.ceil(count * means), count, RATE))
    return last_before_failure(candidates, chances <= RISK)


def betting(distances: np.ndarray, generator) -> float | None:
    """The bound of Waudby-Smith and Ramdas (arXiv 2010.09686) on the mean of the shares of classes: the thresholds at
    which bets that it is below a, made class after class, would multiply their stake by 1 / d.
    """
    candidates, of_classes = shares(distances)
    counts = np.arange(1, len(distances) + 1)[:, None]
    # what is known before the first class: the mean a, and a variance of its order
    means = (RATE + np.cumsum(of_classes, 0)) / (1 + counts)
    variances = (RATE * (1 - RATE) + np.cumsum((of_classes - means) ** 2, 0)) / (1 + counts)
    earlier = np.vstack([np.full(len(candidates), RATE * (1 - RATE)), variances[:-1]])
    bets = np.minimum(1 / (1 - RATE), np.sqrt(-2 * np.log(RISK) / len(distances) / earlier))
    # a class that is accepted as a whole may take the whole stake
    with np.errstate(divide="ignore"):
        stakes = np.cumsum(np.log1p(np.maximum(-bets * (of_classes - RATE), -1)), 0).max(0)
    return last_before_failure(candidates, stakes >= -np.log(RISK))


def confident(distances: np.ndarray, generator) -> float | None:
    """`--promise confident`: the binomial bound on one image of each class."""
    return promise.kth_smallest(distances[:, 0], RATE, RISK)


def average(distances: np.ndarray, generator) -> float | None:
    """`--promise average`: the mean over repetitions may be a."""
    classes = np.repeat(np.arange(len(distances)), IMAGES)
    return promise.on_average(distances.reshape(-1), classes, RATE)


def nearest_of_classes(distances: np.ndarray, generator) -> float | None:
    """`--promise whole`: the binomial bound on the nearest image of each class."""
    return promise.kth_smallest(distances.min(1), RATE, RISK)


def disjoint_pairs(distances: np.ndarray, generator) -> float | None:
    """`--promise pairs`: the binomial bound on one image pair of each disjoint pair of classes."""
    count = len(distances) // 2
    return promise.kth_smallest(distances[:count, 0] + distances[count : 2 * count, 0] - 1, RATE, RISK)


def last_before_failure(candidates: np.ndarray, holds: np.ndarray) -> float | None:
    """The last of the candidates `(T,)` before the first that does not hold; None if there is none."""
    count = len(holds) if holds.all() else int(holds.argmin())
    return float(candidates[count - 1]) if count else None


RULES = {
    "FAR of all images": far_of_images,
    "binomial bound on all images": binomial,
    "bootstrap over classes": bootstrap,
    "Hoeffding-Bentkus over classes": hoeffding_bentkus,
    "betting over classes": betting,
    "**`confident`**: one image per class": confident,
    "`average`": average,
    "`whole`: classes with an image accepted": nearest_of_classes,
    "`pairs`: image pairs accepted": disjoint_pairs,
}
# what a rule bounds, where it is not the share of images
SHARES = {nearest_of_classes: share_of_classes, disjoint_pairs: share_of_pairs}


def simulate(rule, population: str, count: int, draws: int) -> np.ndarray:
    """True shares `(draws,)` at the thresholds that a rule names from `count` classes; NaN without a threshold."""
    generator = np.random.default_rng([POPULATIONS.index(population), count])
    rates = np.full(draws, np.nan)
    for draw in range(draws):
        threshold = rule(draw_distances(population, count, generator), generator)
        if threshold is not None:
            rates[draw] = SHARES.get(rule, theta)(population, threshold)
    return rates


def cell(rates: np.ndarray) -> str:
    """% of draws in which the share is above a, and its mean in % of a."""
    if np.isnan(rates).any():
        return "–"
    return f"{100 * (rates > RATE).mean():.0f} / {100 * rates.mean() / RATE:.0f}"


def mates_named(rule, population: str, count: int, draws: int) -> float:
    """Mean share of the mates that a rule accepts; none without a threshold."""
    from scipy.special import ndtr

    generator = np.random.default_rng([POPULATIONS.index(population), count])
    values = [rule(draw_distances(population, count, generator), generator) for _ in range(draws)]
    thresholds_of_draws = np.array([value for value in values if value is not None])
    return float(ndtr((thresholds_of_draws - MATES[0]) / MATES[1]).sum() / draws)


def tables(draws: int) -> str:
    """The two tables, in Markdown."""
    heads = [f"{population} {count}" for population in POPULATIONS for count in SIZES]
    lines = [f"| rule | {' | '.join(heads)} |", f"|{'-|' * (len(heads) + 1)}"]
    for name, rule in RULES.items():
        cells = []
        for population in POPULATIONS:
            cells += [cell(simulate(rule, population, count, draws)) for count in SIZES]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    error = 100 * (RISK * (1 - RISK) / draws) ** 0.5
    text = (
        f"{draws:,} draws of n classes of {IMAGES} images, a = d = {RATE:g}. A cell: % of draws in which more than a\n"
        f"of the images of new classes are accepted (standard error {error:.1f} at 5) / mean share accepted, in %\n"
        "of a. –: no threshold. `whole` and `pairs` count what they promise: classes with an image accepted, and\n"
        "image pairs of two new classes."
    )
    sizes = (60, 100, 200, 500)
    counts = " | ".join([f"n = {count}" for count in sizes])
    mates = [f"| images of enrolled classes at T | {counts} |", f"|{'-|' * (len(sizes) + 1)}"]
    for name, rule in (("`confident`", confident), ("betting", betting)):
        for population in ("normal", "heavy"):
            named = [f"{100 * mates_named(rule, population, count, draws):.0f} %" for count in sizes]
            mates.append(f"| {name}, {population} | {' | '.join(named)} |")
    return "\n".join([text, "", *lines, "", *mates])


def main() -> None:
    """Print the tables, and write them into the page."""
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=whole(1), default=800, help="sets of classes for each cell (default: 800)")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    text = tables(options.draws)
    print(f"\n{text}")
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, old_tables = page.partition(START)
        _, _, after = old_tables.partition(STOP)
        PAGE.write_text(f"{before}{START}\n\n{text}\n\n{STOP}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
