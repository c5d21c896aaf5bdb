"""The Reality Check's protocol end to end, as a user types it: four folds, early stopping, separated and concatenated
results, the report.
"""

import math
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import datasets
from launch import __main__ as launcher
from runs import RunFolder
from search import __main__ as searcher
from tests.kit.data_sets import make_cub200
from tests.kit.runs import SMALL_IMAGES, content_of, file_names, program, rows_of, words_of

ROOT = Path(__file__).resolve().parent.parent
GROUP = "MLRC_CUB_Contrastive"
METRICS = ["precision@1", "r_precision", "map_r"]
# of 20 classes
TRAINED_ON = [(0, 1, 2, 3, 4, 5, 6, 7), (2, 3, 4, 5, 6, 7, 8, 9), (0, 1, 2, 5, 6, 7, 8, 9), (0, 1, 2, 3, 4, 7, 8, 9)]
VALIDATED_ON = [(8, 9), (0, 1), (3, 4), (5, 6)]
# in place of 100, 1000 and the preset's
SHORT = "--iterations_per_epoch 2 --n_epochs 30 --patience 2 --resize_size 36 --crop_size 32"


def command(group):
    """The line of a method in MLRC_Runs.sh, word for word."""
    lines = (ROOT / "experiments/MLRC_Runs.sh").read_text().splitlines()
    return next(line for line in lines if f"--group {group} " in line)


def python(*words):
    """What a command line prints."""
    process = program(*words)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    return process.stdout


class Protocol:
    """A finished run of the protocol: its folder, and what was printed."""

    def __init__(self, path):
        make_cub200(path / "data", n_classes=20, n_images=4)
        words = shlex.split(command(GROUP).replace("$datapath", str(path / "data")))
        small = "--not_pretrained --allow_partial_dataset --kernels 0 --dump_embeddings --plot_every 0"
        self.words = words_of(*words, small, SHORT, "--save_path", path / "runs")
        self.output = python(*self.words[1:])
        self.patience = int(self.words[self.words.index("--patience") + 1])
        self.line = launcher.Task(launcher.Line(1, self.words[2:]))
        self.path = path
        self.folder = path / "runs" / "cub200" / f"{GROUP}_s0"
        self.folds = [self.folder / f"fold_{fold}" for fold in range(4)]
        self.summaries = [content_of(fold / "summary.json") for fold in self.folds]

    def meta(self, name):
        return content_of(self.folder / "meta" / f"{name}.json")


