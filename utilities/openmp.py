"""How long idle OpenMP threads wait actively. Importing this module sets it, before torch is imported.

PyTorch shares each operation among OpenMP threads. A thread that has finished its part spins until the others have, by
default for milliseconds. Where another process needs the core, a loader worker or a second run, a spinning thread takes
the time slice of the thread that it waits for, and a step of many small operations takes several times as long.
Passive waiting avoids this, but then each operation wakes a sleeping thread, which takes longer than the operation
itself. A short spin is the compromise, see `python benchmarks/contention.py`.

GNU's OpenMP library, which torch's wheels for Linux contain, reads the environment once, when torch is imported.
Programs therefore import this module first. It has no effect on results: the number of threads, on which rounding
depends, stays the same.
"""

import os
import sys

# iterations of the waiting loop, tens of microseconds: longer than the gap between two operations, much shorter than a
# time slice
SPINS = 3000
SPIN_COUNT = "GOMP_SPINCOUNT"
WAIT_POLICY = "OMP_WAIT_POLICY"


def limit_spinning(environment) -> None:
    """Set the spin count in `environment`, name -> string, unless the user has set it or a waiting policy."""
    if SPIN_COUNT in environment or WAIT_POLICY in environment:
        return
    environment[SPIN_COUNT] = str(SPINS)


# a program that has already imported torch, such as a user's own, keeps its environment
if "torch" not in sys.modules:
    limit_spinning(os.environ)
