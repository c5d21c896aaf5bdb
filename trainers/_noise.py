"""PRISM: images whose label is probably wrong are left out of a step (Liu et al., Noise-resistant Deep Metric Learning
with Ranking-based Instance Selection, CVPR 2021, arXiv 2103.16047).
"""

import torch

from options.flags import Flag
from utilities.numbers import number, whole

FLAGS = {
    "--noise_filter": Flag(
        str,
        None,
        "leave images out of a step whose label is probably wrong: prism, by the memory's class means",
        choices=["prism"],
        rules={"needs": "memory_size"},
    ),
    "--noise_rate": Flag(
        number(0, below=1),
        0.5,
        "share of a batch that is expected to have a wrong label",
        rules={"only_with": {"noise_filter": ["prism"]}},
    ),
    "--noise_window": Flag(
        whole(1, 10**6),
        30,
        "batches over which the threshold of the probabilities is averaged",
        rules={"only_with": {"noise_filter": ["prism"]}},
    ),
}


def probabilities(
    embeddings: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor, row_labels: torch.Tensor, n_classes: int
) -> torch.Tensor:
    """exp(c_y x) / sum_k exp(c_k x) `(B,)` of embeddings x `(B, D)` with labels y `(B,)`.

    c_k is the plain mean of those of the memory's rows `(M, D)` that have class k; classes without rows are not in the
    sum, and an image of such a class has 1.
    """
    counts = torch.bincount(row_labels, minlength=n_classes)
    sums = rows.new_zeros(n_classes, rows.shape[1]).index_add(0, row_labels, rows)
    centres = sums / counts.clamp(min=1)[:, None]
    products = (embeddings @ centres.T).masked_fill(counts == 0, -torch.inf)
    is_known = counts.index_select(0, labels) > 0
    of_class = products.softmax(1).gather(1, labels[:, None]).squeeze(1)
    return torch.where(is_known, of_class, 1.0)


class Rows(dict):
    """Some rows of a trainer's outputs `(B, ...)`, each taken when it is first read.

    Args:
        outputs: of the whole batch; under torchrun some of them are gathered when they are read.
        rows: `(K,)`.
    """

    def __init__(self, outputs: dict, rows: torch.Tensor):
        super().__init__()
        self.outputs = outputs
        self.rows = rows

    def __missing__(self, name: str) -> torch.Tensor:
        self[name] = value = self.outputs[name].index_select(0, self.rows)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self.outputs

    def get(self, name, default=None):
        """As of any dict."""
        return self[name] if name in self.outputs else default


class NoiseFilter(torch.nn.Module):
    """Keeps the images of a batch whose probability is above a threshold, the mean of the thresholds of some batches.

    A batch's threshold is its floor(rate * B)-th lowest probability, unless that is 1. Where no image is above the
    mean, the floor(rate * B) lowest are dropped, and the mean begins anew with this batch's threshold.

    Args:
        rate: the share of images with a wrong label. window: batches of the mean.
    """

    def __init__(self, rate: float, window: int, n_classes: int):
        super().__init__()
        self.rate = rate
        self.n_classes = n_classes
        # thresholds of the last batches, the newest last
        self.register_buffer("thresholds", torch.zeros(window))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def forward(self, embeddings, labels, rows, row_labels) -> torch.Tensor:
        """The rows `(K,)` of the batch that are kept, ascending; K at least 1. One wait for the device.

        Args:
            embeddings, labels: `(B, D)`, `(B,)`. rows, row_labels: `(M, D)`, `(M,)`, the memory.
        """
        values = probabilities(embeddings, labels, rows.to(embeddings), row_labels, self.n_classes)
        n_dropped = int(self.rate * len(values))
        if n_dropped == 0:
            return torch.arange(len(values), device=values.device)
        order = values.argsort(stable=True)
        threshold = values[order[n_dropped - 1]]
        self._remember(threshold)
        n_thresholds = self.count.clamp(max=len(self.thresholds))
        mean = self.thresholds.sum() / n_thresholds.clamp(min=1)
        above = (values > mean) & (n_thresholds > 0)
        is_lowest = torch.zeros_like(above).index_fill(0, order[:n_dropped], True)
        fails = ~above.any()
        self._begin_anew(fails & (n_thresholds > 0))
        return torch.where(fails, ~is_lowest, above).nonzero().squeeze(1)

    def _remember(self, threshold: torch.Tensor) -> None:
        """Put a batch's threshold at the end of those of the window, unless it is 1."""
        moved = torch.cat([self.thresholds[1:], threshold.to(self.thresholds)[None]])
        counts = (threshold < 1) & threshold.isfinite()
        self.thresholds.copy_(torch.where(counts, moved, self.thresholds))
        self.count += counts

    def _begin_anew(self, is_due: torch.Tensor) -> None:
        """Leave the newest threshold alone."""
        newest = torch.zeros_like(self.thresholds)
        newest[-1] = self.thresholds[-1]
        self.thresholds.copy_(torch.where(is_due, newest, self.thresholds))
        self.count.copy_(torch.where(is_due, 1, self.count))
