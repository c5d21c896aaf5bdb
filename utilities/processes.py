"""Processes: how many workers a run may start, and the one-process case of `engine.ranks.Ranks`."""

import os


def kernels(requested: int) -> int:
    """Worker processes: the requested number, at most the CPUs that this process may use."""
    n_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(requested, n_cpus or 1)


class SingleProcess:
    """One process on its own, even where there are others:
    what `engine.ranks.Ranks` does for several, without an exchange.
    """

    rank = 0
    size = 1

    @property
    def writes(self) -> bool:
        """Whether this is the process that writes folder, records, checkpoints, pictures and console."""
        return self.rank == 0

    def part(self, total: int) -> slice:
        """This process's rows of a batch of `total`. The parts are consecutive, their sizes differ by at most 1.

        With fewer rows than processes, each takes all rows.
        """
        if total < self.size:
            return slice(0, total)
        return slice(*((rank * total // self.size) for rank in (self.rank, self.rank + 1)))

    def portions(self, total: int, unit: int = 1) -> list[slice]:
        """Every process's rows of `total`: consecutive, in whole units of `unit` rows;
        the last process also takes the remainder.
        """
        units = max(total // unit, 1)
        bounds = [*(rank * units // self.size * unit for rank in range(self.size)), total]
        return [slice(*pair) for pair in zip(bounds, bounds[1:], strict=False)]

    def cuts(self, total: int) -> bool:
        """Whether a batch of `total` images is split over the processes."""
        return 1 < self.size <= total

    def mean_(self, tensors: list) -> None:
        """Replace each of `tensors` by its mean over the processes."""

    def total(self, tensor):
        """The sum of `tensor` over the processes, on all."""
        return tensor

    def largest(self, tensor):
        """The largest entries of `tensor` over the processes, on all."""
        return tensor

    def collect(self, rows, parts: list[slice]):
        """On the first process `(N, …)` in main memory, where process r has the rows `parts[r]`;
        on the others their own `rows`.
        """
        return rows

    def share(self, value=None):
        """The first process's `value`, on all."""
        return value

    def everyone(self, value) -> list:
        """The `value` of every process, on all."""
        return [value]

    def first(self, make):
        """Call `make()` on the first process alone; return its value, or raise its UserError, on all."""
        return make()

    def share_rows(self, array, rows: list[slice]) -> None:
        """Complete a NumPy array `(N, …)`, in place, on all processes; process r has the rows `rows[r]`."""

    def wait(self) -> None:
        """Wait until all processes are here."""

    def same_draws(self, device) -> None:
        """Set all random generators to the first process's states, that of its GPU included."""
