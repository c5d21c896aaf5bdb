"""experiments/study: its numbers against slow ones, nothing shown of a part of a study, the page's marks."""

import itertools
import shutil

import numpy as np
import pytest
import scipy.stats

from experiments.study import losses, protocol, settings, tables
from experiments.study.page import MARKS
from experiments.study.statistics import bootstrap, shuffled_f, sign_flips
from results import groups
from tests.kit.run_folders import collected, make_run

EMOJI = settings.DATA[0]


def test_sign_flips_against_all_of_them():
    differences = np.array([[1.0, 0.2, -0.1], [0.6, 0.4, 0.9]])
    sums = [abs(np.dot(signs, differences.ravel())) for signs in itertools.product((-1, 1), repeat=6)]
    exact = np.mean([s >= abs(differences.sum()) - 1e-9 for s in sums])
    assert sign_flips(differences, 40_000, np.random.default_rng(0)) == pytest.approx(exact, abs=0.005)
    assert sign_flips(-differences, 40_000, np.random.default_rng(0)) == pytest.approx(exact, abs=0.005)
    assert sign_flips(np.zeros((2, 3)), 1000, np.random.default_rng(0)) == 1


def test_shuffled_f_against_analysis_of_variance():
    rng = np.random.default_rng(2)
    values = rng.standard_normal((5, 6)) + np.arange(5)[:, None] * 0.45
    exact = scipy.stats.f_oneway(*values).pvalue
    assert shuffled_f(values, 40_000, np.random.default_rng(0)) == pytest.approx(exact, rel=0.25)
    assert shuffled_f(rng.standard_normal((5, 6)) + np.arange(5)[:, None] * 9, 999, rng) == 1 / 1000
    assert shuffled_f(np.ones((3, 4)), 999, rng) == 1


def test_bootstrap_draws_losses_with_their_twins_and_seeds_within():
    rng = np.random.default_rng(3)
    level = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    x = [value + 0.3 * rng.standard_normal(5) for value in level]
    y = [value + 1.5 * rng.standard_normal(5) for value in level]
    # groups 0 and 1, and 2 and 3, are twins
    units = [0, 0, 1, 1, 2, 3]
    low, high = bootstrap(x, y, units, 4000, np.random.default_rng(0))
    slow = []
    slow_rng = np.random.default_rng(5)
    for _ in range(2000):
        means = {}
        for group in range(6):
            seeds = slow_rng.integers(5, size=5)
            means[group] = x[group][seeds].sum() / 5, y[group][seeds].sum() / 5
        points = []
        for unit in slow_rng.integers(4, size=4):
            points += [means[group] for group in range(6) if units[group] == unit]
        a, b = np.array(points).T
        if np.ptp(a) and np.ptp(b):
            slow.append(np.corrcoef(a, b)[0, 1])
    expected = np.percentile(slow, [2.5, 97.5])
    assert (low, high) == pytest.approx(tuple(expected), abs=0.04)
    assert low < np.corrcoef([v.mean() for v in x], [v.mean() for v in y])[0, 1] < high
    assert all(np.isnan(bootstrap([np.ones(3)] * 2, [np.ones(3)] * 2, [0, 0], 10, rng)))


def effect(group):
    """R@1 on test of a group: by its place; rho_distance costs two points."""
    names = [m.name for m in settings.METHODS]
    return 0.6 + 0.02 * names.index(group.partition("_")[2]) - 0.02 * group.startswith("Emojireg")


def make_study(root):
    """Run folders of emoji: validation chooses the second epoch, test the third, where rho rises with R@1."""
    for place, group in enumerate(losses.expected(EMOJI)):
        method = next(m for m in settings.METHODS if m.name == group.partition("_")[2])
        flags = {"dataset": "Emoji", "loss": method.flags.split()[1], "lr": 0.0003, "use_tv_split": True}
        flags["batch_mining"] = "distance"
        if "reg_" in group:
            flags |= {"batch_mining": "rho_distance", "miner_rho_distance_cp": 0.2}
        for seed in settings.SEEDS:
            noise = 0.001 * np.random.default_rng([place, seed]).standard_normal()
            rows = []
            for epoch, (val, gain) in enumerate([(0.5, -0.1), (0.7, 0.0), (0.6, 0.03)], start=1):
                test = effect(group) + noise + gain
                rho = test if epoch == 3 else 1 - test
                rows += [(epoch, "val", "e_recall@1", val), (epoch, "test", "e_recall@1", test)]
                rows += [(epoch, "test", "map_r", test / 2), (epoch, "train", "rho_spectrum@2", rho + 0.002 * seed)]
            make_run(root, group, seed, records=rows, epochs=3, **flags)
    return collected(root)


