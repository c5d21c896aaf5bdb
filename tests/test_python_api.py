"""`dmlkit.train` and `dmlkit.Run`: the program as a function of Python."""

import shutil
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dmlkit
import runs
from tests.kit.data_sets import make_folder
from tests.kit.refusals import refused

SHORT = {
    "arch": "conv4_normalize",
    "crop_size": 24,
    "resize_size": 26,
    "loss": "multisimilarity",
    "bs": 8,
    "iterations_per_epoch": 1,
    "kernels": 0,
    "evaluation_metrics": ["e_recall@1", "map_r"],
    "no_train_metrics": True,
    "no_records": True,
}


class Recorder:
    """A callback that keeps what it is given, and stops after an epoch."""

    def __init__(self, last_epoch=None):
        self.last_epoch = last_epoch
        self.epochs = []
        self.scores = []

    def on_epoch_end(self, run, epoch, scores):
        self.epochs.append(epoch)
        self.scores.append(scores)
        if epoch == self.last_epoch:
            run.stop()


@pytest.fixture(scope="module")
def trained(folder_data, tmp_path_factory):
    """A run of two epochs, and the callback that saw them."""
    recorder = Recorder()
    run = dmlkit.train(folder_data, [recorder], n_epochs=2, save_path=tmp_path_factory.mktemp("runs"), **SHORT)
    return run, recorder


@pytest.fixture
def images(folder_data):
    return sorted(Path(folder_data).rglob("*.png")) or sorted(Path(folder_data).rglob("*.jpg"))


def test_a_folder_gives_a_run(trained):
    run, recorder = trained
    assert recorder.epochs == [1, 2] and recorder.scores[1]["test"].keys() >= {"e_recall@1", "map_r"}
    assert run.scores["test"]["e_recall@1"] == max(scores["test"]["e_recall@1"] for scores in recorder.scores)
    assert runs.RunFolder(run.folder).finished and repr(run).startswith("Run('")
    assert dmlkit.Run(run.folder).scores == run.scores


def test_a_run_embeds_as_its_embedder(trained, images):
    run, _ = trained
    embeddings = run.embed(images[:3])
    assert embeddings.dtype == np.float32 and np.array_equal(embeddings, runs.Embedder(run.folder)(images[:3]))


def test_a_run_indexes_and_finds(trained, images, tmp_path):
    run, _ = trained
    with refused(r"call index\(images\) before query"):
        dmlkit.Run(run.folder).query(images[0])
    with refused("k=-1: a whole number from 1"):
        run.query(images[0], k=-1)
    assert len(run.index(images)) == len(images)
    nearest, *neighbours = run.query(images[5], k=4)
    assert nearest.path == str(images[5]) and nearest.distance < 1e-5 and [n.rank for n in neighbours] == [2, 3, 4]
    assert dmlkit.Run(run.folder).query(images[5], k=1)[0].path == str(images[5])
    assert len(run.index(images[:2])) == 2, "an index of the run is replaced"
    assert len(run.index(images[0].parent, out=tmp_path / "own")) == len(list(images[0].parent.iterdir()))


def test_a_run_is_exported(trained, tmp_path):
    folder = trained[0].export("safetensors", tmp_path / "export")
    assert (folder / "model.safetensors").exists() and (folder / "README.md").exists()
    with refused("exists"):
        trained[0].export("safetensors", tmp_path / "export")
    with refused("format 'h5': one of onnx"):
        trained[0].export("h5")
    with refused("no run in "):
        _ = dmlkit.Run(tmp_path / "nowhere").scores


def test_a_callback_stops_a_run_which_can_be_resumed(folder_data, tmp_path):
    recorder = Recorder(last_epoch=1)
    run = dmlkit.train(folder_data, [recorder], n_epochs=2, save_path=tmp_path, savename="stopped", **SHORT)
    assert recorder.epochs == [1] and not runs.RunFolder(run.folder).finished
    second_recorder = Recorder()
    resumed = dmlkit.train(
        folder_data, [second_recorder], n_epochs=2, save_path=tmp_path, savename="stopped", resume="latest", **SHORT
    )
    assert second_recorder.epochs == [2] and resumed.folder == run.folder and runs.RunFolder(run.folder).finished


