"""What the samples of a batch are compared with: the batch itself, or other embeddings, such as a memory's."""

import dataclasses
from collections.abc import Callable

import torch

from utilities.guide import Guide
from utilities.tensors import raise_half


@dataclasses.dataclass(frozen=True)
class Reference:
    """Embeddings `(M, D)` and labels `(M,)` in which anchors find positives and negatives.

    `own` `(B,)` long is the row that is the anchor's own image, never its positive or negative; -1 if there is none.
    `plain`: the reference is the batch itself, and its embeddings are the same tensor as the anchors'.
    `guide`: says which negatives are dropped, under --guide; miners do not see it, their tuples are filtered.
    `anchor_relevance` `(B, L)` and `relevance` `(M, L)`: which of L labels each image has, where images have several;
    two images are then of one class if they share a label, and `labels` are the first ones. None: `labels` decide.
    """

    embeddings: torch.Tensor
    labels: torch.Tensor
    own: torch.Tensor
    plain: bool
    guide: Guide | None = None
    anchor_relevance: torch.Tensor | None = None
    relevance: torch.Tensor | None = None

    @classmethod
    def build(
        cls, batch, labels, reference=None, reference_labels=None, own=None, relevance=None, reference_relevance=None
    ) -> "Reference":
        """The reference given with `batch` `(B, D)` and `labels` `(B,)`; without one, the batch itself.

        `relevance` `(B, L)` and `reference_relevance` `(M, L)`: the labels of images that have several.
        ValueError for wrong shapes.
        """
        if isinstance(reference, Reference):
            return reference
        if reference is None:
            if reference_labels is not None or own is not None or reference_relevance is not None:
                raise ValueError("reference_labels, reference_relevance and own belong to a reference: give it too")
            relevance = _label_rows(relevance, batch)
            own = torch.arange(len(batch), device=batch.device)
            return cls(batch, labels, own, True, anchor_relevance=relevance, relevance=relevance)
        labels_shape = None if reference_labels is None else tuple(reference_labels.shape)
        if reference.ndim != 2 or reference.shape[1] != batch.shape[1] or labels_shape != tuple(reference.shape[:1]):
            raise ValueError(
                f"reference is {tuple(reference.shape)}, reference_labels {labels_shape}: expected "
                f"(M, {batch.shape[1]}) and (M,)"
            )
        if own is None:
            own = torch.full_like(labels, -1)
        else:
            own = own.to(device=batch.device, dtype=torch.long)
        if own.shape != labels.shape:
            raise ValueError(f"own is {tuple(own.shape)}: expected ({len(labels)},)")
        reference = raise_half(reference).to(batch)
        if (relevance is None) != (reference_relevance is None):
            raise ValueError("relevance and reference_relevance belong together: give both or neither")
        relevance = _label_rows(relevance, batch)
        reference_relevance = _label_rows(reference_relevance, reference)
        reference_labels = reference_labels.to(device=batch.device, dtype=torch.long)
        of_labels = {"anchor_relevance": relevance, "relevance": reference_relevance}
        return cls(reference, reference_labels, own, False, **of_labels)

    def __len__(self) -> int:
        return len(self.embeddings)

    def mapped(self, function: Callable, batch: torch.Tensor) -> tuple[torch.Tensor, "Reference"]:
        """`function` of `batch` `(B, D)`, and the reference with `function` of its embeddings; computed once where they
        are the same.
        """
        mapped_batch = function(batch)
        embeddings = mapped_batch
        if not self.plain:
            embeddings = function(self.embeddings)
        return mapped_batch, dataclasses.replace(self, embeddings=embeddings)

    def masks(self, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Boolean `(B, M)` masks of the positives and of the negatives of anchors with `labels` `(B,)`."""
        same_classes = self._same_classes(labels)
        if self.plain:
            positives = same_classes.clone().fill_diagonal_(False)
            negatives = self._negatives_of_batch(same_classes)
        else:
            positives = self._without_own(same_classes)
            negatives = self._without_own(~same_classes)
        if self.guide is not None:
            negatives &= ~self.guide.dropped(positives)
        return positives, negatives

    def negatives(self, labels: torch.Tensor) -> torch.Tensor:
        """Boolean `(B, M)` mask of the negatives alone; see `masks`."""
        same_classes = self._same_classes(labels)
        return self._negatives_of_batch(same_classes) if self.plain else self._without_own(~same_classes)

    def _same_classes(self, labels: torch.Tensor) -> torch.Tensor:
        """Boolean `(B, M)`: is an anchor of the class of a row, or does it share a label with it?"""
        if self.relevance is None:
            return labels[:, None] == self.labels[None, :]
        return share_label(self.anchor_relevance, self.relevance)

    def _negatives_of_batch(self, same_classes: torch.Tensor) -> torch.Tensor:
        """The negatives `(B, B)` of a batch that is its own reference."""
        if self.relevance is None:
            return ~same_classes
        # an image without any label does not share one with itself
        return (~same_classes).fill_diagonal_(False)

    def _without_own(self, mask: torch.Tensor) -> torch.Tensor:
        """`mask` `(B, M)`, set to False in place where a column is the anchor's own image: no second matrix is made."""
        if not len(self):
            return mask
        own_rows = self.own.clamp(min=0)[:, None]
        return mask.scatter_(1, own_rows, mask.gather(1, own_rows) & (self.own < 0)[:, None])

    def with_own_row(self) -> "Reference":
        """An empty reference with a single row that is every anchor's own image, so that this case needs no rule."""
        embeddings = torch.cat([self.embeddings, self.embeddings.new_zeros(1, self.embeddings.shape[1])])
        relevance = self.relevance
        if relevance is not None:
            relevance = relevance.new_zeros(1, relevance.shape[1])
        of_labels = {"anchor_relevance": self.anchor_relevance, "relevance": relevance}
        return Reference(embeddings, self.own.new_zeros(1), torch.zeros_like(self.own), False, **of_labels)

    def split(self, size: int) -> list["Reference"]:
        """A reference for each `size` anchors in turn (the last may be fewer): what is of anchors is split."""
        own_rows = self.own.split(size)
        guides = [None] * len(own_rows) if self.guide is None else self.guide.split(size)
        relevances = [None] * len(own_rows)
        if self.anchor_relevance is not None:
            relevances = self.anchor_relevance.split(size)
        return [
            dataclasses.replace(self, own=own, guide=guide, plain=False, anchor_relevance=relevance)
            for own, guide, relevance in zip(own_rows, guides, relevances, strict=True)
        ]


def share_label(relevance: torch.Tensor, reference_relevance: torch.Tensor) -> torch.Tensor:
    """Boolean `(B, M)`: do two images with the labels `(B, L)` and `(M, L)` share one?"""
    return relevance.to(torch.float32) @ reference_relevance.to(torch.float32).T > 0


def _label_rows(relevance, rows: torch.Tensor) -> torch.Tensor | None:
    """`relevance`, boolean `(N, L)` on the device of `rows` `(N, D)`. ValueError for another shape."""
    if relevance is None:
        return None
    relevance = torch.as_tensor(relevance, device=rows.device) > 0
    if relevance.ndim != 2 or len(relevance) != len(rows):
        raise ValueError(f"relevance is {tuple(relevance.shape)}: expected ({len(rows)}, L), a row for each image")
    return relevance
