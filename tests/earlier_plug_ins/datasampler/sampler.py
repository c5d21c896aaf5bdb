"""Batches of images drawn uniformly, with replacement."""

import torch

USES_SAMPLES_PER_CLASS = False  # True: --bs has to be a multiple of --samples_per_class


class Sampler(torch.utils.data.Sampler):
    """`len(image_list) // bs` batches an epoch."""

    def __init__(self, opt, image_dict: dict, image_list: list):
        self.batch_size, self.size = opt.bs, len(image_list)

    def __iter__(self):
        for _ in range(len(self)):
            yield torch.randint(self.size, (self.batch_size,)).tolist()

    def __len__(self):
        return self.size // self.batch_size
