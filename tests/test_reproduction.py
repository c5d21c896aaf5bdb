"""What was changed on resume is recorded where it was changed, and a reproduction makes the same changes at the same
epochs.
"""

import shutil

import pytest
import torch

import main
from runs import RunFolder, checkpoint
from runs import changes as recorded
from tests.kit.data_sets import write_split_file
from tests.kit.refusals import refused
from tests.kit.runs import content_of, read, resolve, rows_of, run_main, run_words
from utilities.errors import UserError

DIFFS = "resume_training_config_diffs"


def train(data, tmp_path, *words):
    first = "--loss margin --batch_mining distance --n_epochs 3 --group First --scheduler cosine --no_train_metrics"
    return run_main(*run_words(data, tmp_path / "runs", first, *words))


def reproduce(folder, *words):
    return run_main("--reproduce_results", folder, *words)


def go_on(folder, *flags):
    return run_main("--resume_from", folder, "--resume_allow_changes", *flags)


def stop_after(monkeypatch, calls: int):
    """Ctrl-C in the training epoch after so many."""
    real = main.train_one_epoch
    epochs = []

    def train_one_epoch(*args):
        epochs.append(args[0])
        if len(epochs) > calls:
            monkeypatch.setattr(main, "train_one_epoch", real)
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(main, "train_one_epoch", train_one_epoch)


def rows(folder):
    """What was recorded while it trained: of the final tests there is one for each time that a fold was at its end."""
    splits = ("train", *RunFolder(folder).flags["splits_to_eval"])
    recorded = rows_of(folder / "CSV_Logs" / "metrics.csv")
    return [row for row in recorded if "second" not in row["metric"] and row["split"] in splits]


def changes(folder):
    files = (folder / "configs").glob(f"{DIFFS}_*/parameters.yaml")
    return {path.parent.name.removeprefix(f"{DIFFS}_"): content_of(path) for path in files}


def assert_same(first, second):
    assert rows(first) == rows(second)
    a, b = (checkpoint.read(folder / checkpoint.LAST) for folder in (first, second))
    for part in ("state_dict", "criterion"):
        assert a[part].keys() == b[part].keys() and all(torch.equal(a[part][name], b[part][name]) for name in a[part])
    assert a["epoch"] == b["epoch"]


@pytest.fixture(scope="module")
def changed(data, tmp_path_factory):
    """3 epochs, interrupted after 1, then other rates, later more epochs and another loss margin."""
    tmp_path = tmp_path_factory.mktemp("changed")
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(SystemExit):
            train(data, tmp_path, "--check_untrained_accuracy")
    folder = tmp_path / "runs" / "folder" / "First_s1"
    go_on(folder, "--lr 0.01 --decay 0.1 --plot_every 7")
    go_on(folder, "--n_epochs 5 --loss_margin_margin 0.4")
    return folder


def test_changes_are_recorded_with_their_epochs(changed, data):
    assert changes(changed) == {
        "1": {"lr": 0.01, "fc_lr": 0.01, "classifier_lr": 0.01, "decay": 0.1, "fc_decay": 0.1},
        "3": {"n_epochs": 5, "loss_margin_margin": 0.4},
    }
    began = content_of(changed / "configs" / "parameters.yaml")
    present = content_of(changed / "parameters.yaml")
    assert (began["lr"], began["n_epochs"]) == (0.001, 3) and (present["lr"], present["n_epochs"]) == (0.01, 5)
    assert read("--config", changed / "configs" / f"{DIFFS}_3" / "parameters.yaml").loss_margin_margin == 0.4


def test_a_reproduction_equals_the_changed_run_and_overwrites_nothing(changed):
    before = (changed / "CSV_Logs" / "metrics.csv").read_bytes()
    reproduced = reproduce(changed)
    assert reproduced.folder == changed.with_name("First_s1_1")
    assert (changed / "CSV_Logs" / "metrics.csv").read_bytes() == before
    assert_same(reproduced.folder, changed)
    assert changes(reproduced.folder) == changes(changed)
    assert "reproduce_results" not in RunFolder(reproduced.folder).flags


def test_the_command_line_wins_in_every_stage(changed, capsys):
    opt = read("--reproduce_results", changed, "--lr 0.002 --seed 7")
    stages = [opt, *opt.later]
    assert [(stage.lr, stage.seed) for stage in stages] == [(0.002, 7)] * 3 and opt.savename == "First_s7"
    assert [stage.decay for stage in stages[1:]] == [0.1, 0.1] and [stage.n_epochs for stage in stages] == [3, 3, 5]
    reproduce(changed, "--group Dry --dry_run")
    assert "dry run" in capsys.readouterr().out and not changed.with_name("Dry_s1").exists()


@pytest.mark.parametrize("stops", [(1, 4), pytest.param((2,), marks=pytest.mark.long)])
def test_an_interrupted_reproduction_goes_on(changed, tmp_path, monkeypatch, capsys, stops):
    """Interrupted after so many epochs, between two stages and within one."""
    words = f"--reproduce_results {changed} --save_path {tmp_path}"
    folder = tmp_path / "folder" / "First_s1"
    resume = f"--resume_from {folder}"
    commands = [f"{words} --resume", f"--group First --dataset folder --save_path {tmp_path} --resume", resume]
    before = 0
    for way, epochs in enumerate(stops):
        stop_after(monkeypatch, epochs - before)
        command = commands[way - 1] if before else words
        with pytest.raises(SystemExit):
            run_main(command)
        assert f"continue with: python main.py {resume}\n" in capsys.readouterr().out
        with pytest.raises(SystemExit):
            read(words, "--resume --loss contrastive")
        if epochs < 3:
            with pytest.raises(SystemExit):
                read(resume, "--resume_allow_changes --gamma 0.7")
        before = epochs
    finished = run_main(commands[-len(stops)])
    assert_same(finished.folder, changed)
    assert changes(finished.folder) == changes(changed)
    if before == 4:
        go_on(folder, "--n_epochs 6 --gamma 0.7")
        assert changes(folder)["5"] == {"n_epochs": 6, "gamma": 0.7}, "after its end a run like any other"


