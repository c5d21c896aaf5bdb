"""The main job on tiny data: what a run leaves behind, how it goes on, with which changes, what stops it."""

import math
import shutil
import subprocess
import sys

import PIL.Image
import pytest
import torch

import main
from engine.runtime import NonFiniteLoss, Runtime
from runs import checkpoint
from runs.folder import run_folder
from tests.kit.refusals import refused
from tests.kit.runs import (
    assert_flags,
    assert_same_run,
    content_of,
    read,
    recorded_values,
    resolve,
    rows_of,
    run_main,
    run_words,
)
from utilities.errors import UserError

TINY = "--loss triplet --batch_mining semihard --group Tiny --seed 3 --n_epochs 2"


def flags(data, tmp_path, *flags):
    return read(*run_words(data, tmp_path / "runs", TINY, *flags))


def trained(*arguments):
    return main.main(flags(*arguments))


def resumed(folder, *flags):
    return run_main("--resume_from", folder, "--resume_allow_changes", *flags)


@pytest.fixture(scope="module")
def begun_once(folder_data, tmp_path_factory):
    short = "--n_epochs 1 --scheduler cosine --check_untrained_accuracy"
    return trained(folder_data, tmp_path_factory.mktemp("begun"), short).folder


@pytest.fixture
def begun(begun_once, tmp_path):
    """The folder of a run of one epoch."""
    return shutil.copytree(begun_once, tmp_path / "runs" / "folder" / begun_once.name)


def test_a_run_that_moved_goes_on_where_it_lies_and_old_weights_are_changes(begun, tmp_path, capsys):
    moved = tmp_path / "elsewhere" / "folder" / begun.name
    shutil.copytree(begun, moved)
    leftover = moved / ".checkpoint_last.pth.tar.abc.tmp"
    leftover.write_text("what a killed process left")
    words = ["--dataset folder --save_path", tmp_path / "elsewhere", "--savename", begun.name, "--resume"]
    opt = read(*words)
    assert run_folder(opt) == moved and opt.n_epochs == 1 and opt.seed == 3
    with pytest.raises(SystemExit):
        read(*words, "--memory_weight .5")
    assert "--loss_weights memory_loss=0.5 (saved: )" in capsys.readouterr().err
    assert read(*words, "--memory_weight .5 --resume_allow_changes").loss_weights == ["memory_loss=0.5"]
    main.main(opt)
    assert not leftover.exists()


def test_a_schedule_by_epochs_goes_on_at_the_epoch_where_plateau_ended(folder_data, tmp_path):
    plateau = "--use_tv_split --tv_split_perc .5 --scheduler plateau --save_interval 3 --n_epochs 3"
    folder = trained(folder_data, tmp_path, plateau).folder
    run = resumed(folder, "--scheduler cosine --n_epochs 4")
    assert run.parts["scheduler"].scheduler.last_epoch == 4


def test_a_run_folder_is_complete(trained_once, begun_once):
    names = (
        "parameters.yaml environment.yaml Parameter_Info.txt metrics.db tensorboard checkpoint_last.pth.tar "
        "checkpoint_Test_discriminative_map_r.pth.tar checkpoint_Train_discriminative_map_r.pth.tar "
        "CSV_Logs/Test_discriminative_e_recall.csv"
    )
    assert not [name for name in names.split() if not (trained_once / name).exists()]
    table = recorded_values(trained_once).xs("map_r", level="metric")
    summary = content_of(trained_once / "summary.json")
    assert set(table.index) == {(e, s) for e in (1, 2) for s in ("train", "test")}
    assert set(summary) == {"parameters", "selected", "best", "last", "seconds", "warnings"}
    assert "selected on the test set" in summary["selected"]["rule"]
    of_test = table.xs("test", level="split")
    selected = summary["selected"]
    assert max(of_test[1], of_test[2]) == of_test[selected["epoch"]] == summary["best"]["test"]["map_r"]["value"]
    assert selected["values"]["test"]["map_r"] == of_test[selected["epoch"]]
    assert summary["last"]["test"]["map_r"] == of_test[2]
    # an untrained state is never the best
    assert content_of(begun_once / "summary.json")["selected"]["epoch"] == 1
    assert set(recorded_values(begun_once).xs(("test", "map_r"), level=("split", "metric")).index) == {-1, 0, 1}
    assert begun_once.parts[-3:] == ("runs", "folder", "Tiny_s3")


