"""Flags of short runs, and the comparison of what two runs leave behind, to the bit."""

import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What makes a published command run on tiny data: no weights, no counts, images of 32 x 32 pixels.
SMALL_IMAGES = "--not_pretrained --allow_partial_dataset --resize_size 36 --crop_size 32 --kernels 0".split()

# The shortest training that selects an epoch: two batches each.
SHORT_RUN = (
    "--arch conv4_normalize --embed_dim 8 --bs 8 --kernels 0 --lr 0.001 --iterations_per_epoch 2 --resize_size 18 "
    "--crop_size 16 --evaluation_metrics e_recall@1 map_r --storage_metrics map_r --no_records --plot_every 0"
).split()


def words_of(*parts):
    """The words of a command line: those of each text that begins with `--`; values and paths as they are."""
    words = []
    for text in map(str, parts):
        words += text.split() if text.startswith("--") or not text else [text]
    return words


def on_folder(data, save_path, *words):
    """The words of a run on a data set with a folder per class, below a folder of runs."""
    return words_of("--dataset folder --dataset_folder_path", data, "--save_path", save_path, *words)


def run_words(data, save_path, *words):
    """The words of `SHORT_RUN` on a data set with a folder per class."""
    return on_folder(data, save_path, *SHORT_RUN, *words)


def read(*parts):
    """The flags of a command line; a mistake ends the program."""
    import parameters

    return parameters.read(words_of(*parts))


def resolve(*parts):
    """The flags of a command line, or a UserError."""
    import parameters

    return parameters.resolve(words_of(*parts))


def run_main(*parts):
    """What main.py returns for a command line: a run, or results."""
    import main

    return main.main(read(*parts))


def assert_flags(opt, **expected):
    """Flags have these values."""
    wrong = {name: getattr(opt, name) for name, value in expected.items() if getattr(opt, name) != value}
    assert not wrong, (opt.config, wrong)


def program(*words, cwd=ROOT, **environment):
    """`python` with these words in a process of its own, by one thread; variables that are None are unset."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    set_variables = {name: value for name, value in variables.items() if value is not None}
    command = [sys.executable, *words_of(*words)]
    return subprocess.run(
        command, cwd=cwd, env=set_variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=3600
    )


def file_names(folder):
    """The names of all files below a folder."""
    return [path.name for path in Path(folder).rglob("*") if path.is_file()]


def content_of(path):
    """The content of a file of JSON or YAML."""
    import yaml

    text = Path(path).read_text(encoding="utf-8")
    return json.loads(text) if Path(path).suffix == ".json" else yaml.safe_load(text)


def rows_of(path):
    """The rows of a file of CSV, each a dict."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def recorded_values(folder):
    """The recorded values of a run but for times, by epoch, split and metric."""
    from runs import RunFolder

    rows = RunFolder(folder).metrics
    return rows[~rows.metric.str.contains("second")].set_index(["epoch", "split", "metric"]).value.sort_index()


def last_checkpoint(folder):
    """The content of a run's last checkpoint."""
    from runs import checkpoint

    return checkpoint.read(folder / checkpoint.LAST)


def equal_states(first, second):
    """Whether nested dicts, lists and tensors are equal."""
    import torch

    if isinstance(first, dict):
        return first.keys() == second.keys() and all(equal_states(first[name], second[name]) for name in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(equal_states, first, second))
    return torch.equal(first, second) if torch.is_tensor(first) else first == second


def assert_same_run(first, second):
    """Two runs' folders hold the same recorded values, and the same last checkpoints but for the run's state."""
    a = recorded_values(first)
    b = recorded_values(second)
    assert a.index.equals(b.index), a.index.symmetric_difference(b.index)
    assert a.equals(b), a[a != b]
    a = last_checkpoint(first)
    b = last_checkpoint(second)
    parts = sorted((a.keys() | b.keys()) - {"run"})
    assert [part for part in parts if not equal_states(a.get(part), b.get(part))] == []


def pass_dry_run(words, capsys):
    """The output of a dry run on small images, which writes a picture of the batch alone."""
    with tempfile.TemporaryDirectory() as folder:
        run_main(*words, *SMALL_IMAGES, "--save_path", folder, "--dry_run")
        written = file_names(folder)
    output = capsys.readouterr().out
    assert "dry run: one batch of" in output and "loss nan" not in output, output
    assert len(written) == 1 and written[0].endswith("_batch.png"), written
    return output
