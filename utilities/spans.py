"""The parts of a step as spans of time, for `--profile_steps`; without it a span has a negligible cost.
And the time of whole steps.
"""

import contextlib
import time

import torch
from torch.profiler import record_function


class Clock:
    """Seconds by part, those of a part inside another counted once, for the inner one. `wait`: waits for the device, so
    that the time is its own.
    """

    def __init__(self, wait):
        self.wait = wait
        self.seconds = {}
        self.open = []
        self.since = 0.0

    def note(self) -> None:
        """Give the time since the last call to the innermost open part."""
        self.wait()
        time_now = time.perf_counter()
        if self.open:
            self.seconds[self.open[-1]] = self.seconds.get(self.open[-1], 0.0) + time_now - self.since
        self.since = time_now


_running = None


@contextlib.contextmanager
def running(clock: Clock):
    """Inside, `span` tells the clock."""
    global _running
    _running = clock
    try:
        yield clock
    finally:
        _running = None


@contextlib.contextmanager
def span(part: str):
    """Inside, a step is at `part`, by the running clock and in a profiler's trace."""
    clock = _running
    if clock is None:
        yield
        return
    clock.note()
    clock.open.append(part)
    try:
        with record_function(part):
            yield
            clock.note()
    finally:
        clock.open.pop()


def moment(device: torch.device):
    """Now, by the device's own clock, without waiting for it: what `seconds_between` takes."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def seconds_between(moments: list[tuple]) -> float:
    """The sum of the seconds from the first to the second moment of each pair; waits for the last one."""
    if isinstance(moments[0][0], float):
        return sum(ended - began for began, ended in moments)
    moments[-1][1].synchronize()
    return sum(began.elapsed_time(ended) for began, ended in moments) / 1000
