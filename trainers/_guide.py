"""A guide against false negatives: negatives that it finds nearer than a positive are dropped (Solatorio, GISTEmbed,
arXiv 2402.16829). What is dropped is decided in `utilities/guide.py`.

A program gives what the file holds as `opt.loaded_guide` (`evaluation.teachers`).
"""

from typing import NamedTuple

import torch

import criteria
from options.flags import Flag, roles
from trainers._added_losses import AddedLoss
from utilities.criterion import MetricCriterion, takes_reference
from utilities.errors import UserError
from utilities.guide import Guide
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import normalize

FLAG = "--guide"
# name of the guide among the arguments of a criterion's call
ARGUMENT = "guide"

FLAGS = {
    FLAG: Flag(
        str,
        None,
        "drop a negative n of an anchor a and its positive p where the cosine of a and n exceeds that of a and p in "
        "this .npz file, which has features (N, E) and paths (N,) of the training images, as --dump_embeddings writes "
        "them; in losses without pairs p is the positive nearest to a",
        metavar="FILE.npz",
        role=roles.METHOD.but(moves=True),
    ),
    "--guide_margin": Flag(
        number(-1, 1),
        0.0,
        "a negative is dropped above the positive's cosine less this; below 0 a negative may be that much nearer",
        rules={"needs": "guide"},
    ),
    "--guide_relative": Flag(
        bool,
        False,
        "the margin is a share: dropped above (1 - margin) times the positive's cosine",
        rules={"needs": "guide"},
    ),
}


class GuideFile(NamedTuple):
    """What a file says of the training images: its name, its SHA-256, features `(N, E)` in the order of the images."""

    source: str
    fingerprint: str
    features: torch.Tensor


def check(opt, trainer_class: type) -> None:
    """Refuse a guide where a comparison of samples would not obey it. Raises UserError."""
    if not opt.guide:
        return
    if not getattr(trainer_class, "GUIDES", True):
        raise UserError(
            f"{FLAG}: --trainer {opt.trainer} compares samples in ways that it does not reach: take --trainer "
            "metric_only"
        )
    if opt.metrix:
        raise UserError(f"{FLAG}: --metrix mixes images that it does not know: leave one out")
    if not has_negatives(criteria.REGISTRY.module(opt.loss)):
        able = [name for name, module in criteria.REGISTRY.modules().items() if has_negatives(module)]
        raise UserError(
            f"{FLAG} drops negatives of anchors, of which --loss {opt.loss} can leave none out; these can: "
            f"{', '.join(able)}"
        )


def has_negatives(module) -> bool:
    """Whether a loss's file compares an anchor with negatives of which some can be left out."""
    kind = module.Criterion
    reads_masks = module.COMPARES_SAMPLES and module.TAKES_GUIDE
    return reads_masks and issubclass(kind, MetricCriterion) and takes_reference(kind)


class GuidedNegatives(AddedLoss):
    """No loss of its own: the criterion gets a guide for the images of the batch, and of the memory.

    The share of a batch's negative pairs that it drops, each anchor with its nearest positive, is recorded as
    `guide_dropped` among the criterion's statistics. The file's hash is in checkpoints.
    """

    NAME = "guide"
    FLAG = FLAG

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        super().__init__()
        self.file = opt.loaded_guide
        if self.file is None:
            raise UserError(f"{FLAG} {opt.guide}: this program loads no guide: take main.py")
        self.margin = opt.guide_margin
        self.is_relative = opt.guide_relative
        self.rows = normalize(self.file.features)

    def guide(self, indices: torch.Tensor, reference_indices: torch.Tensor, device) -> Guide:
        """The guide of images by their indices in the training set, `(B,)` and `(M,)`."""
        self.rows = self.rows.to(device)
        indices = indices.to(device)
        reference_indices = reference_indices.to(device)
        anchors = self.rows.index_select(0, indices)
        rows = self.rows.index_select(0, reference_indices)
        return Guide(anchors, rows, indices, reference_indices, self.margin, self.is_relative)

    def loss(self, trainer, outputs: dict, batch) -> None:
        """None; the statistic is taken."""
        guide = self.guide(batch.indices, batch.indices, batch.labels.device)
        reference = Reference.build(outputs["embeddings"], batch.labels, relevance=batch.relevance)
        positives, negatives = reference.masks(batch.labels)
        dropped = guide.dropped(positives) & negatives
        share = dropped.sum() / negatives.sum().clamp(min=1)
        trainer.criterion.stats = {**getattr(trainer.criterion, "stats", {}), "guide_dropped": share}

    def get_extra_state(self) -> dict:
        """The file's hash, for checkpoints."""
        return {ARGUMENT: self.file.fingerprint}

    def set_extra_state(self, state: dict) -> None:
        """Raises UserError where a checkpoint's guide was another."""
        if state[ARGUMENT] != self.file.fingerprint:
            raise UserError(f"its guide had other features than {FLAG} {self.file.source}")


def guided(trainer, batch, reference_indices: torch.Tensor | None = None) -> dict:
    """The criterion's argument `guide` for a batch against itself, or a reference; empty without `--guide`."""
    for added in trainer.added_losses:
        if isinstance(added, GuidedNegatives):
            if reference_indices is None:
                reference_indices = batch.indices
            return {ARGUMENT: added.guide(batch.indices, reference_indices, batch.labels.device)}
    return {}
