"""Random classes, random images of each, both drawn with replacement
(Roth et al., arXiv 2002.08473; the published default).
"""

import torch

from datasampler._base import BatchSampler, random_below

USES_SAMPLES_PER_CLASS = True


class Sampler(BatchSampler):
    """bs/m classes drawn with replacement, then m images each with replacement, as in the published runs.

    A class can occur twice in a batch, and an image can be its own positive; `class_balanced` avoids both.
    """

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        self.split_batch(opt)

    def draw_epoch(self) -> torch.Tensor:
        """Indices `(batches, bs)`, the m images of a class next to each other."""
        classes = torch.randint(len(self.classes), (len(self), self.classes_per_batch))
        classes = classes.repeat_interleave(self.samples_per_class, dim=1)  # (batches, bs)
        return self.images_of(classes, random_below(self.class_sizes[classes]))
