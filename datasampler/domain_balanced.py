"""Batches of one domain each, equally many of all, in random order
(UnED's `balanced`, Ypsilantis et al., ICCV 2023, arXiv 2309.01858).
"""

import torch

from datasampler._domains import DomainSampler, shared_out

USES_SAMPLES_PER_CLASS = True


class Sampler(DomainSampler):
    """As domain_round_robin, but a domain may come twice in a row."""

    def turns(self, n_batches: int) -> torch.Tensor:
        """See `DomainSampler`."""
        return shared_out(torch.ones_like(self.domain_sizes), n_batches)
