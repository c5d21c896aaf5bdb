"""W&B projects through a stand-in of its public API: our runs and those that the ICML pipeline's own code logged."""

import numpy as np
import pytest

import Result_Evaluations
from results import collect, columns, groups
from results.columns import SELECTED
from tests.kit.refusals import refused
from tests.kit.run_folders import flag_roles
from utilities.errors import UserError

NAMED = "CUB_Triplet_Distance"


class Online:
    def __init__(self, name, history, config, state="finished", group=None):
        self.name = name
        self.config = config
        self.state = state
        self.group = group
        self.url = f"https://wandb.ai/me/project/runs/{name}"
        self.scan_history = lambda: iter(history)


class Api:
    def __init__(self, *runs):
        self._runs = runs

    def runs(self, path):
        assert path == "me/project"
        return iter(self._runs)


def icml(seed, values, group=NAMED, state="finished", n_epochs=None, name=None, **flags):
    """As the ICML pipeline logged: one row a step, steps from 0, the older mAP, a key in the config."""
    history = [
        {
            "_step": i,
            "_runtime": 3.0,
            "Test: discriminative_e_recall: e_recall@1": v,
            "Test: discriminative_mAP: mAP": v / 2,
            "Train: discriminative_rho_spectrum: rho_spectrum@2": 1 - v,
            "Train: Loss": 0.5,
            "spectrum": {"_type": "histogram"},
        }
        for i, v in enumerate(values)
    ]
    config = {
        "dataset": "cub200",
        "group": group,
        "seed": seed,
        "loss": "triplet",
        "batch_mining": "distance",
        "n_epochs": n_epochs or len(values),
        "wandb_key": "SECRETKEY",
        "evaltypes": ["discriminative"],
        "storage_metrics": ["e_recall@1"],
        "_wandb": {},
        "lr": 1e-5,
        **flags,
    }
    return Online(name or f"{group}_s{seed}", history, config, state)


def read(*runs):
    recorded_runs, _ = collect.collect([], ["me/project"], flag_roles(), Api(*runs))
    return {group.name: group for group in groups.build(recorded_runs)}


def mine(rows, **config):
    """The run of the group `Mine` that logged these rows."""
    run_values = {
        "dataset": "cub200",
        "seed": 3,
        "n_epochs": max(row["epoch"] for row in rows),
        "save_interval": 1,
        "storage_metrics": ["e_recall@1"],
    }
    (group,) = read(Online("Mine_s3", rows, run_values | config, group="Mine")).values()
    (run,) = group.counted
    assert group.name == "Mine" and run.seed == 3
    return run


def test_columns_are_in_the_order_of_the_flags():
    """W&B returns the values of an epoch in an order of its own."""
    names = ["nmi", "map_r", "e_recall@2", "e_recall@1", "f1"]
    rows = [{"epoch": epoch, **{f"test/{name}": 0.5 for name in sorted(names)}} for epoch in (1, 2)]
    run = mine(rows, evaluation_metrics=names)
    assert [c.metric for c in columns.performance(columns.recorded([run]))] == [
        "e_recall@1",
        "e_recall@2",
        "nmi",
        "map_r",
        "f1",
    ]
    assert [metric for _, metric in run.series.keys] == names
    rows = [{"epoch": 1, **{f"test/{head}/{name}": 0.5 for head in "ab" for name in ("map_r", "nmi")}}]
    run = mine(rows, evaluation_metrics=["nmi", "map_r"], evaltypes=["b", "a"], storage_metrics=["nmi"])
    assert [metric for _, metric in run.series.keys] == ["b/nmi", "b/map_r", "a/nmi", "a/map_r"]