def batch_values(folder):
    """(epoch, step, name) -> value of batches.csv, without what time and machine decide; and all names."""
    rows = rows_of(folder / "CSV_Logs" / "batches.csv")
    recorded = {(int(row["epoch"]), int(row["step"]), row["name"]): float(row["value"]) for row in rows}
    assert len(recorded) == len(rows)
    names = {name for *_, name in recorded}
    return {key: value for key, value in recorded.items() if key[2] not in ("images_per_second", "memory_mib")}, names


def test_parameters_yaml_repeats_the_run_and_recording_batches_changes_nothing(trained_once, tmp_path):
    rerun = run_main("--config", trained_once / "parameters.yaml", "--save_path", tmp_path, "--log_every 1")
    assert_same_run(trained_once, rerun.folder)
    assert not (trained_once / "CSV_Logs" / "batches.csv").exists()
    saved = content_of(trained_once / "parameters.yaml")
    assert not {"resume", "config", "wandb_key", "n_classes", "flags"} & set(saved) and saved["eval_bs"] == 8
    assert saved["savename"] == "Run_s1"
    of_batches, _ = batch_values(rerun.folder)
    # epoch means are those of the batches
    for name in {name for *_, name in of_batches}:
        mean = sum(of_batches[1, step, name] for step in (1, 2)) / 2
        assert recorded_values(rerun.folder)[1, "train", name] == pytest.approx(mean, rel=1e-5), name


def test_resume_equals_the_uninterrupted_run(folder_data, tmp_path, capsys):
    """Which had worker processes. What is newer than the checkpoint, of a second epoch that was killed, is cut."""

    def train(name, epochs, *workers):
        words = f"--savename {name} --n_epochs {epochs} --log_every 2 --plot_every 0"
        return main.main(flags(folder_data, tmp_path, words, *workers).but(no_records=False)).folder

    whole_run = train("Whole", 2, "--kernels 2 --eval_kernels 0")
    cut = train("Cut", 1, "--resume_or_start")
    assert "this is a new one" in capsys.readouterr().out
    for name, lines in (("metrics", "2,test,e_recall@1,0.5\n2,test,map_"), ("batches", "2,4,loss,0.5\n2,6,lo")):
        with open(cut / "CSV_Logs" / f"{name}.csv", "a") as file:
            file.write(lines)
    train("Cut", 2, "--resume")
    assert_same_run(whole_run, cut)
    of_batches, names = batch_values(cut)
    assert of_batches == batch_values(whole_run)[0] and {key[:2] for key in of_batches} == {(1, 2), (2, 4)}
    expected = "loss gradient_norm criterion/active_share miner/tuples rate/backbone images_per_second memory_mib"
    assert set(expected.split()) <= names
    before = (cut / "CSV_Logs" / "metrics.csv").read_bytes()
    train("Cut", 2, "--resume")
    assert (cut / "CSV_Logs" / "metrics.csv").read_bytes() == before
    assert {path.name for path in cut.parent.iterdir()} == {"Whole", "Cut"}
    (tmp_path / "runs" / "folder" / "Killed").mkdir()
    assert train("Killed", 1, "--resume").name == "Killed", "the empty folder of a killed run is taken up"


def test_dry_run_writes_a_picture_alone(folder_data, tmp_path, capsys):
    words = "--dry_run --crop_size 24 16 --resize_size 24 --random_erasing 1 --random_erasing_value 9"
    opt = flags(folder_data, tmp_path, words)
    main.main(opt)
    (path,) = (path for path in (tmp_path / "runs").rglob("*") if path.is_file())
    assert path == tmp_path / "runs" / opt.dataset / f"{opt.savename}_batch.png"
    assert str(path) in capsys.readouterr().out
    with PIL.Image.open(path) as picture:
        assert picture.size == ((16 + 2) * 8 + 2, (24 + 2) + 2)
        assert min(high for _, high in picture.getextrema()) == 255, "what is erased"


# ---------- failures
def raising(error):
    def fails(*args, **kwargs):
        raise error

    return fails


