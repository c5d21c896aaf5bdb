"""False negatives by a guide: embeddings of another network say which negatives are nearer than a positive
(Solatorio, GISTEmbed, arXiv 2402.16829).
"""

import dataclasses

import torch

from utilities.tensors import take_pairs
from utilities.tuples import Pairs, Sets, Triplets

# cosines of unit rows in float32 differ by less through the order of their sums; equal ones stay equal
ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True)
class Guide:
    """What a guide says of a batch and its reference. A negative n of the positive pair (a, p) is dropped where its
    cosine g_an > g_ap - margin, `is_relative`: g_ap (1 - margin).

    Where a loss has no positive pairs, p is the anchor's nearest positive by the guide: of other images if there are
    any, as other views and older embeddings of the anchor's own image have the cosine 1. An anchor without positives
    keeps its negatives.

    Attributes:
        anchors, rows: unit features `(B, E)` of the anchors and `(M, E)` of the reference.
        anchor_images, images: numbers of their images, `(B,)` and `(M,)`.
        is_of_pairs: the loss asks by `keeps` beside each positive, and `dropped` drops none.
    """

    anchors: torch.Tensor
    rows: torch.Tensor
    anchor_images: torch.Tensor
    images: torch.Tensor
    margin: float = 0.0
    is_relative: bool = False
    is_of_pairs: bool = False

    def cosines(self) -> torch.Tensor:
        """`(B, M)`."""
        return self.anchors @ self.rows.T

    def dropped(self, positives: torch.Tensor) -> torch.Tensor:
        """Boolean `(B, M)`: which columns an anchor with these `positives`, boolean `(B, M)`, cannot have as negatives.

        The anchor's positives may be among them.
        """
        if self.is_of_pairs or not len(self.rows):
            return torch.zeros_like(positives)
        cosines = self.cosines()
        of_others = positives & (self.anchor_images[:, None] != self.images[None, :])
        candidates = torch.where(of_others.any(1, keepdim=True), of_others, positives)
        nearest = cosines.masked_fill(~candidates, -torch.inf).amax(1)
        limits = torch.where(candidates.any(1), self._limits(nearest), torch.inf)
        return cosines > limits[:, None]

    def keeps(self, anchors: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
        """Boolean `(P, M)`: which columns pairs of an anchor and a positive `(P,)` may have as negatives."""
        cosines = self.anchors.index_select(0, anchors) @ self.rows.T
        return cosines <= self._limits(cosines.gather(1, positives[:, None]))

    def triplets(self, mined: Triplets) -> Triplets:
        """Those whose negative is kept. Waits for the device once."""
        cosines = self.cosines()
        limits = self._limits(take_pairs(cosines, mined.anchors, mined.positives))
        are_kept = take_pairs(cosines, mined.anchors, mined.negatives) <= limits
        return Triplets(*(column[are_kept] for column in mined))

    def pairs(self, mined: Pairs, positives: torch.Tensor) -> Pairs:
        """All positive pairs, and the negative ones that are kept beside `positives` `(B, M)`. Waits once."""
        are_kept = ~take_pairs(self.dropped(positives), mined.anchors_n, mined.negatives)
        return mined._replace(anchors_n=mined.anchors_n[are_kept], negatives=mined.negatives[are_kept])

    def sets(self, mined: Sets) -> Sets:
        """The sets without dropped negatives, of the anchors that have some left. Waits once."""
        anchors, positives, negatives = mined
        if positives.ndim == 1:
            negatives = negatives & self.keeps(anchors, positives)
        else:
            parts = dataclasses.replace(self, anchors=self.anchors[anchors], anchor_images=self.anchor_images[anchors])
            negatives = negatives & ~parts.dropped(positives)
        have_some = negatives.any(1)
        return Sets(anchors[have_some], positives[have_some], negatives[have_some])

    def _limits(self, cosines: torch.Tensor) -> torch.Tensor:
        """What the cosine of a negative may reach beside a positive of these cosines."""
        limits = cosines * (1 - self.margin) if self.is_relative else cosines - self.margin
        return limits + ROUNDING

    def split(self, size: int) -> list["Guide"]:
        """A guide for each `size` anchors in turn."""
        parts = zip(self.anchors.split(size), self.anchor_images.split(size), strict=True)
        return [dataclasses.replace(self, anchors=rows, anchor_images=images) for rows, images in parts]