def test_icml_runs_are_read():
    group = read(icml(0, [0.1, 0.6, 0.5]), icml(1, [0.2, 0.3, 0.4]))[NAMED]
    # their mAP is today's mAP_c
    means = {
        ("test", "e_recall@1"): 50,
        ("test", "mAP_c"): 25,
        ("train", "rho_spectrum@2"): 0.5,
    }
    assert {key: group.estimate(columns.column(*key), SELECTED).mean for key in means} == pytest.approx(means)
    assert [columns.epoch(run, SELECTED) for run in group.counted] == [2, 3]
    assert "older name of mAP_c" in group.counted[0].notes[0]
    run = icml(0, [0.1, 0.2])  # values of one epoch in several rows are joined
    groups_read = [
        {"_step": row["_step"], key: value}
        for row in run.scan_history()
        for key, value in row.items()
        if key != "_step"
    ]
    run.scan_history = lambda: iter(groups_read)
    (read_back,) = read(run)[NAMED].counted
    assert list(read_back.series.epochs) == [1, 2] and np.isfinite(read_back.series.get("test", "e_recall@1")).all()


def test_own_runs_are_read_and_their_map_stays():
    run = mine(
        [
            {
                "epoch": e,
                "_step": e + 1,
                "Test: discriminative_e_recall: e_recall@1": 0.1 * (e + 2),
                "Test: other_e_recall: e_recall@1": 0.9,
                "Test: discriminative_mAP: mAP": 0.3,
                "Train: criterion: active_share": 0.5,
                "Train: loss: loss": 1.0,
            }
            for e in (-1, 0, 1, 2)
        ],
        evaltypes=["discriminative", "other"],
    )
    assert list(run.series.epochs) == [-1, 0, 1, 2]
    assert {("test", "discriminative/mAP"), ("train", "criterion/active_share"), ("train", "loss")} <= set(
        run.series.keys
    )
    assert columns.value(run, columns.column("test", "other/e_recall@1"), SELECTED) == 0.9
    run = mine(
        [
            {
                "epoch": e,
                "_step": e,
                "test/e_recall@1": 0.1 * e,
                "test/mAP": 0.3,
                "train/criterion/active_share": 0.5,
                "val/other/nmi": 0.2,
                "batch/loss": 1.0,
                "pictures/spectrum": 3,
            }
            for e in (1, 2)
        ],
        environment={"git_commit": "abc"},
    )
    assert set(run.series.keys) == {
        ("test", "e_recall@1"),
        ("test", "mAP"),
        ("train", "criterion/active_share"),
        ("val", "other/nmi"),
    }
    assert run.series.get("test", "e_recall@1").tolist() == [0.1, 0.2]
    assert run.environment == {"commit": "abc", "GPU": "unknown"} and "environment" not in run.flags


@pytest.mark.parametrize("separate", [False, True])
def test_values_under_both_names_count_once_and_older_epochs_still_count(separate):
    """A run that was logged under the ICML pipeline's names, then resumed with both: `miner/parts/easy` has no exact
    name there.
    """
    names = {
        "discriminative/e_recall@1": "discriminative_e_recall: e_recall@1",
        "other/nmi": "other_nmi: nmi",
        "miner/parts/easy": "miner: easy",
    }
    rows = []
    for epoch in (1, 2, 3):
        row = {f"Test: {title}": 0.1 * epoch for title in names.values()}
        row |= {f"test/{metric}": 0.1 * epoch for metric in names} if epoch > 1 else {}
        parts = [{key: value} for key, value in row.items()] if separate else [row]
        rows += [{"epoch": epoch, "_step": epoch, **part} for part in parts]
    run = mine(rows, evaltypes=["discriminative", "other"])
    assert set(run.series.keys) == {("test", name) for name in [*names, "miner/easy"]}
    for name in ("discriminative/e_recall@1", "other/nmi"):
        assert run.series.get("test", name) == pytest.approx([0.1, 0.2, 0.3])
    assert np.isnan(run.series.get("test", "miner/easy")[1:]).all(), "told once, under its exact name"


