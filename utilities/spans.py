"""The parts of a step as spans of time, for `--profile_steps`; otherwise a span costs nothing that counts."""

import contextlib
import time

from torch.profiler import record_function


class Clock:
    """Seconds by part, those of a part inside another counted once, for the inner one. `wait`: waits for the device, so that the time is its own."""

    def __init__(self, wait):
        self.wait, self.seconds, self.open, self.since = wait, {}, [], 0.0

    def note(self) -> None:
        """Give the time since the last call to the innermost open part."""
        self.wait()
        now = time.perf_counter()
        if self.open:
            self.seconds[self.open[-1]] = self.seconds.get(self.open[-1], 0.0) + now - self.since
        self.since = now


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
