"""The main job on tiny data: what a run leaves behind, how it is named, how it goes on."""

import csv
import json
import shutil
import subprocess
import sys

import PIL.Image
import pytest
import torch
import yaml

import main
import parameters
from runs import RunFolder, checkpoint
from utilities import load_run
from utilities.errors import UserError


def flags(folder_data, tmp_path, *more):
    return parameters.read([
        "--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(tmp_path / "runs"), "--arch", "conv4_normalize",
        "--embed_dim", "16", "--loss", "triplet", "--batch_mining", "semihard", "--bs", "8", "--n_epochs", "2", "--kernels", "0",
        "--resize_size", "18", "--crop_size", "16",
        "--evaluation_metrics", "e_recall@1", "map_r", "nmi", "--lr", "0.001", "--group", "Tiny", "--seed", "3", *more,
    ])  # fmt: skip


@pytest.fixture(scope="module")
def begun_once(folder_data, tmp_path_factory):
    return main.main(flags(folder_data, tmp_path_factory.mktemp("begun"), "--n_epochs", "1")).folder


@pytest.fixture
def begun(begun_once, tmp_path):
    """The folder of a run of one epoch, where `flags` look for it."""
    return shutil.copytree(begun_once, tmp_path / "runs" / "folder" / begun_once.name)


