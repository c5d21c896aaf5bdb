"""An embedding space, and quantities of it that several metrics share, each computed once and on demand.

`EmbeddingSpace` checks and numbers what it is given, and asks `_truth.py` which items are relevant to each query. Its
neighbours come from `metrics/neighbours/`, its clusterings from `_kmeans.py`. A metric's `value(space)` reads its
attributes; the retrieval metrics of one space are scored together, in one pass over the queries (`scores`).
"""

import hashlib
from functools import cached_property
from numbers import Integral

import numpy as np
import torch

from metrics import _hidden, _kmeans, _mapped
from metrics._metric import Hits
from metrics._truth import ByClasses, ByLevels, ByLists, Lists
from metrics.neighbours.search import Need, Search
from utilities.errors import NotFinite, UserError
from utilities.levels import refuse_unnested
from utilities.processes import SingleProcess

BLOCK = 65536  # rows turned to float64 at once
PAIRS = 2048  # pairs whose distances are computed at once, to fit the cache


def as_array(values, name: str) -> np.ndarray:
    """numpy `(N, D)` of a tensor or array of real numbers; half types become float32, whole numbers float64. Memory
    maps are not copied.

    Raises UserError for another shape, other types, NaN and infinity.
    """
    if isinstance(values, torch.Tensor):
        is_half = values.dtype in (torch.float16, torch.bfloat16)
        values = values.detach()
        if is_half:
            values = values.float()
        values = values.cpu().numpy()
    mapped = _mapped.is_mapped(values)
    values = values if isinstance(values, _mapped.Stacked) else np.asarray(values)
    if values.dtype.kind not in "fiub":
        raise UserError(f"{name} are of type {values.dtype}, expected numbers.")
    if values.ndim != 2:
        raise UserError(f"{name} have shape {values.shape}: (N, D) is expected.")
    if values.dtype != np.float64 and not mapped:
        precision = np.float32 if values.dtype in (np.float16, np.float32) else np.float64
        values = values.astype(precision, copy=False)
    if not len(values) or not values.shape[1]:
        raise UserError(f"{name} have shape {values.shape}: there is nothing to measure.")
    starts = range(0, len(values), BLOCK)
    finite = np.concatenate([np.isfinite(values[start : start + BLOCK]).all(1) for start in starts])
    if not finite.all():
        raise NotFinite(
            f"{name} hold NaN or infinity in {int((~finite).sum())} of {len(values)} rows: no metric can be computed."
        )
    return values


def as_labels(labels, size: int, name: str, levels: bool = False) -> np.ndarray:
    """numpy `(N,)` of labels of any integer type, as int64: mixed integer types would be compared as floats. Raises
    UserError for NaN.

    levels: also `(N, L)`, of L levels.
    """
    labels = _hidden.as_numpy(labels)
    labels = labels.astype(np.int64) if labels.dtype.kind in "iub" else labels
    labels = labels.reshape(-1) if labels.size == size else labels
    if labels.shape != (size,) and not (levels and labels.ndim == 2 and len(labels) == size and labels.size):
        of_levels = f", or ({size}, L) for L levels" if levels else ""
        raise UserError(
            f"{name} have shape {labels.shape}: ({size},) is expected, one for each row of features{of_levels}."
        )
    if labels.dtype.kind in "fcO" and (labels != labels).any():  # numpy would take NaN for a class
        rows = (labels != labels).reshape(size, -1).any(1).sum()
        raise UserError(f"{name} hold NaN in {rows} of {size} rows: it is no class.")
    return labels


def _as_sides(features, reference) -> tuple[np.ndarray, np.ndarray]:
    """The features of queries and reference, which are the queries if `reference` is None. Raises UserError."""
    features = as_array(features, "features")
    if reference is None:
        return features, features
    reference = as_array(reference, "reference features")
    if reference.shape[1] != features.shape[1]:
        raise UserError(
            f"the reference has {reference.shape[1]} dimensions, the queries {features.shape[1]}: they must agree."
        )
    return features, reference