CHOSEN = {protocol.variable("rate", EMOJI, m): "0.0003" for m in settings.METHODS}
CHOSEN |= {protocol.variable("cp", EMOJI, m): "0.2" for m in settings.MINED}


def test_a_whole_study_has_every_answer_and_of_a_part_no_number_is_shown(tmp_path, capsys):
    runs = make_study(tmp_path / "runs")
    answer = losses.answer(groups.build(runs), EMOJI, 400)
    assert "Welch's test of the 9 losses: R@1 p < 0.001, without" in answer
    assert "similar losses: R@1 [%] -1.98" in answer and answer.count("\n") == 2
    text = losses.part(runs, groups.build(runs), EMOJI, CHOSEN, 400, tmp_path)
    assert text.endswith("(study_emoji.png)") and (tmp_path / "study_emoji.png").read_bytes()[1:4] == b"PNG"
    assert "is not finished**" not in text and "did not choose" not in text
    values = {group: [] for group in losses.expected(EMOJI)}
    for run in runs:
        values[run.group].append(run.series.get("test", "e_recall@1")[1] * 100)
    for group, recalls in values.items():
        deviation = f"± {np.std(recalls, ddof=1):.2f}"
        mean = f"{np.mean(recalls):.2f}"
        assert f"{mean}** {deviation}" in text or f"{mean} {deviation}" in text, group
    ends = [f"{np.mean(values[f'Emoji_{name}']):.2f} ({name})" for name in ("ProxyAnchor", "Contrastive")]
    start = "Analysis of variance of the 9 losses, 400 shuffles."
    (answer,) = [line for line in text.splitlines() if line.startswith(start)]
    assert f"R@1: from {' to '.join(ends)}, deviation of the means 5.4" in answer
    # None of 400 shuffles is as extreme: p = 1 / 401
    assert answer.count("p 0.0025") == 4
    assert "changes the mean over the groups by R@1 +3.00 points (from +3.00 to +3.00), MAP@R +1.50" in text
    lines = text.split("rho_distance, all losses together")[1].splitlines()
    row = next(line for line in lines if line.startswith("| R@1 [%] "))
    # five falls of five: 2 / 2^5
    assert all(value in row for value in ("-2.0", "0, 5", "0.0625"))
    below = [line for line in text.splitlines() if "14, all, with twins" in line or "9, without twins" in line]
    assert len(below) == 8
    for line in below:
        sign = "-" if "| selected |" in line else "+"
        assert f"| {sign}1.00<br>" in line or f"| {sign}0.99<br>" in line
    changed = {protocol.variable("rate", EMOJI, settings.METHODS[0]): "0.001"}
    changed[protocol.variable("cp", EMOJI, settings.MINED[-1])] = "0.1"
    text = losses.part(runs, groups.build(runs), EMOJI, CHOSEN | changed, 10)
    assert "**Values that the search did not choose**: Emoji_Contrastive (lr)" in text
    assert "Emojireg_SNR (miner_rho_distance_cp)" in text
    shutil.rmtree(tmp_path / "runs" / "Emoji" / "Emojireg_SNR_s4")
    page = tmp_path / "page.md"
    start, end = MARKS
    parts = {}
    for data in settings.DATA:
        for name in (data.name, tables.ANSWER.format(data.name)):
            parts[name] = f"{start}\nold\n{end}".format(name, name)
    page.write_text("\n".join(parts.values()), encoding="utf-8")
    tables.main(["--runs", str(tmp_path / "runs"), "--write", str(page), "--draws", "200"])
    written = page.read_text(encoding="utf-8")
    assert "**The study on Emoji is not finished**: 69 of 70 runs" in written
    assert "- **Emoji**: not finished, so no result is shown." in written
    assert "60." not in written
    assert parts["Glyphs"] in written and parts["Emoji"] not in written
    assert "Glyphs: no run of it in" in capsys.readouterr().out