def rows(folder):
    with open(folder / "CSV_Logs" / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_folder_is_complete(folder_data, tmp_path, with_pictures):
    run = main.main(flags(folder_data, tmp_path, "--check_untrained_accuracy"))
    assert run.folder == tmp_path / "runs" / "folder" / "Tiny_s3"
    for name in (
        "parameters.yaml", "environment.yaml", "Parameter_Info.txt", "metrics.db", "tensorboard", "Progression_Plots/e_recall.svg",
        "sample_recoveries.png", "checkpoint_last.pth.tar", "checkpoint_Test_discriminative_e_recall@1.pth.tar",
        "checkpoint_Train_discriminative_e_recall@1.pth.tar", "CSV_Logs/Test_discriminative_e_recall.csv", "summary.json",
    ):  # fmt: skip
        assert (run.folder / name).exists(), name
    epochs = {(int(row["epoch"]), row["split"]) for row in rows(run.folder) if row["metric"] == "e_recall@1"}
    assert epochs == {(e, s) for e in (-1, 0, 1, 2) for s in ("train", "test")}
    summary = json.loads((run.folder / "summary.json").read_text())
    assert set(summary) == {"parameters", "selected", "best", "last", "seconds"}
    assert summary["selected"]["epoch"] in (1, 2), "an untrained state is never the best"
    by_epoch = {int(r["epoch"]): float(r["value"]) for r in rows(run.folder) if (r["split"], r["metric"]) == ("test", "e_recall@1")}
    assert summary["best"]["test"]["e_recall@1"]["value"] == max(by_epoch[1], by_epoch[2])
    assert summary["selected"]["values"]["test"]["e_recall@1"] == by_epoch[summary["selected"]["epoch"]]
    assert summary["last"]["test"]["e_recall@1"] == by_epoch[2]
    assert "sees the test set" in summary["selected"]["rule"]


def test_parameters_yaml_repeats_the_run(folder_data, tmp_path):
    first = main.main(flags(folder_data, tmp_path))
    again = main.main(parameters.read(["--config", str(first.folder / "parameters.yaml")]))
    assert again.folder.name == "Tiny_s3_1"
    timeless = [[r for r in rows(run.folder) if "seconds" not in r["metric"]] for run in (first, again)]
    assert timeless[0] == timeless[1]
    a, b = (checkpoint.read(run.folder / checkpoint.LAST)["state_dict"] for run in (first, again))
    assert all(torch.equal(a[name], b[name]) for name in a)
    saved = yaml.safe_load((first.folder / "parameters.yaml").read_text())
    assert not {"resume", "config", "wandb_key", "n_classes", "flags"} & set(saved)
    assert saved["eval_bs"] == 8 and saved["savename"] == "Tiny_s3"


def test_resume_equals_the_uninterrupted_run(folder_data, tmp_path):
    """Which had worker processes."""
    whole = main.main(flags(folder_data, tmp_path / "a", "--n_epochs", "3", "--kernels", "2", "--eval_kernels", "0"))
    main.main(flags(folder_data, tmp_path / "b", "--n_epochs", "2"))
    resumed = main.main(flags(folder_data, tmp_path / "b", "--n_epochs", "3", "--resume"))
    timeless = [[r for r in rows(run.folder) if "seconds" not in r["metric"]] for run in (whole, resumed)]
    assert timeless[0] == timeless[1]
    a, b = (checkpoint.read(run.folder / checkpoint.LAST)["state_dict"] for run in (whole, resumed))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_rows_newer_than_the_checkpoint_are_cut(folder_data, tmp_path):
    run = main.main(flags(folder_data, tmp_path))
    with open(run.folder / "CSV_Logs" / "metrics.csv", "a") as file:
        file.write("3,test,e_recall@1,0.5\n3,test,map_")
    resumed = main.main(flags(folder_data, tmp_path, "--resume", "--n_epochs", "3"))
    third = [r for r in rows(resumed.folder) if r["epoch"] == "3" and r["metric"] == "e_recall@1" and r["split"] == "test"]
    assert len(third) == 1 and len(third[0]) == 4


def test_resume_of_a_finished_run_and_of_no_run(folder_data, tmp_path, capsys):
    new = main.main(flags(folder_data, tmp_path, "--resume", "--n_epochs", "1"))
    assert "this is a new one" in capsys.readouterr().out
    before = (new.folder / "CSV_Logs" / "metrics.csv").read_bytes()
    main.main(flags(folder_data, tmp_path, "--resume", "--n_epochs", "1"))
    assert (new.folder / "CSV_Logs" / "metrics.csv").read_bytes() == before
    assert [p.name for p in new.folder.parent.iterdir()] == ["Tiny_s3"]


def test_changed_flags_are_refused_on_resume(begun, folder_data, tmp_path, capsys):
    with pytest.raises(SystemExit):
        flags(folder_data, tmp_path, "--resume", "--embed_dim", "32")
    message = capsys.readouterr().err
    assert "--embed_dim 32 (saved: 16)" in message and "--resume_allow_changes" in message and message.count("\n") == 1
    opt = parameters.read(["--resume_from", str(begun), "--kernels", "1"])
    assert opt.embed_dim == 16 and opt.loss == "triplet" and opt.kernels == 1


def test_dry_run_writes_a_picture_alone(folder_data, tmp_path, capsys):
    opt = flags(folder_data, tmp_path, "--dry_run", "--crop_size", "24", "16", "--resize_size", "24", "--random_erasing", "1", "--random_erasing_value", "9")
    main.main(opt)
    (path,) = (path for path in (tmp_path / "runs").rglob("*") if path.is_file())
    assert path == tmp_path / "runs" / opt.dataset / f"{opt.savename}_batch.png" and str(path) in capsys.readouterr().out
    images = min(opt.bs, 64)
    with PIL.Image.open(path) as picture:
        assert picture.size == ((16 + 2) * min(images, 8) + 2, (24 + 2) * -(-images // 8) + 2)
        assert min(high for _, high in picture.getextrema()) == 255, "what is erased"


def test_validation_split_selects(folder_data, tmp_path):
    run = main.main(flags(folder_data, tmp_path, "--use_tv_split", "--tv_split_perc", "0.5", "--no_train_metrics", "--n_epochs", "1"))
    assert "on val" in run.selection.rule
    assert {r["split"] for r in rows(run.folder) if r["metric"] == "e_recall@1"} == {"val", "test"}
    assert (run.folder / "checkpoint_Val_discriminative_e_recall@1.pth.tar").exists()


def test_load_run_gives_network_and_options_back(folder_data, tmp_path):
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "1"))
    network, opt = load_run(run.folder)
    assert opt.embed_dim == 16 and not network.training
    images = torch.randint(0, 256, (2, 3, 48, 48), dtype=torch.uint8)
    expected = run.parts["model"].eval()(images)[0]
    assert torch.equal(network(images)[0], expected)


def test_a_loss_that_is_not_finite_stops_the_run(begun, folder_data, tmp_path, monkeypatch):
    from training.runtime import NonFiniteLoss, Runtime

    good = (begun / checkpoint.LAST).read_bytes()
    real = Runtime.step
    monkeypatch.setattr(Runtime, "step", lambda self, loss, optimizer: real(self, loss * float("nan"), optimizer))
    with pytest.raises(NonFiniteLoss, match="nan at epoch 2, step 1"):
        main.main(flags(folder_data, tmp_path, "--n_epochs", "2", "--resume"))
    assert (begun / checkpoint.LAST).read_bytes() == good


def test_a_full_disk_leaves_the_last_checkpoint(begun, folder_data, tmp_path, monkeypatch):
    good = (begun / checkpoint.LAST).read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UserError, match="No space left on device"):
        main.main(flags(folder_data, tmp_path, "--n_epochs", "2", "--resume"))
    assert (begun / checkpoint.LAST).read_bytes() == good
    assert not list(begun.glob(".*tmp"))


