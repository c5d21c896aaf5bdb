"""Every image once an epoch, in random order; the last batch holds what is left and can be smaller."""

import torch

from datasampler._base import BatchSampler


class Sampler(BatchSampler):
    """A permutation of all images in batches of bs. Where bs does not divide their number,
    the rest is a last, smaller batch.

    A batch need not hold two images of one class: meant for criteria with proxies or class weights.
    """

    def draw_epoch(self) -> tuple[torch.Tensor, ...]:
        """Indices of each batch, `(bs,)`, the last one shorter where bs does not divide the number of images."""
        return torch.randperm(self.n_images).split(self.batch_size)

    def __len__(self) -> int:
        return -(-self.n_images // self.batch_size)
