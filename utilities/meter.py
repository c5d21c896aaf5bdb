"""Epoch means of loss, gradient norm and statistics, summed on the device without asking it in between."""

import time

import torch


class EpochMeter:
    """Adds up device scalars over an epoch.

    Args:
        criterion: its `stats`, and those of its `batchminer`, are averaged as `criterion/<name>` and `miner/<name>`.
    """

    def __init__(self, criterion):
        self.sources = {"criterion": criterion, "miner": getattr(criterion, "batchminer", None)}
        self.sums, self.counts = {}, {}
        self.images, self.began = 0, time.monotonic()
        self.latest = None

    def add(self, loss: torch.Tensor, gradient_norm: torch.Tensor, images: int) -> None:
        """Take one step's values."""
        self.latest = loss.detach()
        self._sum("loss", self.latest)
        self._sum("gradient_norm", gradient_norm)
        for prefix, source in self.sources.items():
            for name, value in (getattr(source, "stats", None) or {}).items():
                self._sum(f"{prefix}/{name}", value)
        self.images += images

    def _sum(self, name: str, value) -> None:
        value = torch.as_tensor(value).detach().float()
        known = self.sums.get(name)
        self.sums[name] = value if known is None else known + value
        self.counts[name] = self.counts.get(name, 0) + 1

    @property
    def images_per_second(self) -> float:
        """Throughput since the epoch began."""
        return self.images / max(time.monotonic() - self.began, 1e-9)

    def means(self, optimizer: torch.optim.Optimizer) -> dict:
        """Name -> mean of the epoch as a Python number; with the learning rates and the epoch's seconds."""
        seconds = time.monotonic() - self.began
        means = {name: total.item() / self.counts[name] for name, total in self.sums.items()}
        rates = {f"rate/{group.get('name', i)}": group["lr"] for i, group in enumerate(optimizer.param_groups)}
        return {**means, **rates, "epoch_seconds": seconds}
