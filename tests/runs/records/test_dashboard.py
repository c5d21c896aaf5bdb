"""What W&B's pages are made of: read from its offline files, of a run that ended and was resumed."""

import csv
import functools
import hashlib
import json
import re
import shutil
import time

import pytest
import torch
import yaml

import parameters
from runs import RunFolder
from runs.records import online
from tests.kit.images import write_image
from tests.kit.runs import SHORT_RUN, on_folder, run_main
from tests.runs.records._wandb import offline_runs
from tests.runs.records.test_online import offline_options
from utilities import load_run

RECORDS = [*(word for word in SHORT_RUN if word != "--no_records"), "--eval_size_of_tsne", "0"]


def pictures(folder, *flags):
    """Two pictures of an epoch: drawing all takes longer than the rest."""
    return [write_image(folder / f"{name}.png", seed) for seed, name in enumerate(("sample_recoveries", "distances"))]


@pytest.fixture(scope="module", params=["both", pytest.param("plain", marks=pytest.mark.long)])
def recorded(request, folder_data, tmp_path_factory):
    """A run of an epoch, resumed for a second with --log_artifacts: (folder, the two offline files, their naming)."""
    place = tmp_path_factory.mktemp("dashboard")
    flags = "--log_online --group G --project P --seed 3 --log_every 1 --loss triplet --batch_mining semihard"
    words = on_folder(folder_data, place / "runs", flags, *RECORDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        # where W&B keeps artifacts until they are sent
        patch.setenv("WANDB_DATA_DIR", str(place / "data"))
        patch.delenv("WANDB_API_KEY", raising=False)
        patch.setattr("evaluation.outputs.draw_pictures", pictures)
        # a busy machine starts W&B's process slowly
        patch.setattr(online, "Background", functools.partial(online.Background, open_within=600))
        import wandb

        names = "--online_names plain" if request.param == "plain" else ""
        run_main(*words, names, "--n_epochs 1")
        # waits for W&B's own process
        wandb.teardown()
        # Offline files are named by the second
        time.sleep(1.1)
        folder = run_main(*words, names, "--n_epochs 2 --resume --log_artifacts").folder
        wandb.teardown()
    return folder, offline_runs(folder), request.param


def test_a_resumed_run_is_one_run(recorded):
    folder, runs, _ = recorded
    assert len(runs) == 2 and {run.identity for run in runs} == {(folder / "wandb" / "run_id.txt").read_text()}
    for run in runs:
        assert (run.metadata.display_name, run.metadata.run_group, run.metadata.project) == ("G_s3", "G", "P")
    steps = [step for run in runs for step in run.history]
    assert steps == sorted(set(steps)), "W&B drops what does not come in order"
    assert [{row["epoch"] for row in run.history.values()} for run in runs] == [{1}, {2}]


def test_config_holds_the_flags_and_the_summary_what_was_selected(recorded):
    folder, runs, names = recorded
    flags = yaml.safe_load((folder / "parameters.yaml").read_text())
    assert {name: runs[-1].config[name] for name in flags} == flags and runs[-1].config["environment"]["data"]
    selected = RunFolder(folder).selected
    summary = {name: value for run in runs for name, value in run.summary.items()}
    assert summary["selected/rule"] == selected["rule"] and summary["selected/epoch"] == selected["epoch"]
    for metric, value in selected["values"]["test"].items():
        assert summary[f"selected/test/{metric}"] == value
        title = f"selected/Test: discriminative_{metric.partition('@')[0]}: {metric}"
        assert summary.get(title) == (value if names == "both" else None)


def definition_of(key, metrics):
    """What W&B takes for a key: its own definition, else that of a pattern, of which only one may fit."""
    patterns = [pattern for pattern in metrics if pattern.endswith("*") and key.startswith(pattern[:-1])]
    assert key in metrics or len(patterns) == 1, (key, patterns)
    return metrics.get(key) or metrics[patterns[0]]


def test_panels_are_of_a_split_and_counters_and_doubled_names_have_none(recorded):
    folder, (first, _), names = recorded
    assert first.metrics["epoch"].options.hidden and first.metrics["batch/step"].options.hidden
    keys = [key for row in first.history.values() for key in row if not key.startswith("_")]
    logged = {re.split("/_type|/path|/size", key)[0] for key in keys} - {"epoch", "batch/step"}
    defined = {key: definition_of(key, first.metrics) for key in logged}
    for key, panel in defined.items():
        x_axis = "batch/step" if key.startswith("batch/") else "epoch"
        assert panel.step_metric == x_axis, key
    with (folder / "CSV_Logs" / "metrics.csv").open(newline="") as file:
        recorded_here = {f"{row['split']}/{row['metric']}" for row in csv.DictReader(file)}
    drawn_names = {key for key, panel in defined.items() if not panel.options.hidden}
    sections = {}
    # W&B's sections: what stands before the first slash
    for key in drawn_names:
        sections.setdefault(key.partition("/")[0], set()).add(key)
    assert set(sections) == {"train", "test", "batch", "pictures"} and "batch/loss" in drawn_names
    assert recorded_here <= sections["train"] | sections["test"]
    hidden = logged - drawn_names
    assert all(re.fullmatch(r"(Test|Train|Model Grad): [\w.@+-]+(: .+)?", key) for key in hidden)
    if names == "plain":
        assert not hidden
    if names == "both":
        # each value under both names
        for row in first.history.values():
            plain_values = sorted(value for key, value in row.items() if key in recorded_here)
            assert plain_values == sorted(value for key, value in row.items() if key in hidden)


def test_each_picture_is_sent_once(recorded):
    """As an image of its epoch: no artifact and no table holds it again."""
    folder, runs, _ = recorded
    pictures_of_run = {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.png")}
    assert set(pictures_of_run) == {"sample_recoveries", "distances"}
    for run, offline in zip(runs, sorted(folder.glob("wandb/offline-run-*")), strict=True):
        values = [item for row in run.history.values() for item in row.items()]
        logged = [(key.split("/")[1], value) for key, value in values if re.fullmatch("pictures/.*/sha256", key)]
        assert sorted(logged) == sorted(pictures_of_run.items()), "one image a name and epoch"
        sent = [hashlib.sha256(path.read_bytes()).hexdigest() for path in offline.rglob("*.png")]
        assert sorted(sent) == sorted(pictures_of_run.values())
        assert "run_table" not in run.artifacts


def test_the_selected_checkpoint_is_an_artifact_from_which_load_run_reads(recorded, tmp_path):
    folder, runs, _ = recorded
    selected = RunFolder(folder).selected
    (model,) = runs[-1].artifacts["model"]
    assert model.name == f"G_s3_{runs[-1].identity}"
    assert set(model.aliases) == {"latest", "selected", f"epoch_{selected['epoch']}"}
    metadata = json.loads(model.metadata)
    assert metadata["selected/rule"] == model.description == selected["rule"]
    assert metadata["selected/epoch"] == selected["epoch"]
    # as `artifact.download()` lays them
    for entry in model.manifest.contents:
        shutil.copy(entry.local_path, tmp_path / entry.path)
    network, flags = load_run(tmp_path)
    expected, _ = load_run(folder)
    images = torch.rand(2, 3, 32, 32)
    assert flags.seed == 3 and torch.equal(network(images)[0], expected(images)[0])
    assert "model" not in runs[0].artifacts, "no checkpoint is sent without the flag"


def test_artifacts_without_a_service_are_refused(capsys):
    with pytest.raises(SystemExit):
        parameters.read(["--log_artifacts"])
    assert "without --log_online: add it" in capsys.readouterr().err


def test_comet_takes_the_checkpoint_as_a_model(tmp_path, comet):
    from runs.records.online import online_sink

    flags = offline_options(log_online=True, online_backend="comet_ml", log_artifacts=True)
    sink = online_sink(flags, tmp_path)
    sink.best({"rule": "r", "epoch": 1, "values": {}}, {"checkpoint_last.pth.tar": tmp_path / "best.pth.tar"})
    sink.close()
    (model,) = [(args, kwargs) for name, args, kwargs in comet if name == "log_model"]
    assert model[0] == ("selected", str(tmp_path / "best.pth.tar"))
    assert model[1] == {"file_name": "checkpoint_last.pth.tar", "overwrite": True}