def test_ctrl_c_says_how_to_go_on(begun, folder_data, tmp_path, monkeypatch, capsys):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "train_one_epoch", interrupt)
    with pytest.raises(SystemExit) as stop:
        main.main(flags(folder_data, tmp_path, "--n_epochs", "2", "--resume"))
    assert stop.value.code == 130
    assert f"--resume_from {begun}" in capsys.readouterr().out


def test_two_processes_never_train_in_one_folder(begun, folder_data, tmp_path):
    hold = f"import fcntl, time; f = open({str(begun / '.lock')!r}, 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True)
    try:
        holder.stdout.readline()
        with pytest.raises(UserError, match="another process trains"):
            main.main(flags(folder_data, tmp_path, "--n_epochs", "2", "--resume"))
    finally:
        holder.kill()
        holder.wait()
    main.main(flags(folder_data, tmp_path, "--n_epochs", "2", "--resume"))


def test_resume_best_goes_back_and_cuts_what_came_after(folder_data, tmp_path, monkeypatch):
    from runs.run import Selection

    values = iter([0.9, 0.5, 0.4])
    monkeypatch.setattr(main.evaluation, "evaluate", lambda *args, **kwargs: ({"test": {"e_recall@1": next(values)}}, {}))
    monkeypatch.setattr(main.outputs, "of_best_epoch", lambda *args: None)
    assert Selection(flags(folder_data, tmp_path), main.metrics.higher_is_better, "test").metric == "e_recall@1"
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "3", "--evaluation_metrics", "e_recall@1"))
    assert {r["epoch"] for r in rows(run.folder)} == {"1", "2", "3"}
    values = iter([0.3, 0.2])
    opt = parameters.read(["--resume", "best", "--resume_from", str(run.folder)])
    again = main.main(opt)
    recalls = {r["epoch"]: float(r["value"]) for r in rows(again.folder) if r["metric"] == "e_recall@1"}
    assert recalls == {"1": 0.9, "2": 0.3, "3": 0.2}


def test_an_empty_folder_of_a_killed_run_is_taken_up(folder_data, tmp_path):
    folder = tmp_path / "runs" / "folder" / "Tiny_s3"
    folder.mkdir(parents=True)
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "1", "--resume"))
    assert run.folder == folder and run.epoch == 1


