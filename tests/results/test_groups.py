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
from options import derived
from results import collect, columns, folders, formats, groups, inference, settings, tables
from results.columns import BEST_ON_TEST, LAST, SELECTED
from results.recorded import dataset_of
from tests.kit.refusals import refused
from tests.kit.run_folders import ENVIRONMENT, built, evaluated, flag_roles, lines, make_run, make_runs, rows
from utilities.errors import UserError

ROOT = Path(__file__).resolve().parent.parent.parent
R1 = columns.column("test", "e_recall@1")
NMI = columns.column("test", "nmi")
NAME = "CUB_Margin_b12_Distance"
METRICS_CSV = "CSV_Logs/metrics.csv"
FLAGS_CHANGED = {"n_epochs", "patience", "embed_dim", "evaltypes", "storage_metrics"}


def reasons(group):
    return {run.name: reason for run, reason in group.left_out}


def curve(*values, split="test", metric="e_recall@1", first=1):
    return [(first + i, split, metric, value) for i, value in enumerate(values)]


def change_flags(folder, text="", removed=()):
    flags = yaml.safe_load((folder / "parameters.yaml").read_text())
    (folder / "parameters.yaml").write_text(yaml.safe_dump({f: v for f, v in flags.items() if f not in removed}) + text)


GOOD = curve(0.9, 0.9)
PROBLEMS = [  # what was recorded; a file that is changed, by what (None: it is missing; a flag: its value); the reason
    (curve(0.9), None, None, "short: 1 of 2 epochs"),
    ([], None, None, "failed: no epoch recorded"),
    (curve(float("nan"), float("nan")), None, None, "failed: no finite e_recall@1"),
    (GOOD, METRICS_CSV, None, "failed: no CSV_Logs/metrics.csv"),
    (GOOD, METRICS_CSV, "no,table\n1,2\n", "failed: metrics.csv"),
    (GOOD, "parameters.yaml", "{ no yaml", "failed: parameters.yaml cannot be read"),
    *(
        (GOOD, METRICS_CSV, f"epoch,split,metric,value\n{row}\n", "failed: metrics.csv cannot be read (")
        for row in (f"{10**12},test,a,0.5", "x,test,a,0.5", "1,test", "1,,a,0.5", "1,test,a,0.5,7")
    ),
    *(
        (GOOD, "summary.json", json.dumps({"selected": selected}), "failed: summary.json cannot be read (")
        for selected in (3, {"epoch": "x"}, [1])
    ),
    *(
        (GOOD, flag, value, f"failed: parameters.yaml cannot be read ({flag} {value!r} is no {expected}")
        for flag, value, expected in (
            ("n_epochs", "abc", "whole number"),
            ("patience", "x", "whole number"),
            ("embed_dim", [1], "whole number"),
            ("evaltypes", 3, "list of names"),
            ("storage_metrics", [1], "list of names"),
        )
    ),
]


def test_failed_and_short_runs_are_shown_and_not_averaged(tmp_path):
    for seed in range(3):
        make_run(tmp_path, seed=seed, records=curve(0.1, 0.2 + seed / 100), epochs=2, patience=None)
    for seed, (records, file, content, _) in enumerate(PROBLEMS, 3):
        flags = {"patience": None}
        if file in FLAGS_CHANGED:
            flags[file] = content
        folder = make_run(tmp_path, seed=seed, records=records, epochs=2, **flags)
        if file and content is None:
            (folder / file).unlink()
        elif file and file not in FLAGS_CHANGED:
            (folder / file).write_text(content)
    group = built(tmp_path)[NAME]
    reason_of = {int(name.rpartition("_s")[2]): reason for name, reason in reasons(group).items()}
    assert not [
        (case, reason_of[seed]) for seed, case in enumerate(PROBLEMS, 3) if not reason_of[seed].startswith(case[-1])
    ]
    assert group.seeds_text == f"3 of {3 + len(PROBLEMS)}" and len(group.remarks) >= len(PROBLEMS)
    assert group.estimate(R1, SELECTED).mean == pytest.approx(21)
    for number, (text, message) in enumerate(
        (
            ("seed: abc", "seed 'abc' is no whole number"),
            ("seed: .nan", "seed nan"),
            ("seed: 2020-13-45", "month must be in 1..12"),
        )
    ):
        folder = make_run(tmp_path / "wrong", "A", number, records=GOOD, epochs=2)
        change_flags(folder, text + "\n", ["seed"])
        run = folders.read_folder(folder, flag_roles())
        assert run.problem.startswith("failed: parameters.yaml") and message in run.problem and run.seed == number, (
            "by its name"
        )
    make_run(tmp_path / "failures", records=[])
    group = built(tmp_path / "failures")[NAME]
    assert np.isnan(group.estimate(R1, SELECTED).mean) and group.seeds_text == "0 of 1"


