"""Exactly bs/m distinct classes with m images each in every batch, all classes equally often (MPerClass done right)."""

import torch

from datasampler._base import BatchSampler

USES_SAMPLES_PER_CLASS = True


class Sampler(BatchSampler):
    """Batches go through random permutations of the classes, so that over an epoch class counts differ by one at most.

    Images are distinct where the class has m; a smaller class gives all of its images, then repeats. Where two
    permutations meet, pytorch-metric-learning's MPerClassSampler can put a class twice into a batch; here the batch
    takes the rest of one permutation and then classes of the next one that it does not hold yet.

    Raises UserError for fewer classes than bs/m.
    """

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        self.split_batch(opt)
        self.require_classes()

    def draw_classes(self) -> torch.Tensor:
        """Classes of each batch, `(batches, bs / m)`, distinct in a row."""
        n_classes = len(self.classes)
        per_batch = self.classes_per_batch
        needed = len(self) * per_batch
        passes = []
        n_drawn = 0
        # A loop over permutations, not batches: the start of one depends on the end of the one before.
        while n_drawn < needed:
            order = torch.randperm(n_classes)
            # places that are left in the batch in which the last permutation ended
            open_places = -n_drawn % per_batch
            if open_places:
                # the classes that this batch holds already
                ended_with = passes[-1][open_places - per_batch :]
                free = ~torch.isin(order, ended_with)
                ahead = free & (free.cumsum(0) <= open_places)
                order = torch.cat([order[ahead], order[~ahead]])
            passes.append(order)
            n_drawn += n_classes
        return torch.cat(passes)[:needed].view(len(self), per_batch)

    def draw_epoch(self) -> torch.Tensor:
        """Indices `(batches, bs)`, the m images of a class next to each other."""
        return self.groups_of(self.draw_classes())