def _numbered_levels(labels: np.ndarray, reference_labels: np.ndarray) -> np.ndarray:
    """The labels of queries and reference together, `(N + M, L)`, each column numbered from 0. Raises UserError."""
    all_labels = np.concatenate([labels, reference_labels])
    try:
        columns = [
            np.unique(column, return_inverse=True)[1].reshape(-1)
            for column in all_labels.reshape(len(all_labels), -1).T
        ]
    except TypeError as error:
        raise UserError("labels of several types cannot be compared: give numbers alone, or names alone.") from error
    return np.stack(columns, 1)


def _as_seeds(seed) -> list:
    """The seeds of k-means, of one number or several. Raises UserError for anything else."""
    seeds = []
    if isinstance(seed, Integral):
        seeds = [seed]
    elif isinstance(seed, list | tuple | range):
        seeds = list(seed)
    if not seeds or not all(isinstance(number, Integral) and abs(number) < 2**62 for number in seeds):
        raise UserError(f"seed {seed!r} is no whole number below 2^62, and no list of them.")
    return seeds


class EmbeddingSpace:
    """Queries, the reference in which they search (themselves, where none is given), their labels.

    Metrics read `labels` `(N,)` and `reference_labels` `(M,)` (both numbered together from 0; all 0 where none are
    given), `groups` `(N,)` (super-classes from 0, or None), `clusters` `(N,)`, `clusterings`, `singular_values`,
    `class_sums`, `neighbours`, `scores`. `truth`: the relevant items of a query. Labels may have levels,
    `(N, L)`, column 0 the finest: `labels` are then those of column 0.

    Args: see `metrics.compute`.
    """

    def __init__(
        self,
        features,
        labels,
        reference=None,
        reference_labels=None,
        clusters=None,
        exclude=None,
        seed=0,
        device="cpu",
        progress=False,
        groups=None,
        query_sequences=None,
        reference_sequences=None,
        ranks=None,
        skip_unmatched=False,
        lists: Lists | None = None,
    ):
        self.skip_unmatched = skip_unmatched or lists is not None
        # several processes have the same space, and search for a part of the queries each
        self.ranks = ranks or SingleProcess()
        self.features, self.reference = _as_sides(features, reference)
        self.own_reference = reference is None
        self.size, self.dimensions = self.features.shape
        self.reference_size = len(self.reference)
        self.mapped = _mapped.is_mapped(features) or _mapped.is_mapped(reference)
        self.block = BLOCK  # rows turned to float64 at once
        if self.mapped:
            self.block = max(1024, BLOCK * 128 // max(128, self.dimensions))
        labels, reference_labels = self._labels(labels, reference_labels, is_listed=lists is not None)
        if exclude is None:
            exclude = np.arange(self.size) if self.own_reference else np.full(self.size, -1)
        self.exclude = _hidden.as_exclude(exclude, self.size, self.reference_size)
        sequences = self._sequences(query_sequences, reference_sequences)
        if lists is not None and sequences is not None:
            raise UserError("lists already define what is not ranked: leave out the sequences.")
        levels = _numbered_levels(labels, reference_labels)
        self.labels = np.ascontiguousarray(levels[: self.size, 0])
        self.reference_labels = np.ascontiguousarray(levels[self.size :, 0])
        if lists is not None:
            lists = lists.checked(self.size, self.reference_size, self.exclude)
            self.truth = ByLists(lists, self.reference_size, self.exclude)
        elif levels.shape[1] == 1:
            self.truth = ByClasses(self.labels, self.reference_labels, self.exclude, sequences)
        else:
            all_labels = np.concatenate([labels, reference_labels])
            if all_labels.dtype.kind in "OS":
                all_labels = all_labels.astype(str)
            refuse_unnested(all_labels, "labels")
            self.truth = ByLevels(levels[: self.size], levels[self.size :], self.exclude, sequences)
        self.given_clusters = None if clusters is None else as_labels(clusters, self.size, "clusters")
        self.groups = None
        if groups is not None:
            self.groups = np.unique(as_labels(groups, self.size, "groups"), return_inverse=True)[1].reshape(-1)
        self.seeds = _as_seeds(seed)
        self.device = device
        self.progress = progress
        self.norms = None
        self.reference_norms = None
        self._remembered = {}
        self._scores = {}

    def _labels(self, labels, reference_labels, is_listed: bool) -> tuple[np.ndarray, np.ndarray]:
        """Labels of both sides, `(N,)` or `(N, L)`, not yet numbered; zeros if lists alone say what is relevant."""
        if is_listed and labels is None:
            labels = np.zeros(self.size, np.int64)
            reference_labels = None if self.own_reference else np.zeros(self.reference_size, np.int64)
        labels = as_labels(labels, self.size, "labels", levels=True)
        if self.own_reference != (reference_labels is None):
            raise UserError("a reference and reference_labels go together: give both or neither.")
        if self.own_reference:
            return labels, labels
        reference_labels = as_labels(reference_labels, self.reference_size, "reference_labels", levels=True)
        if (labels.dtype.kind in "USO") != (reference_labels.dtype.kind in "USO"):
            raise UserError(
                f"labels are of type {labels.dtype}, reference_labels of type {reference_labels.dtype}: give "
                "numbers, or names."
            )
        if labels.shape[1:] != reference_labels.shape[1:]:
            raise UserError(
                f"labels have shape {labels.shape}, reference_labels {reference_labels.shape}: both need the same "
                "levels."
            )
        return labels, reference_labels

    def _sequences(self, of_queries, of_reference) -> tuple[np.ndarray, np.ndarray] | None:
        """Numbers `(N,)`, `(M,)` that are equal where a query must not find a sample; None where all may be found."""
        if of_queries is None and of_reference is None:
            return None
        if of_queries is None or (of_reference is None) != self.own_reference:
            raise UserError(
                "query_sequences and reference_sequences: give both with a reference, query_sequences alone "
                "without one."
            )
        of_queries = _hidden.as_sequences(of_queries, self.size, "query_sequences")
        if self.own_reference:
            return _hidden.numbered(of_queries, of_queries)
        return _hidden.numbered(
            of_queries, _hidden.as_sequences(of_reference, self.reference_size, "reference_sequences")
        )

    def normalised(self) -> "EmbeddingSpace":
        """The space of the same features at unit length; this space itself if they are so already,
        up to the rounding of float32.
        """
        norms = self._norms(self.features)
        reference_norms = norms if self.own_reference else self._norms(self.reference)
        tolerance = 8 * np.finfo(np.float32).eps
        if max(np.abs(norms - 1).max(), np.abs(reference_norms - 1).max()) <= tolerance:
            return self
        norms = np.where(norms > 0, norms, 1.0)[:, None]  # zero stays zero
        reference_norms = np.where(reference_norms > 0, reference_norms, 1.0)[:, None]
        return self.view(EmbeddingSpace, norms=norms, reference_norms=reference_norms)

    def view(self, kind: type, **changes) -> "EmbeddingSpace":
        """The same space as one of `kind`, with some attributes changed and nothing computed yet."""
        view = object.__new__(kind)
        for name, value in vars(self).items():
            if not isinstance(getattr(type(self), name, None), cached_property):
                setattr(view, name, value)
        for name, value in changes.items():
            setattr(view, name, value)
        view._remembered = {}
        view._scores = {}
        return view

    def _norms(self, features: np.ndarray) -> np.ndarray:
        blocks = (
            features[start : start + self.block].astype(np.float64) for start in range(0, len(features), self.block)
        )
        return np.concatenate([np.sqrt((block**2).sum(1)) for block in blocks])

    def queries(self, rows) -> np.ndarray:
        """Query features `(R, D)` in float64."""
        block = self.features[rows].astype(np.float64)
        return block if self.norms is None else block / self.norms[rows]

    def references(self, rows) -> np.ndarray:
        """Reference features `(R, D)` in float64."""
        block = self.reference[rows].astype(np.float64)
        return block if self.reference_norms is None else block / self.reference_norms[rows]

    def reference_blocks(self):
        """(first row, float64 features) of the whole reference, block by block."""
        for start in range(0, self.reference_size, self.block):
            yield start, self.references(slice(start, start + self.block))

    def squared_distances(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Squared float64 distances `(P,)` from queries `rows` to reference samples `columns`, from differences, so
        that ties stay ties.
        """
        distances = np.empty(len(rows))
        for start in range(0, len(rows), PAIRS):
            part = slice(start, start + PAIRS)
            distances[part] = np.square(self.queries(rows[part]) - self.references(columns[part])).sum(1)
        return distances

    def remember(self, key: str, compute):
        """`compute()`, called once for this space and key, to share results among the metrics of one file."""
        if key not in self._remembered:
            self._remembered[key] = compute()
        return self._remembered[key]

    @cached_property
    def places(self) -> np.ndarray:
        """`(M,)` for each reference sample the first one with the same features, which may be itself."""
        if self.mapped:  # a hash of 128 bits stands for a row: different rows do not collide in practice
            digests = []
            for start in range(0, self.reference_size, self.block):
                block = self.reference[start : start + self.block]
                digests += [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in block]
            rows = np.frombuffer(b"".join(digests), np.dtype((np.void, 16)))
        else:
            rows = np.ascontiguousarray(self.reference)
            rows = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)
        first, inverse = np.unique(rows, return_index=True, return_inverse=True)[1:]
        return first[inverse.reshape(-1)]

    @property
    def relevant(self) -> np.ndarray:
        """`(N,)` samples that are relevant to each query."""
        return self.truth.relevant

    @property
    def visible(self) -> np.ndarray:
        """`(N,)` samples that take a rank, for each query."""
        return self.truth.visible

    @cached_property
    def is_self_search(self) -> bool:
        """Whether the queries search in themselves, each left out of its own neighbours only."""
        return self.own_reference and self.truth.is_symmetric and bool((self.exclude == np.arange(self.size)).all())

    @cached_property
    def search(self) -> Search:
        """The search for neighbours."""
        return Search(self)

    def scores(self, metrics) -> dict:
        """`RetrievalMetric.key` -> scores `(N,)` of the queries, for retrieval metrics:
        one pass for all that are not known yet.
        """
        missing = {metric.key: metric for metric in metrics if metric.key not in self._scores}
        if missing:
            needs = self._needs(missing.values())
            scores = {key: np.full(self.size, np.nan) for key in missing}
            parts = self.ranks.portions(self.size, self.search.unit)
            for block in self.search.run(needs, self.progress, parts[self.ranks.rank]):
                for column in {metric.column for metric in missing.values()}:
                    hits = self._hits(block, column)
                    for key, metric in missing.items():
                        if metric.column == column:
                            scores[key][block.rows] = metric.score(hits)
            for key, values in scores.items():
                self.ranks.share_rows(values, parts)
                if self.skip_unmatched:
                    values[self.truth.at(missing[key].column).relevant == 0] = np.nan
            self._scores.update(scores)
        return self._scores

    def _hits(self, block, column: int | None) -> Hits:
        """The hits of a block's `Neighbours` by one column of the labels; None: by all, with their levels."""
        truth = self.truth.at(column)
        n_levels = self.truth.n_levels
        rows = block.rows
        relevant = block.relevant
        if column is not None and n_levels > 1:
            relevant = relevant >= n_levels - column
        queries, slots = np.nonzero(relevant)
        starts = np.searchsorted(queries, np.arange(len(rows)))
        orders = np.arange(len(queries)) - starts[queries] + 1
        levels = (relevant[queries, slots], self.truth.of_level[rows]) if column is None else ()
        return Hits(queries, slots + 1, orders, truth.relevant[rows], truth.sizes[rows], *levels)

    def _needs(self, metrics) -> list[Need]:
        """At most one need of each kind, with each query's greatest depth, capped at the number of its neighbours."""
        needs = {}
        for metric in metrics:
            truth = self.truth.at(metric.column)
            depth = np.minimum(metric.depth(truth.relevant, truth.sizes), self.visible)
            kind = "first" if metric.FIRST_HIT_ONLY else "all", metric.column
            needs[kind] = np.maximum(needs.get(kind, 0), depth)
        return [Need(depth, *kind) for kind, depth in needs.items()]

    def neighbours(self, k: int) -> np.ndarray:
        """Indices `(N, k)` of each query's nearest reference samples, nearest first, itself left out;
        -1 where there are fewer.
        """

        def compute():
            nearest = np.full((self.size, k), -1, dtype=np.int64)
            need = Need(np.minimum(k, self.visible), "every")
            parts = self.ranks.portions(self.size, self.search.unit)
            for block in self.search.run([need], self.progress, parts[self.ranks.rank]):
                width = min(k, block.columns.shape[1])
                filled = np.arange(width) < block.counts[:, None]
                nearest[block.rows, :width] = np.where(filled, block.columns[:, :width], -1)
            self.ranks.share_rows(nearest, parts)
            return nearest

        return self.remember(f"neighbours {k}", compute)

    @cached_property
    def clusterings(self) -> list[np.ndarray]:
        """Clusterings `(N,)`: the given one, else one k-means per seed of the queries,
        with as many clusters as they have classes.
        """
        if self.given_clusters is not None:
            return [self.given_clusters]
        if self.mapped:
            features = _mapped.Converted(self.queries, (self.size, self.dimensions), self.block)
        else:
            features = self.features if self.norms is None else self.queries(slice(None))
        n_classes = len(np.unique(self.labels))
        return [_kmeans.kmeans(features, n_classes, seed, self.device, self.ranks) for seed in self.seeds]

    @property
    def clusters(self) -> np.ndarray:
        """`(N,)`: the first of the clusterings."""
        return self.clusterings[0]

    @cached_property
    def singular_values(self) -> np.ndarray:
        """min(N, D) singular values of the queries, float64, descending;
        from R of a QR decomposition built block by block.
        """
        upper = np.empty((0, self.dimensions))
        for start in range(0, self.size, self.block):
            block = torch.from_numpy(np.concatenate([upper, self.queries(slice(start, start + self.block))]))
            upper = torch.linalg.qr(block, mode="r").R.numpy()
        return torch.linalg.svdvals(torch.from_numpy(upper)).numpy()

    def class_sums(self, normalised: bool) -> tuple[np.ndarray, np.ndarray]:
        """Sums `(C, D)` of the classes' query features, at unit length if `normalised`,
        and sums `(C,)` of their squared norms.
        """
        n_classes = int(self.labels.max()) + 1
        sums = np.zeros((n_classes, self.dimensions))
        squares = np.zeros(n_classes)
        for start in range(0, self.size, self.block):
            block = self.queries(slice(start, start + self.block))
            if normalised:
                norms = np.sqrt((block**2).sum(1, keepdims=True))
                block = block / np.where(norms > 0, norms, 1.0)
            labels = self.labels[start : start + self.block]
            order = np.argsort(labels, kind="stable")
            labels = labels[order]
            first = np.flatnonzero(np.diff(labels, prepend=-1))
            sums[labels[first]] += np.add.reduceat(block[order], first)
            squares += np.bincount(labels, weights=(block**2).sum(1)[order], minlength=n_classes)
        return sums, squares
