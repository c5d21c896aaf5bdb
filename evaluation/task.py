"""The record of retrieval: queries, the gallery that they search, and the relevant items of each query.

Everything that is measured is a `Task`. A data set's splits become tasks in `from_splits.py`, files of embeddings in
`from_files.py`; lists, published ground truth and a user's function set a task's `relevance` in `judgements.py`.
Where a result is a mean over protocols, domains, super-classes or drawn galleries, a function of `averages.py` divides
one task into several. `measure` gives the metrics of one task.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

import metrics


def take_rows(values, rows: np.ndarray | None):
    """`values[rows]`; all of them if `rows` is None."""
    if rows is None or values is None:
        return values
    return values[rows]


def places_in(rows: np.ndarray, size: int) -> np.ndarray:
    """`(size + 1,)`: the position in `rows` of each of `size` rows, -1 for none. The extra last entry, -1, is for
    queries of index -1.
    """
    places = np.full(size + 1, -1)
    places[rows] = np.arange(len(rows))
    return places


class Embedded(NamedTuple):
    """A split: `features` evaltype -> `(N, D)` float32 array (empty before it is embedded), `labels` `(N,)`, images in
    the data set's order.
    """

    features: dict
    labels: np.ndarray
    seconds: float
    dataset: Any = None


@dataclass(frozen=True)
class Rows:
    """N images, a row each; every field is an array with N rows, or None.

    features: `(N, D)`; None before anything is embedded.
    labels: `(N,)` classes.
    levels: `(N, L - 1)` classes of the coarser levels, for metrics that compare levels.
    sequences: `(N,)`; images of one sequence never find each other.
    groups: `(N,)` super-classes, for metrics that compare these.
    parents: `(N,)` super-classes, where a query searches only its own.
    domains: `(N,)` names, where each domain's queries are measured by themselves.
    certainty: `(N,)` numbers, for metrics of the certainty of queries.
    paths: `(N,)` image files, for a re-ranking of pairs.
    ids: `(N,)` rows of the split or file that these are; None: all of them, in order.
    """

    features: np.ndarray | None
    labels: np.ndarray
    levels: np.ndarray | None = None
    sequences: np.ndarray | None = None
    groups: np.ndarray | None = None
    parents: np.ndarray | None = None
    domains: np.ndarray | None = None
    certainty: np.ndarray | None = None
    paths: np.ndarray | None = None
    ids: np.ndarray | None = None

    def __len__(self):
        return len(self.labels)

    @property
    def positions(self) -> np.ndarray:
        """`ids`, never None."""
        return np.arange(len(self)) if self.ids is None else self.ids

    def take(self, rows: np.ndarray | None) -> "Rows":
        """The images `rows`, ascending indices; None: all. Features in a file are not read."""
        if rows is None:
            return self
        columns = {}
        for field in fields(self):
            if field.name != "features":
                columns[field.name] = take_rows(getattr(self, field.name), rows)
        columns["ids"] = self.positions[rows]
        return Rows(self._features_of(rows), **columns)

    def _features_of(self, rows: np.ndarray) -> np.ndarray | metrics.Stacked | None:
        if not metrics.is_mapped(self.features):
            return take_rows(self.features, rows)
        chosen = None if len(rows) == len(self) else rows
        return metrics.Stacked((self.features, chosen))


def joined(parts: list[Rows]) -> Rows:
    """The rows of several parts, one part after the other, without ids; a field that is None in the first is None."""
    if len(parts) == 1:
        return parts[0]
    columns = {}
    for field in fields(Rows):
        arrays = [getattr(part, field.name) for part in parts]
        if field.name == "ids" or arrays[0] is None:
            columns[field.name] = None
        elif any(map(metrics.is_mapped, arrays)):
            columns[field.name] = metrics.Stacked(*((array, None) for array in arrays))
        else:
            columns[field.name] = np.concatenate(arrays)
    return Rows(**columns)


@dataclass(frozen=True)
class Task:
    """Queries that search a gallery.

    queries: the images that search.
    gallery: the images that are searched; None: the queries search each other.
    exclude: `(N,)` index of each query in the gallery, -1 where it is not there; None: none is there.
    relevance: protocol -> positives and junk of each query in the gallery, in place of classes and sequences; a
        protocol "" has no name.
    further_labels: query -> labels of its further classes, whose images are relevant as well.
    pool: the images of class-wise numbers; None: the queries.
    name: of the domain that all queries are of.
    """

    queries: Rows
    gallery: Rows | None = None
    exclude: np.ndarray | None = None
    relevance: dict[str, metrics.Lists] | None = None
    further_labels: dict[int, list[int]] | None = None
    pool: Rows | None = None
    name: str | None = None

    @property
    def searched(self) -> Rows:
        """The gallery, or the queries where these search each other."""
        return self.queries if self.gallery is None else self.gallery

    @property
    def classified(self) -> Rows:
        """The images of class-wise numbers."""
        return self.queries if self.pool is None else self.pool

    @property
    def places(self) -> np.ndarray:
        """`(N,)` index of each query among the images that are searched, -1 where it is not there."""
        if self.gallery is None:
            return np.arange(len(self.queries))
        if self.exclude is None:
            return np.full(len(self.queries), -1)
        return self.exclude

    @property
    def lists(self) -> metrics.Lists | None:
        """Positives and junk by the first protocol; None where classes say what is relevant."""
        if not self.relevance:
            return None
        return next(iter(self.relevance.values()))

    def arguments(self, levels: bool = False) -> dict:
        """The arguments of `metrics.compute` and `metrics.EmbeddingSpace`;
        `levels`: labels `(N, L)` where both sides have them.
        """
        has_levels = levels and self.queries.levels is not None and self.searched.levels is not None
        arguments = {
            "features": self.queries.features,
            "labels": _labels(self.queries, has_levels),
            "exclude": self.exclude,
            "query_sequences": self.queries.sequences,
            "groups": self.queries.groups,
            "lists": self.lists,
            "certainty": self.queries.certainty,
            "paths": self.queries.paths,
        }
        if self.gallery is not None:
            arguments["reference"] = self.gallery.features
            arguments["reference_labels"] = _labels(self.gallery, has_levels)
            arguments["reference_sequences"] = self.gallery.sequences
            arguments["reference_paths"] = self.gallery.paths
        return arguments

    def with_features(self, function) -> "Task":
        """The same task on the features that `function` makes of those of queries, gallery and pool."""
        changed = {}
        for side in ("queries", "gallery", "pool"):
            rows = getattr(self, side)
            if rows is not None:
                changed[side] = replace(rows, features=function(rows.features))
        return replace(self, **changed)

    def findable(self) -> tuple[np.ndarray, np.ndarray]:
        """How many images are relevant to each query, and how many take a rank, `(N,)` each; see `metrics.findable`."""
        queries = self.queries
        searched = self.searched
        hidden = self.places, queries.sequences, searched.sequences, self.lists
        if queries.parents is None:
            relevant, ranked = metrics.findable(queries.labels, searched.labels, *hidden)
        else:
            # a class in two super-classes is two
            n_labels = max(queries.labels.max(), searched.labels.max()) + 1
            classes = queries.labels + n_labels * queries.parents
            searched_classes = searched.labels + n_labels * searched.parents
            relevant, _ = metrics.findable(classes, searched_classes, *hidden)
            # Only images of its super-class take a rank.
            ranked, _ = metrics.findable(queries.parents, searched.parents, *hidden)
        if self.further_labels:
            sizes = dict(zip(*np.unique(searched.labels, return_counts=True), strict=True))
            for query, labels in self.further_labels.items():
                for label in {*labels} - {queries.labels[query]}:
                    relevant[query] += sizes.get(label, 0)
        return relevant, ranked

    def part(self, rows: np.ndarray, gallery_rows: np.ndarray) -> "Task":
        """The task of the queries `rows` in the part `gallery_rows` of their gallery, both ascending indices.

        With lists that is all of the gallery.
        """
        searched = self.searched
        gallery = None
        exclude = None
        if self.gallery is not None or not np.array_equal(rows, gallery_rows):
            gallery = searched
            # The whole gallery is not copied, as it may be large.
            if len(gallery_rows) < len(searched):
                gallery = searched.take(gallery_rows)
            exclude = places_in(gallery_rows, len(searched))[self.places[rows]]
        relevance = None
        if self.relevance is not None:
            relevance = {protocol: lists.part(rows) for protocol, lists in self.relevance.items()}
        part = Task(self.queries.take(rows), gallery, exclude, relevance)
        further_labels = {}
        for query, row in enumerate(rows.tolist()):
            if self.further_labels and row in self.further_labels:
                further_labels[query] = self.further_labels[row]
        if further_labels:
            part = replace(part, relevance={"": part._lists_with(further_labels)})
        return part

    def _lists_with(self, further_labels: dict[int, list[int]]) -> metrics.Lists:
        """The relevant items of each query: the images of its own class, and of its `further_labels`."""
        labels = self.searched.labels
        order = np.argsort(labels, kind="stable")
        numbers = range(labels.max() + 2)
        starts = np.searchsorted(labels[order], numbers, "left")
        stops = np.searchsorted(labels[order], numbers, "right")
        positives = []
        for query, (place, label) in enumerate(zip(self.places.tolist(), self.queries.labels.tolist(), strict=True)):
            classes = [number for number in {label, *further_labels.get(query, ())} if number < len(starts)]
            images = np.concatenate([order[starts[number] : stops[number]] for number in classes])
            positives.append(np.sort(images[images != place]))
        return metrics.Lists.of(positives)


def _labels(rows: Rows, levels: bool) -> np.ndarray:
    if not levels:
        return rows.labels
    return np.column_stack([rows.labels, rows.levels])


def measure(task: Task, names: list[str], **settings) -> dict:
    """Metrics of a task: those that search are of the queries, class-wise numbers of the pool.

    Of named protocols, a metric that searches comes once for each, as `<protocol>/<metric>`.

    Args:
        settings: further arguments of `metrics.compute`.
    """
    levels = any(map(metrics.needs_levels, names))
    if task.pool is None and task.relevance is None:
        return metrics.compute(names, **task.arguments(levels), **settings)
    searching = [name for name in names if metrics.searches(name)]
    class_wise = [name for name in names if name not in searching]
    values = {}
    if class_wise:
        arguments = task.arguments()
        if task.pool is not None:
            arguments = {"features": task.pool.features, "labels": task.pool.labels}
        values = metrics.compute(class_wise, **arguments, **settings)
    if not searching:
        return values
    if not len(task.queries):
        values |= dict.fromkeys(searching, float("nan"))
        return {name: values[name] for name in names}
    if task.relevance is None or "" in task.relevance:
        values |= metrics.compute(searching, **task.arguments(levels), **settings)
        return {name: values[name] for name in names}
    of_protocols = {}
    for protocol, lists in task.relevance.items():
        of_protocol = replace(task, relevance={"": lists})
        for name, value in metrics.compute(searching, **of_protocol.arguments(levels), **settings).items():
            of_protocols[f"{protocol}/{name}"] = value
    return of_protocols | values