def test_patience_ends_a_run_where_it_is_evaluated(tmp_path):
    evaluated = [(epoch, "test", "e_recall@1", 0.5 - epoch / 1000) for epoch in (10, 20)]
    losses = [(epoch, "train", "loss", 1.0) for epoch in range(1, 26)]
    make_run(tmp_path, "Killed", records=sorted(evaluated[:1] + losses[:17]), epochs=100, patience=5)
    make_run(tmp_path, "Ended", records=sorted(evaluated + losses[:20]), epochs=100, patience=5)
    by_name = built(tmp_path)
    assert by_name["Killed"].left_out and not by_name["Ended"].left_out, "epoch 16 is no evaluation"


def test_what_is_no_problem_of_a_run(tmp_path):
    folder = make_run(tmp_path, "Patient", records=curve(0.1, 0.5, 0.4, 0.4), epochs=100, patience=2)
    (folder / "summary.json").write_text(json.dumps({"selected": {"epoch": 2}}))
    folder = make_run(tmp_path, "Summary", records=curve(0.4, 0.5), epochs=2)
    (folder / "summary.json").write_text(json.dumps({"selected": {"epoch": 1}}))
    cut = make_run(tmp_path, "Cut", records=curve(0.4), epochs=1)
    with open(cut / METRICS_CSV, "a") as file:
        file.write("2,test,e_recall@1,0.9")
    environments = ["packages: 3", "data: {counts: {training: 3}}", "- 1", "{ no yaml", "3: 4"]
    for number, text in enumerate(environments):
        folder = make_run(tmp_path, f"E{number}", records=curve(0.4, 0.5), epochs=2)
        if text[0] in "pd":
            text += "\ngpu: P100\n"
        (folder / "environment.yaml").write_text(text)
    by_name = built(tmp_path)
    assert {name: group.left_out for name, group in by_name.items()} == {name: [] for name in by_name}
    assert "summary.json names epoch 1" in by_name["Summary"].counted[0].notes[0]
    run = folders.read_folder(cut, flag_roles())
    assert list(run.series.epochs) == [1] and "cut short" in run.notes[0]
    for number, text in enumerate(environments):
        group = by_name[f"E{number}"]
        assert group.seeds_text == "1" and group.settings["bs"] == "112"
        assert any("environment.yaml cannot be read (" in note for note in group.runs[0].notes) == (text != "3: 4"), (
            text
        )


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
    records = (
        curve(0.9, 0.1, 0.3, 0.2, split="val") + curve(0.10, 0.50, 0.20, 0.30) + curve(0.6, 0.7, 0.9, 0.8, metric="nmi")
    )
    records += [(0, "val", "e_recall@1", 0.99), (-1, "test", "e_recall@1", 0.99)]  # untrained states are never the best
    make_run(tmp_path, "All", records=records, epochs=4)
    make_run(tmp_path, "Equal", records=curve(0.5, 0.7, 0.7, float("inf")), epochs=4)
    make_run(
        tmp_path, "Low", records=curve(0.5, 0.2, 0.2, metric="dists@intra"), epochs=3, storage_metrics=["dists@intra"]
    )
    sparse = [(2, "test", "e_recall@1", 0.4), (4, "test", "e_recall@1", 0.3)] + curve(
        1.0, 1.0, 1.0, 1.0, 1.0, split="train", metric="loss"
    )
    make_run(tmp_path, "Sparse", records=sparse, epochs=5, save_interval=2)
    runs = {name: group.counted[0] for name, group in built(tmp_path).items()}
    run = runs["All"]
    assert [columns.value(run, R1, how) for how in (SELECTED, LAST, BEST_ON_TEST)] == [0.10, 0.30, 0.50]
    assert [columns.value(run, NMI, how) for how in (SELECTED, LAST, BEST_ON_TEST)] == [0.6, 0.8, 0.9], (
        "each metric's own best epoch on test"
    )
    assert columns.rule(run) == "epoch with the highest e_recall@1 on val"
    assert [columns.epoch(runs[name], SELECTED) for name in ("Equal", "Low", "Sparse")] == [2, 2, 2]
    assert columns.value(runs["Sparse"], R1, LAST) == 0.3


