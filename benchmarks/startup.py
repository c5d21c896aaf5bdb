"""How long the program and the package take to start, as multiples of `import torch`: medians, alternating."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = "import torch"
COMMANDS = {  # name -> words of Python, and the target of its ratio
    REFERENCE: (("-c", "import torch"), 1.0),
    "main.py --help": (("main.py", "--help"), 1.5),
    "import dmlkit": (("-c", "import dmlkit"), 1.1),
    "dmlkit.train": (("-c", "import dmlkit; dmlkit.train"), 1.5),
}
REPEATS = 7


def seconds(*command: str) -> float:
    """Seconds of `python command…` in a new process."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    times = {name: [] for name in COMMANDS}
    for _ in range(REPEATS):
        for name, (command, _) in COMMANDS.items():
            times[name].append(seconds(*command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, (_, target) in COMMANDS.items():
        ratio = medians[name] / medians[REFERENCE]
        print(f"{name:16} {medians[name]:.2f} s, {ratio:.2f} of {REFERENCE} (target: at most {target})")