def test_domains_under_the_older_names_stay_apart_from_the_mean():
    titles = {"e_recall@1": "discriminative_e_recall", "emoji_1008/e_recall@1": "emoji_1008_e_recall"}
    run = mine(
        [
            {
                "epoch": 1,
                **{f"Test: {group}: e_recall@1": 0.1 * (place + 1) for place, group in enumerate(titles.values())},
            }
        ],
        evaltypes=["discriminative"],
    )
    assert {metric: run.series.get("test", metric).tolist() for metric in titles} == {
        "e_recall@1": [0.1],
        "emoji_1008/e_recall@1": [0.2],
    }
    groups_of = {"other/emoji/nmi": "other_emoji_nmi", "other/nmi": "other_nmi"}
    run = mine(
        [{"epoch": 1, **{f"Test: {group}: nmi": 0.5 for group in groups_of.values()}}],
        evaltypes=["other", "discriminative"],
        storage_metrics=["nmi"],
    )
    assert {metric for _, metric in run.series.keys} == set(groups_of)


def test_crashed_runs_do_not_count_nor_those_with_a_config_of_a_wrong_type():
    short = icml(1, [0.3], state="crashed", n_epochs=2)
    empty = icml(3, [], state="failed", n_epochs=2)
    broken = icml(4, [0.1, 0.2], evaltypes=3)
    broken.config["seed"] = "abc"
    # --patience 3 would end the second alone
    rising = [0.1, 0.2, 0.3, 0.4]
    resting = [0.4, 0.3, 0.2, 0.1]
    patient = [
        icml(seed, values, state="crashed", n_epochs=100, patience=3) for seed, values in ((5, rising), (6, resting))
    ]
    group = read(icml(0, [0.1, 0.2]), short, icml(2, [0.3, 0.4], state="crashed"), empty, broken)[NAMED]
    assert sorted(group.seeds) == [0, 2]
    (patient,) = read(*patient).values()
    assert patient.seeds.keys() == {6} and [cause for _, cause in patient.left_out] == [
        "short: 4 of 100 epochs (W&B says crashed)"
    ]
    assert {run.name: reason for run, reason in group.left_out} == {
        f"{NAMED}_s1": "short: 1 of 2 epochs (W&B says crashed)",
        f"{NAMED}_s3": "failed: no epoch recorded (W&B says failed)",
        f"{NAMED}_s4": "failed: config: seed 'abc' is no whole number",
    }
    assert "all epochs are there" in " ".join(group.seeds[2][0].notes)


def test_tables_from_wandb_hold_links_and_no_key(tmp_path):
    api = Api(*(icml(seed, [0.1, 0.6 + seed / 100]) for seed in range(3)))
    Result_Evaluations.main(Result_Evaluations.read(["--project", "me/project", "--out", str(tmp_path)]), api)
    assert "61.00 ± 1.00" in (tmp_path / "cub200_selected.md").read_text()
    assert f'href="https://wandb.ai/me/project/runs/{NAMED}_s0"' in (tmp_path / "index.html").read_text()
    assert not any(b"SECRETKEY" in path.read_bytes() for path in tmp_path.iterdir())


def test_a_project_that_cannot_be_read_is_one_line():
    class Broken:
        def runs(self, path):
            raise ValueError("could not find\nproject")

    with refused("--project me/project: cannot be read"):
        collect.collect([], ["me/project"], flag_roles(), Broken())
    with pytest.raises(UserError, match="no runs there"):
        collect.collect([], ["me/project"], flag_roles(), Api())


def test_folds_are_no_seeds():
    group = read(
        *(icml(1, [0.1 * (fold + 1), 0.05], "Cross", n_epochs=2, name=f"Cross_s1/fold_{fold}") for fold in range(3))
    )["Cross"]
    assert [run.fold for run in group.counted] == [0, 1, 2] and not group.left_out
    assert group.values(columns.column("test", "e_recall@1"), SELECTED) == pytest.approx([20])
    history = [{"_step": 0, "Test: discriminative_e_recall: e_recall@1": 0.3}]
    (unnamed,) = read(Online("Other_s4/fold_1", history, {"dataset": "cub200"})).values()
    assert (unnamed.name, unnamed.runs[0].seed, unnamed.runs[0].fold, unnamed.runs[0].cross_validation) == (
        "Other",
        4,
        1,
        "Other_s4",
    )