@pytest.fixture(scope="module", params=[pytest.param(None, marks=pytest.mark.long)], ids=["protocol"])
def protocol(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("reality_check")
    yield Protocol(path)
    # a gigabyte of checkpoints
    shutil.rmtree(path)


def classes_of(paths):
    """Numbers from 0 of the classes of CUB200 images."""
    return tuple(sorted({int(Path(path).parent.name[:3]) - 1 for path in paths}))


def test_four_folds_over_the_first_half_of_the_classes(protocol):
    names = {path.name for path in protocol.folder.iterdir() if path.is_dir()}
    assert names == {"fold_0", "fold_1", "fold_2", "fold_3", "meta"}
    for fold, folder in enumerate(protocol.folds):
        counts = content_of(folder / "environment.yaml")["data"]["counts"]
        sizes = {split: (count["classes"], count["images"]) for split, count in counts.items()}
        expected = {"training": (8, 32), "validation": (2, 8), "testing": (10, 40), "evaluation": (8, 32)}
        assert sizes == expected
        validated = classes_of(np.load(folder / "embeddings_val.npz")["paths"])
        trained = datasets.select("cub200", protocol.line.opt, fold=fold)["training"].paths
        assert (classes_of(trained), validated) == (TRAINED_ON[fold], VALIDATED_ON[fold])
    assert classes_of(np.load(protocol.folder / "meta" / "embeddings_test.npz")["paths"]) == tuple(range(10, 20))
    flags = content_of(protocol.folder / "parameters.yaml")
    typed = {word.removeprefix("--") for word in protocol.words if word.startswith("--")}
    for name, value in content_of(ROOT / "configs" / "mlrc_cub200.yaml").items():
        assert name in typed or flags[name] == value, name
    assert "criterion  contrastive with miner none" in protocol.output
    assert "32 images by class_balanced, 2 per epoch" in protocol.output


def test_each_fold_stops_by_patience(protocol):
    for folder, summary in zip(protocol.folds, protocol.summaries, strict=True):
        epochs, stopped = RunFolder(folder).progress
        chosen = summary["selected"]["epoch"]
        assert stopped and epochs < summary["parameters"]["n_epochs"] == 30
        # looked at every second epoch, the preset's --save_interval
        assert epochs == chosen + 2 * math.ceil(protocol.patience / 2)
        recorded = rows_of(folder / "CSV_Logs" / "metrics.csv")
        of_val = [row for row in recorded if (row["split"], row["metric"]) == ("val", "map_r")]
        by_epoch = {int(row["epoch"]): float(row["value"]) for row in of_val}
        assert sorted(by_epoch) == [-1, 0, *range(2, epochs + 1, 2)], "the untrained states are measured, too"
        trained = {epoch: value for epoch, value in by_epoch.items() if epoch > 0}
        # the first epoch of the best value on validation
        assert chosen == max(trained, key=lambda epoch: (trained[epoch], -epoch))
        assert summary["selected"]["rule"] == "epoch with the highest map_r on val"
        on_test = [row for row in recorded if row["split"] == "test"]
        assert {row["metric"]: float(row["value"]) for row in on_test} == summary["selected"]["values"]["test"]
        # test is looked at once
        assert {row["epoch"] for row in on_test} == {str(chosen)} and set(summary["best"]) == {"val"}
    assert protocol.output.count(f"--patience {protocol.patience}: no better map_r on val") == 4


def test_folds_are_joined_and_reported_and_the_line_is_finished(protocol):
    """How the numbers are joined: tests/test_folds.py, tests/results/test_cross_validation.py."""
    separated = protocol.meta("separated")
    concatenated = protocol.meta("concatenated")
    epochs = [summary["selected"]["epoch"] for summary in protocol.summaries]
    assert separated["epochs"] == concatenated["epochs"] == epochs
    assert set(separated["values"]) == {"val", "test"} and set(concatenated["values"]) == {"test"}
    assert set(separated["untrained"]) == {"-1", "0"}
    for values in (*separated["values"].values(), *concatenated["values"].values()):
        assert set(values) == set(METRICS)
    assert np.load(protocol.folder / "meta" / "embeddings_test.npz")["features"].shape == (40, 4 * 128)
    out = protocol.path / "tables"
    output = python("Result_Evaluations.py", "--runs", protocol.path / "runs", "--out", out)
    assert "4 runs in 1 group; all runs are included in the means" in output and (out / "index.html").exists()
    (selected,) = rows_of(out / "cub200_selected.csv")
    single, joined = rows_of(out / "cub200_cross_validation.csv")
    assert selected["group"] == GROUP and selected["seeds"] == "1 x 4 folds"
    assert (single["embeddings"], joined["embeddings"]) == ("separated, 128 dimensions", "concatenated, 512 dimensions")
    for metric, column in {"precision@1": "P@1 [%]", "r_precision": "RP [%]", "map_r": "MAP@R [%]"}.items():
        assert selected[column] == single[column] == f"{100 * separated['values']['test'][metric]['mean']:.2f}"
        assert joined[column] == f"{100 * concatenated['values']['test'][metric]['mean']:.2f}"
    assert protocol.line.folder == protocol.folder
    assert (protocol.line.standing(), protocol.line.progress) == (launcher.FINISHED, "4 folds")


def test_a_search_by_the_preset_leaves_test_to_the_reproductions(tmp_path, capsys):
    make_cub200(tmp_path, n_classes=20, n_images=4)
    line = command(GROUP).replace("$datapath", str(tmp_path)).removeprefix("python main.py ")
    searched = re.sub(r"(--loss_contrastive_neg_margin) \S+", r"\1~BAYESIAN~ -0.2,2", line)
    argv = words_of(searched, "--save_path", tmp_path / "runs", *SMALL_IMAGES)
    plan = searcher.plan(argv)
    trial = plan.flags.read({"loss_contrastive_neg_margin": 0.5})
    assert (trial.split_scheme, trial.splits_to_eval, trial.final_test) == ("mlrc", ["val"], False)
    reproduction = plan.flags.read({"loss_contrastive_neg_margin": 0.5}, "--final_test")
    assert reproduction.final_test and {**vars(reproduction), "final_test": False} == vars(trial)
    assert searcher.search([*argv, "--dry_run"]) is None
    assert "dry run: one batch of 32 images" in capsys.readouterr().out
    assert [name[-10:] for name in file_names(tmp_path / "runs")] == ["_batch.png"]
