"""The answer of each query: which class it is named after, and the distance of that name.

`nearest`: the class of the nearest gallery image (metrics/_answers.py). `mean`: the class whose mean is nearest; of
unit length if all embeddings are; without the query's own image and sequence. `vote@k`: the most frequent class among
the k nearest images, of equally frequent ones the one whose images among the k are nearest on average; its distance is
this average. Fused answers of several networks: the gallery image with the highest mean of calibrated probabilities.
"""

from collections.abc import Callable

import numpy as np
import torch

from evaluation import thresholds
from metrics import EmbeddingSpace, _answers
from metrics._answers import Answers
from metrics._truth import spans
from utilities.errors import UserError
from utilities.numbers import OutOfRange, whole

BLOCK = 1024  # queries whose distances to all classes, or gallery images, are in memory at once
NEAR = 16  # nearest images of each network, among which the best fused one nearly always is
ROUNDING = 1e-13  # of a fused score
TIE = 1e-9  # by which distances order fused probabilities that are equal, as those on a step of an isotonic curve


def check(how: str) -> None:
    """Raise UserError for what is not a kind of answer."""
    if how not in ("nearest", "mean") and not depth(how):
        raise UserError(f"--answer {how}: nearest, mean or vote@k is expected, such as vote@5")


def depth(how: str) -> int:
    """k of `vote@k`; 0 for another kind."""
    head, _, k = how.partition("@")
    if head != "vote" or not k.isdecimal():
        return 0
    try:
        whole(1, 10**4).check(int(k))
    except OutOfRange as error:
        raise UserError(f"--answer {how}: k {error}") from None
    return int(k)


def answers(space: EmbeddingSpace, how: str = "nearest") -> Answers:
    """The answers of a space's queries. Raises UserError for `mean` in hyperbolic space, which has no mean here."""
    if how == "nearest":
        return _answers.answers(space)
    if how == "mean":
        if type(space) is not EmbeddingSpace:
            raise UserError("--answer mean: means are of Euclidean embeddings, and these are hyperbolic")
        return _named(space, *_nearest_means(space))
    return _named(space, *_votes(space, depth(how)))


def _named(space: EmbeddingSpace, distance: np.ndarray, label: np.ndarray) -> Answers:
    right = np.isfinite(distance) & (label == space.labels)
    return Answers(distance, right, space.relevant > 0, space.labels)


