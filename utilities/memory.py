"""What becomes of freed memory. With glibc alone; elsewhere nothing changes.

As it comes, glibc hands each freed activation back to the system, and the next step waits until every page of it is made and cleared
anew: a third of a step's time, on a CPU, where torch has no cache of its own as it has on a GPU.
"""

import contextlib
import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h


def keep_freed() -> None:
    """From here on freed memory stays with this process and with those that it forks, whatever MALLOC_ variables say."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def release_freed() -> None:
    """What is free now goes back to the system. Before a fork: else each page of it is copied when it is next used."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
