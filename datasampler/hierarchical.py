"""Batches from one super-class, another continues where its classes run out
(as for FastAP, Cakir et al., CVPR 2019).
"""

import torch

from datasampler._base import CHUNK, BatchSampler
from options.flags import Flag
from utilities.errors import UserError
from utilities.numbers import whole

USES_SAMPLES_PER_CLASS = True

FLAGS = {
    "hierarchical_supers": Flag(
        whole(1, 10**4),
        1,
        "super-classes that hierarchical takes an equal share of a batch's classes from (HAPPIER: 2)",
        metavar="S",
    ),
}


class Sampler(BatchSampler):
    """bs/m distinct classes with m images each, from as few super-classes as possible, so that negatives look alike.

    A batch starts with a super-class drawn in proportion to its number of classes; when its classes are used up, the
    next super-class is drawn likewise from the rest. With `--data_hierarchical_supers` S, S of them are drawn at a
    time, and give an equal share of the classes.

    Raises UserError for fewer classes than bs/m, and where the data set has no super labels.
    """

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        self.split_batch(opt)
        self.require_classes()
        self.super_of = None

    def set_super_labels(self, super_labels: dict | None) -> None:
        """Class -> super-class, for every class of `image_dict`; UserError where one has none (None)."""
        missing = [name for name in self.classes if (super_labels or {}).get(name) is None]
        if missing:
            raise UserError(
                f"--data_sampler hierarchical needs super labels, {len(missing)} of {len(self.classes)} classes have "
                "none: use a data set that has them (online_products, glyphs) or another sampler."
            )
        numbers = {
            name: number for number, name in enumerate(dict.fromkeys(super_labels[name] for name in self.classes))
        }
        self.super_of = torch.tensor([numbers[super_labels[name]] for name in self.classes])  # (C,)

    def draw_epoch(self) -> torch.Tensor:
        """Indices `(batches, bs)`, the m images of a class next to each other."""
        if self.super_of is None:
            self.set_super_labels(None)
        shares = torch.bincount(self.super_of).float()  # (S,) classes of each super-class
        classes = []
        # A loop over chunks of batches: the keys of all batches at once would fill the memory for many classes and
        # small batches.
        for batches in torch.arange(len(self)).split(max(1, CHUNK // len(self.classes))):
            # Exponential arrival times with the shares as rates: their order is that of weighted draws without
            # replacement.
            arrivals = torch.empty(len(batches), len(shares), dtype=torch.float32).exponential_() / shares
            ranks = arrivals.argsort(1).argsort(1)  # (batches, S)
            # noise below 1, so that super-classes never interleave
            noise = 0.5 * torch.rand(len(batches), len(self.classes), dtype=torch.float32)
            # Super-classes that are drawn together do interleave, one class of each in turn.
            if self.hierarchical_supers > 1:
                # super-class after super-class
                order = (self.super_of + noise).argsort(1)
                firsts = (shares.cumsum(0) - shares)[self.super_of]
                noise = (order.argsort(1) - firsts) / len(self.classes)
            keys = ranks[:, self.super_of] // self.hierarchical_supers + noise
            classes.append(keys.topk(self.classes_per_batch, largest=False).indices)
        return self.groups_of(torch.cat(classes))
