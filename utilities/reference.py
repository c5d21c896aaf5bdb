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
    """

    embeddings: torch.Tensor
    labels: torch.Tensor
    own: torch.Tensor
    plain: bool
    guide: Guide | None = None

    @classmethod
    def build(cls, batch, labels, reference=None, reference_labels=None, own=None) -> "Reference":
        """The reference given with `batch` `(B, D)` and `labels` `(B,)`;
        without one, the batch itself. ValueError for wrong shapes.
        """
        if isinstance(reference, Reference):
            return reference
        if reference is None:
            if reference_labels is not None or own is not None:
                raise ValueError("reference_labels and own belong to a reference: give reference too")
            return cls(batch, labels, torch.arange(len(batch), device=batch.device), True)
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
        return cls(reference, reference_labels.to(device=batch.device, dtype=torch.long), own, False)

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
        same_classes = labels[:, None] == self.labels[None, :]
        if self.plain:
            positives = same_classes.clone().fill_diagonal_(False)
            negatives = ~same_classes
        else:
            positives = self._without_own(same_classes)
            negatives = self._without_own(~same_classes)
        if self.guide is not None:
            negatives &= ~self.guide.dropped(positives)
        return positives, negatives

    def negatives(self, labels: torch.Tensor) -> torch.Tensor:
        """Boolean `(B, M)` mask of the negatives alone; see `masks`."""
        other_classes = labels[:, None] != self.labels[None, :]
        return other_classes if self.plain else self._without_own(other_classes)

    def _without_own(self, mask: torch.Tensor) -> torch.Tensor:
        """`mask` `(B, M)`, set to False in place where a column is the anchor's own image: no second matrix is made."""
        if not len(self):
            return mask
        own_rows = self.own.clamp(min=0)[:, None]
        return mask.scatter_(1, own_rows, mask.gather(1, own_rows) & (self.own < 0)[:, None])

    def with_own_row(self) -> "Reference":
        """An empty reference with a single row that is every anchor's own image, so that this case needs no rule."""
        embeddings = torch.cat([self.embeddings, self.embeddings.new_zeros(1, self.embeddings.shape[1])])
        return Reference(embeddings, self.own.new_zeros(1), torch.zeros_like(self.own), False)

    def split(self, size: int) -> list["Reference"]:
        """A reference for each `size` anchors in turn (the last may be fewer): `own` is split, the rest is shared."""
        own_rows = self.own.split(size)
        guides = [None] * len(own_rows) if self.guide is None else self.guide.split(size)
        parts = zip(own_rows, guides, strict=True)
        return [dataclasses.replace(self, own=own, guide=guide, plain=False) for own, guide in parts]
