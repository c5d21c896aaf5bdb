"""Base of the samplers of triplets: sets of (a, p, n) drawn from the data, batches of consecutive triplets."""

import torch

from datasampler._base import BatchSampler, draw_within, random_below
from utilities.errors import UserError
from utilities.numbers import whole


def add_arguments(group) -> None:
    """Declare the flag of the samplers of triplets."""
    group.add_argument(
        "--data_fixed_triplets_n",
        type=whole(1, 10**7),
        default=10000,
        help=(
            "triplets that fixed_triplets draws once, and hard_triplets anew every epoch to keep the hardest share of "
            "them"
        ),
    )


class TripletSampler(BatchSampler):
    """Base of the samplers whose batches are bs / 3 triplets. An epoch has `n_triplets`; those that do not fill a batch
    are left out.

    Raises UserError for a --bs that is no multiple of 3, and for data without a triplet.
    """

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        if opt.bs % 3:
            raise UserError(
                f"--bs {opt.bs} is not a multiple of 3: the batches of fixed_triplets and hard_triplets are whole "
                "triplets."
            )
        # classes that can give anchor and positive
        self.able = (self.class_sizes >= 2).nonzero().squeeze(1)
        if len(self.classes) < 2 or not len(self.able):
            raise UserError(
                f"the training data hold no triplet: of their {len(self.classes)} classes {len(self.able)} have two "
                "images: use a --data_sampler of single images."
            )
        self.n_triplets = opt.data_fixed_triplets_n

    def require_batch(self, flags: str) -> None:
        """UserError, naming the flags `flags`, where an epoch's triplets do not fill one batch."""
        if len(self) < 1:
            raise UserError(
                f"{flags}: {self.n_triplets} triplets do not fill one batch of --bs {self.batch_size}: raise it "
                "or lower --bs."
            )

    def draw_triplets(self, n: int) -> torch.Tensor:
        """Indices `(n, 3)`: of two random classes, two images of the first and one of the second."""
        positive = self.able[torch.randint(len(self.able), (n,))]
        negative = torch.randint(len(self.classes) - 1, (n,))
        negative += negative >= positive
        pairs = self.images_of(positive[:, None], draw_within(self.class_sizes[positive], 2))
        # the order within a set from draw_within is not random
        turned = torch.rand(n, 1, dtype=torch.float32) < 0.5
        pairs = torch.where(turned, pairs.flip(1), pairs)
        negatives = self.images_of(negative, random_below(self.class_sizes[negative]))
        return torch.cat([pairs, negatives[:, None]], 1)

    def shuffled(self, triplets: torch.Tensor) -> torch.Tensor:
        """Batches `(batches, bs)` of `triplets` `(n, 3)` in random order, each triplet's three images consecutive."""
        order = torch.randperm(len(triplets))[: len(self) * (self.batch_size // 3)]
        return triplets[order].view(len(self), self.batch_size)

    def __len__(self) -> int:
        return self.n_triplets // (self.batch_size // 3)
