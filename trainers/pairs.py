"""Pairs of images with grades in place of labels: the more alike two images, the higher the grade of their pair."""

import torch

import criteria
from trainers._trainer import METRIC_LOSS
from trainers._trainer import Trainer as Base
from utilities.errors import UserError

# Flags of what compares images by their labels, or draws batches by them.
OF_LABELS = ("memory_size", "metrix", "mine_pairs", "subset_mining", "language_vectors", "guide")
OF_BATCHES = ("data_sampler", "samples_per_class")


def check(opt) -> None:
    """See `trainers.check`."""
    if opt.dataset_csv_pairs is None:
        raise UserError("--trainer pairs needs --dataset_csv_pairs FILE, a table of path_1, path_2, grade")
    if not criteria.REGISTRY.module(opt.loss).TAKES_GRADES:
        able = [name for name, module in criteria.REGISTRY.modules().items() if module.TAKES_GRADES]
        raise UserError(f"--trainer pairs: --loss {opt.loss} compares no grades; these do: {', '.join(able)}")
    for flag in OF_LABELS:
        if getattr(opt, flag):
            raise UserError(
                f"--{flag} {getattr(opt, flag)} goes by labels, and --trainer pairs by grades: leave it out"
            )
    for flag in sorted(opt.typed.intersection(OF_BATCHES)):
        raise UserError(f"--{flag}: --trainer pairs takes its batches from --dataset_csv_pairs: leave it out")


class Trainer(Base):
    """`metric_loss` = the criterion on the pairs of a batch, its rows 0 and 1, 2 and 3 and so on.

    `set_pairs` sets the grades. Labels are used by evaluation alone.
    """

    LABELS = False
    LOSSES = (METRIC_LOSS,)

    keys = None

    def set_pairs(self, rows: torch.Tensor, grades: torch.Tensor) -> None:
        """Set the grades `(P,)` of the pairs of training images `rows` `(P, 2)`, each pair once."""
        self.n_images = int(rows.max()) + 1
        self.keys, order = (rows[:, 0] * self.n_images + rows[:, 1]).sort()
        self.grades = grades[order]

    def grades_of(self, indices: torch.Tensor) -> torch.Tensor:
        """The grades `(B / 2,)` of the pairs that follow each other in `indices` `(B,)`, on the CPU."""
        if self.keys is None:
            raise UserError("--trainer pairs: this program gives no pairs: take main.py")
        first, second = indices.cpu().view(-1, 2).unbind(1)
        return self.grades[torch.searchsorted(self.keys, first * self.n_images + second)]

    def metric_loss(self, outputs: dict, batch, **reference) -> torch.Tensor:
        """See the base; with the grades of the batch."""
        grades = self.grades_of(batch.indices).to(outputs["embeddings"].device, non_blocking=True)
        return super().metric_loss(outputs, batch._replace(relevance=None), grades=grades, **reference)