def _votes(space: EmbeddingSpace, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Distance and class number of each query's answer by `vote@k`, `(Q,)` each."""
    columns = space.neighbours(min(k, space.reference_size))
    rows, slots = np.nonzero(columns >= 0)
    distances = np.full(columns.shape, np.inf)
    distances[rows, slots] = np.sqrt(space.squared_distances(rows, columns[rows, slots]))
    is_near = columns >= 0
    classes = np.where(is_near, space.reference_labels[columns], -1)
    distance = np.empty(space.size)
    label = np.empty(space.size, dtype=np.int64)
    for start in range(0, space.size, BLOCK):
        part = slice(start, start + BLOCK)
        agree = (classes[part, :, None] == classes[part, None]) & is_near[part, None]  # (B, k, k)
        votes = agree.sum(2)
        sums = np.where(agree, distances[part, None], 0).sum(2)
        means = np.where(is_near[part], sums / np.maximum(votes, 1), np.inf)
        # the first, nearest slot of the best, after rounding that makes equal means equal
        is_winner = votes == np.where(is_near[part], votes, 0).max(1, keepdims=True)
        best = np.where(is_winner, np.round(means, 12), np.inf).argmin(1)
        places = np.arange(len(best))
        distance[part] = means[places, best]
        label[part] = classes[part][places, best]
    return distance, label


def _nearest_means(space: EmbeddingSpace) -> tuple[np.ndarray, np.ndarray]:
    """Distance and class number of each query's answer by `mean`, `(Q,)` each."""
    from scipy import sparse

    has_unit_length = space.normalised() is space
    classes, numbers, sizes = np.unique(space.reference_labels, return_inverse=True, return_counts=True)
    sums = np.zeros((len(classes), space.dimensions))
    for start, block in space.reference_blocks():
        places = numbers[start : start + len(block)], np.arange(len(block))
        sums += sparse.csr_array((np.ones(len(block)), places), (len(classes), len(block))) @ block
    means = _as_means(sums, sizes, has_unit_length)
    row, number, own_means = _means_without_hidden(space, numbers, sums, sizes, has_unit_length)
    starts = np.searchsorted(row, np.arange(space.size + 1))
    distance = np.empty(space.size)
    named = np.empty(space.size, dtype=np.int64)
    for start in range(0, space.size, BLOCK):
        rows = np.arange(start, min(start + BLOCK, space.size))
        queries = space.queries(rows)
        squares = _squares(queries, means)
        part = slice(starts[rows[0]], starts[rows[-1] + 1])
        squares[row[part] - start, number[part]] = np.square(queries[row[part] - start] - own_means[part]).sum(1)
        nearest = squares.argmin(1)
        named[rows] = classes[nearest]
        distance[rows] = np.sqrt(squares[np.arange(len(rows)), nearest])
    return distance, named


def _squares(queries: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Squared distances `(B, M)` by products, at least 0."""
    sums = torch.from_numpy(np.square(queries).sum(1)[:, None] + np.square(points).sum(1))
    return sums.addmm_(torch.from_numpy(queries), torch.from_numpy(points).T, alpha=-2).clamp_min_(0).numpy()


def _as_means(sums: np.ndarray, sizes: np.ndarray, has_unit_length: bool) -> np.ndarray:
    """Means of classes from their sums `(C, D)` and sizes `(C,)`; with `has_unit_length` scaled to it."""
    means = sums / np.maximum(sizes, 1)[:, None]
    if has_unit_length:
        lengths = np.linalg.norm(means, axis=1, keepdims=True)
        means = means / np.where(lengths > 0, lengths, 1)
    return means


def hidden(space: EmbeddingSpace) -> tuple[np.ndarray, np.ndarray]:
    """Queries and gallery images, `(P,)` each, ascending, that must not find each other: own images and sequences."""
    rows = np.arange(space.size)
    queries, columns = space.truth.hidden_pairs(rows)
    keys = queries * space.reference_size + columns
    if space.truth.sequences is not None:
        of_queries, of_references = space.truth.sequences
        order = np.argsort(of_references, kind="stable")
        ordered = of_references[order]
        starts = np.searchsorted(ordered, of_queries, "left")
        queries, places = spans(starts, np.searchsorted(ordered, of_queries, "right") - starts)
        keys = np.union1d(keys, queries * space.reference_size + order[places])
    return np.divmod(np.unique(keys), space.reference_size)


def _means_without_hidden(
    space: EmbeddingSpace, numbers: np.ndarray, sums: np.ndarray, sizes: np.ndarray, has_unit_length: bool
):
    """Queries, classes `(P,)` and means `(P, D)` of classes some of whose images a query must not find; the mean of a
    class without further images is infinite.

    Args:
        numbers: `(M,)` the class of each gallery image, of `sums` `(C, D)` and `sizes` `(C,)`.
    """
    from scipy import sparse

    queries, columns = hidden(space)
    n_classes = len(sizes)
    keys, places = np.unique(queries * n_classes + numbers[columns], return_inverse=True)
    row, number = np.divmod(keys, n_classes)
    n_visible = sizes[number] - np.bincount(places, minlength=len(keys))
    visible_sums = sums[number]
    members = sparse.csr_array((np.ones(len(places)), (places, np.arange(len(places)))), (len(keys), len(places)))
    if len(keys):
        visible_sums = visible_sums - members @ space.references(columns)
    means = _as_means(visible_sums, n_visible, has_unit_length)
    means[n_visible == 0] = np.inf
    return row, number, means


def fused(spaces: list[EmbeddingSpace], calibrations: list[Callable], rows: np.ndarray) -> Answers:
    """Answers of the queries `rows`, ascending, by the mean of calibrated probabilities of several spaces with the same
    queries and gallery; their distance is 1 less the probability. Equal probabilities are ordered by distances, then by
    the gallery.
    """
    space = spaces[0]
    best = np.full(len(rows), -1)
    if all(calibration.is_decreasing for calibration in calibrations):
        best = _best_of_near(spaces, calibrations, rows)
    is_open = best < 0
    best[is_open] = _best_of_all(spaces, calibrations, rows[is_open])
    has_answer = best >= 0
    parts = []
    for of_file, calibration in zip(spaces, calibrations, strict=True):
        parts.append(calibration(np.sqrt(of_file.squared_distances(rows, best))))
    distance = np.where(has_answer, 1 - thresholds.fused(parts), np.inf)
    right = has_answer & (space.reference_labels[best] == space.labels[rows])
    return Answers(distance, right, space.relevant[rows] > 0, space.labels[rows])


def _fused_score(distances: np.ndarray, calibration: Callable, n_spaces: int) -> np.ndarray:
    """What one of the spaces adds to the score of a gallery image at some distance."""
    return calibration(distances) / n_spaces - TIE * distances / (1 + distances)


def _near(spaces: list[EmbeddingSpace]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The `NEAR` nearest gallery images of each query in each of S spaces: their columns `(Q, W)`, ascending, -1 for
    none; their distances in each space `(S, Q, W)`; and the distance of the last in each space `(S, Q)`, infinite where
    nothing lies beyond.
    """
    nearest = [space.neighbours(NEAR) for space in spaces]
    columns = np.sort(np.concatenate(nearest, axis=1), axis=1)
    places = np.nonzero(columns >= 0)
    distances = np.zeros((len(spaces), *columns.shape))
    reached = np.full((len(spaces), len(columns)), np.inf)
    for number, space in enumerate(spaces):
        distances[number][places] = np.sqrt(space.squared_distances(places[0], columns[places]))
        last = nearest[number][:, -1]
        full = np.flatnonzero(last >= 0)
        reached[number, full] = np.sqrt(space.squared_distances(full, last[full]))
    return columns, distances, reached


def _best_of_near(spaces: list[EmbeddingSpace], calibrations: list[Callable], rows: np.ndarray) -> np.ndarray:
    """The best gallery image `(R,)` of each query where it is among the nearest of one of the spaces, else -1.

    An image that is in no list is at least as far as the last of each, and so has at most the score of these distances.
    """
    columns, distances, reached = spaces[0].remember(f"near {list(map(id, spaces))}", lambda: _near(spaces))
    scores = np.zeros((len(rows), columns.shape[1]))
    bounds = np.zeros(len(rows))
    for number, calibration in enumerate(calibrations):
        scores += _fused_score(distances[number, rows], calibration, len(spaces))
        last = np.where(np.isfinite(reached[number, rows]), reached[number, rows], 0)
        bounds += _fused_score(last, calibration, len(spaces))
    scores[columns[rows] < 0] = -np.inf
    # an infinite distance: the list of such a query holds all images that it searches
    bounds[np.isinf(reached[0, rows])] = -np.inf
    places = scores.argmax(1)
    is_best = scores.max(1) > bounds + ROUNDING
    return np.where(is_best, columns[rows, places], -1)


def _best_of_all(spaces: list[EmbeddingSpace], calibrations: list[Callable], rows: np.ndarray) -> np.ndarray:
    """The best gallery image `(R,)` of each query, -1 for none, by the scores of all."""
    space = spaces[0]
    best = np.full(len(rows), -1)
    if not len(rows):
        return best
    hidden_queries, columns = hidden(space)
    starts = np.searchsorted(hidden_queries, np.arange(space.size + 1))
    galleries = [of_file.references(slice(None)) for of_file in spaces]
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        scores = np.zeros((len(rows[part]), space.reference_size))
        for of_file, gallery, calibration in zip(spaces, galleries, calibrations, strict=True):
            distances = np.sqrt(_squares(of_file.queries(rows[part]), gallery))
            scores += _fused_score(distances, calibration, len(spaces))
        row, places = spans(starts[rows[part]], starts[rows[part] + 1] - starts[rows[part]])
        scores[row, columns[places]] = -np.inf
        best[part] = np.where(scores.max(1) > -np.inf, scores.argmax(1), -1)
    return best
