"""Whole runs and their records: damaged ones are never worth a run; what there is without them; what is said."""

import csv
import sqlite3

import pytest

import main
import parameters
from tests.kit.refusals import refused
from tests.kit.runs import resolve, run_main, run_words

RECORDS = [
    "CSV_Logs",
    "CSV_Logs/metrics.csv",
    "CSV_Logs/Test_discriminative_e_recall.csv",
    "metrics.db",
    "tensorboard",
    "tensorboard/batches",
    "Progression_Plots",
    "Progression_Plots/loss.svg",
    ".lock",
]


def swap(path):
    """Put a folder in place of a file, noise in place of a folder."""
    if path.is_dir():
        path.rename(path.with_name(f"{path.name}_before"))
        path.write_bytes(b"\xff\xfe\x00 noise")
    else:
        path.unlink(missing_ok=True)
        (path / "inside").mkdir(parents=True)


def spoil(path):
    """Overwrite a file with noise, and put a folder for each event file."""
    if path.is_file():
        path.write_bytes(b"\xff\xfe\x00 noise\n" * 500)
        return
    for event in list(path.glob("events.*")):
        event.unlink()
        event.mkdir()


def resumed(folder, epochs):
    words = ["--resume_from", folder, f"--log_every 1 --plot_every 0 --n_epochs {epochs}"]
    return main.main(resolve(*words))


@pytest.mark.parametrize(
    "name", ["CSV_Logs/metrics.csv", "CSV_Logs/Test_discriminative_e_recall.csv", "metrics.db", ".lock", "CSV_Logs"]
)
def test_records_that_are_links_are_not_written(trained_run, tmp_path, name):
    path = trained_run / name
    mine = tmp_path / "mine"
    path.rename(mine)
    path.symlink_to(mine)
    files = [mine] if mine.is_file() else sorted(mine.iterdir())
    before = [file.read_bytes() for file in files]
    with refused(f"{name} is a link to {mine}"):
        resumed(trained_run, 3)
    assert [file.read_bytes() for file in files] == before and path.is_symlink()


@pytest.mark.parametrize("damage", [pytest.param(swap, marks=pytest.mark.long), spoil])
def test_a_run_with_all_its_records_damaged_is_resumed_and_finished(
    trained_run, capsys, monkeypatch, damage, with_pictures
):
    # pictures of neighbours take longer than the run
    monkeypatch.setattr(main.outputs, "of_best_epoch", lambda run, embedded: None)
    # In this order what lies in a folder comes before the folder
    for name in sorted(RECORDS, reverse=True):
        damage(trained_run / name)
    capsys.readouterr()
    assert resumed(trained_run, 3).epoch == 3
    lines = [line for line in capsys.readouterr().out.splitlines() if "is damaged" in line]
    assert lines and all(".damaged" in line and "the run goes on" in line for line in lines)
    with open(trained_run / "CSV_Logs" / "metrics.csv", newline="") as file:
        assert {row["epoch"] for row in csv.DictReader(file)} == {"3"}
    with sqlite3.connect(trained_run / "metrics.db") as connection:
        assert connection.execute("select distinct epoch from loss").fetchall() == [(3,)]
    assert (trained_run / "Progression_Plots" / "loss.svg").is_file()
    assert list((trained_run / "tensorboard").glob("events.*")) and (trained_run / ".lock").is_file()

    def fail(folder):
        raise ValueError("no font")

    monkeypatch.setattr("pictures.curves.draw_curves", fail)
    assert resumed(trained_run, 4).epoch == 4
    lines = capsys.readouterr().out
    assert "is damaged" not in lines and "the curves failed (ValueError: no font); the run goes on" in lines


def test_without_records_there_is_what_the_help_says_and_few_samples_of_a_spectrum_are_told(
    folder_data, tmp_path, capsys
):
    words = [
        "--loss triplet --batch_mining random --eval_size_of_tsne 20 --log_online --n_epochs 1",
        "--evaluation_metrics e_recall@1 map_r rho_spectrum@2 --embed_dim",
    ]
    run = run_main(*run_words(folder_data, tmp_path, *words, "64"))
    files = {path.relative_to(run.folder).as_posix() for path in run.folder.rglob("*") if path.is_file()}
    checkpoints = {name for name in files if name.startswith("checkpoint_")}
    assert "checkpoint_last.pth.tar" in checkpoints
    files_of_run = "CSV_Logs/metrics.csv summary.json parameters.yaml Parameter_Info.txt environment.yaml .lock"
    assert files - checkpoints == set(files_of_run.split())
    assert {path.name for path in run.folder.iterdir() if path.is_dir()} == {"CSV_Logs"}
    output = capsys.readouterr().out
    line = "only 24 samples for 64 dimensions, so at most 24 singular values"
    for part in ("train", "test"):
        assert output.count(f"rho_spectrum@2 of {part}: {line}") == 1
    assert output.index("singular values") < output.index("epoch 1/1")
    run_main(*run_words(folder_data, tmp_path, *words, "24"))
    assert "singular values" not in capsys.readouterr().out


def test_nobody_is_told_of_a_spectrum_that_was_not_asked_for(folder_data, tmp_path, capsys):
    """The default of --evaluation_metrics has it."""
    words = run_words(folder_data, tmp_path, "--loss softmax --storage_metrics e_recall@1 --embed_dim 64 --dry_run")
    place = words.index("--evaluation_metrics")
    del words[place : place + 3]
    for metrics, count in (([], 0), (["--evaluation_metrics", "e_recall@1", "rho_spectrum@1"], 2)):
        opt = parameters.read([*words, *metrics])
        assert any(name.startswith("rho_spectrum") for name in opt.evaluation_metrics)
        main.main(opt)
        assert capsys.readouterr().out.count("singular values") == count