def test_folds_are_averaged_within_their_seed(tmp_path):
    for seed in (0, 1):
        for fold in range(3):
            make_run(
                tmp_path,
                "Folds",
                seed,
                records=curve(0.1 * fold + 0.01 * seed),
                epochs=1,
                name=f"Folds_s{seed}/fold_{fold}",
            )
    make_run(tmp_path, "Folds", 2, records=curve(0.9), epochs=1, name="Folds_s2/fold_0")
    (tmp_path / "cub200" / "Folds_s0" / "parameters.yaml").write_text(yaml.safe_dump({"group": "Folds"}))
    (tmp_path / "cub200" / "Folds_s0" / "meta").mkdir()
    group = built(tmp_path)["Folds"]
    assert group.values(R1, SELECTED) == pytest.approx([10, 11]) and group.seeds_text == "2 of 3 x 3 folds"
    assert reasons(group) == {"Folds_s2/fold_0": "seed 2 lacks folds 1, 2"}


def test_searches_are_left_out_unless_named_and_the_same_folder_twice_is_one_run(tmp_path):
    make_run(tmp_path)
    for trial in range(2):
        make_run(tmp_path, "S", trial, name=f"S_search/trial_{trial}", lr=10.0**-trial)
    runs, notes = collect.collect([str(tmp_path)], [], flag_roles())
    assert len(runs) == 1 and "S_search" in notes[0]
    assert len(collect.collect([str(tmp_path / "cub200" / "S_search")], [], flag_roles())[0]) == 2
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
        assert status == 0 or (
            len(result.stderr.strip().splitlines()) == 1 and result.stderr.startswith("Result_Evaluations.py: error: ")
        )
    assert (tmp_path / "out" / "index.html").exists()


def test_what_differs_between_groups_is_marked(tmp_path):
    folds = {
        "split_test_size": 0.5,
        "split_test_start": 0.5,
        "split_partitions": 4,
        "split_sets": 4,
        "split_file": None,
    }
    half = {"split_scheme": "half", "use_tv_split": True, "tv_split_perc": 0.8, "tv_split_by_samples": False, **folds}
    without_validation = {**half, "use_tv_split": False}
    of_scheme = (("split_test_size", 0.5), ("split_test_start", 0.25), ("split_partitions", 4), ("split_sets", 4))
    cases = {  # flags, GPU, what is unlike the others
        **dict.fromkeys(("A", "A1", "A2"), (half, "V100", [])),
        "B": (half | {"split_sets": 2}, "V100", []),  # which half does not look at
        "C": (half | {"tv_split_perc": 0.7}, "V100", ["tv_split_perc 0.7 (others: 0.8)"]),
        "D": (without_validation | {"tv_split_perc": 0.7}, "V100", ["use_tv_split False (others: True)"]),
        "E": (
            without_validation | {"split_scheme": "class_disjoint", "split_test_start": 0.25},
            "V100",
            ["split_scheme class_disjoint (others: half)"]
            + [f"{flag} {value} (others: not used)" for flag, value in of_scheme],
        ),
        "G": (half | {"bs": 80}, "V100", ["bs 80 (others: 112)"]),
        "H": (half | {"bs": 64}, "V100", ["bs 64 (others: 112)"]),
        "I": (half | {"bs": 80}, "P100", ["bs 80 (others: 112)", "GPU P100 (others: V100)"]),
        "J": (half | {"loss_margin_beta": 0.6}, "V100", []),  # a method's own flags make the group
    }
    for group, (flags, gpu, _) in cases.items():
        make_run(tmp_path, group, epochs=2, environment={"gpu": gpu}, **flags)
    by_name = built(tmp_path)
    assert {name: group.differs for name, group in by_name.items()} == {
        name: printed for name, (*_, printed) in cases.items()
    }
    printed = settings.printed([g.settings for g in by_name.values()])
    assert "split: split_scheme half, use_tv_split True, tv_split_perc 0.8;" in printed and "bs 112" in printed
    printed_alone = settings.printed([by_name["E"].settings])
    assert (
        "split: split_scheme class_disjoint, split_test_size 0.5, split_test_start 0.25, split_partitions 4, "
        "split_sets 4;"
    ) in printed_alone
    table = {
        line["setting"]: line
        for line in csv.DictReader(formats.to_csv(tables.settings(list(by_name.values()))).splitlines())
    }
    assert (table["bs"]["value"], table["bs"]["groups that differ"]) == ("112", "80: G, I; 64: H")
    assert table["lr"]["groups that differ"] == "none"


