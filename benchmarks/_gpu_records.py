"""What benchmarks/gpu_minutes.sh writes beside the figures of benchmarks/gpu.py: versions, and what its runs came to.

python benchmarks/_gpu_records.py versions | runs FOLDER
"""

import csv
import importlib.metadata
import json
import platform
import sys
from pathlib import Path

PACKAGES = (
    "torch",
    "torchvision",
    "timm",
    "numpy",
    "scipy",
    "pandas",
    "pillow",
    "tqdm",
    "pyyaml",
    "faiss-cpu",
    "pytest",
)


def write(path: Path, head: tuple, rows: list) -> None:
    """A CSV file of rows below a head."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def versions(folder: Path) -> None:
    """Write versions.csv: the machine, its device, the packages; empty for one that is missing."""
    import torch

    device = "none"
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
    rows = [("python", platform.python_version()), ("system", platform.platform()), ("device", device)]
    rows.append(("cuda", torch.version.cuda or ""))
    for package in PACKAGES:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = ""
        rows.append((package, version))
    write(folder / "versions.csv", ("what", "version"), rows)


def runs(folder: Path) -> None:
    """Write whole_runs.csv: seconds, images and last values of the whole runs that ended."""
    rows = []
    for path in sorted((folder / "runs").glob("*/*/summary.json")):
        summary = json.loads(path.read_text(encoding="utf-8"))
        flags = summary["parameters"]
        images = flags["bs"] * (flags["iterations_per_epoch"] or 0) * flags["n_epochs"]
        seconds = summary["seconds"]
        values = summary["last"].get("test", {})
        rows.append(
            (
                path.parent.name,
                flags["arch"],
                flags["precision"],
                images,
                seconds,
                images / seconds,
                *(values.get(name, "") for name in ("e_recall@1", "nmi")),
            )
        )
    head = ("run", "network", "precision", "images", "seconds with evaluation", "images/s", "e_recall@1", "nmi")
    write(folder / "whole_runs.csv", head, rows)


if __name__ == "__main__":
    {"versions": versions, "runs": runs}[sys.argv[1]](Path(sys.argv[2]))
