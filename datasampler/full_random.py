"""A random class for each image of the batch; the last image shares its class with the one before it."""

import torch

from datasampler._base import BatchSampler, draw_within, random_below
from utilities.errors import UserError


class Sampler(BatchSampler):
    """A uniformly drawn class, then one of its images, for each place: balanced over classes, not over images.

    The last place takes the class of the one before, so that a positive pair exists; its images are distinct where the
    class has two.
    """

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        if opt.bs < 2:
            raise UserError(f"--bs {opt.bs} holds no pair: --data_sampler full_random needs 2 or more.")

    def draw_epoch(self) -> torch.Tensor:
        """Indices `(batches, bs)`."""
        classes = torch.randint(len(self.classes), (len(self), self.batch_size))
        classes[:, -1] = classes[:, -2]
        sizes = self.class_sizes[classes]
        places = torch.cat([random_below(sizes[:, :-2]), draw_within(sizes[:, -1], 2)], dim=1)
        return self.images_of(classes, places)
