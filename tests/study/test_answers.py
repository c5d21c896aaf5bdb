"""The tests of the study's answers against scipy and slow definitions, and the pictures of its designs."""

import itertools

import numpy as np
import pytest
import scipy.stats

from experiments.study import designs, interaction
from experiments.study.statistics import joint_difference, welch_anova
from pictures import flow
from results import inference


def test_welchs_test_of_several_groups_is_scipys():
    rng = np.random.default_rng(0)
    values = [rng.normal(0.4 * place, 1 + place, count) for place, count in enumerate((5, 4, 9, 2))]
    expected = scipy.stats.f_oneway(*values, equal_var=False).pvalue
    assert welch_anova(values) == pytest.approx(expected, rel=1e-9)
    two = scipy.stats.ttest_ind(*values[:2], equal_var=False).pvalue
    assert welch_anova(values[:2]) == pytest.approx(two, rel=1e-9)
    assert np.isnan(welch_anova([np.ones(3), np.arange(3.0)]))


def test_the_joint_difference_of_one_pair_is_welchs_and_covers_that_of_several():
    rng = np.random.default_rng(1)
    first = rng.normal(5, 1, 5)
    second = rng.normal(4, 3, 7)
    expected = scipy.stats.ttest_ind(second, first, equal_var=False)
    joint = joint_difference([(inference.estimate(first), inference.estimate(second))])
    assert joint.p == pytest.approx(expected.pvalue) and joint.difference == pytest.approx(second.mean() - first.mean())
    assert joint.interval == pytest.approx(tuple(expected.confidence_interval()))
    held = []
    for _ in range(2000):
        pairs = []
        for place in range(4):
            plain = rng.normal(place, 1, 5)
            pairs.append((inference.estimate(plain), inference.estimate(rng.normal(place + 0.5, 2, 5))))
        low, high = joint_difference(pairs).interval
        held.append(low <= 0.5 <= high)
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)
    constant = inference.Estimate(1.0, 0.0, 3)
    assert joint_difference([(constant, constant)]) == (0, (0, 0), 1)
    assert joint_difference([(constant, constant._replace(mean=2.0))]).p == 0


def plain_f(values):
    """F of loss x split by loops over all cells."""
    n_losses, n_splits, n_seeds = values.shape
    grand = values.mean()
    between = within = 0.0
    for loss, split in itertools.product(range(n_losses), range(n_splits)):
        cell = values[loss, split].mean()
        between += n_seeds * (cell - values[loss].mean() - values[:, split].mean() + grand) ** 2
        within += sum((value - cell) ** 2 for value in values[loss, split])
    freedoms = (n_losses - 1) * (n_splits - 1), n_losses * n_splits * (n_seeds - 1)
    return between / freedoms[0] / (within / freedoms[1]), freedoms


def test_the_interaction_by_loops_and_its_bound_by_simulation():
    rng = np.random.default_rng(2)
    true = 0.8
    below = []
    for draw in range(1500):
        cells = rng.normal(0, 2, (6, 1)) + rng.normal(0, 1, (1, 6)) + rng.normal(0, true, (6, 6))
        values = cells[..., None] + rng.normal(0, 1, (6, 6, 3))
        result = interaction.interaction(values)
        below.append(true <= result.bound)
        if draw < 5:
            f, freedoms = plain_f(values)
            assert result.f == pytest.approx(f) and result.p == pytest.approx(scipy.stats.f.sf(f, *freedoms))
    assert np.mean(below) == pytest.approx(0.95, abs=0.015)
    no_effect = rng.normal(0, 1, (2000, 6, 6, 3))
    significant = [interaction.interaction(values).p < 0.05 for values in no_effect]
    assert np.mean(significant) == pytest.approx(0.05, abs=0.015)
    assert np.isnan(interaction.interaction(np.ones((3, 3, 2)))).all()


def test_tau_by_seeds_alone_is_that_of_other_seeds():
    """Of tables without loss x split, it is the tau of two of their splits; of losses far apart it is 1."""
    rng = np.random.default_rng(3)
    values = np.array([0.0, 0.3, 0.5, 2.0])[:, None, None] + rng.normal(0, 0.4, (4, 400, 3))
    taus = [scipy.stats.kendalltau(*values[:, [k, k + 1]].mean(2).T).statistic for k in range(0, 400, 2)]
    assert interaction.tau_of_seeds(values, rng) == pytest.approx(np.mean(taus), abs=0.06)
    assert interaction.tau_of_seeds(values * [[[0.01]]] + 9 * np.arange(4)[:, None, None], rng) == 1


@pytest.mark.parametrize("script", ["losses", "splits", "recent", "union"])
def test_the_texts_of_a_design_fit_into_their_boxes(script, tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(flow, "save_figure", lambda figure, path, **how: figures.append((figure, path)))
    designs.draw(script, tmp_path)
    ((figure, path),) = figures
    assert path == tmp_path / designs.picture_of(script)
    right = figure.axes[0].transData.transform((flow.WIDTH - flow.MARGIN, 0))[0]
    texts = [text for text in figure.axes[0].texts if text.get_text()]
    assert len(texts) == 2 * len(designs.steps_of(script))
    titles = texts[::2]
    start_of_text = figure.axes[0].transData.transform((flow.MARGIN + flow.TITLE_WIDTH, 0))[0]
    assert max(text.get_window_extent().x1 for text in texts) < right
    assert max(text.get_window_extent().height for text in texts) < flow.BOX_HEIGHT * figure.dpi
    assert max(title.get_window_extent().x1 for title in titles) < start_of_text