def test_what_cannot_be_reproduced_is_one_line(changed, tmp_path):
    elsewhere = "--split_scheme class_disjoint --savename Folds --splits_to_eval val"
    for words, message in (
        (f"{changed} --resume", "is what is to be reproduced"),
        (f"{changed} {elsewhere}", "leave the flags of the split as they were"),
        (f"{changed} --evaluate", "makes a new run"),
        (f"{changed} --resume_from {changed}", "makes a new run"),
        (f"{changed} --config demo_glyphs", "leave out --config"),
        (f"{tmp_path}/nowhere", "no run in"),
    ):
        with refused(message):
            resolve(f"--reproduce_results {words}")
    with pytest.raises(UserError):
        recorded.history(tmp_path)


def test_a_change_that_was_overtaken_leaves_no_trace(changed, tmp_path):
    folder = shutil.copytree(changed, tmp_path / "copy")
    opt = read("--resume_from", folder, "--resume_allow_changes --gamma 0.9")
    recorded.record_changes(folder, [3], opt)
    # made at the same epoch: one change
    assert changes(folder)["3"] == {"n_epochs": 5, "loss_margin_margin": 0.4, "gamma": 0.9}
    # --resume best went back to epoch 2
    recorded.record_changes(folder, [2], opt)
    assert set(changes(folder)) == {"1", "2"}
    assert set(changes(folder)["2"]) == {"n_epochs", "loss_margin_margin", "gamma"}
    recorded.record_changes(folder, [0], read("--config", folder / "configs" / "parameters.yaml"))
    assert changes(folder) == {}, "the flags are again those that it began with"


@pytest.mark.long
def test_a_run_without_changes_has_no_record_of_any(trained_run, tmp_path):
    run_main("--resume_from", trained_run, "--kernels 1")
    assert not (trained_run / "configs").exists()
    reproduced = reproduce(trained_run, "--savename Again --save_path", tmp_path)
    assert reproduced.folder.name == "Again"
    assert_same(reproduced.folder, trained_run)


@pytest.mark.long
def test_a_changed_cross_validation_is_reproduced_by_folds_with_the_test_of_later(data, tmp_path, monkeypatch):
    scheme = "--split_scheme class_disjoint --split_partitions 3 --split_sets 3 --n_epochs 2"
    # The run stops in the second epoch of fold 1
    stop_after(monkeypatch, 3)
    with pytest.raises(SystemExit):
        train(data, tmp_path, scheme, "--check_untrained_accuracy")
    folder = tmp_path / "runs" / "folder" / "First_s1"
    whole_run = go_on(folder, "--lr 0.02 --n_epochs 3 --final_test")
    assert changes(folder) == {"2_1_0": {"lr": 0.02, "fc_lr": 0.02, "classifier_lr": 0.02, "n_epochs": 3}}
    reproduced = reproduce(folder)
    assert reproduced.folder.name == "First_s1_1" and content_of(reproduced.folder / "parameters.yaml")["final_test"]
    for fold in range(3):
        assert_same(reproduced.folder / f"fold_{fold}", folder / f"fold_{fold}")
    assert reproduced.results.keys() == whole_run.results.keys()
    for kind, results in reproduced.results.items():
        assert results["values"] == whole_run.results[kind]["values"]
    reproduced_fold = reproduce(folder / "fold_1")
    assert [path.name for path in reproduced_fold.folder.glob("fold_*")] == ["fold_1"]
    assert_same(reproduced_fold.folder / "fold_1", folder / "fold_1")


def test_a_reproduction_takes_the_split_of_its_source(data, tmp_path, capsys):
    file = write_split_file(tmp_path / "splits.json", train=range(5), val=range(5, 8), test=range(8, 12))
    run = train(data, tmp_path, "--split_scheme predefined --split_file", file, "--n_epochs 1")
    run_main("--resume_from", run.folder, "--n_epochs 2 --split_file", run.folder / "split_file.json")
    assert changes(run.folder) == {"1": {"n_epochs": 2}}, "where the file lies is no change"
    write_split_file(file, train=range(5, 12), val=range(2, 5), test=range(2))
    reproduced = reproduce(run.folder, "--group Again")
    assert (reproduced.folder / "split_file.json").read_bytes() == (run.folder / "split_file.json").read_bytes()
    assert_same(reproduced.folder / "fold_0", run.folder / "fold_0")
    file.unlink()
    reproduce(run.folder, "--group Again --dry_run")
    assert "training: 25 images of 5 classes" in capsys.readouterr().out


@pytest.mark.long
def test_flags_that_no_fold_takes_leave_a_cross_validation_as_it_was(cross_validated):
    go_on(cross_validated, "--n_epochs 2 --gamma 0.7")
    before = {path: path.read_bytes() for path in cross_validated.rglob("*.yaml")}
    with pytest.raises(UserError, match="does not fit"):
        go_on(cross_validated, "--n_epochs 3 --embed_dim 5")
    assert {path: path.read_bytes() for path in cross_validated.rglob("*.yaml")} == before
    go_on(cross_validated, "--resume best --decay 0.01")
    epochs = [recorded.history(cross_validated / f"fold_{fold}")[1][-1][0][0] for fold in range(2)]
    # at the epochs to which the folds went back
    assert changes(cross_validated)["_".join(map(str, epochs))]["decay"] == 0.01
