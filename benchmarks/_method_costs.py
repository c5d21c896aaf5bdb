"""Operations, time and memory of a step, for `benchmarks/methods.py --operations` and `--costs`."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks._common import CLASSES, built, medians
from engine.loading import Batch
from experiments.study import protocol, settings
from utilities.files import write_records

PROGRAM = Path(__file__).with_name("methods.py")
R50 = "resnet50_frozen"
VIT = "timm:vit_small_patch16_224"
PLAIN = "--loss multisimilarity --embed_dim 512"
# name -> arch, flags; the others of an arch are compared with its first
OPERATIONS = {
    "multisimilarity": (R50, PLAIN),
    "intrabatch": (R50, f"{PLAIN} --trainer intrabatch"),
    "hist": (R50, "--loss hist --embed_dim 512"),
    "contextual, projection 2048": (R50, "--loss contextual --loss_contextual_projection 2048 --embed_dim 512"),
    "meanfield": (R50, "--loss meanfield --embed_dim 512"),
    "proxyanchor + anticollapse": (R50, "--loss proxyanchor --weight_regularizer anticollapse --embed_dim 512"),
    "language guidance, 5 vectors of 512 per class": (R50, f"{PLAIN} --language_vectors"),
    "metrix, embed": (R50, f"{PLAIN} --metrix 0.4"),
    "metrix, feature": (R50, f"{PLAIN} --metrix 0.4 --metrix_level feature"),
    "multisimilarity, ViT-S/16": (VIT, PLAIN),
    "10 prompts in 12 blocks, biases": (VIT, f"{PLAIN} --prompts 10 --train_biases"),
    "90 prompts in 12 blocks, biases": (VIT, f"{PLAIN} --prompts 90 --train_biases"),
}
# of --operations, images of 224 x 224, four per class
BATCH = 128
STUDIED = {method.name: method for method in protocol.RECENT_METHODS.methods}
# training classes, batch and side of the images of the study (configs/study_emoji.yaml)
STUDY_CLASSES = 336
STUDY_BATCH = 112
STUDY_SIDE = 64


def operations(arch: str, flags: list[str]) -> tuple[int, int]:
    """Operations of a step at BATCH, forward and backward: of the network and of the losses.

    The network's are those for two images, scaled: they grow with the number of images.
    """
    step, _ = built(arch, "--bs", str(BATCH), "--samples_per_class", "4", *flags)
    trainer = step.trainer.train()
    with FlopCounterMode(display=False) as network_counter:
        outputs = trainer.outputs(torch.zeros(2, 3, 224, 224, dtype=torch.uint8))
        sum(value.sum() for value in outputs.values() if value.requires_grad).backward()
    random_outputs = {
        name: torch.randn(BATCH, *value.shape[1:]).requires_grad_(value.requires_grad)
        for name, value in outputs.items()
    }
    batch = Batch(torch.arange(BATCH) // 4, None, torch.arange(BATCH))
    with FlopCounterMode(display=False) as loss_counter:
        sum(trainer.losses(random_outputs, batch).values()).backward()
    return network_counter.get_total_flops() * BATCH // 2, loss_counter.get_total_flops()


def write_vectors(path: str, n_classes: int, dimensions: int) -> None:
    """A file for --language_vectors: five random vectors of each class."""
    names = [f"class {label}" for label in range(n_classes)]
    np.savez(path, names=names, vectors=np.random.default_rng(0).normal(size=(n_classes, 5, dimensions)))


def operations_table(names: list[str]) -> None:
    """Print the operations of the named methods, and of the first method of their networks."""
    print("| method | network, Gflop | losses, Gflop | relative to the plain step |\n|-|-|-|-|")
    # arch -> operations of its first method
    plain_total = {}
    for name, (arch, flags) in OPERATIONS.items():
        if name not in names and arch in plain_total:
            continue
        with tempfile.NamedTemporaryFile(suffix=".npz") as vectors:
            if "--language_vectors" in flags:
                write_vectors(vectors.name, CLASSES, 512)
                flags += f" {vectors.name}"
            network, losses = operations(arch, flags.split())
        total = network + losses
        ratio = total / plain_total.setdefault(arch, total)
        print(f"| {name} | {network / 1e9:,.0f} | {losses / 1e9:.2f} | {ratio:.3f} |", flush=True)


def study_step(name: str):
    """A function that takes one step of a method of Recent_Runs.sh, on random images and from random weights."""
    shape = f"--embed_dim 128 --bs {STUDY_BATCH} --samples_per_class 4 --crop_size {STUDY_SIDE} --channels_last"
    line = protocol.line(settings.DATA[0]._replace(flags=shape), STUDIED[name], "Costs", 0, "")
    with tempfile.NamedTemporaryFile(suffix="_rows.npz") as vectors:
        write_vectors(vectors.name, STUDY_CLASSES, 1280)
        words = re.sub(r"\S+_rows\.npz", vectors.name, line).split()[2:]
        step, _ = built("timm:tf_efficientnet_lite0_frozen_normalize", *words, n_classes=STUDY_CLASSES)
    images = torch.randint(0, 256, (STUDY_BATCH, 3, STUDY_SIDE, STUDY_SIDE), dtype=torch.uint8)
    batch = Batch(torch.arange(STUDY_BATCH) // 4, images, torch.arange(STUDY_BATCH))
    return lambda: step(batch)


def write_costs(path: str, repeats: int) -> None:
    """Write median milliseconds of alternating steps of each method, and the megabytes of a step, to a CSV file.

    The megabytes of each method are measured in a separate process.
    """
    times = medians({name: study_step(name) for name in STUDIED}, 2, repeats)
    rows = []
    for name, seconds in times.items():
        command = [sys.executable, str(PROGRAM), "--peak", name]
        megabytes = float(subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()[-1])
        rows.append(
            {
                "method": name,
                "milliseconds": f"{1000 * seconds:.1f}",
                "megabytes": f"{megabytes:.0f}",
                "threads": torch.get_num_threads(),
            }
        )
        print(rows[-1], flush=True)
    write_records(Path(path), list(rows[0]), rows)