def test_weights_that_are_nan_are_not_trained_on(begun):
    content = torch.load(begun / checkpoint.LAST, weights_only=True)
    key = next(key for key, value in content["state_dict"].items() if key.endswith("last_linear.weight"))
    content["state_dict"][key][0, 0] = torch.nan
    torch.save(content, begun / checkpoint.LAST)
    with refused(f"{begun / checkpoint.LAST} holds NaN or infinity in {key}: --resume best goes on from"):
        resumed(begun, "--n_epochs 2")


def test_a_failure_leaves_the_last_checkpoint_and_says_how_to_go_on(begun, monkeypatch, capsys):
    good = (begun / checkpoint.LAST).read_bytes()
    step = Runtime.step

    def step_of_nan(self, loss, optimizer):
        return step(self, loss * math.nan, optimizer)

    for owner, name, stand_in, error, message in (
        (Runtime, "step", step_of_nan, NonFiniteLoss, "nan at epoch 2, step 1"),
        (torch, "save", raising(OSError(28, "No space left on device")), UserError, "No space left on device"),
        (main, "train_one_epoch", raising(KeyboardInterrupt), SystemExit, "130"),
    ):
        with monkeypatch.context() as patch, pytest.raises(error, match=message):
            patch.setattr(owner, name, stand_in)
            resumed(begun, "--n_epochs 2")
        assert (begun / checkpoint.LAST).read_bytes() == good and not list(begun.glob(".*tmp"))
    assert f"--resume_from {begun}" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(main.outputs, "of_best_epoch", raising(ValueError("no canvas")))
        assert resumed(begun, "--n_epochs 2").epoch == 2, "a picture that fails costs no run"
    assert "no canvas" in capsys.readouterr().out and checkpoint.read(begun / checkpoint.LAST)["epoch"] == 2


