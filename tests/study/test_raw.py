"""The studies' runs as one CSV: the tables made from it are those made from the run folders."""

import csv
import itertools
import shutil

import numpy as np
import pytest
from scipy import stats

from experiments.study import protocol, raw, settings, tables
from experiments.study.page import MARKS
from experiments.study.union import UNION
from results import columns, groups, paired, splits
from tests.kit.run_folders import collected, make_run, rows


def make_page(path, name):
    """A page with the marks of these results and of their answer."""
    lines = [mark.format(part) for part in (name, tables.ANSWER.format(name)) for mark in MARKS]
    path.write_text("\n".join(lines))
    return path


def test_rows_are_added_once_and_hold_what_the_tables_need(tmp_path):
    """Two losses, two splits, two seeds on glyphs, with what their queries found."""
    rng = np.random.default_rng(0)
    for split, (quality, loss), seed in itertools.product(range(2), ((0.6, "Margin"), (0.7, "MS")), range(2)):
        curves = rows(quality + 0.03 * split, 4, seed, ("train", "val", "test"), ("e_recall@1", "map_r"))
        flags = {"dataset": "glyphs", "split_shuffle": split, "use_tv_split": True}
        folder = make_run(tmp_path, f"Split{split}_Glyphs_{loss}", seed, epochs=4, records=curves, **flags)
        best = max((value, -epoch) for epoch, part, metric, value in curves if (part, metric) == ("val", "e_recall@1"))
        hits = rng.random(24) < quality
        queries = {"hit": hits, "ap_at_r": hits * 0.5, "labels": np.repeat(np.arange(6), 4), "epoch": -best[1]}
        np.savez(folder / "query_results_test.npz", **queries)
        (folder / "summary.json").write_text('{"seconds": 12.34}')
    path = tmp_path / "runs.csv"
    runs = collected(tmp_path)
    assert [raw.write(path, part) for part in (runs[:5], runs, runs)] == [(5, 5), (3, 8), (0, 8)]
    with open(path, newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["seconds"] for line in lines} == {"12"} and {len(line["hits_per_class"]) for line in lines} == {6}
    folders, file = (
        splits.find(groups.of_datasets(groups.build(source)), r"Split\d+_", reader)[0]
        for source, reader in ((runs, paired.of_groups), (raw.read(path), raw.queries([path])))
    )
    for name, epoch in itertools.product(("e_recall@1", "map_r"), (columns.SELECTED, columns.BEST_ON_TEST)):
        column = columns.column("test", name)
        np.testing.assert_allclose(file.means(column, epoch), folders.means(column, epoch), rtol=1e-5)
    outcomes = [np.ravel(np.array(source.outcomes, dtype=object)) for source in (file, folders)]
    for of_file, of_folders in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(of_file, of_folders)
    page = make_page(tmp_path / "page.md", "Glyphs")
    tables.main(["--of", "splits", "--runs", str(path), "--write", str(page)])
    text = page.read_text()
    assert "8 of 108 runs: 2 losses on 2 of 6 splits" in text
    assert "does a ranking survive" in text and "paired, over classes" in text
    assert "- **Glyphs**: no significant interaction" in text or "- **Glyphs**: an interaction" in text
    assert "does another split change more than other seeds?" in text
    for name in ("study_splits_glyphs_e_recall1.png", "study_splits_design.png"):
        assert (tmp_path / name).stat().st_size > 5000