def batch_values(folder):
    """(epoch, step, name) -> value of batches.csv, without what time and machine decide."""
    with open(folder / "CSV_Logs" / "batches.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    timed = ("images_per_second", "memory_mib")
    keys = [(int(r["epoch"]), int(r["step"]), r["name"]) for r in lines]
    assert len(set(keys)) == len(keys)
    return {key: r["value"] for key, r in zip(keys, lines, strict=True) if key[2] not in timed}, {key[2] for key in keys}


def test_batches_are_recorded_on_demand_and_go_on_after_a_resume(folder_data, tmp_path):
    plain = main.main(flags(folder_data, tmp_path / "plain", "--n_epochs", "3"))
    assert not (plain.folder / "CSV_Logs" / "batches.csv").exists()
    whole = main.main(flags(folder_data, tmp_path / "whole", "--n_epochs", "3", "--log_every", "2"))
    steps = plain.batches.steps // 3  # batches an epoch
    assert whole.batches.steps == 3 * steps >= 6
    values, names = batch_values(whole.folder)
    assert {(epoch, step) for epoch, step, _ in values} == {(1 + (step - 1) // steps, step) for step in range(2, 3 * steps + 1, 2)}
    wanted = {"loss", "gradient_norm", "criterion/active_share", "miner/tuples", "rate/backbone", "images_per_second", "memory_mib"}
    assert wanted <= names, names
    timeless = [[r for r in rows(run.folder) if "seconds" not in r["metric"]] for run in (plain, whole)]
    assert timeless[0] == timeless[1], "recording changes nothing"

    main.main(flags(folder_data, tmp_path / "again", "--n_epochs", "2", "--log_every", "2"))
    folder = tmp_path / "again" / "runs" / "folder" / "Tiny_s3"
    with open(folder / "CSV_Logs" / "batches.csv", "a") as file:
        file.write(f"3,{2 * steps + 2},loss,0.5\n3,{2 * steps + 4},lo")  # a third epoch that was killed
    main.main(flags(folder_data, tmp_path / "again", "--n_epochs", "3", "--log_every", "2", "--resume"))
    assert batch_values(folder)[0] == values


def test_epoch_means_are_the_means_of_the_batches(folder_data, tmp_path):
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "1", "--log_every", "1"))
    values, names = batch_values(run.folder)
    means = {r["metric"]: float(r["value"]) for r in rows(run.folder) if r["split"] == "train"}
    for name in names - {"images_per_second", "memory_mib"}:
        of_batches = [float(value) for (_, _, key), value in values.items() if key == name]
        assert len(of_batches) == run.batches.steps
        assert means[name] == pytest.approx(sum(of_batches) / len(of_batches), rel=1e-5), name


def test_allowed_changes_are_used_and_refused_ones_leave_the_run_as_it_was(folder_data, tmp_path):
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "1", "--scheduler", "cosine"))
    changed = ["--resume", "--resume_allow_changes", "--lr", "0.5", "--fc_lr", "0.25", "--decay", "0.01"]
    main.main(flags(folder_data, tmp_path, "--n_epochs", "2", "--scheduler", "cosine", *changed))
    rates = {r["metric"]: float(r["value"]) for r in rows(run.folder) if r["epoch"] == "2" and r["metric"].startswith("rate/")}
    last = checkpoint.read(run.folder / checkpoint.LAST)
    groups = last["optimizer"]["param_groups"]
    assert len(groups) == 2 and groups[0]["weight_decay"] == 0.01
    assert rates["rate/backbone"] == pytest.approx(2 * rates["rate/last_linear"])
    saved = (run.folder / "parameters.yaml").read_bytes()
    with pytest.raises(UserError, match="does not fit .*as where a flag that was changed asks for another model"):
        main.main(flags(folder_data, tmp_path, "--n_epochs", "3", "--resume", "--resume_allow_changes", "--embed_dim", "5"))
    assert (run.folder / "parameters.yaml").read_bytes() == saved


def rates(folder):
    return {int(r["epoch"]): float(r["value"]) for r in rows(folder) if r["metric"] == "rate/backbone"}


