"""The toy experiment: its data, its loss in loops, independent seeds, and what its report says."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import ttest_1samp

from tests.kit.refusals import refused
from toy_experiments import _diagonal_report as report
from toy_experiments import _diagonal_runs as toy
from toy_experiments import diagonal_lines

SEEDS = [3, 4]


def test_points_lie_where_the_classes_are():
    points, labels = toy.training_points(torch.Generator().manual_seed(0))
    assert points.shape == (60, 2) and torch.equal(points[:, 0], points[:, 1])
    assert torch.bincount(labels).tolist() == [15] * 4
    for label, (start, end) in enumerate([(0.1, 0.3), (0.35, 0.55), (0.6, 0.8), (0.85, 1.05)]):
        xs = points[labels == label, 0]
        places = (xs - start) / (end - start) * 99
        assert len(xs.unique()) == 15 and (places - places.round()).abs().max() < 1e-3, "15 of 100 evenly spaced points"
    assert not torch.equal(points, toy.training_points(torch.Generator().manual_seed(1))[0])
    points, labels = toy.test_points(torch.Generator().manual_seed(0))
    assert torch.bincount(labels).tolist() == [15] * 4
    for label, (fixed, free, start, end) in enumerate(
        [(0, 1, 0.2, 0.4), (0, 1, 0.55, 0.85), (1, 0, 0.4, 0.6), (1, 0, 0.7, 0.9)]
    ):
        class_points = points[labels == label]
        assert (class_points[:, fixed] == 0.2).all() and len(class_points[:, free].unique()) == 15
        assert class_points[:, free].min() >= start and class_points[:, free].max() <= end + 1e-6


@pytest.mark.parametrize("loss", [toy.BASE, toy.PUBLISHED, toy.Loss(True, 0.3), toy.Loss(False, 1.0)])
def test_the_loss_is_that_of_the_loops(loss):
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(2, 7, 2, generator=generator, dtype=torch.float64) * 0.06
    labels = torch.tensor([[0, 0, 0, 1, 1, 2, 3], [0, 0, 1, 1, 2, 2, 2]])
    draws = torch.rand(2, 7, 7, 7, generator=generator)
    values = toy.contrastive(embeddings, labels, loss, draws)
    for s in range(2):
        pulls = []
        pushes = []
        for a, p, n in itertools.product(range(7), repeat=3):
            if a != p and labels[s, a] == labels[s, p] and labels[s, a] != labels[s, n]:
                pushed = p if draws[s, a, p, n] < loss.flip else n
                pulls.append((embeddings[s, a] - embeddings[s, p]).norm().item())
                pushes.append(max(0.0, 0.1 - (embeddings[s, a] - embeddings[s, pushed]).norm().item()))
        expected = np.mean(pushes) + np.mean(pulls) if loss.pull else np.mean(pushes)
        assert values[s].item() == pytest.approx(expected, abs=1e-9)
    equal = torch.ones(1, 4, 2, requires_grad=True)
    # one class; equal points
    for labels in ([[0, 0, 0, 0]], [[0, 0, 1, 1]]):
        value = toy.contrastive(equal, torch.tensor(labels), loss, torch.ones(1, 4, 4, 4))
        assert value.isfinite() and torch.autograd.grad(value.sum(), equal)[0].isfinite().all()


def test_a_seed_is_the_same_alone_as_among_others():
    together = toy.train(toy.PUBLISHED, SEEDS, iterations=12)
    single = toy.train(toy.PUBLISHED, SEEDS[1:], iterations=12)
    np.testing.assert_allclose(together.training[1], single.training[0], atol=1e-5)
    assert together.recall[1] == single.recall[0]
    first, second = (toy.train(loss, SEEDS, iterations=0) for loss in (toy.BASE, toy.PUBLISHED))
    np.testing.assert_array_equal(first.training, second.training)
    assert not np.allclose(together.training[0], together.training[1], atol=1e-2)


def test_what_is_measured():
    angles = np.random.default_rng(0).random((1, 60)) * 3
    space = np.stack([np.cos(angles), np.sin(angles)], -1).astype(np.float32)
    labels = np.repeat(np.arange(4), 15)
    result = toy.measured(space, space, labels)
    values = np.linalg.svd(space[0].astype(np.float64), compute_uv=False)
    assert result.sigma_2[0] == pytest.approx(values[1] / values.sum(), abs=1e-6)
    centres = [space[0][labels == c].mean(0) for c in range(4)]
    distances_of_centres = [np.linalg.norm(centres[i] - centres[j]) for i in range(4) for j in range(i)]
    assert result.spread[0] == pytest.approx(np.mean(distances_of_centres), abs=1e-6)
    hits = []
    for i in range(60):
        distances = np.linalg.norm(space[0] - space[0, i], axis=1)
        distances[i] = np.inf
        hits.append(labels[distances.argmin()] == labels[i])
    assert result.recall[0] == pytest.approx(np.mean(hits))


@pytest.mark.long
def test_most_of_the_published_effect_is_the_dropped_pull_term():
    base, published, no_flips, pull_kept = (
        toy.train(loss, list(range(3))).sigma_2.mean()
        for loss in (toy.BASE, toy.PUBLISHED, toy.Loss(False, 0.0), toy.Loss(True, 0.2))
    )
    assert base < 0.15 and published > 0.3 and no_flips > 0.3
    assert abs(pull_kept - base) < 0.05 < no_flips - base


def fake(sigma_2):
    points = np.ones((2, 60, 2))
    return toy.Result(np.array([sigma_2, sigma_2]), np.array([0.1, 0.3]), np.array([0.5, 0.5]), points, points)


def test_the_report_says_what_the_numbers_say():
    changed = {toy.PUBLISHED: fake(0.5), toy.Loss(False, 0.0): fake(0.4), toy.Loss(True, 0.1): fake(0.14)}
    results = {loss: fake(0.1) for loss in toy.RUNS} | changed
    text = " ".join(report.contributions(results).split())
    assert "change the second singular value by +0.400" in text
    assert "| the pull term is dropped, no flips | +0.300 ± 0.000 | < .001 | 75 %" in text
    assert "**Dropping the pull term** contributes +0.300 of +0.400 (75 %)" in text and "+0.100 (25 %)" in text
    assert "flips alone reach at most +0.040" in text and "(10 %, at p = 0.1)" in text
    summary = " ".join(report.summary(results, "python x.py").split())
    assert "contributes +0.300 of +0.400" in summary and summary.endswith("**Command.** `python x.py`")
    assert "| pull and push, p = 0 (base) | 0.100 ± 0.000 | 0.200 ± 0.141 |" in report.table(results)


def test_significant_changes():
    noise = np.random.default_rng(0).normal(size=(len(toy.RUNS), 20))
    results = {
        loss: fake(0.1)._replace(sigma_2=0.1 + 0.01 * noise[i], recall=0.7 + 0.1 * noise[i])
        for i, loss in enumerate(toy.RUNS)
    }
    results[toy.PUBLISHED] = results[toy.PUBLISHED]._replace(
        sigma_2=results[toy.Loss(False, 0.0)].sigma_2 + 0.1 + 0.3 * noise[0]
    )
    flips = results[toy.PUBLISHED].sigma_2 - results[toy.Loss(False, 0.0)].sigma_2
    p = ttest_1samp(flips, 0).pvalue
    assert p > 0.05 and report.chance(flips) == pytest.approx(p, rel=1e-9)
    expected = f"value is not significant (P = {p:.2g}). No change of test R@1 is significant: the smallest P of 7 is "
    assert expected in " ".join(report.contributions(results).split())
    results[toy.Loss(True, 0.5)] = results[toy.BASE]._replace(recall=results[toy.BASE].recall + 0.1 + 0.001 * noise[1])
    sure = results[toy.Loss(False, 0.0)].sigma_2 + 0.1 + 0.001 * noise[2]
    text = report.contributions(results | {toy.PUBLISHED: results[toy.PUBLISHED]._replace(sigma_2=sure)})
    expected = (
        "is significant (P < .001). Test R@1 changes significantly: the smallest P of 7 is < .001 (negatives are "
    )
    assert expected + "flipped, p = 0.5" in " ".join(text.split())
    assert report.chance(np.zeros(3)) == 1 and report.chance(np.ones(3)) == 0 and np.isnan(report.chance(np.ones(1)))


@pytest.mark.long
def test_the_command_line(tmp_path, capsys):
    figures = [tmp_path / "figure.png", tmp_path / "figure.pdf"]
    words = ["--seeds", "0", "1", "--iterations", "3", "--out", *map(str, figures)]
    diagonal_lines.main([*words, "--report", str(tmp_path / "report.md")])
    assert all(path.stat().st_size > 5000 for path in figures)
    text = (tmp_path / "report.md").read_text()
    assert text in capsys.readouterr().out and "over 2 seeds" in text and "figure.png" in text
    diagonal_lines.main(["--seeds", "7", "--iterations", "1", "--out", str(tmp_path / "one.png")])
    output = capsys.readouterr().out
    with refused(None, "--out x.foo: a figure ends in .png or .pdf"):
        diagonal_lines.main(["--out", "x.png", "x.foo"])
    assert "±" not in output and "deviation" not in output and "The values of 1 seed." in output
