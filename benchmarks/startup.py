"""How long `python main.py --help` takes beside `python -c "import torch"`: medians, alternating."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def seconds(*command: str) -> float:
    """Seconds of `python command…` in a new process."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    commands = {"import torch": ("-c", "import torch"), "main.py --help": ("main.py", "--help")}
    times = {name: [] for name in commands}
    for _ in range(7):
        for name, command in commands.items():
            times[name].append(seconds(*command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print(f"{name:16} {value:.2f} s")
    print(f"ratio            {medians['main.py --help'] / medians['import torch']:.2f}   (target: at most 1.5)")
