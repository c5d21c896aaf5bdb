"""Flags of short runs, and the comparison of what two runs leave behind, to the bit."""

import tempfile
from pathlib import Path

# What makes a published command run on tiny data: no weights, no counts, images of 32 x 32 pixels.
SMALL_IMAGES = "--not_pretrained --allow_partial_dataset --resize_size 36 --crop_size 32 --kernels 0".split()

# The shortest training that selects an epoch: two batches each.
SHORT_RUN = (
    "--arch conv4_normalize --embed_dim 8 --bs 8 --kernels 0 --lr 0.001 --iterations_per_epoch 2 --resize_size 18 "
    "--crop_size 16 --evaluation_metrics e_recall@1 map_r --storage_metrics map_r --no_records --plot_every 0"
).split()


def split(words):
    """The words of a command line: flags may be given as one text, `--lr 1 --seed 2`, a path as it is."""
    parts = []
    for word in map(str, words):
        parts += [word] if word and not word.startswith("--") else word.split()
    return parts


def start(*words):
    """What main.py makes of a command line, given as `split` takes it."""
    import main
    import parameters

    return main.main(parameters.read(split(words)))


def on_folder(data, save_path, *words):
    """The words of a run on a data set with a folder per class, below a folder of runs."""
    return split(["--dataset folder --dataset_folder_path", data, "--save_path", save_path, *words])


def run_words(data, save_path, *words):
    """The words of `SHORT_RUN` on a data set with a folder per class."""
    return on_folder(data, save_path, *SHORT_RUN, *words)


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
    """Watch a command of main.py pass its dry run on small images, which writes a picture of the batch alone.

    Returns the output.
    """
    import main
    import parameters

    with tempfile.TemporaryDirectory() as folder:
        main.main(parameters.read([*words, *SMALL_IMAGES, "--save_path", folder, "--dry_run"]))
        written = [path.name for path in Path(folder).rglob("*") if path.is_file()]
    output = capsys.readouterr().out
    assert "dry run: one batch of" in output and "loss nan" not in output, output
    assert len(written) == 1 and written[0].endswith("_batch.png"), written
    return output
