"""The program on a GPU: steps, loader, metrics, chunks, equal runs. Prints one Markdown table per part.

    python benchmarks/gpu.py                                 # all of it; some minutes
    python benchmarks/gpu.py --only steps chunks
    python benchmarks/gpu.py --small --device cpu            # a tiny network, few steps: a test
    python benchmarks/gpu.py --tables FOLDER                 # the CSV files of --csv or of benchmarks/gpu_minutes.sh

steps: ResNet50 and ViT-S/16 compared with a bare loop of the same network, loss and optimiser, alternating (goal: at
most 1.05 times its time).
flags, compile: what ways to compute a step gain, see benchmarks/_gpu_flags.py.
loader: images per second, compared with what the step needs.
metrics: the ICML list and map_r at SOP's size, compared with a search and a k-means on the GPU, of faiss if it was
built for GPUs, else of torch (goals: .6 s, and at most 1.5 times); and its seconds by part.
chunks: see benchmarks/chunks.py.
determinism: two equal runs in float32, without and with --deterministic, and the time of a step of each.
"""

import copy
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import datasampler
import datasets
import parameters
from benchmarks import _gpu_bits, _gpu_flags, _gpu_metrics, chunks
from benchmarks._common import CLASSES, built, medians
from benchmarks._gpu_records import print_tables, table
from benchmarks.input import make_files, variants
from engine.loading import Batch, training_loader
from engine.optimisers import build_optimizer
from utilities.errors import OneLineParser
from utilities.numbers import WIDEST, whole
from utilities.shapes import pair


class Scale(NamedTuple):
    """What the parts run on: the whole benchmark, or a trial of it.

    `n_images`: of the loader's files. `n_rows`: of the embeddings that are measured, None: as many as SOP.
    `n_steps`: of a run of `determinism`. `chunks`: arch, side of the images, batch and chunk size.
    `further_networks`: with their batches, for `flags` alone.
    """

    networks: tuple[str, ...]
    sizes: tuple[int, int]
    n_images: int
    n_rows: int | None
    metric_repeats: int
    n_steps: int
    chunks: tuple[str, int, int, int]
    further_networks: tuple[tuple[str, int], ...]


FULL = Scale(
    networks=("resnet50_frozen_normalize", "timm:vit_small_patch16_224_normalize"),
    sizes=(112, 512),
    n_images=4000,
    n_rows=None,
    metric_repeats=3,
    n_steps=20,
    chunks=("resnet50_frozen_normalize", 224, 4000, 200),
    further_networks=(("resnet50_normalize", 112), ("conv4_normalize", 512)),
)
SMALL = Scale(
    networks=("conv4_frozen_normalize",),
    sizes=(8, 16),
    n_images=100,
    n_rows=600,
    metric_repeats=1,
    n_steps=2,
    chunks=("conv4_frozen_normalize", 32, 64, 16),
    further_networks=(),
)
PRECISIONS = {"float32": [], "tf32": ["--tf32"], "bfloat16": ["--precision", "bfloat16"]}
WIDTH = 128
STEPS_GOAL = 1.05
SECONDS_GOAL = 0.6
METRICS_GOAL = 1.5
CHUNKS_GOAL = 1.3