@pytest.mark.parametrize("scheduler", [("cosine",), ("step", "--tau", "1", "3", "--gamma", "0.5")])
def test_more_epochs_go_on_at_the_rates_of_a_run_that_long(folder_data, tmp_path, scheduler):
    run = main.main(flags(folder_data, tmp_path, "--scheduler", *scheduler))
    main.main(parameters.read(["--resume_from", str(run.folder), "--n_epochs", "4"]))
    direct = main.main(flags(folder_data, tmp_path, "--scheduler", *scheduler, "--n_epochs", "4", "--group", "Direct"))
    went_on, expected = rates(run.folder), rates(direct.folder)
    assert [went_on[epoch] for epoch in (3, 4)] == [expected[epoch] for epoch in (3, 4)] and went_on[4] > 0


@pytest.mark.parametrize("optimisers", [
    (["adam"], ["rmsprop"]), (["sgd"], ["adamw"]), (["rmsprop", "--momentum", "0"], ["rmsprop", "--momentum", "0.9"]),
])  # fmt: skip
def test_another_optimiser_begins_anew_at_the_rates_of_now(folder_data, tmp_path, capsys, optimisers):
    before, after = optimisers
    validated = ["--scheduler", "plateau", "--use_tv_split", "--tv_split_perc", "0.5"]
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "1", *validated, "--optim", *before))
    main.main(parameters.read(["--resume_from", str(run.folder), "--n_epochs", "2", "--optim", *after, "--resume_allow_changes"]))
    assert "begin anew" in capsys.readouterr().out
    main.main(parameters.read(["--resume_from", str(run.folder), "--n_epochs", "3"]))
    assert "begin anew" not in capsys.readouterr().out
    assert set(rates(run.folder)) == {1, 2, 3} and set(rates(run.folder).values()) == {0.001}


def test_adam_and_adamw_share_their_state(folder_data, tmp_path, capsys):
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "1", "--optim", "adam"))
    main.main(parameters.read(["--resume_from", str(run.folder), "--n_epochs", "2", "--optim", "adamw", "--resume_allow_changes"]))
    assert "begin anew" not in capsys.readouterr().out
    steps = {float(state["step"]) for state in checkpoint.read(run.folder / checkpoint.LAST)["optimizer"]["state"].values()}
    assert steps == {float(run.batches.steps * 2)}


def test_more_patience_goes_on(folder_data, tmp_path, monkeypatch):
    monkeypatch.setattr("runs.run.Run._update_best", first_epoch_is_best)
    run = main.main(flags(folder_data, tmp_path, "--use_tv_split", "--tv_split_perc", "0.5", "--n_epochs", "9", "--patience", "1"))
    assert run.epoch == 2 and run.state["stopped"]
    resume = ["--resume_from", str(run.folder)]
    assert main.main(parameters.read([*resume, "--n_epochs", "10"])).epoch == 2, "no more patience, no more epochs"
    assert main.main(parameters.read([*resume, "--patience", "3", "--resume_allow_changes"])).epoch == 4


def first_epoch_is_best(run, epoch, scores):
    if epoch == 1:
        run.state["selected"] = {"epoch": 1, "values": {}, "checkpoint": run._best_checkpoint().name}
    return [(run.selection.split, run.selection.metric)] if epoch == 1 else []


