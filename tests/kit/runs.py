"""Flags of short runs, and the comparison of what two runs leave behind."""

import tempfile
from pathlib import Path

# What makes a published command run on tiny data: no weights, no counts, images of 32 x 32 pixels.
SMALL_IMAGES = [
    "--not_pretrained",
    "--allow_partial_dataset",
    "--resize_size",
    "36",
    "--crop_size",
    "32",
    "--kernels",
    "0",
]


# The shortest training that selects an epoch: two batches each.
SHORT_RUN = [
    "--arch",
    "conv4_normalize",
    "--embed_dim",
    "8",
    "--bs",
    "8",
    "--kernels",
    "0",
    "--lr",
    "0.001",
    "--iterations_per_epoch",
    "2",
    "--resize_size",
    "18",
    "--crop_size",
    "16",
    "--evaluation_metrics",
    "e_recall@1",
    "map_r",
    "--storage_metrics",
    "map_r",
    "--no_records",
    "--plot_every",
    "0",
]


def run_words(data, save_path, *more):
    """The words of `SHORT_RUN` on a data set that is a folder a class."""
    return ["--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(save_path), *SHORT_RUN, *more]


def recorded_values(folder):
    """The recorded values of a run but for times, by epoch, split and metric."""
    from runs import RunFolder

    rows = RunFolder(folder).metrics
    return rows[~rows.metric.str.contains("second")].set_index(["epoch", "split", "metric"]).value.sort_index()


def last_checkpoint(folder):
    """The content of a run's last checkpoint."""
    from runs import checkpoint

    return checkpoint.read(folder / checkpoint.LAST)


def equal_states(one, two):
    """Of nested dicts, lists and tensors, to the bit."""
    import torch

    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal_states(one[name], two[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(equal_states, one, two))
    return torch.equal(one, two) if torch.is_tensor(one) else one == two


def assert_same_run(one, other):
    """Two runs' folders hold the same, to the bit: recorded values, and all that the last checkpoints hold but the
    run's own state.
    """
    a = recorded_values(one)
    b = recorded_values(other)
    assert a.equals(b), a[a != b] if a.index.equals(b.index) else a.index.symmetric_difference(b.index)
    a = last_checkpoint(one)
    b = last_checkpoint(other)
    assert [
        part for part in sorted(set(a) | set(b)) if part != "run" and not equal_states(a.get(part), b.get(part))
    ] == []


def pass_dry_run(words, capsys):
    """Watch a command of main.py pass its dry run on small images, which writes a picture of the batch alone. Returns
    what it printed.
    """
    import main
    import parameters

    with tempfile.TemporaryDirectory() as folder:
        main.main(parameters.read([*words, *SMALL_IMAGES, "--save_path", folder, "--dry_run"]))
        written = [path.name for path in Path(folder).rglob("*") if path.is_file()]
    said = capsys.readouterr().out
    assert "dry run: one batch of" in said and "loss nan" not in said, said
    assert len(written) == 1 and written[0].endswith("_batch.png"), written
    return said
