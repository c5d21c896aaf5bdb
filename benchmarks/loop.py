"""Overhead of the training loop: an epoch of main.py (evaluation excluded) beside a bare loop over tensors in memory.

Same network, batch shape, loss and optimiser, torch's default threads (printed). The two loops alternate; the median
epochs are compared. `--parts`: forward and backward of a ResNet-50 with --pool gem, gem_learned and --neck bn beside
those of a plain one, in turns, instead.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import architectures
import datasets
import main
import parameters
from benchmarks._common import training
from engine.runtime import Runtime
from utilities.errors import OneLineParser
from utilities.numbers import whole

PARTS = {
    "plain": {},
    "gem": {"pool": "gem"},
    "gem_learned": {"pool": "gem_learned"},
    "neck bn": {"neck": "bn"},
    "both": {"pool": "gem", "neck": "bn"},
}
PARTS_BATCH = (16, 3, 224, 224)
FLAGS = "--config demo_glyphs --no_train_metrics --kernels 1"


def built():
    """The arguments of `main.train_one_epoch` after the epoch: loader, step, options."""
    opt = parameters.read([*FLAGS.split(), "--save_path", tempfile.mkdtemp()])
    runtime = Runtime(opt).begin()
    model = architectures.select(opt.arch, opt)
    splits = datasets.select(opt.dataset, opt, opt.source_path, model.input_size)
    return training(opt, runtime, model, splits["training"])


def run(epochs: int) -> tuple[list[float], list[float]]:
    """Seconds of each epoch: through main.train_one_epoch, and bare."""
    parts = built()
    loader, step, _ = parts
    model = step.trainer.network
    criterion = step.trainer.criterion
    optimizer = step.optimizer
    batches = [(labels, images) for labels, images, _ in loader]
    ours = []
    bare = []
    for epoch in range(1, epochs + 2):
        began = time.perf_counter()
        main.train_one_epoch(epoch, *parts)
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        for labels, images in batches:
            embeddings, _ = model(images)
            loss = criterion(embeddings, labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        bare.append(time.perf_counter() - began)
    # the first epoch starts workers and warms caches
    return ours[1:], bare[1:]


def parts(repeats: int) -> None:
    """Print the median seconds of a step of each of PARTS, and the median of its ratios to the plain network's."""
    networks = {
        name: architectures.select("resnet50_frozen", not_pretrained=True, embed_dim=512, **flags)
        for name, flags in PARTS.items()
    }
    images = torch.rand(PARTS_BATCH)
    seconds = {name: [] for name in PARTS}
    for _ in range(repeats + 1):
        for name, network in networks.items():
            began = time.perf_counter()
            network(images)[0].square().sum().backward()
            seconds[name].append(time.perf_counter() - began)
    for name, times in seconds.items():
        # the first warms caches
        ratios = [ours / plain for ours, plain in zip(times[1:], seconds["plain"][1:], strict=True)]
        print(f"{name:<12}{statistics.median(times[1:]):>7.2f} s{statistics.median(ratios):>8.3f}")


if __name__ == "__main__":
    parser = OneLineParser(description=__doc__)
    parser.add_argument("--epochs", type=whole(1), default=5)
    parser.add_argument(
        "--parts",
        action="store_true",
        help="a ResNet-50 with poolings and neck instead; --epochs: how many steps of each",
    )
    flags = parser.parse_args()
    if flags.parts:
        sys.exit(parts(flags.epochs))
    ours, bare = run(flags.epochs)
    print(f"threads {torch.get_num_threads()}")
    for name, seconds in (("main.py's loop", ours), ("bare loop", bare)):
        rounded = [round(value, 2) for value in seconds]
        print(f"{name:<16}{statistics.median(seconds):.2f} s per epoch   {rounded}")
    print(f"ratio           {statistics.median(ours) / statistics.median(bare):.3f}   (target: at most 1.10)")
