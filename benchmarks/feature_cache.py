"""An epoch of a head on cached features (--feature_cache), and the evaluation after it, at CUB200's size: random
features and weights.

`python benchmarks/feature_cache.py [--epochs 3] [--kernels 0]`: 5,864 training and 5,924 test images of 100 classes
each, ResNet-50 with a frozen backbone, margin loss with distance mining, the metric list of the ICML pipeline. Beside
it: the backbone's time for one batch of images.
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import architectures
import evaluation
import main
import parameters
from benchmarks._common import training
from datasets._image_set import ImageSet, Origin
from datasets._images import Image
from engine.runtime import Runtime
from utilities.errors import OneLineParser
from utilities.numbers import whole

SIZES = {"training": 5864, "testing": 5924}
FLAGS = "--dataset cub200 --not_pretrained --freeze_backbone --augmentation none --feature_cache"


def split(name: str, width: int) -> ImageSet:
    """A data set of random features: its images are never read."""
    count = SIZES[name]
    images = [Image(f"{i}.jpg", f"class {i * 100 // count:03d}") for i in range(count)]
    dataset = ImageSet(images, None, origin=Origin("random", name))
    dataset.features = torch.randn(count, width)
    return dataset


def run():
    """Train with and without the cache of features, and print the seconds of an epoch."""
    parser = OneLineParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--epochs", type=whole(1, 10**6), default=3)
    parser.add_argument("--kernels", type=whole(0, 10**3), default=0)
    parser.add_argument("--threads", type=whole(1, 10**4), default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    opt = parameters.read([*FLAGS.split(), "--kernels", str(options.kernels)])
    runtime = Runtime(opt).begin()
    network = architectures.select(opt.arch, opt)
    splits = {name: split(name, network.feature_dim) for name in SIZES}
    loader, step, _ = training(opt, runtime, network, splits["training"])
    loaders = evaluation.loaders(
        {"evaluation": splits["training"], "validation": None, "testing": splits["testing"]}, opt
    )
    epochs = []
    scored = []
    embedded = []
    for epoch in range(1, options.epochs + 2):
        times = [time.perf_counter()]
        main.train_one_epoch(epoch, loader, step, opt)
        times.append(time.perf_counter())
        outputs = evaluation.embed_all(network, loaders, opt, runtime)
        times.append(time.perf_counter())
        evaluation.score(outputs, opt, runtime)
        times.append(time.perf_counter())
        for seconds, (start, stop) in zip((epochs, embedded, scored), zip(times, times[1:], strict=False), strict=True):
            seconds.append(stop - start)
    print(
        f"an epoch of {len(loader)} batches of {opt.bs}: {statistics.median(epochs[1:]):.2f} s; embedding both splits: "
        f"{statistics.median(embedded[1:]):.2f} s; the metrics of both: {statistics.median(scored[1:]):.2f} s"
    )
    began = time.perf_counter()
    network(torch.zeros(opt.bs, 3, 224, 224, dtype=torch.uint8))
    print(
        f"the same backbone on a batch of {opt.bs} images: {time.perf_counter() - began:.1f} s, {len(loader)} of "
        "them an epoch"
    )


if __name__ == "__main__":
    run()