def test_a_flag_that_a_run_was_recorded_without_has_its_default(tmp_path):
    make_run(tmp_path, seed=0)
    make_run(tmp_path, seed=1, brand_new=7)
    make_run(tmp_path, "Old")
    make_run(tmp_path, "New", split_scheme="half", later=7)
    make_run(tmp_path, "Other", split_scheme="half", later=8)
    assert built(tmp_path)[NAME].refused
    by_name = built(tmp_path, {"split_scheme": "half", "later": 7, "of_nobody": 1, "brand_new": 7})
    assert not by_name[NAME].refused
    assert by_name["Old"].differs == by_name["New"].differs == [] and by_name["Other"].differs == [
        "later 8 (others: 7)"
    ]
    assert "of_nobody" not in by_name["Old"].settings


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
        assert [by_name[name].differs for name in "ABCD"] == [
            [],
            [],
            [],
            ["patience 7 (others: None)"],
        ] and not by_name["A"].refused
        assert settings.shared([g.settings for g in by_name.values()])["patience"] == "None"
        assert {row[0].text: row[2].text for row in tables.settings(list(by_name.values())).rows}["of_yore"] == "none"
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
    make_runs(
        tmp_path / "runs",
        {name: {"mine_pairs": False} | changes for name, changes in flags.items()},
        epochs=4,
        clip_grad_norm=None,
    )
    out = evaluated(tmp_path)
    unlike = "unlike the others: lr 0.0001 (others: 1e-05)"
    for path in out.glob("*.md"):
        if not path.stem.endswith("_settings"):
            assert (
                "Settings (cub200), unless marked" in path.read_text()
                and "lr 0.0001 (others: 1e-05)" in path.read_text()
            ), path
    assert f"- Marked: C: {unlike}." in (out / "cub200_correlations.md").read_text()
    text = (out / "cub200_selected.md").read_text()
    assert "| group | seeds | R@1 [%] |" in text and "| C <sup>" in text and f"</sup> {unlike}" in text
    assert {
        line["group"]: (line["loss"], line["miner"], line["unlike others"])
        for line in lines(out / "cub200_selected.csv")
    } == {
        "A": ("margin", "distance", "beta 1.2"),
        "B": ("margin", "distance", "beta 0.6"),
        "C": ("arcface", "", "lr 0.0001"),
        "D": ("contrastive", "distance", "mine_pairs True"),
    }
    first = lines(out / "cub200_settings.csv")[0]
    assert (first["setting"], first["groups that differ"]) == ("lr", "0.0001: C"), "what varies is first"
    above, _, folded = (out / "index.html").read_text().partition("<summary>Left at their defaults")
    assert "unlike others" in above and "clip_<wbr>grad_<wbr>norm" in folded and "clip_<wbr>grad_<wbr>norm" not in above


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
    assert [
        dataset_of(flags)
        for flags in (
            {"dataset": "csv", "dataset_csv": "/data/shoes.csv"},
            {"dataset": "cub200", "dataset_csv": None},
            {},
        )
    ] == ["shoes", "cub200", None]


