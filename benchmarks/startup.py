"""How long the program and the package take to start, as multiples of `import torch`: medians, alternating.

On a shared machine trust the ratio of CPU seconds.
"""

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = "import torch"
# name -> words of Python, and the target of its ratio
COMMANDS = {
    REFERENCE: (("-c", "import torch"), 1.0),
    "main.py --help": (("main.py", "--help"), 1.5),
    "import dmlkit": (("-c", "import dmlkit"), 1.1),
    "dmlkit.train": (("-c", "import dmlkit; dmlkit.train"), 1.5),
}
REPEATS = 7


def seconds(*command: str) -> tuple[float, float]:
    """Seconds and CPU seconds of `python command…` in a new process."""
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, cpu_seconds


if __name__ == "__main__":
    times = {name: [] for name in COMMANDS}
    for _ in range(REPEATS):
        for name, (command, _) in COMMANDS.items():
            times[name].append(seconds(*command))
    medians = {}
    for name, pairs in times.items():
        medians[name] = [statistics.median(values) for values in zip(*pairs, strict=True)]
    for name, (_, target) in COMMANDS.items():
        ratio, cpu_ratio = (
            value / reference for value, reference in zip(medians[name], medians[REFERENCE], strict=True)
        )
        print(
            f"{name:16} {medians[name][0]:.2f} s, {ratio:.2f} of {REFERENCE}; in CPU seconds {cpu_ratio:.2f} "
            f"(target: at most {target})"
        )
