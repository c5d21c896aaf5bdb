"""W&B projects through a stand-in of its public API: our runs and those that the ICML pipeline's own code logged."""

import numpy as np
import pytest

import Result_Evaluations
from results import collect, columns, groups
from results.columns import SELECTED
from tests.kit.refusals import refused
from tests.kit.run_folders import flag_roles

NAMED = "CUB_Triplet_Distance"


R1 = columns.column("test", "e_recall@1")


LOGGED_R1 = "Test: discriminative_e_recall: e_recall@1"


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
    history = []
    for step, value in enumerate(values):
        row = {"_step": step, "_runtime": 3.0, "Train: Loss": 0.5, "spectrum": {"_type": "histogram"}}
        row |= {LOGGED_R1: value, "Test: discriminative_mAP: mAP": value / 2}
        history.append(row | {"Train: discriminative_rho_spectrum: rho_spectrum@2": 1 - value})
    config = {"dataset": "cub200", "group": group, "seed": seed, "n_epochs": n_epochs or len(values), "lr": 1e-5}
    config |= {"loss": "triplet", "batch_mining": "distance", "wandb_key": "SECRETKEY", "_wandb": {}}
    config |= {"evaltypes": ["discriminative"], "storage_metrics": ["e_recall@1"], **flags}
    return Online(name or f"{group}_s{seed}", history, config, state)


def read(*runs):
    recorded_runs, _ = collect.collect([], ["me/project"], flag_roles(), Api(*runs))
    return {group.name: group for group in groups.build(recorded_runs)}


def mine(rows, **config):
    """The run of the group `Mine` that logged these rows."""
    n_epochs = max(row["epoch"] for row in rows)
    flags = {
        "dataset": "cub200",
        "seed": 3,
        "n_epochs": n_epochs,
        "save_interval": 1,
        "storage_metrics": ["e_recall@1"],
    }
    (group,) = read(Online("Mine_s3", rows, flags | config, group="Mine")).values()
    (run,) = group.counted
    assert group.name == "Mine" and run.seed == 3
    return run


def metrics_of(run):
    return [metric for _, metric in run.series.keys]


def test_columns_are_in_the_order_of_the_flags():
    """W&B returns the values of an epoch in an order of its own."""
    names = ["nmi", "map_r", "e_recall@2", "e_recall@1", "f1"]
    rows = [{"epoch": epoch, **{f"test/{name}": 0.5 for name in sorted(names)}} for epoch in (1, 2)]
    run = mine(rows, evaluation_metrics=names)
    in_order = ["e_recall@1", "e_recall@2", "nmi", "map_r", "f1"]
    assert [c.metric for c in columns.performance(columns.recorded([run]))] == in_order
    assert metrics_of(run) == names
    rows = [{"epoch": 1, **{f"test/{head}/{name}": 0.5 for head in "ab" for name in ("map_r", "nmi")}}]
    run = mine(rows, evaluation_metrics=["nmi", "map_r"], evaltypes=["b", "a"], storage_metrics=["nmi"])
    assert metrics_of(run) == ["b/nmi", "b/map_r", "a/nmi", "a/map_r"]


def test_icml_runs_are_read():
    group = read(icml(0, [0.1, 0.6, 0.5]), icml(1, [0.2, 0.3, 0.4]))[NAMED]
    # their mAP is today's mAP_c
    means = {("test", "e_recall@1"): 50, ("test", "mAP_c"): 25, ("train", "rho_spectrum@2"): 0.5}
    assert {key: group.estimate(columns.column(*key), SELECTED).mean for key in means} == pytest.approx(means)
    assert [columns.epoch(run, SELECTED) for run in group.counted] == [2, 3]
    assert "older name of mAP_c" in group.counted[0].notes[0]
    run = icml(0, [0.1, 0.2])
    # values of one epoch in several rows are joined
    rows = []
    for row in run.scan_history():
        step = row.pop("_step")
        rows += [{"_step": step, key: value} for key, value in row.items()]
    run.scan_history = lambda: iter(rows)
    (read_back,) = read(run)[NAMED].counted
    assert list(read_back.series.epochs) == [1, 2] and np.isfinite(read_back.series.get("test", "e_recall@1")).all()


