"""The studies' runs as one CSV: the tables made from it are those made from the run folders."""

import csv
import itertools
import shutil

import numpy as np
import pytest

from experiments.study import protocol, raw, tables
from results import collect, columns, groups, paired, roles, splits
from tests.kit.run_folders import make_run, rows


def test_rows_are_added_once_and_hold_what_the_tables_need(tmp_path):
    """Two losses, two splits, two seeds on glyphs, with what their queries found."""
    rng = np.random.default_rng(0)
    for split, (quality, loss), seed in itertools.product(range(2), ((0.6, "Margin"), (0.7, "MS")), range(2)):
        found = rows(quality + 0.03 * split, 4, seed, ("train", "val", "test"), ("e_recall@1", "map_r"))
        folder = make_run(
            tmp_path,
            f"Split{split}_Glyphs_{loss}",
            seed,
            epochs=4,
            found=found,
            dataset="glyphs",
            split_shuffle=split,
            use_tv_split=True,
        )
        best = max((value, -epoch) for epoch, part, metric, value in found if (part, metric) == ("val", "e_recall@1"))
        hits = rng.random(24) < quality
        np.savez(
            folder / "query_results_test.npz",
            hit=hits,
            ap_at_r=hits * 0.5,
            labels=np.repeat(np.arange(6), 4),
            epoch=-best[1],
        )
        (folder / "summary.json").write_text('{"seconds": 12.34}')
    roles.use(raw.parameters.declared_roles())
    path = tmp_path / "runs.csv"
    found = collect.collect([str(tmp_path)], [])[0]
    assert (
        raw.write(path, found[:5]) == (5, 5) and raw.write(path, found) == (3, 8) and raw.write(path, found) == (0, 8)
    )
    with open(path, newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["seconds"] for line in lines} == {"12"} and {len(line["hits_per_class"]) for line in lines} == {6}
    of = {
        name: groups.of_datasets(groups.build(those)) for name, those in (("folders", found), ("file", raw.read(path)))
    }
    readers = {"folders": paired.of_groups, "file": raw.queries([path])}
    folders, file = (splits.find(of[name], r"Split\d+_", readers[name])[0] for name in of)
    for name, how in itertools.product(("e_recall@1", "map_r"), (columns.SELECTED, columns.BEST_ON_TEST)):
        np.testing.assert_allclose(
            file.means(columns.column("test", name), how), folders.means(columns.column("test", name), how), rtol=1e-5
        )
    for ours, theirs in zip(
        np.ravel(np.array(file.outcomes, dtype=object)), np.ravel(np.array(folders.outcomes, dtype=object)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    page = tmp_path / "page.md"
    page.write_text("\n".join(mark.format("Glyphs") for mark in tables.MARKS))
    tables.main(["--of", "splits", "--runs", str(path), "--write", str(page)])
    text = page.read_text()
    assert (
        "8 of 108 runs: 2 losses on 2 of 6 splits" in text
        and "does a ranking survive" in text
        and "paired over classes" in text
    )
    assert (tmp_path / "study_splits_glyphs_e_recall1.png").stat().st_size > 5000


@pytest.mark.parametrize("one", protocol.COMPARISONS, ids=lambda one: one.name)
def test_a_comparison_is_shown_whole_or_not(one, tmp_path):
    """Nothing is shown of a part of the runs; means and differences are those of the runs."""
    page = tmp_path / "page.md"
    level = {}
    for place, (name, seed) in enumerate(itertools.product(one.groups(), protocol.SEEDS)):
        value = level[name, seed] = 0.3 + 0.005 * place + 0.002 * (place * 7 % 5)
        found = [
            (epoch, split, metric, value + 0.01 * (epoch == 2) * (1 if split == "test" else -1))
            for epoch, split, metric in itertools.product((2, 4), ("val", "test"), ("c_recall@1", "c_map_r"))
        ]
        flags = {"dataset": "emoji", "save_interval": 2, "storage_metrics": ["c_recall@1"], "use_tv_split": True}
        make_run(tmp_path, name, seed, found=found, epochs=4, **flags)
    page.write_text("\n".join(marks.format(one.name) for marks in tables.MARKS))
    command = ["--of", one.name.lower(), "--runs", str(tmp_path), "--write", str(page)]
    tables.main(command)
    text = page.read_text()
    means = {name: 100 * np.mean([level[name, seed] for seed in protocol.SEEDS]) for name in one.groups()}
    assert all(f"{mean:.2f}" in text for mean in means.values())
    for suffix in filter(None, one.variants):
        assert all(
            f"{means[f'{one.name}_{m.name}{suffix}'] - means[f'{one.name}_{m.name}']:+.2f}" in text for m in one.methods
        )
    if len(one.variants) == 1:  # the gain of an epoch chosen on test
        assert "+1.00" in text
    shutil.rmtree(tmp_path / "emoji" / f"{one.groups()[1]}_s3")
    tables.main(command)
    count = len(one.groups()) * len(protocol.SEEDS)
    assert f"{count - 1} of {count} runs are finished" in page.read_text() and one.groups()[1] not in page.read_text()


def test_one_embedding_for_many_domains(tmp_path):
    """Nothing is shown of a part of the runs; means, intervals and differences by seed are those of the runs, from
    folders and from the file.
    """
    page = tmp_path / "page.md"
    level = {}
    names = ["Joint", "Separate", *(f"Specialist_{name}" for name in protocol.DOMAINS.values())]
    for place, (name, seed) in enumerate([("Features", 0), *itertools.product(names, protocol.UNION_SEEDS)]):
        values = (0.2 + 0.15 * np.arange(4) + 0.1 * np.random.default_rng(place).random(4)).tolist()
        level[name, seed] = values
        found = [(1, "test", metric, float(np.mean(values))) for metric in ("e_recall@1", "mmp@5")]
        found += [
            (1, "test", f"{domain}/{metric}", value)
            for domain, value in zip(protocol.DOMAINS, values, strict=True)
            for metric in ("e_recall@1", "mmp@5")
        ]
        folder = make_run(tmp_path / "runs", f"Union_{name}", seed, found=found, epochs=1, dataset="union")
        (folder / "summary.json").write_text('{"seconds": 12.34}')
    page.write_text("\n".join(marks.format(tables.UNION) for marks in tables.MARKS))
    raw.main(["--runs", str(tmp_path / "runs"), "--filter", "^Union", "--write", str(tmp_path / "runs.csv")])
    tables.main(["--of", "union", "--runs", str(tmp_path / "runs.csv"), "--write", str(page)])
    text = page.read_text()
    tables.main(["--of", "union", "--runs", str(tmp_path / "runs"), "--write", str(page)])
    assert page.read_text() == text
    joint = np.array([level["Joint", seed] for seed in protocol.UNION_SEEDS])
    own = np.array(
        [
            [level[f"Specialist_{name}", seed][number] for number, name in enumerate(protocol.DOMAINS.values())]
            for seed in protocol.UNION_SEEDS
        ]
    )
    for number in range(4):
        difference = 100 * (joint - own)[:, number]
        half = 4.302653 * difference.std(ddof=1) / np.sqrt(3)  # Student's t quantile of two degrees of freedom
        assert f"{difference.mean():+.2f} [{difference.mean() - half:+.2f}, {difference.mean() + half:+.2f}]" in text
        assert (
            f"| {100 * joint[:, number].mean():.2f} [" in text
            and f"| {100 * level['Features', 0][number]:.2f} |" in text
        )
    assert f"| {100 * own.mean():.2f} [" in text
    shutil.rmtree(tmp_path / "runs/union/Union_Joint_s1")
    tables.main(["--of", "union", "--runs", str(tmp_path / "runs"), "--write", str(page)])
    assert "18 of 19 runs are finished" in page.read_text() and "| Joint" not in page.read_text()
