"""What counts and what does not: failed, short, twice, different; which epoch is selected."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import parameters
from options import derived
from results import collect, columns, folders, groups, inference, settings, tables
from results.columns import BEST_ON_TEST, LAST, SELECTED
from results.recorded import dataset_of
from results.untrained import of_groups
from tests.kit.refusals import refused
from tests.kit.run_folders import (
    built,
    collected,
    curve,
    evaluated,
    flag_roles,
    lines,
    make_run,
    make_runs,
    rows,
    rows_of,
    values_of,
)

ROOT = Path(__file__).resolve().parent.parent.parent
R1 = columns.column("test", "e_recall@1")
NMI = columns.column("test", "nmi")
NAME = "CUB_Margin_b12_Distance"
METRICS_CSV = "CSV_Logs/metrics.csv"


def reasons(group):
    return {run.name: reason for run, reason in group.left_out}


def change_flags(folder, text="", removed=()):
    path = folder / "parameters.yaml"
    flags = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({f: v for f, v in flags.items() if f not in removed}) + text)


GOOD = curve(0.9, 0.9)


WRONG_FLAGS = {
    "n_epochs": ("abc", "whole number"),
    "patience": ("x", "whole number"),
    "embed_dim": ([1], "whole number"),
    "evaltypes": (3, "list of names"),
    "storage_metrics": ([1], "list of names"),
}


WRONG_ROWS = (f"{10**12},test,a,0.5", "x,test,a,0.5", "1,test", "1,,a,0.5", "1,test,a,0.5,7")


# what was recorded; a file that is changed, by what (None: it is missing; a flag: its value); the reason
PROBLEMS = [
    (curve(0.9), None, None, "short: 1 of 2 epochs"),
    ([], None, None, "failed: no epoch recorded"),
    (curve(np.nan, np.nan), None, None, "failed: no finite e_recall@1"),
    (GOOD, METRICS_CSV, None, "failed: no CSV_Logs/metrics.csv"),
    (GOOD, METRICS_CSV, "no,table\n1,2\n", "failed: metrics.csv"),
    (GOOD, "parameters.yaml", "{ no yaml", "failed: parameters.yaml cannot be read"),
]
for row in WRONG_ROWS:
    PROBLEMS.append((GOOD, METRICS_CSV, f"epoch,split,metric,value\n{row}\n", "failed: metrics.csv cannot be read ("))
for selected in (3, {"epoch": "x"}, [1]):
    text = json.dumps({"selected": selected})
    PROBLEMS.append((GOOD, "summary.json", text, "failed: summary.json cannot be read ("))
for flag, (value, expected) in WRONG_FLAGS.items():
    reason = f"failed: parameters.yaml cannot be read ({flag} {value!r} is no {expected}"
    PROBLEMS.append((GOOD, flag, value, reason))


def test_failed_and_short_runs_are_shown_and_not_averaged(tmp_path):
    for seed in range(3):
        make_run(tmp_path, seed=seed, records=curve(0.1, 0.2 + seed / 100), epochs=2, patience=None)
    for seed, (records, file, content, _) in enumerate(PROBLEMS, 3):
        flags = {"patience": None}
        if file in WRONG_FLAGS:
            flags[file] = content
        folder = make_run(tmp_path, seed=seed, records=records, epochs=2, **flags)
        if file and content is None:
            (folder / file).unlink()
        elif file and file not in WRONG_FLAGS:
            (folder / file).write_text(content)
    group = built(tmp_path)[NAME]
    reason_of = {int(name.rpartition("_s")[2]): reason for name, reason in reasons(group).items()}
    assert not [
        (case, reason_of[seed]) for seed, case in enumerate(PROBLEMS, 3) if not reason_of[seed].startswith(case[-1])
    ]
    assert group.seeds_text == f"3 of {3 + len(PROBLEMS)}" and len(group.remarks) >= len(PROBLEMS)
    assert group.estimate(R1, SELECTED).mean == pytest.approx(21)
    make_run(tmp_path / "failures", records=[])
    group = built(tmp_path / "failures")[NAME]
    assert np.isnan(group.estimate(R1, SELECTED).mean) and group.seeds_text == "0 of 1"


@pytest.mark.parametrize(
    ("text", "message"),
    [("abc", "seed 'abc' is no whole number"), (".nan", "seed nan"), ("2020-13-45", "month must be in 1..12")],
)
def test_a_seed_that_cannot_be_read_is_that_of_the_folders_name(text, message, tmp_path):
    folder = make_run(tmp_path, "A", 4, records=GOOD, epochs=2)
    change_flags(folder, f"seed: {text}\n", ["seed"])
    run = folders.read_folder(folder, flag_roles())
    assert run.problem.startswith("failed: parameters.yaml") and message in run.problem and run.seed == 4


def test_patience_ends_a_run_where_it_is_evaluated(tmp_path):
    evaluated = [(epoch, "test", "e_recall@1", 0.5 - epoch / 1000) for epoch in (10, 20)]
    losses = [(epoch, "train", "loss", 1.0) for epoch in range(1, 26)]
    make_run(tmp_path, "Killed", records=sorted(evaluated[:1] + losses[:17]), epochs=100, patience=5)
    make_run(tmp_path, "Ended", records=sorted(evaluated + losses[:20]), epochs=100, patience=5)
    by_name = built(tmp_path)
    assert by_name["Killed"].left_out and not by_name["Ended"].left_out, "epoch 16 is no evaluation"


def test_what_is_no_problem_of_a_run(tmp_path):
    for name, values, selected, flags in (
        ("Patient", (0.1, 0.5, 0.4, 0.4), 2, {"epochs": 100, "patience": 2}),
        ("Summary", (0.4, 0.5), 1, {"epochs": 2}),
    ):
        folder = make_run(tmp_path, name, records=curve(*values), **flags)
        (folder / "summary.json").write_text(json.dumps({"selected": {"epoch": selected}}))
    cut = make_run(tmp_path, "Cut", records=curve(0.4), epochs=1)
    with open(cut / METRICS_CSV, "a") as file:
        file.write("2,test,e_recall@1,0.9")
    environments = ["packages: 3", "data: {counts: {training: 3}}", "- 1", "{ no yaml", "3: 4"]
    for number, text in enumerate(environments):
        folder = make_run(tmp_path, f"E{number}", records=curve(0.4, 0.5), epochs=2)
        gpu = "\ngpu: P100\n" if text[0] in "pd" else ""
        (folder / "environment.yaml").write_text(text + gpu)
    by_name = built(tmp_path)
    assert not [name for name, group in by_name.items() if group.left_out]
    assert "summary.json names epoch 1" in by_name["Summary"].counted[0].notes[0]
    run = folders.read_folder(cut, flag_roles())
    assert list(run.series.epochs) == [1] and "cut short" in run.notes[0]
    for number, text in enumerate(environments):
        group = by_name[f"E{number}"]
        assert group.seeds_text == "1" and group.settings["bs"] == "112"
        is_noted = any("environment.yaml cannot be read (" in note for note in group.runs[0].notes)
        assert is_noted == (text != "3: 4"), text


def test_differing_flags_and_seeds_that_occur_twice_are_never_averaged(tmp_path):
    for seed in range(3):
        lr = 1e-4 if seed == 2 else 1e-5
        make_run(tmp_path, seed=seed, lr=lr, kernels=seed, save_path=f"/x/{seed}", gpu=[seed])
        make_run(tmp_path, "Twice", seed, records=curve(0.2 + seed / 10), epochs=1)
    make_run(tmp_path, "Twice", 1, records=curve(0.9), epochs=1, name="Twice_s1_1")
    by_name = built(tmp_path)
    group = by_name[NAME]
    assert group.refused == f"runs of this group differ in lr: 1e-05 ({NAME}_s0, {NAME}_s1), 0.0001 ({NAME}_s2)"
    assert not group.seeds and len(group.left_out) == 3 and np.isnan(group.estimate(R1, SELECTED).mean)
    twice = by_name["Twice"]
    assert set(reasons(twice)) == {"Twice_s1", "Twice_s1_1"}
    assert twice.estimate(R1, SELECTED).mean == pytest.approx(30) and twice.seeds_text == "2 of 3"
    assert sum("seed 1 occurs twice" in remark for remark in twice.remarks) == 2


def test_a_run_that_was_changed_on_resume_is_told_apart(tmp_path):
    for seed in range(3):
        folder = make_run(tmp_path, seed=seed, records=curve(0.1, 0.2), epochs=2)
    flags = yaml.safe_load((folder / "parameters.yaml").read_text())
    change = folder / "configs" / "resume_training_config_diffs_1" / "parameters.yaml"
    change.parent.mkdir(parents=True)
    (folder / "configs" / "parameters.yaml").write_text(yaml.safe_dump({**flags, "lr": 1e-6, "n_epochs": 1}))
    change.write_text(yaml.safe_dump({"n_epochs": 2, "eval_bs": 7}))
    assert built(tmp_path)[NAME].seeds_text == "3", "more epochs are no change"
    change.write_text(yaml.safe_dump({"n_epochs": 2, "lr": 1e-5}))
    group = built(tmp_path)[NAME]
    assert not group.counted and "changed_on_resume: " in group.refused and "lr 1e-05 after epoch 1 (" in group.refused


def test_the_selected_the_last_and_the_best_epoch(tmp_path):
    records = curve(0.9, 0.1, 0.3, 0.2, split="val") + curve(0.10, 0.50, 0.20, 0.30)
    records += curve(0.6, 0.7, 0.9, 0.8, metric="nmi")
    # untrained states are never the best
    records += [(0, "val", "e_recall@1", 0.99), (-1, "test", "e_recall@1", 0.99)]
    make_run(tmp_path, "All", records=records, epochs=4)
    make_run(tmp_path, "Equal", records=curve(0.5, 0.7, 0.7, np.inf), epochs=4)
    records = curve(0.5, 0.2, 0.2, metric="dists@intra")
    make_run(tmp_path, "Low", records=records, epochs=3, storage_metrics=["dists@intra"])
    sparse = [(2, "test", "e_recall@1", 0.4), (4, "test", "e_recall@1", 0.3)]
    sparse += curve(*[1.0] * 5, split="train", metric="loss")
    make_run(tmp_path, "Sparse", records=sparse, epochs=5, save_interval=2)
    runs = {name: group.counted[0] for name, group in built(tmp_path).items()}
    rules = (SELECTED, LAST, BEST_ON_TEST)
    assert [columns.value(runs["All"], R1, how) for how in rules] == [0.10, 0.30, 0.50]
    assert [columns.value(runs["All"], NMI, how) for how in rules] == [0.6, 0.8, 0.9], "its own best epoch on test"
    assert columns.rule(runs["All"]) == "epoch with the highest e_recall@1 on val"
    assert [columns.epoch(runs[name], SELECTED) for name in ("Equal", "Low", "Sparse")] == [2, 2, 2]
    assert columns.value(runs["Sparse"], R1, LAST) == 0.3


def test_folds_are_averaged_within_their_seed(tmp_path):
    values = {(seed, fold): 0.1 * fold + 0.01 * seed for seed in (0, 1) for fold in range(3)}
    for (seed, fold), value in {**values, (2, 0): 0.9}.items():
        make_run(tmp_path, "Folds", seed, records=curve(value), epochs=1, name=f"Folds_s{seed}/fold_{fold}")
    base = tmp_path / "cub200" / "Folds_s0"
    (base / "parameters.yaml").write_text(yaml.safe_dump({"group": "Folds"}))
    (base / "meta").mkdir()
    group = built(tmp_path)["Folds"]
    assert group.values(R1, SELECTED) == pytest.approx([10, 11]) and group.seeds_text == "2 of 3 x 3 folds"
    assert reasons(group) == {"Folds_s2/fold_0": "seed 2 lacks folds 1, 2"}


def test_searches_are_left_out_unless_named_and_the_same_folder_twice_is_one_run(tmp_path):
    make_run(tmp_path)
    for trial in range(2):
        make_run(tmp_path, "S", trial, name=f"S_search/trial_{trial}", lr=10.0**-trial)
    runs, notes = collect.collect([str(tmp_path)], [], flag_roles())
    assert len(runs) == 1 and "S_search" in notes[0]
    assert len(collected(tmp_path / "cub200" / "S_search")) == 2
    assert len(collect.collect([str(tmp_path), str(tmp_path / "cub200")], [], flag_roles())[0]) == 1


def test_one_line_errors(tmp_path):
    make_run(tmp_path / "runs", records=rows(0.5, 3, 0, metrics=("e_recall@1", "nmi")), epochs=3, loss="mine")
    make_run(tmp_path / "bare", records=curve(0.5, metric="loss", split="train"), epochs=1)
    (tmp_path / "empty").mkdir()
    for runs, words, message in (
        ("nowhere", [], "no such folder"),
        ("empty", [], "no runs there"),
        ("runs", ["--metrics", "e_recal@1"], "Did you mean 'e_recall@1'"),
        ("runs", ["--metrics", "val/nmi"], "none of these runs recorded it on val"),
        ("runs", ["--relation", "rho", "e_recall@1"], "unknown metric 'rho'"),
        ("runs", ["--compare_to", "mlrc", "published"], "--compare_to mlrc: nothing in common"),
        ("bare", ["--metrics", "nmi"], "none of these runs recorded it"),
    ):
        with refused(None, message):
            evaluated(tmp_path, *words, runs=runs)
    assert not (tmp_path / "out").exists(), "nothing is written where there is nothing to say"


@pytest.mark.long
def test_the_command_line_ends_with_one_line_and_needs_no_wandb(tmp_path):
    make_run(tmp_path / "runs", records=curve(0.5), epochs=1)
    program = (
        "import sys; sys.modules['wandb'] = None; sys.argv[0] = 'Result_Evaluations.py'; import runpy; "
        "runpy.run_path('Result_Evaluations.py', run_name='__main__')"
    )
    for words, status in ((["--runs", tmp_path / "runs"], 0), (["--runs", tmp_path / "nothing"], 2), (["--runz"], 2)):
        argv = [sys.executable, "-c", program, *words, "--out", tmp_path / "out"]
        result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
        assert result.returncode == status, result.stderr
        if status:
            assert result.stderr.startswith("Result_Evaluations.py: error: ") and result.stderr.strip().count("\n") == 0
    assert (tmp_path / "out" / "index.html").exists()


def test_what_differs_between_groups_is_marked(tmp_path):
    half = {"split_scheme": "half", "use_tv_split": True, "tv_split_perc": 0.8, "tv_split_by_samples": False}
    half |= {"split_test_size": 0.5, "split_test_start": 0.5, "split_partitions": 4, "split_sets": 4}
    half |= {"split_file": None}
    unvalidated = {**half, "use_tv_split": False}
    of_scheme = (("split_test_size", 0.5), ("split_test_start", 0.25), ("split_partitions", 4), ("split_sets", 4))
    unlike = ["split_scheme class_disjoint (others: half)"]
    unlike += [f"{flag} {value} (others: not used)" for flag, value in of_scheme]
    # flags, GPU, what is unlike the others
    cases = {
        **dict.fromkeys(("A", "A1", "A2"), (half, "V100", [])),
        # The scheme half does not look at --split_sets
        "B": (half | {"split_sets": 2}, "V100", []),
        "C": (half | {"tv_split_perc": 0.7}, "V100", ["tv_split_perc 0.7 (others: 0.8)"]),
        "D": (unvalidated | {"tv_split_perc": 0.7}, "V100", ["use_tv_split False (others: True)"]),
        "E": (unvalidated | {"split_scheme": "class_disjoint", "split_test_start": 0.25}, "V100", unlike),
        "G": (half | {"bs": 80}, "V100", ["bs 80 (others: 112)"]),
        "H": (half | {"bs": 64}, "V100", ["bs 64 (others: 112)"]),
        "I": (half | {"bs": 80}, "P100", ["bs 80 (others: 112)", "GPU P100 (others: V100)"]),
        # a method's own flags make the group
        "J": (half | {"loss_margin_beta": 0.6}, "V100", []),
    }
    for group, (flags, gpu, _) in cases.items():
        make_run(tmp_path, group, epochs=2, environment={"gpu": gpu}, **flags)
    by_name = built(tmp_path)
    assert {name: group.differs for name, group in by_name.items()} == {name: case[2] for name, case in cases.items()}
    printed = settings.printed([g.settings for g in by_name.values()])
    assert "split: split_scheme half, use_tv_split True, tv_split_perc 0.8;" in printed and "bs 112" in printed
    printed_alone = settings.printed([by_name["E"].settings])
    values = ", ".join(f"{flag} {value}" for flag, value in of_scheme)
    assert f"split: split_scheme class_disjoint, {values};" in printed_alone
    table = rows_of(tables.settings(list(by_name.values())))
    line_of = values_of(table, "value", "groups that differ", key="setting")
    assert line_of["bs"] == ("112", "80: G, I; 64: H") and line_of["lr"][1] == "none"


def test_a_flag_that_a_run_was_recorded_without_has_its_default(tmp_path):
    make_run(tmp_path, seed=0)
    make_run(tmp_path, seed=1, brand_new=7)
    make_run(tmp_path, "Old")
    make_run(tmp_path, "New", split_scheme="half", later=7)
    make_run(tmp_path, "Other", split_scheme="half", later=8)
    assert built(tmp_path)[NAME].refused
    by_name = built(tmp_path, {"split_scheme": "half", "later": 7, "of_nobody": 1, "brand_new": 7})
    assert not by_name[NAME].refused and "of_nobody" not in by_name["Old"].settings
    assert [by_name[name].differs for name in ("Old", "New", "Other")] == [[], [], ["later 8 (others: 7)"]]


def test_a_missing_flag_and_none_are_alike(tmp_path):
    runs = tmp_path / "cub200"
    make_runs(tmp_path, "ABC", epochs=2, eval_pca=None, of_yore=None)
    for folder in runs.glob("C_s*"):
        change_flags(folder, removed=("patience", "eval_pca", "of_yore"))
    change_flags(runs / "A_s1", removed=("of_yore",))
    make_run(tmp_path, "D", 0, epochs=2, patience=7, eval_pca=None)
    declared = vars(parameters.get_parser().parse_args([]))
    assert {"fc_lr", "augmentation", "views"} <= derived.derived_flags(declared)
    for defaults in (None, {**declared, **dict.fromkeys(derived.derived_flags(declared), "unknown")}):
        by_name = built(tmp_path, defaults)
        assert [by_name[name].differs for name in "ABCD"] == [[], [], [], ["patience 7 (others: None)"]]
        assert not by_name["A"].refused
        assert settings.shared([g.settings for g in by_name.values()])["patience"] == "None"
        table = rows_of(tables.settings(list(by_name.values())))
        assert values_of(table, "groups that differ", key="setting")["of_yore"] == "none"
    (runs / "D_s0" / "parameters.yaml").unlink()
    lone_group = built(tmp_path)["D"]
    assert "bs unknown (others: 112)" in lone_group.differs and not any("None" in text for text in lone_group.differs)


def test_every_table_marks_what_differs_and_the_page_says_what_a_group_is(tmp_path):
    flags = {
        "A": {},
        "B": {"loss_margin_beta": 0.6},
        "C": {"loss": "arcface", "lr": 1e-4},
        "D": {"loss": "contrastive", "mine_pairs": True},
    }
    settings_of = {name: {"mine_pairs": False} | changes for name, changes in flags.items()}
    make_runs(tmp_path / "runs", settings_of, epochs=4, clip_grad_norm=None)
    out = evaluated(tmp_path)
    difference = "lr 0.0001 (others: 1e-05)"
    for path in out.glob("*.md"):
        if not path.stem.endswith("_settings"):
            text = path.read_text()
            assert "Settings (cub200), unless marked" in text and difference in text, path
    assert f"- Marked: C: unlike the others: {difference}." in (out / "cub200_correlations.md").read_text()
    text = (out / "cub200_selected.md").read_text()
    assert "| group | seeds | R@1 [%] |" in text and "| C <sup>" in text
    assert f"</sup> unlike the others: {difference}" in text
    assert values_of(lines(out / "cub200_selected.csv"), "loss", "miner", "unlike others") == {
        "A": ("margin", "distance", "beta 1.2"),
        "B": ("margin", "distance", "beta 0.6"),
        "C": ("arcface", "", "lr 0.0001"),
        "D": ("contrastive", "distance", "mine_pairs True"),
    }
    first = lines(out / "cub200_settings.csv")[0]
    assert (first["setting"], first["groups that differ"]) == ("lr", "0.0001: C"), "what varies is first"
    above, _, folded = (out / "index.html").read_text().partition("<summary>Left at their defaults")
    flag = "clip_<wbr>grad_<wbr>norm"
    assert "unlike others" in above and flag in folded and flag not in above


def test_labels_and_names_of_data_sets():
    labels = {
        "CUB_Margin": "Margin",
        "CUBreg_Margin": "R-Margin",
        "Glyphs_Margin_b06": "Margin_b06",
        "Glyphsreg_SNR": "R-SNR",
        "MLRC_CUB_ArcFace": "ArcFace",
        "Glyphsnet": "Glyphsnet",
    }
    assert {name: groups.Group("glyphs", name, []).label for name in labels} == labels, "the data set is no part of it"
    assert dataset_of({"dataset": "csv", "dataset_csv": "/data/shoes.csv"}) == "shoes"
    assert dataset_of({"dataset": "cub200", "dataset_csv": None}) == "cub200" and dataset_of({}) is None


def test_twins_differ_in_the_miner_alone(tmp_path):
    flags_of = {
        "Glyphs_A": {},
        "Glyphsreg_A": {"batch_mining": "rho_distance", "miner_rho_distance_cp": 0.2},
        "Glyphs_B": {"loss": "triplet"},
        "Glyphsreg_C": {"batch_mining": "rho_distance", "lr": 1.0},
        "Glyphs_Twice": {},
        "Glyphsreg_Twice": {"batch_mining": "rho_distance"},
    }
    for name, flags in flags_of.items():
        flags["quality"] = 0.6 if name.startswith("Glyphsreg") else 0.5
    make_runs(tmp_path, flags_of)
    all_groups = list(built(tmp_path).values())
    twins = groups.twins(all_groups)
    assert [(plain.name, regularised.name) for plain, regularised in twins] == [
        ("Glyphs_A", "Glyphsreg_A"),
        ("Glyphs_Twice", "Glyphsreg_Twice"),
    ]
    line = rows_of(tables.regularised(all_groups, [R1, columns.column("train", "rho_spectrum@2")], 1))[0]
    first, second = (group.estimate(R1, SELECTED) for group in twins[0])
    assert line["R@1 [%] distance"] == f"{first.mean:.2f}"
    assert line["R@1 [%] rho_distance deviation"] == f"{second.deviation:.2f}"
    assert line["R@1 [%] difference"] == f"{second.mean - first.mean:+.2f}"
    assert line["rho (train) difference"].startswith("-0.")
    assert 0 <= float(line["R@1 [%] p"].lstrip("<")) <= 1 and line["method"] == "A"
    assert tables.regularised(all_groups[:1], [R1], 1) is None


def test_each_data_set_shows_what_it_recorded_or_that_there_is_nothing(tmp_path, capsys):
    root = tmp_path / "runs"
    for seed in (0, 1):
        for group, dataset, k in (("A", "cub200", 2), ("B", "online_products", 10)):
            records = rows(0.5, 2, seed, metrics=("e_recall@1", f"e_recall@{k}"), training=())
            make_run(root, group, seed, records=records, epochs=2, dataset=dataset)
        records = curve(*[0.5] * (2 - seed), metric="map_r")
        make_run(root, "C", seed, records=records, epochs=2, dataset="inshop", storage_metrics=["map_r"])
        # group D is short: one of two epochs
        make_run(root, "D", seed, records=curve(0.5), epochs=2, dataset="cars196")
        make_run(root, "E", seed, records=curve(0.5, split="train", metric="loss"), epochs=2, dataset="glyphs")
    out = evaluated(tmp_path, "--ddof", 0)
    output = capsys.readouterr().out
    page = (out / "index.html").read_text()
    heads = {}
    for name in ("cub200", "online_products", "shared"):
        heads[name] = (out / f"{name}_selected.csv").read_text().splitlines()[0]
    assert "R@2 [%]" in heads["cub200"] and "R@10" not in heads["cub200"] and "R@10 [%]" in heads["online_products"]
    assert "cub200 R@2 [%]" in heads["shared"] and "online_products R@10 [%]" in heads["shared"]
    assert "(ddof 0)" in (out / "cub200_selected.md").read_text()
    bare = (
        "no numbers on glyphs: none of the runs there (2) recorded a metric that rates an embedding space (name what "
        "to show with --metrics)"
    )
    for note in (bare, "no numbers on cars196: none of the runs there (2) counts"):
        assert f"note: {note}" in output and note in page
    (line,) = lines(out / "cars196_selected.csv")
    assert [line[name] for name in ("group", "seeds", "epoch", "R@1 [%]")] == ["D", "0 of 2", "", ""]
    assert "left out: D_s0 (" in line["remarks"]
    # the columns of all data sets
    left_out = values_of(lines(out / "left_out.csv"), "data set", "R@1 [%]", "MAP@R [%]", key="run")
    assert left_out.keys() == {"D_s0", "D_s1", "E_s0", "E_s1", "C_s1"} and left_out["E_s0"][0] == "glyphs"
    assert left_out["D_s0"] == ("cars196", "50.00", "") and left_out["C_s1"] == ("inshop", "", "50.00")
    assert "C_s1" in page and "1 of 2" in page and "short: 1 of 2 epochs" in page
    out = evaluated(tmp_path, "--metrics", "e_recall@10", out="asked")
    assert "recorded e_recall@10" in (out / "index.html").read_text()
    assert (out / "cub200_selected.csv").read_text().startswith("group,seeds,epoch,")
    assert "R@10 [%]" in (out / "online_products_selected.csv").read_text()


def test_where_no_run_recorded_anything_the_page_and_what_was_left_out_are_written(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for dataset in ("cub200", "cars196"):
        make_run(tmp_path / "runs", records=[], dataset=dataset)
    out = evaluated(Path(), out="deep/out").resolve()
    (note,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    reason = "none of the runs there (2) recorded a metric that rates an embedding space"
    assert note == f"note: no numbers on cub200, cars196: {reason}"
    links = [link for link in re.findall(r'href="([^"#]+)"', (out / "index.html").read_text()) if "_s0" in link]
    assert len(lines(out / "left_out.csv")) == 2 and links and all((out / link).is_dir() for link in links)
    with refused("none of these runs recorded it. Recorded: nothing"):
        evaluated(Path(), "--metrics", "nmi")


@pytest.fixture(scope="module")
def lacking(tmp_path_factory):
    """Tables of groups whose first seed lacks a metric: never recorded, not finite, or measured at other epochs."""
    folder = tmp_path_factory.mktemp("lacking")
    # what the first seed recorded in place of a metric
    groups_of = {
        "CUB_nmi": {"nmi": None},
        "CUB_f1": {"f1": np.nan},
        "CUB_rho": {"rho_spectrum@2": None},
        "CUBreg_rho": {"rho_spectrum@2": None},
        "CUB_all": {},
    }
    for name, broken in groups_of.items():
        miner = "rho_distance" if name == "CUBreg_rho" else "distance"
        for seed in range(3):
            records = rows(0.5, 4, seed)
            if seed == 0:
                records = [(*row[:3], broken.get(row[2], row[3])) for row in records]
                records = [row for row in records if row[3] is not None]
            # Epoch 1 becomes the selected one, where the last seed alone has nmi and f1
            if name == "CUB_all":
                records = [(*row[:3], 0.9) if row[:3] == (1, "test", "e_recall@1") else row for row in records]
                records = [row for row in records if seed == 2 or (row[0], row[2]) not in ((1, "nmi"), (1, "f1"))]
            make_run(folder / "runs", name, seed, records=records, epochs=4, batch_mining=miner)
    make_runs(folder / "runs", ["CARS_nmi"], epochs=4, dataset="cars196")
    return evaluated(folder)


RHO_LACKS = "rho (train): mean of 2 of 3 seeds"


@pytest.mark.parametrize(
    ("name", "group", "message"),
    [
        ("cub200_selected", "CUB_nmi", "NMI: mean of 2 of 3 seeds"),
        ("cub200_last", "CUB_nmi", "NMI: mean of 2 of 3 seeds"),
        ("cub200_best_on_test", "CUB_nmi", "NMI: mean of 2 of 3 seeds"),
        ("cub200_selected", "CUB_f1", "F1: mean of 2 of 3 seeds"),
        ("cub200_selected", "CUB_all", "NMI, F1: mean of 1 of 3 seeds"),
        ("cub200_last", "CUB_all", ""),
        ("cub200_selected", "CUB_rho", ""),
        ("cub200_structure", "CUB_rho", RHO_LACKS),
        ("shared_selected", "nmi", "cub200: NMI: mean of 2 of 3 seeds"),
        ("cub200_rho_distance", "rho", f"CUB_rho: {RHO_LACKS}; CUBreg_rho: {RHO_LACKS}"),
    ],
)
def test_a_metric_that_some_seeds_lack_is_told_in_every_table(lacking, name, group, message):
    remarks = [line["remarks"] for line in lines(lacking / f"{name}.csv") if group in list(line.values())[:1]]
    assert remarks[:1] == [message]


def test_a_metric_that_some_seeds_lack_is_told_in_every_file(lacking):
    assert f"Marked: CUB_rho, CUBreg_rho: {RHO_LACKS}." in (lacking / "cub200_correlations.md").read_text()
    for path in ("cub200_selected.tex", "cub200_selected.md", "index.html"):
        assert "NMI: mean of 2 of 3 seeds" in (lacking / path).read_text(), path
    (line,) = [line for line in lines(lacking / "cub200_selected.csv") if line["group"] == "CUB_all"]
    assert line["seeds"] == "3" and line["NMI [%]"] and line["NMI [%] deviation"] == "", "no deviation of one seed"


def test_a_mean_of_one_seed_is_never_the_best_and_the_others_are_tested_without_it(tmp_path):
    root = tmp_path / "runs"
    make_run(root, "One", 0, 0.9, epochs=4)
    qualities = {"Two": 0.5, "Three": 0.501, "Four": 0.3}
    make_runs(root, {name: {"quality": quality} for name, quality in qualities.items()}, 5, epochs=4)
    make_runs(root, ["Only"], 5, epochs=4, dataset="cars196")
    out = evaluated(tmp_path, "--metrics", "e_recall@1", "nmi")
    names = ("R@1 [%] mark", "R@1 [%] to best low", "R@1 [%] to best high")
    line_of = values_of(lines(out / "cub200_selected.csv"), *names)
    assert line_of["One"][:2] == ("", "") and line_of["Four"][0] == "" and float(line_of["Four"][2]) < -5
    named = {line_of[name][0]: name for name in ("Two", "Three")}
    by_name = built(root / "cub200")
    values = [by_name[name].values(R1, SELECTED) for name in (named["best"], named["close"], "Four")]
    interval = inference.ranked([inference.estimate(group) for group in values], True)[1].interval
    assert line_of[named["close"]][1:] == tuple(f"{bound:.2f}" for bound in interval)
    printed = f"[{interval[0]:+.2f}, {interval[1]:+.2f}]"
    for ending in ("md", "tex"):
        text = (out / f"cub200_selected.{ending}").read_text()
        assert printed in text and "never of a single seed" in text
    assert f"{printed}</small>" in (out / "index.html").read_text()


def test_groups_selected_on_validation_and_on_test_are_not_ranked_in_one_order(tmp_path):
    root = tmp_path / "runs"
    for group, quality in (("A", 0.6), ("B", 0.5)):
        make_runs(root, [f"Val_{group}"], quality=quality, epochs=4, splits=("train", "val", "test"))
        make_runs(root, [f"Test_{group}"], quality=quality + 0.05, epochs=4)
    make_run(root, "Failed", 0, records=[])
    out = evaluated(tmp_path)
    assert list(values_of(lines(out / "cub200_selected.csv"), "part", "R@1 [%] mark").items()) == [
        ("Failed", ("selected on val", "")),
        ("Val_A", ("selected on val", "best")),
        ("Val_B", ("selected on val", "")),
        ("Test_A", ("selected on test", "best")),
        ("Test_B", ("selected on test", "")),
    ]
    shared = values_of(lines(out / "shared_selected.csv"), "cub200 R@1 [%] mark", "remarks", key="method")
    assert {name for name, (mark, _) in shared.items() if mark == "best"} == {"Val_A"}
    assert "cub200: not ranked with the others (selected on test)" in shared["Test_A"][1]
    marks = values_of(lines(out / "cub200_last.csv"), "R@1 [%] mark")
    assert {name for name, mark in marks.items() if mark == "best"} == {"Test_A"}, "the last epoch was not selected"


@pytest.mark.parametrize(
    ("flags_of", "how", "parts"),
    [
        # D recorded no counts
        (
            {
                "A": {},
                "B": {},
                "C": {"environment": {"data": {"counts": {"testing": {"images": 100, "classes": 10}}}}},
                "D": {"environment": {}},
            },
            LAST,
            {
                "images: testing 5924 of 100 classes, training 5864 of 100 classes": ["A", "B", "D"],
                "images: testing 100 of 10 classes": ["C"],
            },
        ),
        (
            {"A": {}, "B": {}, "C": {"split_shuffle": 3}},
            SELECTED,
            {"split_shuffle None": ["A", "B"], "split_shuffle 3": ["C"]},
        ),
    ],
    ids=["other images", "other test classes"],
)
def test_groups_on_other_images_or_test_classes_are_not_ranked_together(flags_of, how, parts, tmp_path):
    make_runs(tmp_path, flags_of, epochs=2, split_scheme="half", split_shuffle=None)
    pools = groups.pools(list(built(tmp_path).values()), how)
    assert {title: [group.name for group in members] for title, members in pools.items()} == parts


def test_two_folders_are_two_data_sets(tmp_path):
    for name, flags in {
        "birds": {"dataset_folder_path": "/data/birds"},
        "cars": {"dataset_folder_path": "/data/cars/"},
        "named": {"dataset_folder_path": "/data/x", "dataset_name": "named"},
        "cub200": {"dataset_folder_path": "/mine/cub200"},
    }.items():
        make_runs(tmp_path / name, ["Margin"], epochs=2, dataset="folder", **flags)
    make_run(tmp_path / "official", "Margin", epochs=2)
    make_run(tmp_path / "old", "Margin", 0, epochs=2, dataset="folder")
    of_dataset = {group.dataset: group for group in groups.build(collected(tmp_path))}
    n_seeds = {name: len(group.seeds) for name, group in of_dataset.items()}
    assert n_seeds == {"birds": 2, "cars": 2, "named": 2, "folder_cub200": 2, "cub200": 1, "folder": 1}
    assert "data: dataset birds" in settings.printed([of_dataset["birds"].settings])


def test_untrained_networks_of_other_weights_or_data_are_not_averaged(tmp_path):
    plain = {"weights": None, "not_pretrained": False}
    flags_of = {"A": {"weights": "x.pth"}, "B": {"not_pretrained": True}, "C": {"weights": "x.pth"}}
    for value, (name, flags) in enumerate(flags_of.items()):
        make_run(tmp_path, name, 0, records=curve(0.1 * value, 0.4, 0.5, first=0), epochs=2, **plain | flags)
    states = of_groups(list(built(tmp_path).values()))
    assert [(state.title.partition("dimensions")[2], len(state.runs)) for state in states] == [
        (", not_pretrained False, weights x.pth", 2),
        (", not_pretrained True, weights None", 1),
    ]


def test_untrained_networks_have_a_row_and_neither_rank_nor_optimism(tmp_path):
    root = tmp_path / "runs"
    for seed in range(2):
        for group, last in (("A", 0.5), ("B", 0.6)):
            records = curve(0.1 + 0.01 * seed, 0.2 + 0.01 * seed, 0.4, last, first=-1)
            make_run(root, group, seed, records=records, epochs=2)
        records = [row for split in ("val", "test") for row in curve(0.3, 0.4, 0.5, split=split, first=0)]
        make_run(tmp_path / "validated", "A", seed, records=records, epochs=2, use_tv_split=True)
    make_run(root, "C", 0, records=curve(0.9, 0.4, 0.5, first=0), epochs=2, arch="other")
    table_rows = lines(evaluated(tmp_path) / "cub200_selected.csv")
    assert values_of(table_rows[3:], "seeds", "R@1 [%]", "R@1 [%] deviation", "epoch") == {
        "untrained backbone": ("2", "10.50", "0.71", "-1"),
        "untrained network, other, 128 dimensions": ("1", "90.00", "", "0"),
        "untrained network, resnet50_frozen_normalize, 128 dimensions": ("2", "20.50", "0.71", "0"),
    }
    assert {line["part"] for line in table_rows[3:]} == {"before training"}
    assert not any(line["R@1 [%] mark"] for line in table_rows[2:])
    (trained, untrained) = lines(evaluated(tmp_path, runs="validated") / "cub200_selected.csv")
    assert untrained["group"] == "untrained network" and untrained["R@1 [%]"] == "30.00"
    selecting = [name for name in untrained if name.startswith("R@1, chosen on test") or "optimism" in name]
    assert selecting and any(trained[name] for name in selecting) and not any(untrained[name] for name in selecting)
