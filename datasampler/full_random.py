"""A random class for each image of the batch; the last image shares its class with the one before it."""

import torch

from datasampler._base import BatchSampler, draw_within, random_below
from utilities.errors import UserError

USES_SAMPLES_PER_CLASS = False
GUARANTEES_POSITIVES = True


class Sampler(BatchSampler):
    """Classes uniform, then an image of it: balanced over classes, not over images.

    The last slot takes the class before it, so one positive pair exists; it is a pair of two images where the class has two.
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
