"""Keeps freed memory in the process, or returns it to the system. With glibc alone; elsewhere nothing changes.

By default glibc returns each freed activation to the system, and the next step waits while all its pages are mapped and
zeroed again: a third of a step's time on a CPU, where torch has no cache of its own as it has on a GPU.
"""

import contextlib
import ctypes

# of malloc.h
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4


def keep_freed() -> None:
    """Freed memory stays with this process and those that it forks, whatever MALLOC_ variables say."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def release_freed() -> None:
    """Return free memory to the system.

    To be called before a fork: otherwise each free page is copied when it is next used.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