def test_two_processes_never_train_in_one_folder(begun):
    hold = (
        f"import fcntl, time; f = open({str(begun / '.lock')!r}, 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', "
        "flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True)
    try:
        holder.stdout.readline()
        with pytest.raises(UserError, match="another process trains"):
            resumed(begun, "--n_epochs 2")
    finally:
        holder.kill()
        holder.wait()
    assert resumed(begun, "--n_epochs 2").epoch == 2


def test_what_cannot_work_is_refused_before_anything_is_trained(folder_data, tmp_path, monkeypatch):
    missing = f"--weights {tmp_path}/no.pth"
    for wrong_flags, message in (
        ("--evaltypes foo", "--evaltypes foo"),
        ("--evaltypes foo --dry_run", "--evaltypes foo"),
        (f"{missing} --dataset_folder_path {tmp_path}/nothing", "--dataset_folder_path .*nothing: no such folder"),
        (f"{missing} --dataset cub200 --source_path {tmp_path}/nothing --dry_run", "cub200"),
    ):
        with pytest.raises(UserError, match=message):
            trained(folder_data, tmp_path, wrong_flags)
    loss = lambda trainer, outputs, batch: outputs["embeddings"].sum() * float("nan")  # noqa: E731
    monkeypatch.setattr("trainers._trainer.Trainer.metric_loss", loss)
    with pytest.raises(UserError, match="gives loss"):
        trained(folder_data, tmp_path, "--dry_run")
    assert not (tmp_path / "runs").exists()


# ---------- changes
@pytest.mark.long
def test_a_run_goes_on_at_the_rates_of_now_also_with_another_optimiser(begun, capsys):
    """Those of a cosine over so many epochs, with the flags of now from the start."""
    for epoch, (change, message) in enumerate(
        (
            ("--lr 0.002 --fc_lr 0.001 --decay 0.01", ""),
            ("--optim adamw", ""),
            ("--optim rmsprop --momentum 0", "begin anew"),
            ("--momentum 0.9", "begin anew"),
            ("--optim sgd", "begin anew"),
            ("", ""),
            ("--layer_decay .5", "optimiser's groups have changed"),
        ),
        start=2,
    ):
        resumed(begun, "--n_epochs", epoch, *change.split())
        output = capsys.readouterr().out
        assert message in output and ("begin anew" in output) == bool(message), change
        note = f"note  --n_epochs {epoch} (before: {epoch - 1}): --scheduler cosine spans all epochs"
        assert (note in output) == (epoch > 2), "the first epoch has the full rate whatever the length"
        rates = recorded_values(begun)[epoch, "train"]
        factor = (1 + math.cos(math.pi * (epoch - 1) / epoch)) / 2
        assert rates["rate/last_linear"] == pytest.approx(0.001 * factor), change
        group = "backbone_4" if "--layer_decay" in change else "backbone"
        layer_factor = 0.5**4 if epoch == 8 else 1
        assert rates[f"rate/{group}"] == pytest.approx(0.002 * factor * layer_factor)
        optimizer = checkpoint.read(begun / checkpoint.LAST)["optimizer"]
        assert all(group["weight_decay"] == 0.01 for group in optimizer["param_groups"])
        if epoch == 3:
            # adam and adamw share their state
            assert {float(state["step"]) for state in optimizer["state"].values()} == {6.0}


def test_more_patience_goes_on(folder_data, tmp_path, monkeypatch):
    def first_epoch_is_best(run, epoch, scores):
        if epoch == 1:
            run.state["best"][run.selection.split] = {}
            run.state["selected"] = {"epoch": 1, "values": {}, "checkpoint": run._best_checkpoint().name}
        return [(run.selection.split, run.selection.metric)] if epoch == 1 else []

    monkeypatch.setattr("runs.run.Run._update_best", first_epoch_is_best)
    run = trained(folder_data, tmp_path, "--use_tv_split --tv_split_perc 0.5 --n_epochs 9 --patience 1")
    assert run.epoch == 2 and run.state["stopped"]
    assert resumed(run.folder, "--n_epochs 10").epoch == 2, "no more patience, no more epochs"
    assert resumed(run.folder, "--patience 3").epoch == 4


def test_what_a_continuation_may_change(begun):
    saved = (begun / "parameters.yaml").read_bytes()
    with refused("--embed_dim 32 .saved: 8.", "--resume_allow_changes"):
        resolve("--resume_from", begun, "--embed_dim 32")
    with refused("--evaluate: flags differ", "--lr 5"):
        resolve("--resume_from", begun, "--evaluate --lr 5")
    for change in (
        "--use_tv_split",
        "--tv_split_perc 0.3",
        "--split_scheme class_disjoint",
        "--storage_metrics e_recall@1 map_r",
        "--dataset glyphs",
    ):
        with refused(change.split()[0], "Start a new run"):
            resolve("--resume_from", begun, change, "--n_epochs 2 --resume_allow_changes")
    with pytest.raises(UserError, match="does not fit .*for example because a changed flag needs another model"):
        resumed(begun, "--n_epochs 3 --embed_dim 5")
    assert (begun / "parameters.yaml").read_bytes() == saved
    opt = read("--resume_from", begun, "--kernels 1 --evaluate")
    assert_flags(opt, embed_dim=8, loss="triplet", kernels=1, dump_embeddings=False)
    assert resumed(begun, "--n_epochs 2 --storage_metrics map_r e_recall@1").epoch == 2, "the first stays"


def test_resume_best_goes_back_and_cuts_what_came_after(folder_data, tmp_path, monkeypatch):
    recalls = iter([0.9, 0.5, 0.4, 0.3, 0.2])
    monkeypatch.setattr(main.evaluation, "evaluate", lambda *args, **kwargs: ({"test": {"map_r": next(recalls)}}, {}))
    monkeypatch.setattr(main.outputs, "of_best_epoch", lambda *args: None)
    folder = trained(folder_data, tmp_path, "--n_epochs 3 --evaluation_metrics map_r").folder
    assert set(recorded_values(folder).index.get_level_values("epoch")) == {1, 2, 3}
    names = {path.name for path in folder.glob("checkpoint_*")}
    with monkeypatch.context() as patch, pytest.raises(UserError, match="no space left"):
        patch.setattr("runs.run.link", raising(UserError("no space left on device")))
        resumed(folder, "--resume best")
    assert {path.name for path in folder.glob("checkpoint_*")} == names, "a failure leaves the last checkpoint"
    resumed(folder, "--resume best")
    of_test = recorded_values(folder).xs(("test", "map_r"), level=("split", "metric"))
    assert of_test.to_dict() == {1: 0.9, 2: 0.3, 3: 0.2}
