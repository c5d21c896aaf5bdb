"""Batches of one domain each, in random order, as many as its share of the images (UnED's `dataset_size`, Ypsilantis et
al., arXiv 2309.01858).
"""

import torch

from datasampler._domains import DomainSampler, shared_out

USES_SAMPLES_PER_CLASS = True


class Sampler(DomainSampler):
    """Every image comes as often as any other, over many epochs:
    a domain smaller than a batch is not in each of them.
    """

    def turns(self, n_batches: int) -> torch.Tensor:
        """See `DomainSampler`."""
        return shared_out(self.domain_sizes, n_batches)
