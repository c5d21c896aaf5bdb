"""A user's sampler behind the calls of the training loop: those that it lacks do nothing."""

import torch

from datasampler._base import BatchSampler

CALLS = (
    "set_super_labels",
    "create_storage",
    "precompute_indices",
    "replace_storage_entries",
    "state_dict",
    "load_state_dict",
)


class AdaptedSampler(BatchSampler):
    """The batches of another sampler, with its calls where it has them and those of the base where it lacks them.

    Attributes:
        wrapped: the user's sampler.
    """

    def __init__(self, wrapped):
        torch.utils.data.Sampler.__init__(self)
        self.wrapped = wrapped
        self.requires_storage = getattr(wrapped, "requires_storage", False)
        self.shares_state = hasattr(wrapped, "state_dict")
        for call in CALLS:
            if hasattr(wrapped, call):
                setattr(self, call, getattr(wrapped, call))

    def __getattr__(self, name: str):
        """What the user's sampler has beyond these calls."""
        # `wrapped` is not set yet, as while the sampler is copied
        if name == "wrapped":
            raise AttributeError(name)
        return getattr(self.wrapped, name)

    def __iter__(self):
        return iter(self.wrapped)

    def __len__(self) -> int:
        return len(self.wrapped)


def adapted(sampler):
    """The sampler itself where it has all calls, else an `AdaptedSampler` around it."""
    has_all = all(hasattr(sampler, call) for call in CALLS)
    return sampler if has_all else AdaptedSampler(sampler)
