"""Subset mining: of several random subsets of a batch, the step trains on the one with the highest loss.

The miner mines within it.
"""

import torch

from options.flags import Flag
from utilities.batchnorm import kept_buffers
from utilities.numbers import whole
from utilities.tuples import Classes

FLAGS = {
    "--subset_mining": Flag(
        str,
        None,
        "train on a part of each batch: of random subsets the one with the highest loss (unset: on the whole batch)",
        choices=["maximum_loss"],
    ),
    "--subset_size": Flag(
        whole(2),
        None,
        "images in such a subset, fewer than --bs",
        metavar="N",
        rules={"only_with": {"subset_mining": ["maximum_loss"]}},
    ),
    "--subset_trials": Flag(
        whole(1, 1000),
        5,
        "random subsets compared for each batch",
        metavar="N",
        rules={"only_with": {"subset_mining": ["maximum_loss"]}},
    ),
}


class MaximumLoss:
    """`subset(trainer, batch, runtime)`: the part of the batch that is trained on.

    It costs one forward pass of the whole batch without a gradient, in training mode, and one wait for the device. That
    pass changes only the state of the random generators: buffers, such as BatchNorm's statistics, are restored.

    Args:
        size: images of a subset. A batch that is not larger, such as the last one of an epoch, is trained on whole.
        trials: random subsets that are tried.
    """

    def __init__(self, size: int, trials: int):
        self.size = size
        self.trials = trials

    @classmethod
    def from_flags(cls, opt) -> "MaximumLoss | None":
        """By the flags; None: no subset mining."""
        return None if opt.subset_mining is None else cls(opt.subset_size, opt.subset_trials)

    @torch.no_grad()
    def __call__(self, trainer, batch, runtime):
        """The subset with the highest value of the trainer's `metric_loss`, the criterion with its own miner.

        Rows keep their order.
        """
        # their further views follow, in the same order
        images = len(batch.images) // trainer.VIEWS
        if images <= self.size:
            return batch
        labels = _labels(trainer, batch)[:images].cpu()
        subsets = []
        for _ in range(self.trials):
            places = draw_groups(labels, self.size)
            subsets.append(torch.cat([places + images * view for view in range(trainer.VIEWS)]))
        best = int(torch.stack(self.values(trainer, batch, runtime, subsets)).argmax())
        # Shared, as rounding could make processes choose differently between equal subsets.
        chosen = subsets[runtime.ranks.share(best)]
        return type(batch)(*(part[chosen.to(part.device)] for part in batch))

    def values(self, trainer, batch, runtime, subsets: list) -> list[torch.Tensor]:
        """The loss of each of `subsets`, positions `(n,)` in the batch."""
        with kept_buffers(trainer):
            with runtime.autocast():
                outputs = trainer.outputs(runtime.to_device(batch.images))
            outputs = runtime.full(outputs)
            labels = runtime.to_device(_labels(trainer, batch))
            values = []
            for places in subsets:
                rows = runtime.to_device(places)
                part = type(batch)(
                    labels[rows],
                    batch.images[places.to(batch.images.device)],
                    batch.indices[places.to(batch.indices.device)],
                )
                values.append(trainer.metric_loss(_rows_of(outputs, rows), part))
        return values


def _labels(trainer, batch) -> torch.Tensor:
    """The labels of a batch; of a trainer that uses none each image's number."""
    return batch.labels if trainer.LABELS else batch.indices


def draw_groups(labels: torch.Tensor, size: int) -> torch.Tensor:
    """Ascending positions `(size,)` in `labels` `(B,)`: whole classes in random order, as long as they fit.

    The remaining places get a random part of the first class that did not fit. `size` is below B.
    """
    classes = Classes(labels)
    is_first = classes.starts[classes.order] == classes.places
    # an image of each class
    firsts = classes.order[is_first.nonzero().squeeze(1)]
    groups = []
    room = size
    too_large = None
    for first in firsts[torch.randperm(len(firsts))].tolist():
        start = int(classes.starts[first])
        count = int(classes.counts[first])
        if count <= room:
            groups.append(classes.order[start : start + count])
            room -= count
        elif too_large is None:
            too_large = classes.order[start : start + count]
    if room:
        groups.append(too_large[torch.randperm(len(too_large))[:room]])
    return torch.cat(groups).sort().values


def _rows_of(outputs, rows: torch.Tensor):
    """The `rows` of every tensor of a trainer's outputs."""
    if isinstance(outputs, dict):
        return {name: _rows_of(value, rows) for name, value in outputs.items()}
    return outputs[rows] if torch.is_tensor(outputs) else outputs
