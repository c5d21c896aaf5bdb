"""The values of training steps: means over an epoch, and with --log_every those of single batches.

They are loss, gradient norm and the statistics of criterion and miner.

Values stay on the device until an epoch, or a block of batches, is complete: no step waits for them.
"""

import math
import resource
import sys
import time

import torch

from engine import collapse

# logged batches after which their values are read from the device
BLOCK = 50


def statistics(criterion) -> dict:
    """The latest `stats` of a criterion and of its miner: `criterion/<name>`, `miner/<name>` -> device scalar."""
    values = {}
    for prefix, source in (("criterion", criterion), ("miner", getattr(criterion, "batchminer", None))):
        stats = getattr(source, "stats", None) or {}
        values |= {f"{prefix}/{name}": value for name, value in stats.items()}
    return values


def learning_rates(optimizer: torch.optim.Optimizer) -> dict:
    """`rate/<group>` -> learning rate, that of the latest step."""
    factor = getattr(optimizer, "step_factor", 1.0)
    return {f"rate/{group.get('name', i)}": group["lr"] * factor for i, group in enumerate(optimizer.param_groups)}


def peak_memory(device: torch.device) -> float:
    """Largest memory so far in MiB: allocated by torch on a GPU, else resident of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts in bytes, other systems in KiB
    if sys.platform == "darwin":
        return peak / 2**20
    return peak / 2**10


class BatchLog:
    """Counts a run's steps and hands the values of some of them to `write`.

    Args:
        log_every: one step in so many is logged; 0: none.
        optimizer: whose learning rates are logged.
        write: gets a list of (step, {name: number}).
    """

    def __init__(self, log_every: int = 0, optimizer: torch.optim.Optimizer | None = None, write=None):
        self.log_every = log_every
        self.optimizer = optimizer
        self.write = write
        self.steps = 0
        self._block = []
        self.start_epoch()

    def start_epoch(self) -> None:
        """Measure throughput from here on: the time between two epochs is no training."""
        self._images = 0
        self._since = time.monotonic()

    def take(self, values: dict, images: int) -> None:
        """One step's values, name -> device scalar or number."""
        self.steps += 1
        self._images += images
        if not self.log_every or self.steps % self.log_every:
            return
        time_now = time.monotonic()
        device = values["loss"].device
        on_device = {}
        numbers = {}
        for name, value in values.items():
            if getattr(value, "device", None) == device:
                on_device[name] = value.detach().reshape(())
            else:
                numbers[name] = float(value)
        numbers |= learning_rates(self.optimizer)
        numbers["images_per_second"] = self._images / max(time_now - self._since, 1e-9)
        numbers["memory_mib"] = peak_memory(device)
        self._images = 0
        self._since = time_now
        self._block.append((self.steps, list(on_device), torch.stack(list(on_device.values())).double(), numbers))
        if len(self._block) >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Copy the kept values from the device, in one transfer, and hand them to `write`."""
        if not self._block:
            return
        block = self._block
        self._block = []
        values = iter(torch.cat([stacked for _, _, stacked, _ in block]).tolist())
        logged = []
        for step, names, _, numbers in block:
            on_device = {name: next(values) for name in names}
            logged.append((step, {**_defined(on_device), **numbers}))
        self.write(logged)


class EpochMeter:
    """Adds up device scalars over an epoch: losses, sizes of the gradient, `statistics` of the criterion.

    `batches` gets every step's values.
    """

    def __init__(self, criterion, batches: BatchLog | None = None):
        self.criterion = criterion
        self.batches = batches or BatchLog()
        self.batches.start_epoch()
        self.sums = {}
        self.counts = {}
        self.latest = None
        self.images = 0
        self.began = time.monotonic()

    def add(self, done) -> None:
        """Take one step's values, an `engine.step.StepResult`. Several losses are recorded by name."""
        self.latest = done.loss
        gradients = {"gradient_norm": done.gradient_norm, **done.gradients}
        values = {"loss": self.latest}
        if len(done.losses) > 1:
            values |= done.losses
        values |= {**gradients, **statistics(self.criterion), **done.statistics}
        for name, value in values.items():
            value = torch.as_tensor(value).detach().float()
            count = 1
            # float16 leaves steps out whose gradient overflows; batches without pairs have no statistics of them
            if name in gradients or name in collapse.NAMES:
                count = torch.isfinite(value)
                value = torch.where(count, value, 0)
            if name in self.sums:
                value = self.sums[name] + value
            self.sums[name] = value
            self.counts[name] = self.counts.get(name, 0) + count
        self.images += done.images
        self.batches.take(values, done.images)

    @property
    def images_per_second(self) -> float:
        """Throughput since the epoch began."""
        return self.images / max(time.monotonic() - self.began, 1e-9)

    def means(self, optimizer: torch.optim.Optimizer) -> dict:
        """Name -> mean of the epoch as a Python number; with the learning rates and the epoch's seconds."""
        seconds = time.monotonic() - self.began
        means = {}
        for name, total in self.sums.items():
            count = int(self.counts[name])
            means[name] = total.item() / count if count else math.nan
        return {**_defined(means), **learning_rates(optimizer), "epoch_seconds": seconds}


def _defined(values: dict) -> dict:
    """Name -> number, without statistics of pairs where there were none."""
    return {name: value for name, value in values.items() if name not in collapse.NAMES or math.isfinite(value)}