def with_batch(arch: str, bs: int, *flags):
    """A step of the project, its trainer, its runtime, its options, and a batch as the loader gives it."""
    step, opt = built(arch, "--loss", "multisimilarity", "--embed_dim", str(WIDTH), "--bs", str(bs), *flags)
    size = pair(step.trainer.network.input_size)
    images = torch.randint(0, 256, (bs, 3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    batch = Batch(torch.arange(bs) // 4 % CLASSES, images, torch.arange(bs))
    if step.runtime.device.type == "cuda":
        batch = Batch(*(part.pin_memory() for part in batch))
    return step, step.trainer, step.runtime, opt, batch


def bare(trainer, runtime, opt, batch):
    """A step of a plain training loop, on copies of network and criterion."""
    network = copy.deepcopy(trainer.network)
    criterion = copy.deepcopy(trainer.criterion)
    optimizer = build_optimizer(network, criterion, opt)

    def step():
        labels = batch.labels.to(runtime.device, non_blocking=True)
        images = batch.images.to(runtime.device, non_blocking=True)
        with runtime.autocast():
            embeddings, _ = network(images)
        loss = criterion(embeddings.float(), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def step_times(arch: str, bs: int, precision: str, options) -> tuple:
    """A row of the table of steps: seconds per step, ours and bare."""
    step, trainer, runtime, opt, batch = with_batch(arch, bs, *PRECISIONS[precision])
    works = {"ours": lambda: step(batch), "bare": bare(trainer, runtime, opt, batch)}
    seconds = medians(works, options.warm_up, options.repeats)
    ours = seconds["ours"]
    ratio = ours / seconds["bare"]
    return arch, bs, precision, 1e3 * ours, 1e3 * seconds["bare"], bs / ours, ratio, ratio <= STEPS_GOAL


def steps(options) -> None:
    """Seconds a step, ours and bare."""
    rows = []
    for arch, bs, precision in itertools.product(options.scale.networks, options.scale.sizes, PRECISIONS):
        try:
            rows.append(step_times(arch, bs, precision, options))
        except torch.OutOfMemoryError:
            rows.append((arch, bs, precision, "out of memory", "", "", "", ""))
        # Memory must be free before the next network is built.
        torch.cuda.empty_cache()
    heads = (
        "network",
        "batch",
        "precision",
        "ms per step",
        "ms bare",
        "images per second",
        "ratio",
        f"at most {STEPS_GOAL}",
    )
    table("Training steps", heads, rows, options.csv)


def flags(options) -> None:
    """What ways to compute a step gain."""
    networks = [*itertools.product(options.scale.networks, options.scale.sizes), *options.scale.further_networks]
    rows = _gpu_flags.rows(_gpu_flags.WAYS, networks, with_batch, options)
    table("Ways to compute a step", _gpu_flags.HEADS, rows, options.csv)


def compiled(options) -> None:
    """What --compile gains, and how long its first step takes."""
    networks = [(arch, options.scale.sizes[0]) for arch in options.scale.networks]
    rows = _gpu_flags.rows(_gpu_flags.COMPILED, networks, with_batch, options)
    table("Compiled steps", _gpu_flags.HEADS, rows, options.csv)


def loader(options) -> None:
    """Images a second of the loader, from files and from the cache, and of the quickest step."""
    arch = options.scale.networks[0]
    bs = options.scale.sizes[0]
    step, *_, batch = with_batch(arch, bs, *PRECISIONS["bfloat16"])
    needed = bs / medians({"step": lambda: step(batch)}, options.warm_up, options.repeats)["step"]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "photographs"
        cache = Path(folder) / "cache"
        make_files(root, options.scale.n_images)
        for name, splits in variants(root, cache, 256).items():
            rate = loader_rate(splits["training"], bs, options.workers)
            rows.append((name, options.workers, rate, needed, rate / needed, rate >= needed))
        decoded_once = datasets.select(
            "folder",
            dataset_folder_path=str(root),
            input_size=224,
            image_cache=str(cache),
            image_cache_side=256,
            decode_once=True,
        )
        # the crops of these images are made on the device, in the main process
        for name, device in (("decode_once", None), ("decode_once, crops made", step.runtime.device)):
            rate = loader_rate(decoded_once["training"], bs, options.workers, True, device)
            rows.append((name, 0, rate, needed, rate / needed, rate >= needed))
    heads = (
        "images",
        "workers",
        "loader, images per second",
        f"step of {arch} in bfloat16, images per second",
        "ratio",
        "enough",
    )
    table("Loader", heads, rows, options.csv)


def loader_rate(dataset, bs: int, workers: int, decode_once: bool = False, device=None) -> float:
    """Images a second of a data set's loader in its second epoch.

    `decode_once`: the data set's images are decoded once. `device`: where their crops are made; None: no crops.
    """
    words = f"--dataset glyphs --data_sampler shuffle --bs {bs} --kernels {workers}"
    opt = parameters.read(words.split()).but(decode_once=decode_once)
    batches = training_loader(dataset, datasampler.for_training(opt, dataset), opt)
    rate = 0.0
    # the first epoch starts the workers and touches the cache's pages
    for _ in range(2):
        iterator = iter(batches)
        count = 0
        next(iterator)
        began = time.perf_counter()
        for part in iterator:
            images = part.images
            if device is not None:
                images = images.on(device)
            count += len(images)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        rate = count / (time.perf_counter() - began)
    return rate


def chunked(options) -> None:
    """Memory and time of a large batch in chunks."""
    arch, side, bs, chunk = options.scale.chunks
    measure = chunks.measure if options.small else chunks.in_a_process
    setting = arch, "multisimilarity", side
    small = measure(*setting, chunk, 0, 1)
    loss = measure(*setting, bs, 0, 1, False)
    cut = measure(*setting, bs, chunk, 1)
    allowed = small["mib"] + cut["outputs"]
    ratio = cut["mib"] / allowed if allowed > 0 else float("nan")
    rows = [
        (f"plain, B = {chunk}", small["mib"], small["seconds"], "", ""),
        (f"loss alone, B = {bs}", loss["mib"], loss["seconds"], "", ""),
    ]
    rows.append((f"B = {bs} in chunks of {chunk}", cut["mib"], cut["seconds"], ratio, ratio <= CHUNKS_GOAL))
    heads = ("step", "MiB above the start", "seconds", "of the small step and the outputs", f"at most {CHUNKS_GOAL}")
    table(f"Chunks, {arch}", heads, rows, options.csv)


def determinism(options) -> None:
    """Two equal runs in float32, without and with --deterministic."""
    rows = _gpu_bits.rows(options.scale.networks, options.scale.sizes[0], options.scale.n_steps, with_batch)
    table("Two equal runs, float32", _gpu_bits.HEADS, rows, options.csv)


PARTS = {
    "steps": steps,
    "flags": flags,
    "compile": compiled,
    "loader": loader,
    "metrics": _gpu_metrics.metric_list,
    "faiss": _gpu_metrics.faiss,
    "chunks": chunked,
    "determinism": determinism,
}


def main() -> int:
    """Print the tables of the requested parts. Returns the exit status: 2 without the requested device."""
    parser = OneLineParser(description=__doc__.partition("\n\n")[0], allow_abbrev=False)
    # all but faiss, which few machines have for GPUs
    parts = [part for part in PARTS if part != "faiss"]
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=parts, help="these parts; else all but faiss")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to test the benchmark itself")
    parser.add_argument("--small", action="store_true", help="a tiny network, few steps, little data")
    parser.add_argument(
        "--dimensions", type=whole(1, WIDEST), default=128, help="of the embeddings whose metrics are computed"
    )
    parser.add_argument("--workers", type=whole(0, 1000), default=8, help="worker processes of the loader")
    parser.add_argument("--warm_up", type=whole(0, 1000), default=5, help="steps before the clock runs")
    parser.add_argument("--repeats", type=whole(1, 10**5), default=20, help="number of steps; their median counts")
    parser.add_argument("--csv", type=Path, default=None, metavar="FOLDER", help="also write the tables there as CSV")
    parser.add_argument("--tables", type=Path, default=None, metavar="FOLDER", help="only print the tables of a folder")
    options = parser.parse_args()
    if options.tables is not None:
        print_tables(options.tables)
        return 0
    options.scale = SMALL if options.small else FULL
    if options.device == "cpu":
        # The processes that are started read the variable as well.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif not torch.cuda.is_available():
        print(
            "benchmarks/gpu.py: there is no CUDA device here; --small --device cpu tests the benchmark itself",
            file=sys.stderr,
        )
        return 2
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    print(f"# {device}; torch {torch.__version__}")
    for name in options.only:
        PARTS[name](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
