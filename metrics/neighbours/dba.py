"""Database-side augmentation: each image of the gallery becomes the sum of itself and of its neighbours there."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from metrics._space import EmbeddingSpace

# float64 numbers of neighbours' features that exist at once
NUMBERS = 1 << 24


@dataclass(frozen=True)
class DatabaseAugmentation:
    """Database-side augmentation
    (Gordo et al., End-to-end Learning of Deep Visual Representations for Image Retrieval, arXiv 1610.07940).

    At unit length, an image of the gallery becomes the sum of itself and of its k nearest others of the gallery with
    the weights max(cosine, 0)^alpha, brought to unit length. The queries stay, and search in the new gallery;
    `reranking` is that of their lists, None for none. Where the queries are in the gallery, they are among its images
    too.
    """

    k: int
    alpha: float
    reranking: Any = None

    def search(self, space: EmbeddingSpace, progress: bool = False):
        """The search in the augmented gallery."""
        unit_space = space.normalised()
        augmented = unit_space.view(
            EmbeddingSpace, reference=self._augmented(unit_space), reference_norms=None, own_reference=False
        )
        if self.reranking is None:
            return augmented.search
        return self.reranking.search(augmented, progress)

    def _augmented(self, space: EmbeddingSpace) -> np.ndarray:
        """`(M, D)` float64 at unit length; a row of zeros that nothing is added to stays."""
        size = space.reference_size
        gallery = EmbeddingSpace(
            space.reference, np.arange(size), device=space.device, progress=space.progress, ranks=space.ranks
        )
        nearest = gallery.normalised().neighbours(min(self.k, size))
        sums = np.empty((size, space.dimensions))
        step = max(NUMBERS // (nearest.shape[1] * space.dimensions), 1)
        for start in range(0, size, step):
            rows = slice(start, min(start + step, size))
            columns = nearest[rows]  # (R, k), -1 for none
            images = space.references(rows)
            neighbours = space.references(np.maximum(columns, 0).reshape(-1)).reshape(*columns.shape, -1)
            cosines = np.einsum("rd,rkd->rk", images, neighbours)
            weights = np.where(columns >= 0, np.maximum(cosines, 0.0) ** self.alpha, 0.0)
            sums[rows] = images + np.einsum("rk,rkd->rd", weights, neighbours)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return sums / np.where(lengths > 0, lengths, 1.0)
