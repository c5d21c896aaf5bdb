"""Re-ranking by global features alone, as SuperGlobal does.

The first m neighbours of a query are its top. Within it each image is moved towards its k nearest others; these refined
images are compared with the query, and with the elementwise maximum of the k + 1 of them that are then nearest to it.
The score is the mean of the two products. Whatever lies behind the top stays behind it.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch

from metrics._space import EmbeddingSpace
from metrics.neighbours.reordered import Reordered

NUMBERS = 1 << 24  # float64 numbers of a matrix (queries, top, top) or (queries, top, features) that exist at once
DIGITS = 12  # decimals of a product of unit vectors: smaller differences are rounding, so ties


@dataclass(frozen=True)
class SuperGlobal:
    """The re-ranking of SuperGlobal
    (Shao et al., Global Features are All You Need for Image Retrieval and Reranking, ICCV 2023, arXiv 2308.06954).

    Of unit features, in the top T, the first m of a query q: x'_i = (x_i + beta sum s_ij x_j) / (1 + beta sum s_ij)
    over the k nearest others x_j of x_i in T, not brought to unit length; b, the elementwise maximum of the x' of the
    k + 1 images with the highest q x'_i; an image's score is (q x'_i + b x'_i) / 2. Junk is in the top, since a search
    does not know it. An image is left out of its own neighbours by its identity, where the authors' code takes it for
    the first of them.
    """

    m: int = 400
    k: int = 9
    beta: float = 0.15

    def search(self, space: EmbeddingSpace, progress: bool = False) -> Reordered:
        """The search whose first m neighbours are re-ranked."""
        unit_space = space.normalised()
        tops = None
        unjudged = unit_space.truth.unjudged()
        if unjudged is not unit_space.truth:
            depth = min(self.m, unit_space.reference_size)
            tops = unit_space.view(type(unit_space), truth=unjudged).neighbours(depth)
        scores = functools.partial(self._scores, unit_space, tops)
        return Reordered(unit_space, unit_space.search, self.m, scores)

    def _scores(self, space: EmbeddingSpace, tops: np.ndarray | None, rows, columns, filled) -> np.ndarray:
        """Scores `(Q, W)` of the columns.

        Args:
            tops: `(N, m)` the top of each query with its junk, -1 for none; None: the columns are the top.
        """
        if tops is None:
            return self._of_tops(space, rows, columns, filled)
        query_tops = tops[rows]
        scores_of_tops = self._of_tops(space, rows, query_tops, query_tops >= 0)
        # columns may lie behind the top, as many as there is junk in it: these keep -inf
        scores = np.full(columns.shape, -np.inf)
        for query in range(len(rows)):
            # without junk, the top is the beginning of the columns, in the same order
            is_in_top = filled[query] & np.isin(columns[query], query_tops[query])
            is_ranked = np.isin(query_tops[query], columns[query][is_in_top])
            scores[query, is_in_top] = scores_of_tops[query, is_ranked]
        return scores

    def _of_tops(self, space: EmbeddingSpace, rows, columns, filled) -> np.ndarray:
        """Scores `(Q, W)` of the images of the tops `columns` `(Q, W)`, some queries at a time."""
        width = columns.shape[1]
        scores = np.empty(columns.shape)
        step = max(NUMBERS // (width * max(width, space.dimensions)), 1)
        device = torch.device(space.device)
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            images = space.references(np.maximum(columns[part], 0).reshape(-1)).reshape(-1, width, space.dimensions)
            queries = torch.from_numpy(space.queries(rows[part])).to(device)
            is_filled = torch.from_numpy(filled[part]).to(device)
            scores[part] = self._refined_scores(queries, torch.from_numpy(images).to(device), is_filled).cpu().numpy()
        return scores.round(DIGITS)

    def _refined_scores(self, queries: torch.Tensor, images: torch.Tensor, filled: torch.Tensor) -> torch.Tensor:
        """Scores `(B, W)` of queries `(B, D)` and their tops `(B, W, D)`."""
        refined = self._refined(images, filled)
        products = (refined @ queries[:, :, None])[:, :, 0].masked_fill(~filled, -torch.inf)
        order = products.round(decimals=DIGITS).sort(dim=1, descending=True, stable=True).indices
        best = order[:, : self.k + 1, None]
        nearest = refined.masked_fill(~filled[:, :, None], -torch.inf).gather(1, best.expand(-1, -1, refined.shape[2]))
        # where the top has fewer images, the maximum is of these
        maximum = torch.where(filled.any(1)[:, None], nearest.amax(1), 0)
        return (products + (refined @ maximum[:, :, None])[:, :, 0]) / 2

    def _refined(self, images: torch.Tensor, filled: torch.Tensor) -> torch.Tensor:
        """The refined images `(B, W, D)` of tops `(B, W, D)`; of equally near ones the first of the top count."""
        width = images.shape[1]
        k = min(self.k, width - 1)
        similarities = images @ images.mT
        # One whole number of a similarity and a place, so that ties are in the order of the top whatever the device.
        places = torch.arange(width, device=images.device)
        keys = (similarities * 10**DIGITS).round().long() * width + (width - 1 - places)
        is_other = filled[:, None, :] & ~torch.eye(width, dtype=torch.bool, device=images.device)
        nearest = keys.masked_fill(~is_other, torch.iinfo(torch.int64).min).topk(k, dim=2).indices
        weights = self.beta * (similarities * is_other).gather(2, nearest)
        sums = images.clone()
        for place in range(k):
            neighbours = nearest[:, :, place, None].expand(-1, -1, images.shape[2])
            sums += weights[:, :, place, None] * images.gather(1, neighbours)
        totals = 1 + weights.sum(2, keepdim=True)
        return sums / torch.where(totals == 0, 1, totals)