def test_callbacks_see_each_stage_of_a_reproduction(folder_data, tmp_path):
    first = {"n_epochs": 1, "save_path": tmp_path, "savename": "staged", **SHORT}
    dmlkit.train(folder_data, **first)
    changed = {**first, "n_epochs": 2, "lr": 1e-4}
    run = dmlkit.train(folder_data, **changed, resume="latest", resume_allow_changes=True)
    recorder = Recorder()
    dmlkit.train(callbacks=[recorder], reproduce_results=run.folder, save_path=tmp_path / "again")
    assert recorder.epochs == [1, 2]


def test_a_table_and_a_frame_are_data(folder_data, images, tmp_path, monkeypatch):
    monkeypatch.chdir(folder_data)
    frame = pd.DataFrame(
        {
            "path": [image.relative_to(folder_data).as_posix() for image in images],
            "label": [image.parent.name for image in images],
        }
    )
    settings = {**SHORT, "n_epochs": 1, "save_path": tmp_path / "runs", "loss": "contrastive", "batch_mining": "random"}
    of_frame = dmlkit.train(frame, **settings, group="frame", dataset=None)
    table = tmp_path / "images.csv"
    classes = sorted(set(frame.label))
    split = ["train" if label in classes[: len(classes) // 2] else "validation" for label in frame.label]
    frame.assign(path=[str(image) for image in images], split=split).to_csv(table, index=False)
    of_table = dmlkit.train(table, **settings, group="table")
    assert of_frame.scores == of_table.scores
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(of_table.folder)
    assert dmlkit.Run(of_frame.folder).embed(images[:1]).shape == (1, 128)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"data": "nowhere"}, "data 'nowhere': a folder of classes, a .csv file or a pandas frame"),
        ({"data": pd.DataFrame({"file": ["a.png"], "label": ["cat"]})}, "no column path, but file, label"),
        ({"data": pd.DataFrame()}, "no column path or label, but none"),
        ({"dataset": "glyphs", "los": "margin"}, "unrecognized argument --los"),
        ({"dataset": "glyphs", "loss": "marginal"}, "Did you mean 'margin'"),
        ({"dataset": "glyphs", "lr": -1}, "--lr"),
        ({"dataset": "glyphs", "evaluate_only": True}, "leave evaluate_only out"),
        ({"dataset": "glyphs", "dry_run": True}, "leave dry_run out"),
        ({"dataset": "glyphs", "no_records": "false"}, "no_records='false': True or False"),
        ({"dataset": "glyphs", "callbacks": Recorder()}, "callbacks: a list of objects"),
        ({"dataset": "glyphs", "callbacks": [print]}, "has no method on_epoch_end"),
        ({"data": "x", "dataset": "glyphs"}, "data and dataset: both name the data"),
        ({"data": 5}, "data 5: a folder of classes"),
        ({"data": pd.DataFrame({"path": ["a.png", None], "label": [1, 2]})}, "1 rows of the frame have no path"),
        ({"data": pd.DataFrame({"path": [1, 2], "label": [1, 2]})}, "2 rows of the frame have no path"),
        ({"data": pd.Series(["a.png", "b.png"])}, ": a folder of classes, a .csv file or a pandas frame"),
        ({"data": types.SimpleNamespace(columns=["path", "label"])}, ": a folder of classes, a .csv file"),
    ],
)
def test_mistakes_are_one_line(flags, message, tmp_path):
    with refused(message):
        dmlkit.train(**flags, save_path=tmp_path)


def test_the_folders_have_one_name():
    import criteria

    assert dmlkit.criteria is criteria and dmlkit.UserError.__name__ == "UserError"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dmlkit.nothing


def test_the_examples_of_the_page_run(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).resolve().parent.parent / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in page.split("```python\n")[1:]]
    examples = [block for block in blocks if block.startswith(("import", "from"))]
    assert len(examples) >= page.count("\n## ")
    make_folder(tmp_path / "photographs", n_images=6, names=["ant", "bee", "cat", "dog"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for example in examples:
        exec(compile(example, "docs/python.md", "exec"), {"__name__": "example"})
    assert "unknown loss 'marginn'. Did you mean 'margin'?" in capsys.readouterr().out