def test_twins_differ_in_the_miner_alone(tmp_path):
    flags_of = {
        "Glyphs_A": {},
        "Glyphsreg_A": {"batch_mining": "rho_distance", "miner_rho_distance_cp": 0.2},
        "Glyphs_B": {"loss": "triplet"},
        "Glyphsreg_C": {"batch_mining": "rho_distance", "lr": 1.0},
        "Glyphs_Twice": {},
        "Glyphsreg_Twice": {"batch_mining": "rho_distance"},
    }
    make_runs(
        tmp_path,
        {name: {"quality": 0.5 + 0.1 * name.startswith("Glyphsreg"), **flags} for name, flags in flags_of.items()},
    )
    all_groups = list(built(tmp_path).values())
    twins = groups.twins(all_groups)
    assert [(plain.name, regularised.name) for plain, regularised in twins] == [
        ("Glyphs_A", "Glyphsreg_A"),
        ("Glyphs_Twice", "Glyphsreg_Twice"),
    ]
    table = tables.regularised(all_groups, [R1, columns.column("train", "rho_spectrum@2")], 1)
    line = next(csv.DictReader(formats.to_csv(table).splitlines()))
    first, second = (group.estimate(R1, SELECTED) for group in twins[0])
    assert (
        line["R@1 [%] distance"] == f"{first.mean:.2f}"
        and line["R@1 [%] rho_distance deviation"] == f"{second.deviation:.2f}"
    )
    assert line["R@1 [%] difference"] == f"{second.mean - first.mean:+.2f}" and line[
        "rho (train) difference"
    ].startswith("-0.")
    assert 0 <= float(line["R@1 [%] p"].lstrip("<")) <= 1 and line["method"] == "A"
    assert tables.regularised(all_groups[:1], [R1], 1) is None


def test_each_data_set_shows_what_it_recorded_or_that_there_is_nothing(tmp_path, capsys):
    root = tmp_path / "runs"
    for seed in (0, 1):
        for group, dataset, k in (("A", "cub200", 2), ("B", "online_products", 10)):
            make_run(
                root,
                group,
                seed,
                records=rows(0.5, 2, seed, metrics=("e_recall@1", f"e_recall@{k}"), training=()),
                epochs=2,
                dataset=dataset,
            )
        make_run(
            root,
            "C",
            seed,
            records=curve(0.5, *[0.5] * (1 - seed), metric="map_r"),
            epochs=2,
            dataset="inshop",
            storage_metrics=["map_r"],
        )
        make_run(root, "D", seed, records=curve(0.5), epochs=2, dataset="cars196")  # short
        make_run(root, "E", seed, records=curve(0.5, split="train", metric="loss"), epochs=2, dataset="glyphs")
    out = evaluated(tmp_path, "--ddof", 0)
    output = capsys.readouterr().out
    page = (out / "index.html").read_text()
    heads = {
        name: (out / f"{name}_selected.csv").read_text().splitlines()[0]
        for name in ("cub200", "online_products", "shared")
    }
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
    assert (line["group"], line["seeds"], line["epoch"], line["R@1 [%]"]) == (
        "D",
        "0 of 2",
        "",
        "",
    ) and "left out: D_s0 (" in line["remarks"]
    left_out = {(line["data set"], line["run"]): line for line in lines(out / "left_out.csv")}
    assert set(left_out) == {
        ("cars196", "D_s0"),
        ("cars196", "D_s1"),
        ("glyphs", "E_s0"),
        ("glyphs", "E_s1"),
        ("inshop", "C_s1"),
    }
    for key, values in (
        (("cars196", "D_s0"), ("50.00", "")),
        (("inshop", "C_s1"), ("", "50.00")),
    ):  # the columns of all data sets
        assert (left_out[key]["R@1 [%]"], left_out[key]["MAP@R [%]"]) == values
    assert left_out["inshop", "C_s1"]["run"] in page and "1 of 2" in page and "short: 1 of 2 epochs" in page
    out = evaluated(tmp_path, "--metrics", "e_recall@10", out="asked")
    assert "recorded e_recall@10" in (out / "index.html").read_text()
    assert (out / "cub200_selected.csv").read_text().startswith("group,seeds,epoch,")
    assert "R@10 [%]" in (out / "online_products_selected.csv").read_text()