@pytest.mark.parametrize("comparison", protocol.COMPARISONS, ids=lambda comparison: comparison.name)
def test_a_comparison_is_shown_whole_or_not(comparison, tmp_path):
    """Nothing is shown of a part of the runs; means and differences are those of the runs."""
    names = comparison.groups()
    flags = {"dataset": "emoji", "save_interval": 2, "storage_metrics": ["c_recall@1"], "use_tv_split": True}
    level = {}
    for place, (name, seed) in enumerate(itertools.product(names, settings.SEEDS)):
        value = level[name, seed] = 0.3 + 0.005 * place + 0.002 * (place * 7 % 5)
        rise = 0.03 if name == names[0] else 0.005
        curves = {(2, "val"): value - rise, (2, "test"): value + 0.01, (4, "val"): value, (4, "test"): value}
        points = [(*key, metric, point) for key, point in curves.items() for metric in ("c_recall@1", "c_map_r")]
        make_run(tmp_path, name, seed, records=points, epochs=4, **flags)
    page = make_page(tmp_path / "page.md", comparison.name)
    command = ["--of", comparison.name.lower(), "--runs", str(tmp_path), "--write", str(page)]
    tables.main(command)
    text = page.read_text()
    means = {name: 100 * np.mean([level[name, seed] for seed in settings.SEEDS]) for name in names}
    assert all(f"{mean:.2f}" in text for mean in means.values())
    for suffix in filter(None, comparison.variants):
        for method in comparison.methods:
            name = f"{comparison.name}_{method.name}"
            assert f"{means[name + suffix] - means[name]:+.2f}" in text
    # the gain of an epoch chosen on test
    if len(comparison.variants) == 1:
        assert "+1.00" in text
    (rising,) = [line for line in text.splitlines() if line.startswith("- **Not converged**")]
    assert f"1 of {len(names)} methods" in rising and rising.endswith(f"They are {names[0].partition('_')[2]}.")
    best = max(means, key=means.get)
    assert f"- **cR@1**: best {best.partition('_')[2]} {means[best]:.1f}; not significantly worse:" in text
    shutil.rmtree(tmp_path / "emoji" / f"{names[1]}_s3")
    tables.main(command)
    count = len(names) * len(settings.SEEDS)
    assert f"**Not finished**: {count - 1} of {count} runs" in page.read_text() and names[1] not in page.read_text()


def test_one_embedding_for_many_domains(tmp_path):
    """From folders and from the file; nothing is shown of a part of the runs."""
    level = {}
    names = ["Joint", "Separate", *(f"Specialist_{name}" for name in settings.DOMAINS.values())]
    for place, (name, seed) in enumerate([("Features", 0), *itertools.product(names, settings.UNION_SEEDS)]):
        values = (0.2 + 0.15 * np.arange(4) + 0.1 * np.random.default_rng(place).random(4)).tolist()
        level[name, seed] = values
        points = []
        for metric in ("e_recall@1", "mmp@5"):
            points.append((1, "test", metric, float(np.mean(values))))
            for domain, value in zip(settings.DOMAINS, values, strict=True):
                points.append((1, "test", f"{domain}/{metric}", value))
        folder = make_run(tmp_path / "runs", f"Union_{name}", seed, records=points, epochs=1, dataset="union")
        (folder / "summary.json").write_text('{"seconds": 12.34}')
    page = make_page(tmp_path / "page.md", UNION)
    raw.main(["--runs", str(tmp_path / "runs"), "--filter", "^Union", "--write", str(tmp_path / "runs.csv")])
    tables.main(["--of", "union", "--runs", str(tmp_path / "runs.csv"), "--write", str(page)])
    text = page.read_text()
    tables.main(["--of", "union", "--runs", str(tmp_path / "runs"), "--write", str(page)])
    assert page.read_text() == text
    joint = np.array([level["Joint", seed] for seed in settings.UNION_SEEDS])
    specialists = np.empty((len(settings.UNION_SEEDS), 4))
    for number, name in enumerate(settings.DOMAINS.values()):
        specialists[:, number] = [level[f"Specialist_{name}", seed][number] for seed in settings.UNION_SEEDS]
    for number in range(4):
        test = stats.ttest_ind(100 * joint[:, number], 100 * specialists[:, number], equal_var=False)
        mean = 100 * (joint - specialists)[:, number].mean()
        low, high = test.confidence_interval()
        assert f"| {mean:+.2f} [{low:+.2f}, {high:+.2f}]" in text
        assert f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" in text.partition("answer:")[2]
        above_features = 100 * (joint[:, number] - level["Features", 0][number])
        # Student's t quantile of two degrees of freedom
        half = 4.302653 * above_features.std(ddof=1) / np.sqrt(3)
        assert f"{above_features.mean():+.2f} [{above_features.mean() - half:+.2f}, " in text
        assert f"| {100 * joint[:, number].mean():.2f} [" in text
        assert f"| {100 * level['Features', 0][number]:.2f} |" in text
    assert f"| {100 * specialists.mean():.2f} [" in text
    shutil.rmtree(tmp_path / "runs/union/Union_Joint_s1")
    tables.main(["--of", "union", "--runs", str(tmp_path / "runs"), "--write", str(page)])
    assert "**Not finished**: 18 of 19 runs" in page.read_text() and "| Joint" not in page.read_text()
