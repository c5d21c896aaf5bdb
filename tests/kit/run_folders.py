"""Synthetic run folders, written as runs/records/local.py writes metrics.csv."""

import csv
import functools
import json

import numpy as np
import pytest
import yaml

import parameters
import Result_Evaluations
from results import collect, formats, groups
from results.roles import FlagRoles
from tests.kit import runs as kit

METRICS = ("e_recall@1", "e_recall@2", "e_recall@4", "nmi", "f1", "mAP_1000", "mAP_lim", "mAP_c")
STRUCTURE = (
    "dists@intra dists@inter dists@intra_over_inter rho_spectrum@-1 rho_spectrum@1 rho_spectrum@2 rho_spectrum@10"
).split()
TRAINING = ("loss", "gradient_norm", "criterion/active_share", "rate/backbone", "rate/last_linear", "epoch_seconds")
BOTH = ("train", "test")
FLAGS = yaml.safe_load("""
{dataset: cub200, arch: resnet50_frozen_normalize, loss: margin, batch_mining: distance, embed_dim: 128, bs: 112,
 samples_per_class: 2, data_sampler: class_random, augmentation: base, optim: adam, lr: 1.0e-05, fc_lr: 1.0e-05,
 decay: 0.0004, scheduler: step, gamma: 0.3, tau: [1000], use_tv_split: false, evaltypes: [discriminative],
 storage_metrics: [e_recall@1], patience: null, loss_margin_beta: 1.2, save_interval: 1}
""")
ENVIRONMENT = yaml.safe_load("""
python: 3.11.7
packages: {torch: 2.15.0, torchvision: 0.29.2}
cuda: '13.2'
gpu: NVIDIA H200
git_commit: 0123456789abcdef
data: {name: cub200, counts: {training: {images: 5864, classes: 100}, testing: {images: 5924, classes: 100}}}
""")


def rows(quality, epochs, seed, splits=("train", "test"), metrics=(*METRICS, *STRUCTURE), training=TRAINING):
    """(epoch, split, metric, value): curves that rise towards `quality` and fall a little again."""
    rng = np.random.default_rng([int(quality * 1e6), seed])
    steps = np.arange(1, epochs + 1)
    records = []
    for split in splits:
        for i, metric in enumerate(metrics):
            level = (
                quality * (1 + 0.04 * i)
                if not metric.startswith(("dists", "rho"))
                else (1.2 - quality) * (0.5 + 0.1 * i)
            )
            curve = level * (1 - 0.5 * np.exp(-steps / 20) - 1e-4 * steps) + 0.004 * rng.standard_normal(epochs)
            records += [(int(e), split, metric, v) for e, v in zip(steps, curve, strict=True)]
    for metric in training:
        records += [(int(e), "train", metric, v) for e, v in zip(steps, rng.random(epochs), strict=True)]
    return sorted(records, key=lambda row: row[0])


def curve(*values, split="test", metric="e_recall@1", first=1):
    """The rows of one metric, a value for each epoch from `first` on."""
    return [(first + i, split, metric, value) for i, value in enumerate(values)]


def write_metrics(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("epoch", "split", "metric", "value"))
        writer.writerows([epoch, split, metric, repr(float(value))] for epoch, split, metric, value in records)


def make_run(
    root,
    group="CUB_Margin_b12_Distance",
    seed=0,
    quality=0.6,
    epochs=6,
    records=None,
    name=None,
    environment=ENVIRONMENT,
    splits=BOTH,
    **flags,
):
    """One run folder below `root`/<dataset>/. Returns it."""
    flags = {**FLAGS, "n_epochs": epochs, "group": group, "seed": seed, **flags}
    folder = root / flags["dataset"] / (name or f"{group}_s{seed}")
    flags["savename"] = folder.name
    records = rows(quality, epochs, seed, splits) if records is None else records
    write_metrics(folder / "CSV_Logs" / "metrics.csv", records)
    (folder / "parameters.yaml").write_text(yaml.safe_dump(flags))
    (folder / "environment.yaml").write_text(yaml.safe_dump(environment))
    (folder / "summary.json").write_text(json.dumps({"parameters": flags}))
    return folder


def make_runs(root, groups, seeds=2, **settings):
    """Runs of the seeds 0, 1, ... of each group: names, or name -> arguments of its own."""
    for group in groups:
        of_group = groups[group] if isinstance(groups, dict) else {}
        for seed in range(seeds):
            make_run(root, group, seed, **settings | of_group)


def evaluated(folder, *words, runs="runs", out="out", figures=False):
    """Where Result_Evaluations.py writes of the runs below `folder`/`runs`; by default without the slow figures."""
    with pytest.MonkeyPatch.context() as patch:
        if not figures:
            patch.setattr(Result_Evaluations, "_figures", lambda *args: [])
        Result_Evaluations.main(
            Result_Evaluations.read(["--runs", str(folder / runs), "--out", str(folder / out), *map(str, words)])
        )
    return folder / out


@functools.cache
def flag_roles():
    """The roles of main.py's flags: finding them takes longer than most tests."""
    return FlagRoles(parameters.declared_roles())


def collected(root):
    """The runs below a folder."""
    return collect.collect([str(root)], [], flag_roles())[0]


def built(root, defaults=None):
    """Name -> group of the runs below a folder."""
    return {group.name: group for group in groups.build(collected(root), defaults)}


def lines(path):
    """The rows of a written table's .csv."""
    return kit.rows_of(path)


def rows_of(table):
    """The rows of a table as its .csv holds them."""
    return list(csv.DictReader(formats.to_csv(table).splitlines()))


def values_of(table_rows, *columns, key="group"):
    """`key` -> the value of a column in the rows of a table; of several columns a tuple."""
    if len(columns) == 1:
        return {row[key]: row[columns[0]] for row in table_rows}
    return {row[key]: tuple(row[column] for column in columns) for row in table_rows}