def test_where_no_run_recorded_anything_the_page_and_what_was_left_out_are_written(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for dataset in ("cub200", "cars196"):
        make_run(tmp_path / "runs", records=[], dataset=dataset)
    out = evaluated(Path(), out="deep/out").resolve()
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert notes == [
        (
            "note: no numbers on cub200, cars196: none of the runs there (2) recorded a metric that rates an "
            "embedding space"
        )
    ]
    links = [link for link in re.findall(r'href="([^"#]+)"', (out / "index.html").read_text()) if "_s0" in link]
    assert len(lines(out / "left_out.csv")) == 2 and links and all((out / link).is_dir() for link in links)
    with pytest.raises(UserError, match="none of these runs recorded it. Recorded: nothing"):
        evaluated(Path(), "--metrics", "nmi")


def test_a_metric_that_some_seeds_lack_is_told_in_every_table(tmp_path):
    """Never recorded, not finite, or measured at other epochs than the selected one: the mean is that of the other
    seeds.
    """
    lacking = {"nmi": {"nmi": None}, "f1": {"f1": float("nan")}, "rho": {"rho_spectrum@2": None}, "all": {}}
    for group, broken in lacking.items():
        names = {"distance": f"CUB_{group}"}
        if group == "rho":
            names["rho_distance"] = f"CUBreg_{group}"
        for miner, name in names.items():
            for seed in range(3):
                records = [
                    (e, s, m, value) if seed else (e, s, m, broken.get(m, value))
                    for e, s, m, value in rows(0.5, 4, seed)
                ]
                records = [row for row in records if row[3] is not None]
                if group == "all":  # of the last seed alone, and elsewhere than at its selected epoch, the first
                    records = [(*row[:3], 0.9) if row[:3] == (1, "test", "e_recall@1") else row for row in records]
                    records = [row for row in records if seed == 2 or row[:1] + row[2:3] not in ((1, "nmi"), (1, "f1"))]
                make_run(
                    tmp_path / "runs",
                    name,
                    seed,
                    records=records,
                    epochs=4,
                    batch_mining=miner,
                )
    make_runs(tmp_path / "runs", ["CARS_nmi"], epochs=4, dataset="cars196")
    out = evaluated(tmp_path)
    rho = "rho (train): mean of 2 of 3 seeds"
    for name, group, message in (
        *(
            (name, "CUB_nmi", "NMI: mean of 2 of 3 seeds")
            for name in ("cub200_selected", "cub200_last", "cub200_best_on_test")
        ),
        ("cub200_selected", "CUB_f1", "F1: mean of 2 of 3 seeds"),
        ("cub200_selected", "CUB_all", "NMI, F1: mean of 1 of 3 seeds"),
        ("cub200_last", "CUB_all", ""),
        ("cub200_selected", "CUB_rho", ""),
        ("cub200_structure", "CUB_rho", rho),
        ("shared_selected", "nmi", "cub200: NMI: mean of 2 of 3 seeds"),
        ("cub200_rho_distance", "rho", f"CUB_rho: {rho}; CUBreg_rho: {rho}"),
    ):
        assert (
            next(line for line in lines(out / f"{name}.csv") if group in (line.get("group"), line.get("method")))[
                "remarks"
            ]
            == message
        ), (name, group)
    assert f"Marked: CUB_rho, CUBreg_rho: {rho}." in (out / "cub200_correlations.md").read_text()
    for path in ("cub200_selected.tex", "cub200_selected.md", "index.html"):
        assert "NMI: mean of 2 of 3 seeds" in (out / path).read_text(), path
    (line,) = [line for line in lines(out / "cub200_selected.csv") if line["group"] == "CUB_all"]
    assert line["seeds"] == "3" and line["NMI [%]"] and line["NMI [%] deviation"] == "", "no deviation of one seed"


def test_a_mean_of_one_seed_is_never_the_best_and_the_others_are_tested_without_it(tmp_path):
    make_run(tmp_path / "runs", "One", 0, 0.9, epochs=4)
    make_runs(
        tmp_path / "runs", {"Two": {"quality": 0.5}, "Three": {"quality": 0.501}, "Four": {"quality": 0.3}}, 5, epochs=4
    )
    make_runs(tmp_path / "runs", ["Only"], 5, epochs=4, dataset="cars196")
    out = evaluated(tmp_path, "--metrics", "e_recall@1", "nmi")
    line_of = {line["group"]: line for line in lines(out / "cub200_selected.csv")}
    marks = {name: line["R@1 [%] mark"] for name, line in line_of.items()}
    assert marks["One"] == marks["Four"] == "" and sorted((marks["Two"], marks["Three"])) == ["best", "close"]
    assert line_of["One"]["R@1 [%] to best low"] == "" and float(line_of["Four"]["R@1 [%] to best high"]) < -5
    named = {mark: name for name, mark in marks.items()}
    best = named["best"]
    close = named["close"]
    values = [built(tmp_path / "runs" / "cub200")[name].values(R1, SELECTED) for name in (best, close, "Four")]
    interval = inference.ranked([inference.estimate(group) for group in values], True)[1].interval
    assert (line_of[close]["R@1 [%] to best low"], line_of[close]["R@1 [%] to best high"]) == tuple(
        f"{bound:.2f}" for bound in interval
    )
    printed = f"[{interval[0]:+.2f}, {interval[1]:+.2f}]"
    for ending in ("md", "tex"):
        text = (out / f"cub200_selected.{ending}").read_text()
        assert printed in text and "never of a single seed" in text
    assert f"{printed}</small>" in (out / "index.html").read_text()


def test_groups_selected_on_validation_and_on_test_are_not_ranked_in_one_order(tmp_path):
    for group, quality in (("A", 0.6), ("B", 0.5)):
        make_runs(tmp_path / "runs", [f"Val_{group}"], quality=quality, epochs=4, splits=("train", "val", "test"))
        make_runs(tmp_path / "runs", [f"Test_{group}"], quality=quality + 0.05, epochs=4)
    make_run(tmp_path / "runs", "Failed", 0, records=[])
    out = evaluated(tmp_path)
    marked = {name: lines(out / f"{name}.csv") for name in ("cub200_selected", "cub200_last", "shared_selected")}
    assert [(line["group"], line["part"], line["R@1 [%] mark"]) for line in marked["cub200_selected"]] == [
        ("Failed", "selected on val", ""),
        ("Val_A", "selected on val", "best"),
        ("Val_B", "selected on val", ""),
        ("Test_A", "selected on test", "best"),
        ("Test_B", "selected on test", ""),
    ]
    shared = {line["method"]: line for line in marked["shared_selected"]}
    assert {name for name, line in shared.items() if line["cub200 R@1 [%] mark"] == "best"} == {"Val_A"}
    assert "cub200: not ranked with the others (selected on test)" in shared["Test_A"]["remarks"]
    assert {line["group"] for line in marked["cub200_last"] if line["R@1 [%] mark"] == "best"} == {"Test_A"}, (
        "the last epoch was not selected"
    )


def test_groups_on_other_images_are_not_ranked_together(tmp_path):
    half = {"data": {"counts": {"testing": {"images": 100, "classes": 10}}}}
    environments = {"A": ENVIRONMENT, "B": ENVIRONMENT, "C": half, "D": {}}
    make_runs(tmp_path, {group: {"environment": environment} for group, environment in environments.items()}, epochs=2)
    parts = groups.pools(list(built(tmp_path).values()), LAST)
    assert {title: [group.name for group in members] for title, members in parts.items()} == {
        "images: testing 5924 of 100 classes, training 5864 of 100 classes": ["A", "B", "D"],  # D recorded no counts
        "images: testing 100 of 10 classes": ["C"],
    }


def test_groups_with_other_test_classes_are_not_ranked_together(tmp_path):
    make_runs(
        tmp_path, {"A": {}, "B": {}, "C": {"split_shuffle": 3}}, epochs=2, split_scheme="half", split_shuffle=None
    )
    parts = groups.pools(list(built(tmp_path).values()), SELECTED)
    assert {title: [group.name for group in members] for title, members in parts.items()} == {
        "split_shuffle None": ["A", "B"],
        "split_shuffle 3": ["C"],
    }


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
    all_groups = groups.build(collect.collect([str(tmp_path)], [], flag_roles())[0])
    assert {group.dataset: len(group.seeds) for group in all_groups} == {
        "birds": 2,
        "cars": 2,
        "named": 2,
        "folder_cub200": 2,
        "cub200": 1,
        "folder": 1,
    }
    assert "data: dataset birds" in settings.printed(
        [group.settings for group in all_groups if group.dataset == "birds"]
    )


def test_untrained_networks_of_other_weights_or_data_are_not_averaged(tmp_path):
    for value, (name, flags) in enumerate(
        {"A": {"weights": "x.pth"}, "B": {"not_pretrained": True}, "C": {"weights": "x.pth"}}.items()
    ):
        make_run(
            tmp_path,
            name,
            0,
            records=[(0, "test", "e_recall@1", 0.1 * value), *curve(0.4, 0.5)],
            epochs=2,
            **{"weights": None, "not_pretrained": False, **flags},
        )
    states = groups.untrained(list(built(tmp_path).values()))
    assert [(state.title.partition("dimensions")[2], len(state.runs)) for state in states] == [
        (", not_pretrained False, weights x.pth", 2),
        (", not_pretrained True, weights None", 1),
    ]


def test_untrained_networks_have_a_row_and_neither_rank_nor_optimism(tmp_path):
    for group in "AB":
        for seed in range(2):
            before = [(epoch, "test", "e_recall@1", 0.1 * (epoch + 2) + 0.01 * seed) for epoch in (-1, 0)]
            make_run(tmp_path / "runs", group, seed, records=before + curve(0.4, 0.5 + 0.1 * (group == "B")), epochs=2)
            records = [
                (epoch, split, "e_recall@1", 0.3 + 0.1 * epoch) for epoch in (0, 1, 2) for split in ("val", "test")
            ]
            make_run(tmp_path / "validated", "A", seed, records=records, epochs=2, use_tv_split=True)
    make_run(
        tmp_path / "runs", "C", 0, records=[(0, "test", "e_recall@1", 0.9), *curve(0.4, 0.5)], epochs=2, arch="other"
    )
    table_rows = lines(evaluated(tmp_path) / "cub200_selected.csv")
    assert [
        (line["group"], line["seeds"], line["R@1 [%]"], line["R@1 [%] deviation"], line["epoch"])
        for line in table_rows[3:]
    ] == [
        ("untrained backbone", "2", "10.50", "0.71", "-1"),
        ("untrained network, other, 128 dimensions", "1", "90.00", "", "0"),
        ("untrained network, resnet50_frozen_normalize, 128 dimensions", "2", "20.50", "0.71", "0"),
    ]
    assert {line["part"] for line in table_rows[3:]} == {"before training"} and not any(
        line["R@1 [%] mark"] for line in table_rows[2:]
    )
    (trained, untrained) = lines(evaluated(tmp_path, runs="validated") / "cub200_selected.csv")
    assert untrained["group"] == "untrained network" and untrained["R@1 [%]"] == "30.00"
    selection_columns = [name for name in untrained if name.startswith("R@1, chosen on test") or "optimism" in name]
    assert (
        selection_columns
        and any(trained[name] for name in selection_columns)
        and not any(untrained[name] for name in selection_columns)
    )