def test_what_no_continuation_may_change(begun, capsys):
    saved = (begun / "parameters.yaml").read_bytes()
    for change in (
        ["--use_tv_split"], ["--tv_split_perc", "0.3"], ["--split_scheme", "class_disjoint"], ["--storage_metrics", "map_r", "e_recall@1"],
        ["--dataset", "glyphs"],
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            parameters.read(["--resume_from", str(begun), "--n_epochs", "2", "--resume_allow_changes", *change])
        message = capsys.readouterr().err
        assert message.count("\n") == 1 and change[0] in message and "Start a new run" in message
    assert (begun / "parameters.yaml").read_bytes() == saved
    more = ["--storage_metrics", "e_recall@1", "map_r", "--resume_allow_changes"]  # the first stays: it is kept beside
    assert main.main(parameters.read(["--resume_from", str(begun), "--n_epochs", "2", *more])).epoch == 2


def test_damaged_flags_of_a_run_are_one_line(begun, capsys):
    for content in (b"lr: [\n", b"", b"\xff\xfe", b"- 1\n", b"lr: &a [*a]\n"):
        (begun / "parameters.yaml").write_bytes(content)
        for words in (["--resume_from"], ["--evaluate", "--resume_from"], ["--reproduce_results"]):
            with pytest.raises(SystemExit):
                parameters.read([*words, str(begun)])
            message = capsys.readouterr().err
            assert message.count("\n") == 1 and "parameters.yaml is damaged" in message


def test_a_damaged_checkpoint_is_one_line_also_where_it_is_read_lazily(tmp_path):
    (tmp_path / checkpoint.LAST).write_bytes(b"no checkpoint")
    with pytest.raises(UserError, match="damaged") as told:
        _ = RunFolder(tmp_path).progress
    assert "mmap" not in str(told.value)


def test_evaluation_alone_keeps_what_was_trained(folder_data, tmp_path, capsys):
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "1", "--dump_embeddings"))
    again = ["--evaluate", "--resume_from", str(run.folder)]
    assert not parameters.read(again).dump_embeddings and parameters.read([*again, "--dump_embeddings"]).dump_embeddings
    with pytest.raises(SystemExit):
        parameters.read([*again, "--lr", "5"])
    assert "--evaluate: flags differ" in capsys.readouterr().err


def test_an_unknown_evaltype_is_refused_before_anything_is_trained(folder_data, tmp_path):
    for more in (["--dry_run"], []):
        with pytest.raises(UserError, match="--evaltypes foo"):
            main.main(flags(folder_data, tmp_path, "--evaltypes", "foo", *more))
    assert not (tmp_path / "runs").exists()


def test_missing_data_are_told_before_missing_weights(tmp_path):
    missing = ["--weights", str(tmp_path / "no.pth"), "--dataset_folder_path", str(tmp_path / "nothing")]
    with pytest.raises(UserError, match="--dataset_folder_path .*nothing: no such folder"):
        main.main(flags(tmp_path, tmp_path, *missing))
    official = ["--dataset", "cub200", "--source_path", str(tmp_path / "nothing"), *missing[:2], "--dry_run"]
    with pytest.raises(UserError, match="cub200"):
        main.main(flags(tmp_path, tmp_path, *official))


def test_a_dry_run_refuses_a_loss_that_is_no_number(folder_data, tmp_path, monkeypatch):
    loss = lambda trainer, outputs, batch: outputs["embeddings"].sum() * float("nan")  # noqa: E731
    monkeypatch.setattr("trainers._trainer.Trainer.metric_loss", loss)
    with pytest.raises(UserError, match="gives loss"):
        main.main(flags(folder_data, tmp_path, "--loss", "softmax", "--dry_run"))


def test_a_picture_that_fails_costs_no_run(folder_data, tmp_path, monkeypatch, capsys):
    def fail(*args):
        raise ValueError("no canvas")

    monkeypatch.setattr(main.outputs, "of_best_epoch", fail)
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "1"))
    assert "no canvas" in capsys.readouterr().out and checkpoint.read(run.folder / checkpoint.LAST)["epoch"] == 1


def test_a_failure_while_going_back_to_the_best_epoch_leaves_the_last_checkpoint(folder_data, tmp_path, monkeypatch):
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "3"))
    there = {path.name for path in run.folder.glob("checkpoint_*")}

    def full(*args, **kwargs):
        raise UserError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("runs.run.link", full)
        with pytest.raises(UserError, match="no space left"):
            main.main(parameters.read(["--resume", "best", "--resume_from", str(run.folder)]))
    assert {path.name for path in run.folder.glob("checkpoint_*")} == there
    best = run.state["selected"]["epoch"]
    again = main.main(parameters.read(["--resume", "best", "--resume_from", str(run.folder)]))
    assert again.epoch == 3 and again.state["selected"]["epoch"] >= best
