"""Records are never worth a run: whatever stands in a run folder in place of a record, the run is resumed and finished."""

import csv
import sqlite3

import pytest

import main
import parameters
from tests.builders import SMALL


def flags(folder_data, tmp_path, *more):
    return parameters.read([
        "--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(tmp_path), "--arch", "conv4_normalize",
        "--embed_dim", "8", "--bs", "8", "--iterations_per_epoch", "2", "--evaluation_metrics", "e_recall@1", "rho_spectrum@0",
        "--savename", "Run", "--plot_every", "1", "--log_every", "1", *SMALL, *more,
    ])  # fmt: skip


RECORDS = [
    "CSV_Logs", "CSV_Logs/metrics.csv", "CSV_Logs/batches.csv", "CSV_Logs/Test_discriminative_e_recall.csv", "Arrays", "Arrays/test_0001.npz",
    "metrics.db", "tensorboard", "tensorboard/batches", "Progression_Plots", "Progression_Plots/loss.svg", ".lock",
]  # fmt: skip


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


@pytest.mark.parametrize("damage", [pytest.param(swap, marks=pytest.mark.long), spoil])
def test_a_run_with_all_its_records_damaged_is_resumed_and_finished(
    folder_data, tmp_path, capsys, without_neighbours, damage, with_pictures
):
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "1"))
    for name in sorted(RECORDS, reverse=True):  # what lies in a folder before the folder
        damage(run.folder / name)
    capsys.readouterr()
    again = main.main(flags(folder_data, tmp_path, "--n_epochs", "2", "--resume"))
    assert again.epoch == 2
    said = [line for line in capsys.readouterr().out.splitlines() if "is damaged" in line]
    assert said and all(".damaged" in line and "the run goes on" in line for line in said)
    with open(run.folder / "CSV_Logs" / "metrics.csv", newline="") as file:
        assert {row["epoch"] for row in csv.DictReader(file)} == {"2"}
    with sqlite3.connect(run.folder / "metrics.db") as connection:
        assert connection.execute("select distinct epoch from loss").fetchall() == [(2,)]
    assert (run.folder / "Progression_Plots" / "loss.svg").is_file() and (run.folder / "Arrays" / "test_0002.npz").is_file()
    assert list((run.folder / "tensorboard").glob("events.*")) and (run.folder / ".lock").is_file()
    main.main(flags(folder_data, tmp_path, "--n_epochs", "2", "--resume"))
    assert "is damaged" not in capsys.readouterr().out, "once"


@pytest.fixture
def without_neighbours(monkeypatch):
    """Pictures of neighbours take longer than the run."""
    monkeypatch.setattr(main.outputs, "of_best_epoch", lambda run, embedded: None)


def test_a_finished_run_whose_curves_cannot_be_drawn_ends_well(
    folder_data, tmp_path, monkeypatch, capsys, without_neighbours, with_pictures
):
    def fail(folder):
        raise ValueError("no font")

    monkeypatch.setattr("pictures.curves.draw_curves", fail)
    assert main.main(flags(folder_data, tmp_path, "--n_epochs", "1")).epoch == 1
    assert "the curves failed (ValueError: no font); the run goes on" in capsys.readouterr().out


def test_no_records_writes_what_its_help_says(folder_data, tmp_path):
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "1", "--no_records", "--eval_size_of_tsne", "20", "--log_online"))
    there = {path.relative_to(run.folder).as_posix() for path in run.folder.rglob("*") if path.is_file()}
    checkpoints = {name for name in there if name.startswith("checkpoint_")}
    assert "checkpoint_last.pth.tar" in checkpoints
    expected = {"CSV_Logs/metrics.csv", "summary.json", "parameters.yaml", "Parameter_Info.txt", "environment.yaml", ".lock"}
    assert there - checkpoints == expected
    assert {path.name for path in run.folder.iterdir() if path.is_dir()} == {"CSV_Logs"}


def test_few_samples_of_a_spectrum_are_told_before_training(folder_data, tmp_path, capsys):
    metrics = ["--evaluation_metrics", "e_recall@1", "rho_spectrum@2", "--embed_dim"]
    main.main(flags(folder_data, tmp_path, "--n_epochs", "1", *metrics, "64", "--no_records"))
    said = capsys.readouterr().out
    for split in ("train", "test"):
        assert said.count(f"rho_spectrum@2 of {split}: 24 samples in 64 dimensions have 24 singular values at most") == 1
    assert said.index("singular values") < said.index("epoch 1/1")
    main.main(flags(folder_data, tmp_path, "--n_epochs", "1", *metrics, "24", "--no_records"))
    assert "singular values" not in capsys.readouterr().out
