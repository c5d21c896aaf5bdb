"""Classes cut into groups of m images, bs/m groups a batch, in which a class may come twice
(Seidenschwarz et al., arXiv 2102.07753).
"""

import torch

from datasampler._base import BatchSampler
from options.flags import Flag
from utilities.errors import UserError

USES_SAMPLES_PER_CLASS = True

FLAGS = {
    "class_groups_draw": Flag(
        bool,
        False,
        "draw the number of groups in a batch anew each epoch, from the divisors of --bs from 2 to half of it "
        "(their images: --bs over it)",
    ),
}


class Sampler(BatchSampler):
    """An epoch holds every image: each class in random order, cut into groups of m; the last group is filled from the
    class's first images.

    Groups come in random order. Those that do not fill a batch are completed by random ones. A smaller class than m
    repeats its images. The authors add one more group where m divides a class. An epoch has the same number of batches
    whatever number of groups is drawn: that of --samples_per_class; under --data_class_groups_draw an epoch of larger
    groups, which repeat more images, leaves some out.

    Raises UserError for a --bs without such a divisor.
    """

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        self.split_batch(opt)
        self.divisors = [n for n in range(2, opt.bs // 2 + 1) if opt.bs % n == 0] if self.class_groups_draw else []
        if self.class_groups_draw and not self.divisors:
            raise UserError(
                f"--data_class_groups_draw: no number of groups from 2 to half of --bs {opt.bs} divides it: "
                "choose another --bs"
            )

    def draw_epoch(self) -> torch.Tensor:
        """Indices `(batches, bs)`, the m images of a group next to each other."""
        m = self.samples_per_class
        if self.divisors:
            m = self.batch_size // self.divisors[int(torch.randint(len(self.divisors), ()))]
        groups, _ = self.cut_into_groups(m)
        needed = len(self) * self.batch_size // m
        rows = torch.cat([torch.randperm(len(groups)) for _ in range(-(-needed // len(groups)))])
        return groups[rows[:needed]].view(len(self), -1)

    def __len__(self) -> int:
        groups = int((-(-self.class_sizes // self.samples_per_class)).sum())
        return -(-groups // self.classes_per_batch)
