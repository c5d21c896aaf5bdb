"""Simulated thresholds for new classes (benchmarks/promises.py): the populations, the rules, and the page's table."""

import numpy as np
import pytest

from benchmarks import promises

CONFIDENT = "**`confident`**: one image per class"


@pytest.mark.parametrize("population", promises.POPULATIONS)
def test_the_true_share_is_that_of_drawn_images(population):
    distances = promises.draw_distances(population, 20_000, np.random.default_rng(0))
    for threshold in (0.3, 0.75, 0.9, 1.0):
        assert (distances < threshold).mean() == pytest.approx(promises.theta(population, threshold), abs=0.008)
        has_image = (distances[:, : promises.IMAGES] < threshold).any(1)
        assert has_image.mean() == pytest.approx(promises.share_of_classes(population, threshold), abs=0.012)
        of_pairs = distances[:10_000] + distances[10_000:] - 1
        assert (of_pairs < threshold).mean() == pytest.approx(promises.share_of_pairs(population, threshold), abs=0.012)
    low, high = (promises.theta(population, threshold) for threshold in (-9.0, 99.0))
    assert low < 1e-3 and high > 1 - 1e-3


def test_rules_by_loops():
    """The thresholds of the rules that promise.py does not have, by their definitions."""
    distances = promises.draw_distances("twins", 60, np.random.default_rng(1))
    generator = np.random.default_rng(2)
    threshold = promises.far_of_images(distances, generator)
    assert (distances < threshold).mean() <= 0.05 < (distances <= threshold).mean()
    candidates, of_classes = promises.shares(distances)
    assert (np.diff(candidates) >= 0).all() and of_classes.mean(0).max() > 0.1
    for place in (0, 7, len(candidates) - 1):
        shares = [np.mean([value < candidates[place] for value in row]) for row in distances]
        assert of_classes[:, place] == pytest.approx(shares)
    threshold = promises.bootstrap(distances, generator)
    assert threshold is None or 0 < (distances < threshold).mean() <= 0.05
    largest_stakes = []
    for place in range(len(candidates)):
        stakes = [1.0]
        total = 0.05
        spread = 0.0475
        for number, value in enumerate(of_classes[:, place].tolist(), start=1):
            bet = min((2 * np.log(20) / 60 / (spread / number)) ** 0.5, 1 / 0.95)
            stakes.append(stakes[-1] * max(1 - bet * (value - 0.05), 0))
            total += value
            spread += (value - total / (number + 1)) ** 2
        largest_stakes.append(max(stakes[1:]))
    expected = promises.last_before_failure(candidates, np.array(largest_stakes) >= 20)
    assert promises.betting(distances, generator) == expected
    # k is 1 for 60 classes
    assert promises.nearest_of_classes(distances, generator) == min(map(min, distances.tolist()))
    assert promises.disjoint_pairs(distances, generator) is None, "118 classes are needed"
    assert promises.last_before_failure(np.arange(4.0), np.array([True, True, False, True])) == 1.0
    assert promises.last_before_failure(np.arange(4.0), np.array([False, True, True, True])) is None
    assert promises.last_before_failure(np.arange(4.0), np.ones(4, dtype=bool)) == 3.0


def test_promises_hold_and_rates_of_pooled_images_do_not():
    for population in promises.POPULATIONS:
        assert np.isnan(promises.simulate(promises.confident, population, 20, 3)).all(), "59 classes are needed"
        rules = ((promises.confident, 60), (promises.nearest_of_classes, 60), (promises.disjoint_pairs, 120))
        for rule, count in rules:
            failures = promises.simulate(rule, population, count, 300) > promises.RATE
            assert failures.mean() < 0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5
        assert (promises.simulate(promises.far_of_images, population, 60, 300) > promises.RATE).mean() > 0.3
        assert promises.simulate(promises.average, population, 60, 300).mean() < promises.RATE * 1.1


@pytest.mark.parametrize("count", [60, 200])
def test_twins_in_2000_draws(count):
    assert (promises.simulate(promises.confident, "twins", count, 2000) > promises.RATE).mean() < 0.065
    assert (promises.simulate(promises.far_of_images, "twins", count, 2000) > promises.RATE).mean() > 0.3


def test_the_page_shows_what_the_script_computes():
    page = promises.PAGE.read_text(encoding="utf-8")
    cells = []
    for population in promises.POPULATIONS:
        cells += [promises.cell(promises.simulate(promises.confident, population, n, 800)) for n in promises.SIZES]
    assert f"| {CONFIDENT} | {' | '.join(cells)} |" in page
