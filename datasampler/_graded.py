"""The sampler of --trainer pairs: every graded pair once an epoch, its two images side by side."""

import torch

from datasampler._base import BatchSampler
from utilities.errors import UserError


class PairSampler(BatchSampler):
    """bs / 2 pairs a batch, in random order; pairs that do not fill a batch are left out of the epoch.

    rows: `(P, 2)`, the images of each pair. Raises UserError for a --bs that is odd, or more than all pairs.
    """

    def __init__(self, opt, image_dict: dict, image_list: list, rows: torch.Tensor):
        super().__init__(opt, image_dict, image_list)
        self.rows = rows
        if opt.bs % 2 or opt.bs < 4:
            raise UserError(
                f"--bs {opt.bs}: --trainer pairs takes bs / 2 pairs a batch: choose an even number from 4 on"
            )
        if not len(self):
            raise UserError(f"--bs {opt.bs}: the {len(rows)} pairs do not fill one batch: lower it")

    def draw_epoch(self) -> torch.Tensor:
        """Indices `(batches, bs)`."""
        order = torch.randperm(len(self.rows))[: len(self) * (self.batch_size // 2)]
        return self.rows[order].view(len(self), self.batch_size)

    def __len__(self) -> int:
        return len(self.rows) // (self.batch_size // 2)
