"""Tables of benchmarks/gpu.py, and what benchmarks/gpu_minutes.sh writes beside them: versions, photographs to train
on, what its runs came to.

    python benchmarks/_gpu_records.py versions|runs FOLDER
    python benchmarks/_gpu_records.py photographs FOLDER NUMBER
"""

import csv
import importlib.metadata
import json
import platform
import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

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
    """A CSV file of rows below a head, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def table(title: str, heads: tuple, rows: list, folder: Path | None = None) -> None:
    """Print a Markdown table, numbers with four significant digits; into a folder also write it as CSV, in full."""
    cells = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    print(f"\n## {title}\n\n| {' | '.join(heads)} |\n|{'-|' * len(heads)}")
    print("\n".join(f"| {' | '.join(row)} |" for row in cells), flush=True)
    if folder is not None:
        name = re.sub(r"[^a-z0-9]+", "_", title.lower())
        write(folder / f"{name}.csv", heads, rows)


def print_tables(folder: Path) -> None:
    """The CSV files of a folder, as Markdown tables."""
    for path in sorted(folder.glob("*.csv")):
        with open(path, newline="", encoding="utf-8") as file:
            heads, *rows = csv.reader(file)
        table(path.stem.replace("_", " "), heads, [[_number(cell) for cell in row] for row in rows])


def _number(cell: str) -> "float | str":
    """A cell of a CSV file: a number with a point as one, anything else as it is."""
    if not re.fullmatch(r"-?[0-9]+\.[0-9]+(e-?[0-9]+)?", cell):
        return cell
    return float(cell)


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


def photographs(folder: Path, number: int) -> None:
    """Write that many JPEG files below photographs/, in at most 100 classes; that folder is whole or not there."""
    from benchmarks.input import make_files

    unfinished = folder / "photographs_unfinished"
    # an earlier call may have been stopped
    shutil.rmtree(unfinished, ignore_errors=True)
    make_files(unfinished, number, n_classes=min(number // 10, 100))
    unfinished.rename(folder / "photographs")


def runs(folder: Path) -> None:
    """Write whole_runs.csv: seconds, images, memory and last values of the whole runs that ended."""
    rows = []
    for path in sorted((folder / "runs").glob("*/*/summary.json")):
        summary = json.loads(path.read_text(encoding="utf-8"))
        flags = summary["parameters"]
        images = flags["bs"] * (flags["iterations_per_epoch"] or 0) * flags["n_epochs"]
        seconds = summary["seconds"]
        in_epochs = sum(logged(path.parent / "CSV_Logs" / "metrics.csv", "metric", "epoch_seconds"))
        memory = max(logged(path.parent / "CSV_Logs" / "batches.csv", "name", "memory_mib"), default="")
        values = summary["last"].get("test", {})
        rows.append(
            (
                path.parent.name,
                flags["arch"],
                flags["precision"],
                images,
                seconds,
                images / seconds,
                images / in_epochs,
                memory,
                *(values.get(name, "") for name in ("e_recall@1", "map_r", "nmi")),
            )
        )
    head = ("run", "network", "precision", "images", "seconds with evaluation", "images/s", "images/s in epochs")
    write(folder / "whole_runs.csv", (*head, "MiB", "e_recall@1", "map_r", "nmi"), rows)


def logged(path: Path, column: str, name: str) -> list[float]:
    """The values of one name in a file of records; none without the file."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return [float(row["value"]) for row in csv.DictReader(file) if row[column] == name]


if __name__ == "__main__":
    command, folder_name, *numbers = sys.argv[1:]
    commands = {"versions": versions, "photographs": photographs, "runs": runs}
    commands[command](Path(folder_name), *map(int, numbers))
