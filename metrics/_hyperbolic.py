"""An embedding space whose neighbours are found by the hyperbolic distance.
The features are tangent vectors at the ball's origin.

On the hyperboloid, distances are ordered as the Lorentz product time_q time_r - space_q.space_r. The search needs
Euclidean distances in this order. So a query becomes (space, -time), scaled to any length, and a reference (space,
time) with one more coordinate, which gives all references the same distance from a centre. The exact search of
`neighbours/search.py` then works unchanged, and orders near ties by the hyperbolic distance itself. Everything else
(k-means, spectrum, dists, metrics on unit vectors) is Euclidean, of the tangent vectors.
"""

from functools import cached_property

import numpy as np
import torch

from metrics._space import PAIRS, EmbeddingSpace
from metrics.neighbours.search import Search
from utilities.hyperbolic import Ball


def space_of(ball: Ball | None, *arguments, **named) -> EmbeddingSpace:
    """`EmbeddingSpace(*arguments, **named)`, with the distances of `ball` if one is given;
    for c = 0 they are those of unit vectors.
    """
    space = EmbeddingSpace(*arguments, **named)
    return space if ball is None else space.view(HyperbolicSpace, ball=ball)


class HyperbolicSpace(EmbeddingSpace):
    """`EmbeddingSpace` with the distances of `ball`; made by `space_of`."""

    ball: Ball

    def normalised(self) -> EmbeddingSpace:
        """The Euclidean space of the tangent vectors at unit length."""
        return self.view(EmbeddingSpace).normalised()

    def squared_distances(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Squared hyperbolic distances `(P,)`, in float64, from queries `rows` to reference samples `columns`; squared
        chords for c = 0.
        """
        distances = np.empty(len(rows))
        for start in range(0, len(rows), PAIRS):
            part = slice(start, start + PAIRS)
            pairs = torch.from_numpy(self.queries(rows[part])), torch.from_numpy(self.references(columns[part]))
            distances[part] = self.ball.paired(*pairs).numpy()
        if self.ball.flat:
            return distances
        return np.square(distances)

    @cached_property
    def search(self) -> Search:
        """The search for neighbours."""
        searched = self.normalised() if self.ball.flat else _lorentz(self)
        return Search(searched)


class _Lorentz(HyperbolicSpace):
    """The rows that the search compares, as described above, `(R, D + 2)`."""

    # queries and references are other rows
    is_self_search = False

    def queries(self, rows) -> np.ndarray:
        """The queries' rows, scaled to the length `reach`."""
        points = self._points(super().queries(rows))
        points[:, -1] *= -1
        points *= (self.reach / np.sqrt((points**2).sum(1)))[:, None]
        return np.concatenate([points, np.zeros((len(points), 1))], 1)

    def references(self, rows) -> np.ndarray:
        """The references' rows, all at the distance `reach` from their centre, which is moved to the origin."""
        points = self._points(super().references(rows)) - self.centre
        return np.concatenate([points, np.sqrt(np.maximum(self.reach**2 - (points**2).sum(1, keepdims=True), 0.0))], 1)

    def squared_distances(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Squared hyperbolic distances `(P,)` in float64, by which near ties are ordered."""
        return self.of.squared_distances(rows, columns)

    def _points(self, features: np.ndarray) -> np.ndarray:
        """Coordinates `(R, D + 1)` on the hyperboloid, the time last."""
        points = self.ball.points(torch.from_numpy(features))
        return torch.cat([points.space, torch.cosh(2 * points.lengths)[:, None]], 1).numpy()


def _lorentz(space: HyperbolicSpace) -> _Lorentz:
    """The rows of a space, with their mean as `centre` and the largest distance from it as `reach`."""
    lorentz = space.view(_Lorentz, of=space, dimensions=space.dimensions + 2)
    lorentz.centre = sum(lorentz._points(block).sum(0) for _, block in space.reference_blocks()) / space.reference_size
    farthest = max(
        float(((lorentz._points(block) - lorentz.centre) ** 2).sum(1).max()) for _, block in space.reference_blocks()
    )
    lorentz.reach = np.sqrt(farthest) or 1.0
    return lorentz