def test_own_runs_are_read_and_their_map_stays():
    rows = []
    for epoch in (-1, 0, 1, 2):
        row = {"epoch": epoch, "_step": epoch + 1, LOGGED_R1: 0.1 * (epoch + 2), "Train: loss: loss": 1.0}
        row |= {"Test: other_e_recall: e_recall@1": 0.9, "Test: discriminative_mAP: mAP": 0.3}
        rows.append(row | {"Train: criterion: active_share": 0.5})
    run = mine(rows, evaltypes=["discriminative", "other"])
    assert list(run.series.epochs) == [-1, 0, 1, 2]
    names = {("test", "discriminative/mAP"), ("train", "criterion/active_share"), ("train", "loss")}
    assert names <= set(run.series.keys)
    assert columns.value(run, columns.column("test", "other/e_recall@1"), SELECTED) == 0.9
    logged = {"test/mAP": 0.3, "train/criterion/active_share": 0.5, "val/other/nmi": 0.2}
    # values that belong to no epoch
    logged |= {"batch/loss": 1.0, "pictures/spectrum": 3}
    rows = [{"epoch": e, "_step": e, "test/e_recall@1": 0.1 * e, **logged} for e in (1, 2)]
    run = mine(rows, environment={"git_commit": "abc"})
    names = {("test", "e_recall@1"), ("test", "mAP"), ("train", "criterion/active_share"), ("val", "other/nmi")}
    assert set(run.series.keys) == names
    assert run.series.get("test", "e_recall@1").tolist() == [0.1, 0.2]
    assert run.environment == {"commit": "abc", "GPU": "unknown"} and "environment" not in run.flags


@pytest.mark.parametrize("separate", [False, True])
def test_values_under_both_names_count_once_and_older_epochs_still_count(separate):
    """A run logged as the ICML pipeline does, then resumed with both: `miner/parts/easy` has no exact name there."""
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
    row = {f"Test: {group}: e_recall@1": value for group, value in zip(titles.values(), (0.1, 0.2), strict=True)}
    run = mine([{"epoch": 1, **row}], evaltypes=["discriminative"])
    assert [run.series.get("test", metric).tolist() for metric in titles] == [[0.1], [0.2]]
    titles = {"other/emoji/nmi": "other_emoji_nmi", "other/nmi": "other_nmi"}
    rows = [{"epoch": 1, **{f"Test: {group}: nmi": 0.5 for group in titles.values()}}]
    run = mine(rows, evaltypes=["other", "discriminative"], storage_metrics=["nmi"])
    assert set(metrics_of(run)) == set(titles)


def test_crashed_runs_do_not_count_nor_those_with_a_config_of_a_wrong_type():
    broken = icml(4, [0.1, 0.2], evaltypes=3)
    broken.config["seed"] = "abc"
    group = read(
        icml(0, [0.1, 0.2]),
        icml(1, [0.3], state="crashed", n_epochs=2),
        icml(2, [0.3, 0.4], state="crashed"),
        icml(3, [], state="failed", n_epochs=2),
        broken,
    )[NAMED]
    assert sorted(group.seeds) == [0, 2] and "all epochs are there" in " ".join(group.seeds[2][0].notes)
    assert {run.name: reason for run, reason in group.left_out} == {
        f"{NAMED}_s1": "short: 1 of 2 epochs (W&B says crashed)",
        f"{NAMED}_s3": "failed: no epoch recorded (W&B says failed)",
        f"{NAMED}_s4": "failed: config: seed 'abc' is no whole number",
    }
    # --patience 3 would end the second alone
    values = {5: [0.1, 0.2, 0.3, 0.4], 6: [0.4, 0.3, 0.2, 0.1]}
    stopped = [icml(seed, recalls, state="crashed", n_epochs=100, patience=3) for seed, recalls in values.items()]
    (patient,) = read(*stopped).values()
    assert patient.seeds.keys() == {6}
    assert [reason for _, reason in patient.left_out] == ["short: 4 of 100 epochs (W&B says crashed)"]


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

    for api, message in ((Broken(), "--project me/project: cannot be read"), (Api(), "no runs there")):
        with refused(message):
            collect.collect([], ["me/project"], flag_roles(), api)


def test_folds_are_no_seeds():
    runs = [icml(1, [0.1 * k, 0.05], "Cross", n_epochs=2, name=f"Cross_s1/fold_{k - 1}") for k in (1, 2, 3)]
    group = read(*runs)["Cross"]
    assert [run.fold for run in group.counted] == [0, 1, 2] and not group.left_out
    assert group.values(R1, SELECTED) == pytest.approx([20])
    (unnamed,) = read(Online("Other_s4/fold_1", [{"_step": 0, LOGGED_R1: 0.3}], {"dataset": "cub200"})).values()
    run = unnamed.runs[0]
    assert (unnamed.name, run.seed, run.fold, run.cross_validation) == ("Other", 4, 1, "Other_s4")
