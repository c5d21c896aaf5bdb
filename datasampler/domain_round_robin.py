"""A batch of each domain in turn (the sampler of UnED's USCRR, Ypsilantis et al., ICCV 2023, arXiv 2309.01858)."""

import torch

from datasampler._domains import DomainSampler

USES_SAMPLES_PER_CLASS = True


class Sampler(DomainSampler):
    """All domains get equally many batches, whatever their sizes. An epoch begins at a random domain: none has more
    batches over many epochs.
    """

    def turns(self, n_batches: int) -> torch.Tensor:
        """See `DomainSampler`."""
        n_domains = len(self.domain_sizes)
        return (torch.arange(n_batches) + torch.randint(n_domains, ())) % n_domains
