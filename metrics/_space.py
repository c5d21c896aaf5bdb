"""An embedding space, and quantities of it that several metrics share, each computed once and on demand.

`EmbeddingSpace` checks and numbers its arguments with `_inputs.py`, and asks `_truth.py` which items are relevant to
each query. Its neighbours come from `metrics/neighbours/`, its clusterings from `_kmeans.py`. A metric's `value(space)`
reads its attributes; the retrieval metrics of one space are scored together, in one pass over the queries (`scores`).
"""

import hashlib
from functools import cached_property

import numpy as np

from metrics import _hidden, _inputs, _kmeans, _mapped, _sums, _tensors
from metrics._inputs import SpaceSettings
from metrics._metric import Hits
from metrics._tensors import Tensors
from metrics._truth import ByClasses, ByLevels, ByLists
from metrics.neighbours.counts import RankCounts
from metrics.neighbours.search import Need, Search
from utilities.errors import UserError
from utilities.processes import SingleProcess

# pairs whose distances are computed at once, to fit the cache
PAIRS = 512


class EmbeddingSpace:
    """Queries, the reference in which they search (themselves, where none is given), their labels.

    Metrics read `labels` `(N,)` and `reference_labels` `(M,)` (both numbered together from 0; all 0 where none are
    given), `groups` `(N,)` (super-classes from 0, or None), `clusters` `(N,)`, `clusterings`, `singular_values`,
    `class_sums`, `neighbours`, `scores`. `truth`: the relevant items of a query. Labels may have levels,
    `(N, L)`, column 0 the finest: `labels` are then those of column 0.

    Args: see `metrics.compute`; settings: see `SpaceSettings`.
    """

    def __init__(self, features, labels, reference=None, reference_labels=None, clusters=None, **settings):
        settings = SpaceSettings(**settings)
        self.skip_unmatched = settings.skip_unmatched or settings.lists is not None
        # several processes have the same space, and search for a part of the queries each
        self.ranks = settings.ranks or SingleProcess()
        self.features, self.reference = _inputs.as_sides(features, reference)
        self.own_reference = reference is None
        self.size, self.dimensions = self.features.shape
        self.reference_size = len(self.reference)
        self.mapped = _mapped.is_mapped(features) or _mapped.is_mapped(reference)
        # rows turned to float64 at once
        self.block = _inputs.BLOCK
        if self.mapped:
            self.block = max(1024, self.block * 128 // max(128, self.dimensions))
        labels, reference_labels = self._labels(labels, reference_labels, is_listed=settings.lists is not None)
        self.classless = np.zeros(self.reference_size, dtype=bool)
        if settings.lists is None:
            self.classless = _inputs.classless(_finest(labels), _finest(reference_labels))
        self.certainty = _inputs.as_certainty(settings.certainty, self.size)
        self.paths = _inputs.as_paths(settings.paths, self.size, "paths")
        self.reference_paths = self.paths
        if not self.own_reference:
            self.reference_paths = _inputs.as_paths(settings.reference_paths, self.reference_size, "reference_paths")
        self.exclude = self._exclude(settings.exclude)
        sequences = self._sequences(settings)
        levels, reference_levels = _inputs.numbered_levels(labels, reference_labels)
        self.labels = np.ascontiguousarray(levels[:, 0])
        self.reference_labels = np.ascontiguousarray(reference_levels[:, 0])
        if settings.lists is not None:
            lists = settings.lists.checked(self.size, self.reference_size, self.exclude)
            self.truth = ByLists(lists, self.reference_size, self.exclude)
        elif levels.shape[1] == 1:
            self.truth = ByClasses(self.labels, self.reference_labels, self.exclude, sequences)
        else:
            _inputs.check_nested(labels, reference_labels)
            self.truth = ByLevels(levels, reference_levels, self.exclude, sequences)
        self.given_clusters = None
        if clusters is not None:
            self.given_clusters = _inputs.as_labels(clusters, self.size, "clusters")
        self.groups = None
        if settings.groups is not None:
            groups = _inputs.as_labels(settings.groups, self.size, "groups")
            self.groups = np.unique(groups, return_inverse=True)[1].reshape(-1)
        self.seeds = _inputs.as_seeds(settings.seed)
        self.device = settings.device
        self.progress = settings.progress
        # copies of arrays on the device, which views of the space share
        self._copies = {}
        self.norms = None
        self.reference_norms = None
        self._remembered = {}
        self._scores = {}
        self._nearest = np.empty((self.size, 0), dtype=np.int64)

    def _labels(self, labels, reference_labels, is_listed: bool) -> tuple[np.ndarray, np.ndarray]:
        """Labels of both sides, `(N,)` or `(N, L)`, not yet numbered; zeros if lists alone say what is relevant."""
        if is_listed and labels is None:
            labels = np.zeros(self.size, np.int64)
            reference_labels = None if self.own_reference else np.zeros(self.reference_size, np.int64)
        labels = _inputs.as_labels(labels, self.size, "labels", levels=True)
        if self.own_reference != (reference_labels is None):
            raise UserError("a reference and reference_labels go together: give both or neither.")
        if self.own_reference:
            return labels, labels
        reference_labels = _inputs.as_labels(reference_labels, self.reference_size, "reference_labels", levels=True)
        _inputs.check_comparable(labels, reference_labels)
        return labels, reference_labels

    def _exclude(self, exclude) -> np.ndarray:
        """`(N,)` index of each query in the reference; if missing, its own in a search of the queries, else -1."""
        if exclude is None and self.own_reference:
            exclude = np.arange(self.size)
        elif exclude is None:
            exclude = np.full(self.size, -1)
        return _hidden.as_exclude(exclude, self.size, self.reference_size)

    def _sequences(self, settings: SpaceSettings) -> tuple[np.ndarray, np.ndarray] | None:
        """Numbers `(N,)`, `(M,)` that are equal where a query must not find a sample; None where all may be found."""
        of_queries = settings.query_sequences
        of_reference = settings.reference_sequences
        if of_queries is None and of_reference is None:
            return None
        if of_queries is None or (of_reference is None) != self.own_reference:
            raise UserError(
                "query_sequences and reference_sequences: give both with a reference, query_sequences alone "
                "without one."
            )
        of_queries = _hidden.as_sequences(of_queries, self.size, "query_sequences")
        if self.own_reference:
            of_reference = of_queries
        else:
            of_reference = _hidden.as_sequences(of_reference, self.reference_size, "reference_sequences")
        numbers = _hidden.numbered(of_queries, of_reference)
        if settings.lists is not None:
            raise UserError("lists already define what is not ranked: leave out the sequences.")
        return numbers

    def normalised(self) -> "EmbeddingSpace":
        """The space of the same features at unit length; this space itself if they are so already,
        up to the rounding of float32.
        """
        norms = _sums.lengths(self.features, self.block)
        reference_norms = norms if self.own_reference else _sums.lengths(self.reference, self.block)
        tolerance = 8 * np.finfo(np.float32).eps
        if max(np.abs(norms - 1).max(), np.abs(reference_norms - 1).max()) <= tolerance:
            return self
        # a row of zeros stays one
        norms = np.where(norms > 0, norms, 1.0)[:, None]
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
        view._nearest = self._nearest[:, :0]
        return view

    def within(self, rows: np.ndarray) -> "EmbeddingSpace":
        """The space of the same queries and the part `rows` of the reference, ascending, with relevance by classes."""
        reference = self.reference[rows] if not self.mapped else _mapped.Stacked((self.reference, rows))
        # the last entry is for queries outside the reference
        places = np.full(self.reference_size + 1, -1)
        places[rows] = np.arange(len(rows))
        sequences = self.truth.sequences
        if sequences is not None:
            sequences = sequences[0], sequences[1][rows]
        norms = self.reference_norms
        if norms is not None:
            norms = norms[rows]
        paths = self.reference_paths
        if paths is not None:
            paths = paths[rows]
        labels = self.reference_labels[rows]
        exclude = places[self.exclude]
        return self.view(
            type(self),
            reference=reference,
            reference_labels=labels,
            reference_norms=norms,
            reference_paths=paths,
            reference_size=len(rows),
            own_reference=False,
            exclude=exclude,
            classless=np.zeros(len(rows), dtype=bool),
            truth=ByClasses(self.labels, labels, exclude, sequences),
        )

    @cached_property
    def tensors(self) -> Tensors | None:
        """The features on the GPU that computes; None on a CPU, for features in files and for other distances."""
        if self.mapped or type(self) is not EmbeddingSpace or not _tensors.is_gpu(self.device):
            return None
        return Tensors(self, self._copies)

    def queries(self, rows) -> np.ndarray:
        """Query features `(R, D)` in float64."""
        block = self.features[rows].astype(np.float64)
        if self.norms is not None:
            block /= self.norms[rows]
        return block

    def references(self, rows) -> np.ndarray:
        """Reference features `(R, D)` in float64."""
        block = self.reference[rows].astype(np.float64)
        if self.reference_norms is not None:
            block /= self.reference_norms[rows]
        return block

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
            differences = self.queries(rows[part])
            differences -= self.references(columns[part])
            distances[part] = np.square(differences, out=differences).sum(1)
        return distances

    def remember(self, key: str, compute):
        """`compute()`, called once for this space and key, to share results among the metrics of one file."""
        if key not in self._remembered:
            self._remembered[key] = compute()
        return self._remembered[key]

    @cached_property
    def places(self) -> np.ndarray:
        """`(M,)` for each reference sample the first one with the same features, which may be itself."""
        # a hash of 128 bits stands for a row: different rows do not collide in practice
        if self.mapped:
            digests = []
            for start in range(0, self.reference_size, self.block):
                for row in self.reference[start : start + self.block]:
                    digests.append(hashlib.blake2b(row.tobytes(), digest_size=16).digest())
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

    def are_relevant(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Whether reference samples `columns` `(Q, W)` are relevant to the queries `rows` `(Q,)`, by column 0 of the
        labels.
        """
        return self.truth.are_relevant(rows, columns) >= self.truth.n_levels

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

    def scores(self, metrics, n_nearest: int = 0) -> dict:
        """`RetrievalMetric.key` -> scores `(N,)` of the queries, for retrieval metrics:
        one pass for all that are not known yet, and for the `n_nearest` neighbours.
        """
        missing = {metric.key: metric for metric in metrics if metric.key not in self._scores}
        n_missing = n_nearest if n_nearest > self._nearest.shape[1] else 0
        if not missing and not n_missing:
            return self._scores
        scores = {key: np.full(self.size, np.nan) for key in missing}
        nearest = np.full((self.size, n_missing), -1, dtype=np.int64)
        parts = self.ranks.portions(self.size, self.search.unit)
        mine = parts[self.ranks.rank]
        by_column = {}
        for key, metric in missing.items():
            by_column.setdefault(metric.column, {})[key] = metric
        if self.tensors is not None and type(self.search) is Search:
            self._count(by_column, mine, scores)
        self._sort(by_column, n_missing, mine, scores, nearest)
        for key, values in scores.items():
            self.ranks.share_rows(values, parts)
            if self.skip_unmatched:
                values[self.truth.at(missing[key].column).relevant == 0] = np.nan
        self._scores.update(scores)
        if n_missing:
            self.ranks.share_rows(nearest, parts)
            self._nearest = nearest
        return self._scores

    def _sort(self, by_column: dict, n_nearest: int, rows: slice, scores: dict, nearest: np.ndarray) -> None:
        """Set the scores of the queries `rows` by the metrics of each column, and their nearest neighbours."""
        needs = self._needs(metric for metrics in by_column.values() for metric in metrics.values())
        if n_nearest:
            needs.append(Need(np.minimum(n_nearest, self.visible), "every"))
        if not needs:
            return
        for block in self.search.run(needs, self.progress, rows):
            width = min(n_nearest, block.columns.shape[1])
            filled = np.arange(width) < block.counts[:, None]
            nearest[block.rows, :width] = np.where(filled, block.columns[:, :width], -1)
            for column, metrics in by_column.items():
                hits = self._hits_of(block, column)
                for key, metric in metrics.items():
                    scores[key][block.rows] = metric.score(hits)

    def _count(self, by_column: dict, rows: slice, scores: dict) -> None:
        """As `_sort`, by ranks that are counted on the device; metrics that compare levels stay in `by_column`."""
        for column in [column for column in by_column if column is not None]:
            metrics = by_column.pop(column)
            needs = self._needs(metrics.values())
            for queries, places, ranks in RankCounts(self.search, needs).run(rows, self.progress):
                hits = self._hits(queries, places, ranks, column)
                for key, metric in metrics.items():
                    scores[key][queries] = metric.score(hits)

    def _hits_of(self, block, column: int | None) -> Hits:
        """The hits of a block's `Neighbours` by one column of the labels; None: by all, with their levels."""
        relevant = block.relevant
        if column is not None and self.truth.n_levels > 1:
            relevant = relevant >= self.truth.n_levels - column
        queries, slots = np.nonzero(relevant)
        hits = self._hits(block.rows, queries, slots + 1, column)
        if column is None:
            hits = hits._replace(levels=relevant[queries, slots], of_level=self.truth.of_level[block.rows])
        return hits

    def _hits(self, rows: np.ndarray, queries: np.ndarray, ranks: np.ndarray, column: int | None) -> Hits:
        """The `Hits` of the queries `rows`, whose hits `(H,)` are of `rows[queries]`, ascending."""
        truth = self.truth.at(column)
        starts = np.searchsorted(queries, np.arange(len(rows)))
        orders = np.arange(len(queries)) - starts[queries] + 1
        return Hits(queries, ranks, orders, truth.relevant[rows], truth.sizes[rows])

    def _needs(self, metrics) -> list[Need]:
        """At most one need of each kind, with each query's greatest depth, capped at the number of its neighbours."""
        needs = {}
        for metric in metrics:
            truth = self.truth.at(metric.column)
            depth = np.minimum(metric.depth(truth.relevant, truth.sizes), self.visible)
            goal = "first" if metric.FIRST_HIT_ONLY else "all"
            kind = goal, metric.column
            needs[kind] = np.maximum(needs.get(kind, 0), depth)
        return [Need(depth, *kind) for kind, depth in needs.items()]

    def neighbours(self, k: int) -> np.ndarray:
        """Indices `(N, k)` of each query's nearest reference samples, nearest first, itself left out;
        -1 where there are fewer.
        """

        self.scores((), n_nearest=k)
        return self._nearest[:, :k]

    @cached_property
    def clusterings(self) -> list[np.ndarray]:
        """Clusterings `(N,)`: the given one, else one k-means per seed of the queries,
        with as many clusters as they have classes.
        """
        if self.given_clusters is not None:
            return [self.given_clusters]
        features = self.features
        if self.mapped:
            features = _mapped.Converted(self.queries, (self.size, self.dimensions), self.block)
        elif self.tensors is not None and self.ranks.size == 1 and not _kmeans.faiss_runs_on(self.device):
            features = self.tensors.features
            if self.norms is not None:
                features = self.tensors.queries(slice(None))
        elif self.norms is not None:
            features = self.queries(slice(None))
        n_classes = len(np.unique(self.labels))
        return [_kmeans.kmeans(features, n_classes, seed, self.device, self.ranks) for seed in self.seeds]

    @property
    def clusters(self) -> np.ndarray:
        """`(N,)`: the first of the clusterings."""
        return self.clusterings[0]

    @cached_property
    def singular_values(self) -> np.ndarray:
        """min(N, D) singular values of the queries, float64, descending."""
        return _sums.singular_values(self)

    def class_sums(self, normalised: bool) -> tuple[np.ndarray, np.ndarray]:
        """Sums `(C, D)` of the classes' query features, at unit length if `normalised`, and of their squares `(C,)`."""
        return _sums.class_sums(self, normalised)


def _finest(labels: np.ndarray) -> np.ndarray:
    """Column 0 of labels `(N, L)`; labels `(N,)` as they are."""
    return labels if labels.ndim == 1 else labels[:, 0]
