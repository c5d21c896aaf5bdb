"""What counts and what does not: failed, short, twice, different; which epoch is selected."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import parameters
import Result_Evaluations
from options import composition
from results import collect, columns, folders, formats, groups, inference, settings, tables
from results.columns import BEST_ON_TEST, LAST, SELECTED
from results.recorded import dataset_of
from runs.records import local
from tests.results.made import ENVIRONMENT, lines, make_run, rows, write_metrics
from utilities.errors import UserError

ROOT = Path(__file__).resolve().parent.parent.parent
R1 = columns.column("test", "e_recall@1")


def built(root, defaults=None):
    runs, _ = collect.collect([str(root)], [])
    return {group.name: group for group in groups.build(runs, defaults)}


def reasons(group):
    return {run.name: reason for run, reason in group.left_out}


def curve(*values, split="test", metric="e_recall@1", first=1):
    return [(first + i, split, metric, value) for i, value in enumerate(values)]


def test_failed_and_short_runs_are_shown_and_not_averaged(tmp_path):
    for seed in range(3):
        make_run(tmp_path, seed=seed, found=curve(0.1, 0.2 + seed / 100), epochs=2)
    make_run(tmp_path, seed=3, found=curve(0.9), epochs=2)
    make_run(tmp_path, seed=4, found=[], epochs=2)
    (make_run(tmp_path, seed=5, found=curve(0.9, 0.9), epochs=2) / "CSV_Logs" / "metrics.csv").unlink()
    make_run(tmp_path, seed=6, found=curve(float("nan"), float("nan")), epochs=2)
    (make_run(tmp_path, seed=7, found=curve(0.9, 0.9), epochs=2) / "CSV_Logs" / "metrics.csv").write_text("no,table\n1,2\n")
    (make_run(tmp_path, seed=8, found=curve(0.9, 0.9), epochs=2) / "parameters.yaml").write_text("{ no yaml")
    group = built(tmp_path)["CUB_Margin_b12_Distance"]
    why = {name.rpartition("_s")[2]: reason for name, reason in reasons(group).items()}
    assert why["3"] == "short: 1 of 2 epochs" and why["4"] == "failed: no epoch recorded" and why["5"] == "failed: no CSV_Logs/metrics.csv"
    assert (
        why["6"].startswith("failed: no finite e_recall@1")
        and why["7"].startswith("failed: metrics.csv")
        and why["8"].startswith("failed: parameters.yaml cannot be read")
    )
    assert group.seeds_text == "3 of 9" and len(group.remarks) >= 6
    assert group.estimate(R1, SELECTED).mean == pytest.approx(21)


def test_a_table_of_several_data_sets_names_the_rule_of_each(tmp_path):
    make_run(tmp_path / "runs", found=curve(0.1, 0.2), epochs=2)
    for seed in range(3):
        make_run(tmp_path / "runs", "CARS_Margin", seed, found=curve(0.1, 0.2, split="val") + curve(0.1, 0.2), epochs=2, dataset="cars196")
    Result_Evaluations.main(Result_Evaluations.read(["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]))
    (line,) = [line for line in (tmp_path / "out" / "shared_selected.md").read_text().splitlines() if line.startswith("- Epochs")]
    assert "on test (no validation data: the choice sees the test set) (cub200); epoch with the highest e_recall@1 on val (cars196)" in line


def test_the_page_shows_and_links_what_was_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs", seed=0)
    make_run(tmp_path / "runs", seed=1, found=curve(0.4))
    run_main("--runs", "runs", "--out", "deep/out")
    page = (tmp_path / "deep" / "out" / "index.html").read_text()
    links = [link for link in re.findall(r'href="([^"#]+)"', page) if "_s1" in link]
    assert len(links) == 2 and all((tmp_path / "deep" / "out" / link).is_dir() for link in links)
    assert "1 of 2" in page and "short: 1 of 6 epochs" in page
    assert "| CUB_Margin_b12_Distance_s1 |" in (tmp_path / "deep" / "out" / "left_out.md").read_text()


def test_a_group_of_failures_has_no_mean(tmp_path):
    make_run(tmp_path, found=[])
    group = built(tmp_path)["CUB_Margin_b12_Distance"]
    assert np.isnan(group.estimate(R1, SELECTED).mean) and group.seeds_text == "0 of 1"


def test_patience_is_no_short_run(tmp_path):
    folder = make_run(tmp_path, found=curve(0.1, 0.5, 0.4, 0.4), epochs=100, patience=2)
    (folder / "summary.json").write_text(json.dumps({"selected": {"epoch": 2}}))
    assert not built(tmp_path)["CUB_Margin_b12_Distance"].left_out


def test_differing_flags_are_listed_and_never_averaged(tmp_path):
    for seed in range(3):
        make_run(tmp_path, seed=seed, lr=1e-4 if seed == 2 else 1e-5, kernels=seed, save_path=f"/x/{seed}", gpu=[seed])
    group = built(tmp_path)["CUB_Margin_b12_Distance"]
    assert (
        group.refused
        == "runs of this group differ in lr: 1e-05 (CUB_Margin_b12_Distance_s0, CUB_Margin_b12_Distance_s1), 0.0001 (CUB_Margin_b12_Distance_s2)"
    )
    assert not group.seeds and len(group.left_out) == 3 and np.isnan(group.estimate(R1, SELECTED).mean)


def test_a_flag_that_a_run_was_recorded_without_has_its_default(tmp_path):
    make_run(tmp_path, seed=0)
    make_run(tmp_path, seed=1, brand_new=7)
    assert built(tmp_path)["CUB_Margin_b12_Distance"].refused
    assert not built(tmp_path, {"brand_new": 7})["CUB_Margin_b12_Distance"].refused


def test_a_run_that_was_changed_on_resume_is_told_apart(tmp_path):
    for seed in range(3):
        folder = make_run(tmp_path, seed=seed, found=curve(0.1, 0.2), epochs=2)
    flags = yaml.safe_load((folder / "parameters.yaml").read_text())
    change = folder / "configs" / "resume_training_config_diffs_1" / "parameters.yaml"
    change.parent.mkdir(parents=True)
    (folder / "configs" / "parameters.yaml").write_text(yaml.safe_dump({**flags, "lr": 1e-6, "n_epochs": 1}))
    change.write_text(yaml.safe_dump({"n_epochs": 2, "eval_bs": 7}))
    assert built(tmp_path)["CUB_Margin_b12_Distance"].seeds_text == "3", "more epochs are no change"
    change.write_text(yaml.safe_dump({"n_epochs": 2, "lr": 1e-5}))
    group = built(tmp_path)["CUB_Margin_b12_Distance"]
    assert not group.counted and "changed_on_resume: " in group.refused and "lr 1e-05 after epoch 1 (" in group.refused


def test_a_seed_that_occurs_twice_is_never_averaged(tmp_path):
    for seed, value in enumerate((0.2, 0.3, 0.4)):
        make_run(tmp_path, seed=seed, found=curve(value), epochs=1)
    make_run(tmp_path, seed=1, found=curve(0.9), epochs=1, name="CUB_Margin_b12_Distance_s1_1")
    group = built(tmp_path)["CUB_Margin_b12_Distance"]
    assert set(reasons(group)) == {"CUB_Margin_b12_Distance_s1", "CUB_Margin_b12_Distance_s1_1"}
    assert group.estimate(R1, SELECTED).mean == pytest.approx(30) and group.seeds_text == "2 of 3"
    assert sum("seed 1 occurs twice" in remark for remark in group.remarks) == 2


def test_selection_last_and_best_on_test_are_kept_apart(tmp_path):
    found = curve(0.9, 0.1, 0.3, 0.2, split="val") + curve(0.10, 0.50, 0.20, 0.30) + curve(0.6, 0.7, 0.9, 0.8, metric="nmi")
    found += [(0, "val", "e_recall@1", 0.99), (-1, "test", "e_recall@1", 0.99)]  # untrained states are never the best
    make_run(tmp_path, found=found, epochs=4)
    (run,) = built(tmp_path)["CUB_Margin_b12_Distance"].counted
    nmi = columns.column("test", "nmi")
    assert [columns.value(run, R1, how) for how in (SELECTED, LAST, BEST_ON_TEST)] == [0.10, 0.30, 0.50]
    assert [columns.value(run, nmi, how) for how in (SELECTED, LAST, BEST_ON_TEST)] == [0.6, 0.8, 0.9], (
        "each metric's own best epoch on test"
    )
    assert columns.rule(run) == "epoch with the highest e_recall@1 on val"


def test_first_of_equal_epochs_and_a_metric_where_lower_is_better(tmp_path):
    make_run(tmp_path, found=curve(0.5, 0.7, 0.7, float("inf")), epochs=4)
    make_run(tmp_path, "Low", found=curve(0.5, 0.2, 0.2, metric="dists@intra"), epochs=3, storage_metrics=["dists@intra"])
    found = built(tmp_path)
    assert columns.epoch(found["CUB_Margin_b12_Distance"].counted[0], SELECTED) == 2
    assert columns.epoch(found["Low"].counted[0], SELECTED) == 2


def test_sparse_evaluation_takes_the_last_evaluated_epoch(tmp_path):
    found = [(2, "test", "e_recall@1", 0.4), (4, "test", "e_recall@1", 0.3)] + curve(1.0, 1.0, 1.0, 1.0, 1.0, split="train", metric="loss")
    make_run(tmp_path, found=found, epochs=5, save_interval=2)
    (run,) = built(tmp_path)["CUB_Margin_b12_Distance"].counted
    assert columns.value(run, R1, LAST) == 0.3 and columns.epoch(run, SELECTED) == 2


def test_summary_that_names_another_epoch_is_told(tmp_path):
    folder = make_run(tmp_path, found=curve(0.4, 0.5), epochs=2)
    (folder / "summary.json").write_text(json.dumps({"selected": {"epoch": 1}}))
    (run,) = built(tmp_path)["CUB_Margin_b12_Distance"].counted
    assert "summary.json names epoch 1" in run.notes[0]


def test_a_line_cut_short_by_a_crash_does_not_count(tmp_path):
    folder = make_run(tmp_path, found=curve(0.4), epochs=1)
    with open(folder / "CSV_Logs" / "metrics.csv", "a") as file:
        file.write("2,test,e_recall@1,0.9")
    run = folders.read_folder(folder)
    assert list(run.series.epochs) == [1] and "cut short" in run.notes[0]


def test_folds_are_averaged_within_their_seed(tmp_path):
    for seed in (0, 1):
        for fold in range(3):
            make_run(tmp_path, "Folds", seed, found=curve(0.1 * fold + 0.01 * seed), epochs=1, name=f"Folds_s{seed}/fold_{fold}")
    make_run(tmp_path, "Folds", 2, found=curve(0.9), epochs=1, name="Folds_s2/fold_0")
    (tmp_path / "cub200" / "Folds_s0" / "parameters.yaml").write_text(yaml.safe_dump({"group": "Folds"}))
    (tmp_path / "cub200" / "Folds_s0" / "meta").mkdir()
    group = built(tmp_path)["Folds"]
    assert group.values(R1, SELECTED) == pytest.approx([10, 11]) and group.seeds_text == "2 of 3 x 3 folds"
    assert reasons(group) == {"Folds_s2/fold_0": "seed 2 lacks folds 1, 2"}


def test_what_differs_between_groups_is_marked(tmp_path):
    for group in ("A", "B", "C"):
        make_run(
            tmp_path,
            group,
            bs=80 if group == "C" else 112,
            loss_margin_beta=0.6 if group == "B" else 1.2,
            environment={"gpu": "P100" if group == "A" else "V100"},
        )
    found = built(tmp_path)
    assert found["C"].differs == ["bs 80 (others: 112)"], "and nothing else"
    assert found["A"].differs == ["GPU P100 (others: V100)"]
    assert found["B"].differs == [], "a method's own flags make the group"
    told = settings.printed([g.settings for g in found.values()])
    assert "bs 112" in told and "use_tv_split False" in told and "tv_split_perc" not in told


def test_searches_are_left_out_unless_named(tmp_path):
    make_run(tmp_path)
    for trial in range(2):
        make_run(tmp_path, "S", trial, name=f"S_search/trial_{trial}", lr=10.0**-trial)
    runs, notes = collect.collect([str(tmp_path)], [])
    assert len(runs) == 1 and "S_search" in notes[0]
    assert len(collect.collect([str(tmp_path / "cub200" / "S_search")], [])[0]) == 2


def test_the_same_folder_twice_is_one_run(tmp_path):
    make_run(tmp_path)
    assert len(collect.collect([str(tmp_path), str(tmp_path / "cub200")], [])[0]) == 1


def run_main(*words):
    Result_Evaluations.main(Result_Evaluations.read([str(word) for word in words]))


def test_one_line_errors(tmp_path):
    make_run(tmp_path / "runs", found=rows(0.5, 3, 0, metrics=("e_recall@1", "nmi")), epochs=3, loss="mine")
    make_run(tmp_path / "bare", found=curve(0.5, metric="loss", split="train"), epochs=1)
    (tmp_path / "empty").mkdir()
    for words, said in (
        (["--runs", tmp_path / "nowhere"], "no such folder"),
        (["--runs", tmp_path / "empty"], "no runs there"),
        (["--runs", tmp_path / "runs", "--metrics", "e_recal@1"], "Did you mean 'e_recall@1'"),
        (["--runs", tmp_path / "runs", "--metrics", "map_r"], "none of these runs recorded it"),
        (["--runs", tmp_path / "runs", "--metrics", "val/nmi"], "none of these runs recorded it on val"),
        (["--runs", tmp_path / "runs", "--relation", "rho", "e_recall@1"], "unknown metric 'rho'"),
        (["--runs", tmp_path / "runs", "--compare_to", "published"], "nothing in common"),
        (["--runs", tmp_path / "runs", "--compare_to", "mlrc"], "nothing in common"),
        (["--runs", tmp_path / "runs", "--compare_to", "mlrc", "published"], "--compare_to mlrc: nothing in common"),
        (["--runs", tmp_path / "bare", "--metrics", "nmi"], "none of these runs recorded it"),
    ):
        with pytest.raises(UserError) as error:
            run_main(*words, "--out", tmp_path / "out")
        assert said in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out").exists(), "nothing is written where there is nothing to say"


@pytest.mark.long
def test_the_command_line_ends_with_one_line_and_needs_no_wandb(tmp_path):
    make_run(tmp_path / "runs", found=curve(0.5), epochs=1)
    program = "import sys; sys.modules['wandb'] = None; sys.argv[0] = 'Result_Evaluations.py'; import runpy; runpy.run_path('Result_Evaluations.py', run_name='__main__')"
    for words, status in ((["--runs", "runs"], 0), (["--runs", "nothing"], 2), (["--runz"], 2)):
        told = subprocess.run([sys.executable, "-c", program, *[str(tmp_path / w) if w in ("runs", "nothing") else w for w in words], "--out", str(tmp_path / "out")], cwd=ROOT, capture_output=True, text=True)  # fmt: skip
        assert told.returncode == status, told.stderr
        assert status == 0 or (len(told.stderr.strip().splitlines()) == 1 and told.stderr.startswith("Result_Evaluations.py: error: "))
    assert (tmp_path / "out" / "index.html").exists()


def test_rows_are_read_back_exactly(tmp_path):
    values = np.random.default_rng(0).random(200)
    write_metrics(tmp_path / "metrics.csv", curve(*values))
    rows = local.read_metrics(tmp_path / "metrics.csv")
    assert [rows.values[i] for i in range(len(rows.values)) if (rows.splits[i], rows.metrics[i]) == ("test", "e_recall@1")] == values.tolist()


def test_each_data_set_shows_what_it_recorded(tmp_path):
    for seed in (0, 1):
        make_run(tmp_path / "runs", "A", seed, found=rows(0.5, 2, seed, metrics=("e_recall@1", "e_recall@2"), training=()), epochs=2)
        make_run(
            tmp_path / "runs",
            "B",
            seed,
            found=rows(0.5, 2, seed, metrics=("e_recall@1", "e_recall@10"), training=()),
            epochs=2,
            dataset="online_products",
        )
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out", "--ddof", 0)
    heads = {
        name: (tmp_path / "out" / f"{name}_selected.csv").read_text().splitlines()[0] for name in ("cub200", "online_products", "shared")
    }
    assert "R@2 [%]" in heads["cub200"] and "R@10" not in heads["cub200"] and "R@10 [%]" in heads["online_products"]
    assert "cub200 R@2 [%]" in heads["shared"] and "online_products R@10 [%]" in heads["shared"]
    assert "(ddof 0)" in (tmp_path / "out" / "cub200_selected.md").read_text()
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "asked", "--metrics", "e_recall@10")
    assert "no numbers on cub200: none of the runs there (2) recorded e_recall@10" in (tmp_path / "asked" / "index.html").read_text()
    assert (tmp_path / "asked" / "cub200_selected.csv").read_text().startswith("group,seeds,epoch,")
    assert "R@10 [%]" in (tmp_path / "asked" / "online_products_selected.csv").read_text()


def test_how_the_data_was_split_is_printed_and_marked(tmp_path):
    folds = {"split_test_size": 0.5, "split_test_start": 0.5, "split_partitions": 4, "split_sets": 4, "split_file": None}
    half = {"split_scheme": "half", "use_tv_split": True, "tv_split_perc": 0.8, "tv_split_by_samples": False, **folds}
    for group in ("A", "A1", "A2"):
        make_run(tmp_path, group, **half)
    make_run(tmp_path, "B", **half | {"split_sets": 2})  # which half does not look at
    make_run(tmp_path, "C", **half | {"tv_split_perc": 0.7})
    make_run(tmp_path, "D", **half | {"use_tv_split": False, "tv_split_perc": 0.7})
    make_run(tmp_path, "E", **half | {"use_tv_split": False, "split_scheme": "class_disjoint", "split_test_start": 0.25})
    make_run(tmp_path, "F", **half | {"use_tv_split": False, "split_scheme": "predefined", "split_file": "mine.json"})
    found = built(tmp_path)
    assert found["A"].differs == found["B"].differs == []
    assert found["C"].differs == ["tv_split_perc 0.7 (others: 0.8)"]
    assert found["D"].differs == ["use_tv_split False (others: True)"]
    assert found["E"].differs == ["split_scheme class_disjoint (others: half)"] + [
        f"{flag} {value} (others: not used)"
        for flag, value in (("split_test_size", 0.5), ("split_test_start", 0.25), ("split_partitions", 4), ("split_sets", 4))
    ]
    assert found["F"].differs == ["split_scheme predefined (others: half)", "split_file mine.json (others: not used)"]
    told = settings.printed([g.settings for g in found.values()])
    assert "split: split_scheme half, use_tv_split True, tv_split_perc 0.8;" in told
    alone = settings.printed([found["E"].settings])
    assert "split: split_scheme class_disjoint, split_test_size 0.5, split_test_start 0.25, split_partitions 4, split_sets 4;" in alone


def test_a_group_recorded_without_a_flag_is_not_marked_for_its_default(tmp_path):
    make_run(tmp_path, "Old")
    make_run(tmp_path, "New", split_scheme="half", later=7)
    make_run(tmp_path, "Other", split_scheme="half", later=8)

    found = built(tmp_path, {"split_scheme": "half", "later": 7, "of_nobody": 1})
    assert found["Old"].differs == found["New"].differs == [] and found["Other"].differs == ["later 8 (others: 7)"]
    assert "of_nobody" not in found["Old"].settings


@pytest.mark.parametrize(
    "name, label",
    [
        ("CUB_Margin", "Margin"), ("CUBreg_Margin", "R-Margin"), ("Glyphs_Margin_b06", "Margin_b06"), ("Glyphsreg_SNR", "R-SNR"),
        ("MLRC_CUB_ArcFace", "ArcFace"), ("Glyphsnet", "Glyphsnet"),
    ],
)  # fmt: skip
def test_the_data_set_is_no_part_of_a_label(name, label):
    assert groups.Group("glyphs", name, []).label == label


def test_twins_differ_in_the_miner_alone(tmp_path):
    for name, flags in {
        "Glyphs_A": {}, "Glyphsreg_A": {"batch_mining": "rho_distance", "miner_rho_distance_cp": 0.2}, "Glyphs_B": {"loss": "triplet"},
        "Glyphsreg_C": {"batch_mining": "rho_distance", "lr": 1.0}, "Glyphs_Twice": {}, "Glyphsreg_Twice": {"batch_mining": "rho_distance"},
    }.items():  # fmt: skip
        for seed in (0, 1):
            make_run(tmp_path, name, seed, 0.5 + 0.1 * name.startswith("Glyphsreg"), **flags)
    found = list(built(tmp_path).values())
    assert [(plain.name, other.name) for plain, other in groups.twins(found)] == [
        ("Glyphs_A", "Glyphsreg_A"),
        ("Glyphs_Twice", "Glyphsreg_Twice"),
    ]
    plain, other = groups.twins(found)[0]
    table = tables.regularised(found, [R1, columns.column("train", "rho_spectrum@2")], 1)
    line = next(csv.DictReader(formats.to_csv(table).splitlines()))
    one, two = (group.estimate(R1, SELECTED) for group in (plain, other))
    assert line["R@1 [%] distance"] == f"{one.mean:.2f}" and line["R@1 [%] rho_distance deviation"] == f"{two.deviation:.2f}"
    assert line["R@1 [%] difference"] == f"{two.mean - one.mean:+.2f}" and line["rho (train) difference"].startswith("-0.")
    assert 0 <= float(line["R@1 [%] p"].lstrip("<")) <= 1 and line["method"] == "A"
    assert tables.regularised(found[:1], [R1], 1) is None


def test_every_table_marks_what_differs(tmp_path):
    for group, bs in (("A", 112), ("B", 112), ("C", 80)):
        for seed in (0, 1):
            make_run(tmp_path, group, seed, epochs=4, bs=bs)
    make_run(tmp_path, "A", 2, found=[])
    Result_Evaluations.main(Result_Evaluations.read(["--runs", str(tmp_path), "--out", str(tmp_path / "out")]))
    for path in (tmp_path / "out").glob("*.md"):
        text = path.read_text()
        if not path.stem.endswith("_settings"):
            assert "Settings (cub200) of all groups but those marked" in text and "on test (no validation data" in text or "_last" in path.stem or "best_on_test" in path.stem, path  # fmt: skip
        assert "bs 80 (others: 112)" in text or path.stem in ("left_out", "cub200_settings"), path
    assert "- Marked: C: unlike the others: bs 80 (others: 112)." in (tmp_path / "out" / "cub200_correlations.md").read_text()
    marked = (tmp_path / "out" / "cub200_selected.md").read_text()
    assert "| C <sup>b</sup> | 2 |" in marked and "- <sup>b</sup> unlike the others: bs 80 (others: 112)" in marked


def test_the_table_of_settings_names_the_groups_of_each_other_value(tmp_path):
    for group, bs in (("A", 112), ("B", 80), ("C", 80), ("D", 112), ("E", 112), ("F", 64)):
        make_run(tmp_path, group, epochs=2, bs=bs)
    found = {line["setting"]: line for line in csv.DictReader(formats.to_csv(tables.settings(list(built(tmp_path).values()))).splitlines())}
    assert (found["bs"]["value"], found["bs"]["groups that differ"]) == ("112", "80: B, C; 64: F")
    assert found["lr"]["groups that differ"] == "none"


@pytest.mark.parametrize("recorded", [None, curve(0.5, split="train", metric="loss")])
def test_a_data_set_without_numbers_is_shown_as_such_beside_the_others(tmp_path, capsys, recorded):
    for seed in (0, 1):
        make_run(tmp_path / "runs", "A", seed, epochs=4)
        folder = make_run(tmp_path / "runs", "B", seed, found=recorded or [], epochs=4, dataset="cars196")
        if recorded is None:
            (folder / "CSV_Logs" / "metrics.csv").unlink()
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out")
    note = "no numbers on cars196: none of the runs there (2) recorded a metric that rates an embedding space"
    page = (tmp_path / "out" / "index.html").read_text()
    assert note in capsys.readouterr().out and note in page and "part-cars196" in page
    assert ("--metrics)" in page) == (recorded is not None), "nothing to name where nothing was recorded"
    (line,) = lines(tmp_path / "out" / "cars196_selected.csv")
    assert (line["group"], line["seeds"], line["epoch"]) == ("B", "0 of 2", "") and "left out: B_s0 (" in line["remarks"]
    assert lines(tmp_path / "out" / "cub200_selected.csv")[0]["R@1 [%]"]
    assert (tmp_path / "out" / "cub200_ranked.png").exists() and not list((tmp_path / "out").glob("cars196_*.png"))
    left_out = lines(tmp_path / "out" / "left_out.csv")
    assert [line["run"] for line in left_out] == ["B_s0", "B_s1"] and "R@1 [%]" in left_out[0]


def test_where_no_run_recorded_anything_the_page_and_what_was_left_out_are_written(tmp_path, capsys):
    for dataset in ("cub200", "cars196"):
        make_run(tmp_path / "runs", found=[], dataset=dataset)
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out")
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert told == ["note: no numbers on cub200, cars196: none of the runs there (2) recorded a metric that rates an embedding space"]
    assert len(lines(tmp_path / "out" / "left_out.csv")) == 2 and (tmp_path / "out" / "index.html").exists()
    with pytest.raises(UserError, match="none of these runs recorded it. Recorded: nothing"):
        run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out", "--metrics", "nmi")


def test_what_was_left_out_has_the_columns_of_all_data_sets(tmp_path):
    for dataset, metric in (("cub200", "e_recall@1"), ("cars196", "map_r")):
        for seed, value in ((0, 0.5), (1, 0.4)):
            found = curve(value, *[value] * (1 - seed), metric=metric)  # the second is short
            make_run(tmp_path / "runs", "A", seed, found=found, epochs=2, dataset=dataset, storage_metrics=[metric])
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out")
    cars, cub = lines(tmp_path / "out" / "left_out.csv")
    assert (cub["data set"], cub["R@1 [%]"], cub["MAP@R [%]"]) == ("cub200", "40.00", "")
    assert (cars["data set"], cars["R@1 [%]"], cars["MAP@R [%]"]) == ("cars196", "", "40.00")


def test_a_metric_that_some_seeds_lack_is_told_in_every_table(tmp_path):
    """Never recorded, not finite, or measured at other epochs than the selected one: the mean is that of the other seeds."""
    lacking = {
        "nmi": [("nmi", None)], "f1": [("f1", float("nan"))], "mAP_c": [("mAP_c", float("inf"))], "rho": [("rho_spectrum@2", None)],
        "all": [],
    }  # fmt: skip
    for group, broken in lacking.items():
        for miner in ("distance", "rho_distance"):
            for seed in range(3):
                found = [row for row in rows(0.5, 4, seed) if seed or (row[2], None) not in broken]
                replaced = {} if seed else dict(broken)
                found = [(e, s, m, replaced.get(m, value)) for e, s, m, value in found]
                if group == "all":  # of the last seed alone, and elsewhere than at its selected epoch, the first
                    found = [(*row[:3], 0.9) if row[:3] == (1, "test", "e_recall@1") else row for row in found]
                    found = [row for row in found if seed == 2 or row[:1] + row[2:3] not in ((1, "nmi"), (1, "f1"))]
                make_run(tmp_path / "runs", f"CUB{'reg' * (miner != 'distance')}_{group}", seed, found=found, epochs=4, batch_mining=miner)
    for seed in (0, 1):
        make_run(tmp_path / "runs", "CARS_nmi", seed, epochs=4, dataset="cars196")
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out")

    def remarks(name, group, key="group"):
        return next(line for line in lines(tmp_path / "out" / f"{name}.csv") if line[key] == group)["remarks"]

    assert remarks("cub200_selected", "CUB_nmi") == remarks("cub200_last", "CUB_nmi") == "NMI: mean of 2 of 3 seeds"
    assert remarks("cub200_best_on_test", "CUB_nmi") == "NMI: mean of 2 of 3 seeds"
    assert remarks("cub200_selected", "CUB_f1") == "F1: mean of 2 of 3 seeds"
    assert remarks("cub200_selected", "CUB_mAP_c") == "mAP_c: mean of 2 of 3 seeds"
    assert remarks("cub200_selected", "CUB_all") == "NMI, F1: mean of 1 of 3 seeds" and remarks("cub200_last", "CUB_all") == ""
    assert remarks("cub200_selected", "CUB_rho") == "" and remarks("cub200_structure", "CUB_rho") == "rho (train): mean of 2 of 3 seeds"
    assert remarks("shared_selected", "nmi", "method") == "cub200: NMI: mean of 2 of 3 seeds"
    told = "CUB_rho: rho (train): mean of 2 of 3 seeds; CUBreg_rho: rho (train): mean of 2 of 3 seeds"
    assert remarks("cub200_rho_distance", "rho", "method") == told
    assert "Marked: CUB_rho, CUBreg_rho: rho (train): mean of 2 of 3 seeds." in (tmp_path / "out" / "cub200_correlations.md").read_text()
    for path in ("cub200_selected.tex", "cub200_selected.md", "index.html"):
        assert "NMI: mean of 2 of 3 seeds" in (tmp_path / "out" / path).read_text(), path
    (line,) = [line for line in lines(tmp_path / "out" / "cub200_selected.csv") if line["group"] == "CUB_all"]
    assert line["seeds"] == "3" and line["NMI [%]"] and line["NMI [%] deviation"] == "", "no deviation of one seed"


def test_a_mean_of_one_seed_is_never_the_best_and_the_others_are_tested_without_it(tmp_path):
    make_run(tmp_path / "runs", "One", 0, 0.9, epochs=4)
    for seed in range(5):
        make_run(tmp_path / "runs", "Two", seed, 0.5, epochs=4)
        make_run(tmp_path / "runs", "Three", seed, 0.501, epochs=4)
        make_run(tmp_path / "runs", "Four", seed, 0.3, epochs=4)
        make_run(tmp_path / "runs", "Only", seed, 0.4 + 0.1 * seed, epochs=4, dataset="cars196")
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out", "--metrics", "e_recall@1", "nmi")
    found = {line["group"]: line for line in lines(tmp_path / "out" / "cub200_selected.csv")}
    marks = {name: line["R@1 [%] mark"] for name, line in found.items()}
    assert marks["One"] == marks["Four"] == "" and sorted((marks["Two"], marks["Three"])) == ["best", "close"]
    assert found["One"]["R@1 [%] to best low"] == "" and float(found["Four"]["R@1 [%] to best high"]) < -5
    (best,) = (name for name in marks if marks[name] == "best")
    (close,) = (name for name in marks if marks[name] == "close")
    values = [built(tmp_path / "runs" / "cub200")[name].values(R1, SELECTED) for name in (best, close, "Four")]
    interval = inference.ranked([inference.estimate(group) for group in values], True)[1].interval
    assert (found[close]["R@1 [%] to best low"], found[close]["R@1 [%] to best high"]) == tuple(f"{bound:.2f}" for bound in interval)
    for ending in ("md", "tex"):
        text = (tmp_path / "out" / f"cub200_selected.{ending}").read_text()
        assert f"[{interval[0]:+.2f}, {interval[1]:+.2f}]" in text and "A mean of one seed is never the best" in text
    assert f"[{interval[0]:+.2f}, {interval[1]:+.2f}]</small>" in (tmp_path / "out" / "index.html").read_text()


def test_groups_selected_on_validation_and_on_test_are_not_ranked_in_one_order(tmp_path):
    for seed in range(2):
        for group, quality in (("A", 0.6), ("B", 0.5)):
            make_run(tmp_path / "runs", f"Val_{group}", seed, quality, epochs=4, splits=("train", "val", "test"))
            make_run(tmp_path / "runs", f"Test_{group}", seed, quality + 0.05, epochs=4)
    make_run(tmp_path / "runs", "Failed", 0, found=[])
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out")
    found = {line["group"]: line for line in lines(tmp_path / "out" / "cub200_selected.csv")}
    assert {name: (line["part"], line["R@1 [%] mark"]) for name, line in found.items()} == {
        "Val_A": ("selected on val", "best"), "Val_B": ("selected on val", ""), "Failed": ("selected on val", ""),
        "Test_A": ("selected on test", "best"), "Test_B": ("selected on test", ""),
    }  # fmt: skip
    assert list(found) == ["Failed", "Val_A", "Val_B", "Test_A", "Test_B"]
    for ending, part in (("md", "| *selected on test* |"), ("tex", "\\emph{selected on test} &")):
        assert part in (tmp_path / "out" / f"cub200_selected.{ending}").read_text()
    shared = {line["method"]: line for line in lines(tmp_path / "out" / "shared_selected.csv")}
    assert shared["Test_A"]["cub200 R@1 [%] mark"] == "" and shared["Val_A"]["cub200 R@1 [%] mark"] == "best"
    assert "cub200: not ranked with the others (selected on test)" in shared["Test_A"]["remarks"]
    last = {line["group"]: line["R@1 [%] mark"] for line in lines(tmp_path / "out" / "cub200_last.csv")}
    assert last["Test_A"] == "best" and last["Val_A"] == "", "the last epoch was not selected"


def test_groups_on_other_images_are_not_ranked_together(tmp_path):
    half = {"data": {"counts": {"testing": {"images": 100, "classes": 10}}}}
    for seed in range(2):
        for group, quality, environment in (("A", 0.5, ENVIRONMENT), ("B", 0.6, ENVIRONMENT), ("C", 0.9, half), ("D", 0.4, {})):
            make_run(tmp_path, group, seed, quality, epochs=2, environment=environment)
    parts = groups.pools(list(built(tmp_path).values()), LAST)
    assert {title: [group.name for group in members] for title, members in parts.items()} == {
        "images: testing 5924 of 100 classes, training 5864 of 100 classes": ["A", "B", "D"],  # D recorded no counts
        "images: testing 100 of 10 classes": ["C"],
    }


@pytest.mark.long
def test_two_folders_are_two_data_sets(tmp_path):
    for name, flags in {
        "birds": {"dataset_folder_path": "/data/birds"}, "cars": {"dataset_folder_path": "/data/cars/"},
        "named": {"dataset_folder_path": "/data/x", "dataset_name": "named"}, "cub200": {"dataset_folder_path": "/mine/cub200"},
    }.items():  # fmt: skip
        for seed in (0, 1):
            make_run(tmp_path / name, "Margin", seed, epochs=2, dataset="folder", **flags)
    make_run(tmp_path / "official", "Margin", epochs=2)
    make_run(tmp_path / "old", "Margin", 0, epochs=2, dataset="folder")
    found = groups.build(collect.collect([str(tmp_path)], [])[0])
    assert {group.dataset: len(group.seeds) for group in found} == {
        "birds": 2, "cars": 2, "named": 2, "folder_cub200": 2, "cub200": 1, "folder": 1,
    }  # fmt: skip
    assert "data: dataset birds" in settings.printed([group.settings for group in found if group.dataset == "birds"])
    run_main("--runs", tmp_path, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "birds_selected.csv").exists() and (tmp_path / "out" / "cars_settings.md").exists()


def test_a_flag_of_another_data_set_is_not_printed(tmp_path):
    flags = {"vehicleid_protocol": "reid", "vehicleid_list": "800"}
    for name in ("glyphs", "vehicleid"):
        make_run(tmp_path / name, "Margin", epochs=2, dataset=name, **flags)
    about = {group.dataset: settings.printed([group.settings]) for group in groups.build(collect.collect([str(tmp_path)], [])[0])}
    assert "vehicleid_protocol reid" in about["vehicleid"] and "vehicleid_protocol" not in about["glyphs"]


def test_a_data_set_may_have_any_name(tmp_path):
    for seed in (0, 1):
        make_run(tmp_path / "runs", "A", seed, epochs=2, dataset="folder", dataset_name="my birds/2: è")
    folder = next((tmp_path / "runs").rglob("parameters.yaml")).parent
    assert folder.parent.name == "folder"
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out")
    assert (tmp_path / "out" / "my-birds-2-è_selected.csv").exists() and (tmp_path / "out" / "my-birds-2-è_ranked.png").exists()
    page = (tmp_path / "out" / "index.html").read_text()
    assert ">my birds/2: è</h2>" in page
    assert all((tmp_path / "out" / link).exists() for link in re.findall(r'href="([^"#:]+)"', page))


def test_untrained_networks_have_a_row_and_no_rank(tmp_path):
    for group in "AB":
        for seed in range(2):
            before = [(epoch, "test", "e_recall@1", 0.1 * (epoch + 2) + 0.01 * seed) for epoch in (-1, 0)]
            make_run(tmp_path / "runs", group, seed, found=before + curve(0.4, 0.5 + 0.1 * (group == "B")), epochs=2)
    make_run(tmp_path / "runs", "C", 0, found=[(0, "test", "e_recall@1", 0.9), *curve(0.4, 0.5)], epochs=2, arch="other")
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out")
    found = lines(tmp_path / "out" / "cub200_selected.csv")
    assert [(line["group"], line["seeds"], line["R@1 [%]"], line["R@1 [%] deviation"], line["epoch"]) for line in found[3:]] == [
        ("untrained backbone", "2", "10.50", "0.71", "-1"),
        ("untrained network, other, 128 dimensions", "1", "90.00", "", "0"),
        ("untrained network, resnet50_frozen_normalize, 128 dimensions", "2", "20.50", "0.71", "0"),
    ]
    assert {line["part"] for line in found[3:]} == {"before training"} and not any(line["R@1 [%] mark"] for line in found[2:])


def test_an_untrained_network_has_no_optimism(tmp_path):
    for seed in range(2):
        before = [(0, split, "e_recall@1", 0.3) for split in ("val", "test")]
        trained = [(epoch, split, "e_recall@1", 0.3 + 0.1 * epoch) for epoch in (1, 2) for split in ("val", "test")]
        make_run(tmp_path / "runs", "A", seed, found=before + trained, epochs=2, use_tv_split=True)
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out")
    (trained, untrained) = lines(tmp_path / "out" / "cub200_selected.csv")
    assert untrained["group"] == "untrained network" and untrained["R@1 [%]"] == "30.00"
    others = [name for name in untrained if name.startswith(("R@1, chosen on test", "optimism")) or "optimism" in name]
    assert others and any(trained[name] for name in others) and not any(untrained[name] for name in others)


def test_the_page_says_what_a_group_is_and_what_sets_it_apart(tmp_path):
    for group, flags in {
        "A": {}, "B": {"loss_margin_beta": 0.6}, "C": {"loss": "arcface", "lr": 1e-4}, "D": {"loss": "contrastive", "mine_pairs": True},
    }.items():  # fmt: skip
        for seed in (0, 1):
            make_run(tmp_path / "runs", group, seed, epochs=2, clip_grad_norm=None, **{"mine_pairs": False} | flags)
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out")
    found = {
        line["group"]: (line["loss"], line["miner"], line["unlike others"]) for line in lines(tmp_path / "out" / "cub200_selected.csv")
    }
    assert found == {
        "A": ("margin", "distance", "beta 1.2"), "B": ("margin", "distance", "beta 0.6"),
        "C": ("arcface", "", "lr 0.0001"), "D": ("contrastive", "distance", "mine_pairs True"),
    }  # fmt: skip
    page = (tmp_path / "out" / "index.html").read_text()
    assert "unlike others" in page and "| group | seeds | R@1 [%] |" in (tmp_path / "out" / "cub200_selected.md").read_text()
    rows = lines(tmp_path / "out" / "cub200_settings.csv")
    assert rows[0]["setting"] == "lr" and rows[0]["groups that differ"] == "0.0001: C", "what varies is first"
    folded = page[page.index("<summary>Left at their defaults") :]
    assert "clip_<wbr>grad_<wbr>norm" in folded and "clip_<wbr>grad_<wbr>norm" not in page[: page.index("<summary>Left at their defaults")]
    text = (tmp_path / "out" / "cub200_settings.md").read_text()
    assert "| lr | 1e-05 | 0.0001: C |" in text and "| clip_grad_norm |" not in text and "clip_grad_norm None" in text


@pytest.mark.parametrize(
    "text, said",
    [
        ("seed: abc", "seed 'abc' is no whole number"), ("n_epochs: abc", "n_epochs 'abc' is no whole number"), ("seed: .nan", "seed nan"),
        ("patience: x", "patience 'x' is no whole number"), ("evaltypes: 3", "evaltypes 3 is no list of names"),
        ("storage_metrics: 5", "storage_metrics 5 is no list of names"), ("storage_metrics: [1]", "storage_metrics [1] is no list of names"),
        ("split_sets: many\nsplit_scheme: mlrc", "split_sets 'many' is no whole number"), ("embed_dim: [1]", "embed_dim [1] is no whole number"),
        ("seed: 2020-13-45", "month must be in 1..12"),
    ],
)  # fmt: skip
def test_a_flag_of_a_wrong_type_is_the_problem_of_its_run(tmp_path, text, said):
    for seed in (0, 1):
        folder = make_run(
            tmp_path / "runs", "A", seed, found=curve(0.4, 0.5), epochs=2, name=f"A_s{seed}/fold_0" * ("split" in text) or None
        )
    flags = yaml.safe_load((folder / "parameters.yaml").read_text())
    names = [line.partition(":")[0] for line in text.splitlines()]
    (folder / "parameters.yaml").write_text(yaml.safe_dump({f: v for f, v in flags.items() if f not in names}) + text + "\n")
    run = folders.read_folder(folder)
    assert run.problem.startswith("failed: parameters.yaml") and said in run.problem and run.seed == 1, run.problem
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out")
    assert "1 of 2" in (tmp_path / "out" / "cub200_selected.csv").read_text()


@pytest.mark.parametrize("selected", [3, "x", {"epoch": "x"}, [1]])
def test_a_summary_that_names_no_epoch_is_the_problem_of_its_run(tmp_path, selected):
    folder = make_run(tmp_path, found=curve(0.4, 0.5), epochs=2, patience=1)
    (folder / "summary.json").write_text(json.dumps({"selected": selected}))
    assert reasons(built(tmp_path)["CUB_Margin_b12_Distance"])[folder.name].startswith("failed: summary.json cannot be read (")


@pytest.mark.parametrize(
    "text",
    [
        "packages: 3",
        "data: foo",
        "data: {counts: 3}",
        "data: {counts: {training: 3}}",
        "data: {transforms: [1]}",
        "- 1",
        "{ no yaml",
        "3: 4",
    ],
)
def test_a_broken_environment_is_a_note_and_costs_no_run(tmp_path, text):
    folder = make_run(tmp_path, found=curve(0.4, 0.5), epochs=2)
    (folder / "environment.yaml").write_text(text + "\ngpu: P100\n" * (text[0] in "pd"))
    (group,) = built(tmp_path).values()
    assert group.seeds_text == "1" and group.settings["bs"] == "112"
    assert any("environment.yaml cannot be read (" in note for note in group.runs[0].notes) == (text != "3: 4")


def test_results_over_folds_of_a_wrong_shape_are_not_used(tmp_path):
    folder = make_run(tmp_path, "Cross", found=curve(0.4, 0.5), epochs=2, name="Cross_s0/fold_0", split_scheme="mlrc", split_sets=2)
    (folder.parent / "meta").mkdir()
    sound = {"folds": [0], "epochs": [2], "flags": {}, "values": {"test": {"e_recall@1": {"mean": 0.5}}}}
    path = folder.parent / "meta" / "concatenated.json"
    for broken in ({"folds": 3}, {"epochs": "x"}, {"flags": 3}, {"values": 3}, {"values": {"test": 3}}, {"values": {"test": {"e_recall@1": 3}}},
                   {"values": {"test": None}}, {"values": {"test": {"e_recall@1": {"mean": "x"}}}}, {}):  # fmt: skip
        path.write_text(json.dumps(sound | broken))
        (group,) = built(tmp_path).values()
        assert group.joined(R1) == pytest.approx([50], nan_ok=False) if not broken else np.isnan(group.joined(R1)).all(), broken


@pytest.mark.parametrize("row", [f"{10**12},test,a,0.5", f"{10**30},test,a,0.5", "x,test,a,0.5", "1,test", "1,,a,0.5", "1,test,a,0.5,7"])
def test_rows_that_are_none_are_the_problem_of_their_run(tmp_path, row):
    folder = make_run(tmp_path, found=[], epochs=1)
    (folder / "CSV_Logs" / "metrics.csv").write_text(f"epoch,split,metric,value\n{row}\n")
    assert folders.read_folder(folder).problem.startswith("failed: metrics.csv cannot be read (")


def test_a_missing_flag_and_none_are_alike(tmp_path):
    for group in ("A", "B", "C"):
        for seed in (0, 1):
            make_run(tmp_path / "runs", group, seed, epochs=2, eval_pca=None, of_yore=None)
    for folder in (tmp_path / "runs" / "cub200").glob("C_s*"):
        flags = yaml.safe_load((folder / "parameters.yaml").read_text())
        (folder / "parameters.yaml").write_text(
            yaml.safe_dump({f: v for f, v in flags.items() if f not in ("patience", "eval_pca", "of_yore")})
        )
    path = tmp_path / "runs" / "cub200" / "A_s1" / "parameters.yaml"
    path.write_text(path.read_text().replace("of_yore: null\n", ""))
    make_run(tmp_path / "runs", "D", 0, epochs=2, patience=7, eval_pca=None)
    declared = vars(parameters.get_parser().parse_args([]))
    assert {"fc_lr", "augmentation", "views"} <= composition.derived_flags(declared)
    for defaults in (None, {**declared, **dict.fromkeys(composition.derived_flags(declared), "unknown")}):
        found = built(tmp_path / "runs", defaults)
        assert [found[name].differs for name in "ABCD"] == [[], [], [], ["patience 7 (others: None)"]] and not found["A"].refused
        assert settings.shared([g.settings for g in found.values()])["patience"] == "None"
        table = tables.settings(list(found.values()))
        assert {row[0].text: row[2].text for row in table.rows}["of_yore"] == "none"
    (tmp_path / "runs" / "cub200" / "D_s0" / "parameters.yaml").unlink()
    (alone,) = [group for name, group in built(tmp_path / "runs").items() if name == "D"]
    assert "bs unknown (others: 112)" in alone.differs and not any("None" in told for told in alone.differs)


def test_a_data_set_whose_runs_all_fall_short_has_columns_without_numbers(tmp_path, capsys):
    for seed in (0, 1):
        make_run(tmp_path / "runs", "A", seed, epochs=4)
        make_run(tmp_path / "runs", "B", seed, found=curve(0.5), epochs=4, dataset="cars196")
    run_main("--runs", tmp_path / "runs", "--out", tmp_path / "out")
    assert "note: no numbers on cars196: none of the runs there (2) counts" in capsys.readouterr().out
    (line,) = lines(tmp_path / "out" / "cars196_selected.csv")
    assert (line["seeds"], line["R@1 [%]"]) == ("0 of 2", "") and not list((tmp_path / "out").glob("cars196_*.png"))


@pytest.mark.parametrize(("flags", "name"), [
    ({"dataset": "csv", "dataset_csv": "/data/shoes.csv"}, "shoes"), ({"dataset": "folder", "dataset_folder_path": "/data/birds"}, "birds"),
    ({"dataset": "csv", "dataset_csv": "/data/shoes.csv", "dataset_name": "boots"}, "boots"), ({"dataset": "cub200", "dataset_csv": None}, "cub200"),
    ({}, None),
])  # fmt: skip
def test_own_data_are_called_by_their_file_or_folder(flags, name):
    assert dataset_of(flags) == name
