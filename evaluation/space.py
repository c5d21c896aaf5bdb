"""One space of an evaluation: queries, the reference that they search, and the labels of both."""

from typing import NamedTuple

import numpy as np

import metrics
from evaluation.galleries import places_in, taken


class Space(NamedTuple):
    """Queries and the reference that they search.

    features `(N, D)`, labels `(N,)`: of the queries. reference `(M, D)`, reference_labels `(M,)`: of the reference;
    None: the queries search each other. exclude `(N,)`: index of each query in the reference, -1 where it is not there.
    query_sequences `(N,)`, reference_sequences `(M,)`: images of one sequence never find each other. groups `(N,)`:
    super-classes of the queries, for metrics that compare these. above `(N, L - 1)`, reference_above `(M, L - 1)`:
    labels of the coarser levels, for metrics that compare levels.
    lists: protocol -> positives and junk of each query in the reference, in place of classes and sequences; a protocol
    "" has no name. parents `(N,)`, reference_parents `(M,)`: super-classes; a query searches only its own. pool: the
    images of class-wise numbers, where these are not the queries. domains `(N,)`: names; each domain's queries are
    measured by themselves. domain: that of all queries.
    further: query -> labels whose images it is to find beside those of its own.

    Features are None before anything is embedded, and for a super-class whose images are all gallery.
    """

    features: np.ndarray | None
    labels: np.ndarray | None
    reference: np.ndarray | None = None
    reference_labels: np.ndarray | None = None
    exclude: np.ndarray | None = None
    query_sequences: np.ndarray | None = None
    reference_sequences: np.ndarray | None = None
    groups: np.ndarray | None = None
    lists: dict[str, metrics.Lists] | None = None
    above: np.ndarray | None = None
    reference_above: np.ndarray | None = None
    parents: np.ndarray | None = None
    reference_parents: np.ndarray | None = None
    pool: "Space | None" = None
    domains: np.ndarray | None = None
    domain: str | None = None
    further: dict[int, list[int]] | None = None

    def lists_of(self, protocol: str | None = None) -> metrics.Lists | None:
        """The lists of a protocol, by default of the first; None where classes say what is found."""
        return self.lists and (next(iter(self.lists.values())) if protocol is None else self.lists[protocol])

    def arguments(self, protocol: str | None = None, levels: bool = False) -> dict:
        """The arguments of `metrics.compute` and `metrics.EmbeddingSpace`; `levels`: labels `(N, L)` where both sides
        have such.

        Lists are those of a protocol, by default of the first.
        """
        apart = ("parents", "reference_parents", "pool", "above", "reference_above", "domains", "domain", "further")
        found = {name: value for name, value in self._asdict().items() if name not in apart}
        found["lists"] = self.lists_of(protocol)
        if levels and self.gallery_above() is not None and self.above is not None:
            found["labels"] = np.column_stack([self.labels, self.above])
            if self.reference_labels is not None:
                found["reference_labels"] = np.column_stack([self.reference_labels, self.reference_above])
        return found

    def compute(self, names: list[str], **about) -> dict:
        """`metrics.compute`: metrics that search are those of the queries, class-wise numbers those of the pool.

        Of named protocols a metric that searches comes once for each, as `<protocol>/<metric>`.
        """
        levels = any(map(metrics.needs_levels, names))
        if self.pool is None and self.lists is None:
            return metrics.compute(names, **self.arguments(levels=levels), **about)
        of_queries = [name for name in names if metrics.searches(name)]
        of_classes = [name for name in names if name not in of_queries]
        found = metrics.compute(of_classes, **self.whole().arguments(), **about) if of_classes else {}
        found |= dict.fromkeys(of_queries, float("nan"))
        if not of_queries or self.features is None:
            return {name: found[name] for name in names}
        if self.lists is None or "" in self.lists:
            found |= metrics.compute(of_queries, **self.arguments(levels=levels), **about)
            return {name: found[name] for name in names}
        of_protocol = {
            protocol: metrics.compute(of_queries, **self.arguments(protocol, levels), **about)
            for protocol in self.lists
        }
        return {f"{protocol}/{name}": value for protocol, of in of_protocol.items() for name, value in of.items()} | {
            name: found[name] for name in of_classes
        }

    def whole(self) -> "Space":
        """The space of the images of class-wise numbers."""
        return self if self.pool is None else self.pool

    def gallery(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The reference of the queries: features `(M, D)`, labels `(M,)`, and the index `(N,)` of each query in them,
        -1 for none.
        """
        if self.reference_labels is None:
            return self.features, self.labels, np.arange(len(self.labels))
        return self.reference, self.reference_labels, self.exclude

    def gallery_sequences(self) -> np.ndarray | None:
        """Sequences `(M,)` of the reference; None without sequences."""
        return self.query_sequences if self.reference_labels is None else self.reference_sequences

    def findable(self) -> tuple[np.ndarray, np.ndarray]:
        """How many images each query is to find, and how many take a rank, `(N,)` each; see `metrics.findable`."""
        _, reference_labels, exclude = self.gallery()
        others = exclude, self.query_sequences, self.gallery_sequences(), self.lists_of()
        if self.parents is None:
            return self._with_further_counted(*metrics.findable(self.labels, reference_labels, *others))
        apart = max(self.labels.max(), reference_labels.max()) + 1  # a class in two super-classes counts as two
        classes = self.labels + apart * self.parents, reference_labels + apart * self.reference_parents
        return self._with_further_counted(
            metrics.findable(*classes, *others)[0], metrics.findable(self.parents, self.reference_parents, *others)[0]
        )

    def _with_further_counted(self, to_find: np.ndarray, ranked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`findable` with the images of further classes, from the counts of a query's own."""
        if self.further:
            labels = self.gallery()[1]
            sizes = dict(zip(*np.unique(labels, return_counts=True), strict=True))
            for row, further in self.further.items():
                to_find[row] += sum(sizes.get(label, 0) for label in {*further} - {self.labels[row]})
        return to_find, ranked

    def gallery_parents(self) -> np.ndarray | None:
        """Super-classes `(M,)` of the reference; None without."""
        return self.parents if self.reference_labels is None else self.reference_parents

    def gallery_above(self) -> np.ndarray | None:
        """Labels `(M, L - 1)` of the coarser levels of the reference; None without."""
        return self.above if self.reference_labels is None else self.reference_above

    def part(self, rows: np.ndarray, kept: np.ndarray) -> "Space":
        """The space of the queries `rows` and the part `kept` of their reference, both ascending indices; with lists
        that is all of it.
        """
        whole = len(kept) == len(self.gallery()[1])  # a large reference is not copied
        found = Space(
            self.features[rows],
            self.labels[rows],
            query_sequences=taken(self.query_sequences, rows),
            groups=taken(self.groups, rows),
            lists=self.lists and {protocol: lists.part(rows) for protocol, lists in self.lists.items()},
            above=taken(self.above, rows),
        )
        if self.reference_labels is not None or not np.array_equal(rows, kept):
            reference, labels, exclude = self.gallery()
            places = places_in(kept, len(labels))[exclude[rows]]
            reference, labels, sequences, above = (
                taken(of, None if whole else kept)
                for of in (reference, labels, self.gallery_sequences(), self.gallery_above())
            )
            found = found._replace(
                reference=reference,
                reference_labels=labels,
                exclude=places,
                reference_sequences=sequences,
                reference_above=above,
            )
        further = (
            {place: self.further[row] for place, row in enumerate(rows.tolist()) if row in self.further}
            if self.further
            else {}
        )
        return found._replace(lists={"": found._lists_with(further)}) if further else found

    def _lists_with(self, further: dict[int, list[int]]) -> metrics.Lists:
        """Lists of what each query is to find: the images of its own class, and of the `further` classes of a query."""
        _, labels, exclude = self.gallery()
        order = np.argsort(labels, kind="stable")
        starts, stops = (np.searchsorted(labels[order], range(labels.max() + 2), side) for side in ("left", "right"))
        positives = []
        for row, (own, label) in enumerate(zip(exclude.tolist(), self.labels.tolist(), strict=True)):
            found = np.concatenate(
                [order[starts[one] : stops[one]] for one in {label, *further.get(row, ())} if one < len(starts)]
            )
            positives.append(np.sort(found[found != own]))
        return metrics.Lists.of(positives)

    def parts(self) -> list["Space"]:
        """The spaces that are measured by themselves: one a domain or super-class of the queries; the space itself
        where it has neither.

        The queries of a domain search in the whole reference, or, where super-classes are given, in that of their own.
        """
        whole = self.whole()
        found = []
        apart = "parents" if self.domains is None else "domains"
        if getattr(self, apart) is None:
            return [self]
        own = getattr(self, apart)
        pooled = getattr(whole, apart)
        for one in np.unique(pooled).tolist():  # each is a space of its own, searched and clustered by itself
            rows = np.flatnonzero(own == one)
            inside = np.flatnonzero(pooled == one)
            part = Space(None, None)
            if len(rows):
                searches_all = self.parents is None
                part = self.part(
                    rows,
                    np.arange(len(self.gallery()[1]))
                    if searches_all
                    else np.flatnonzero(self.gallery_parents() == self.parents[rows[0]]),
                )
            pool = None if self.pool is None else Space(whole.features[inside], whole.labels[inside])
            found.append(part._replace(domain=None if self.domains is None else one, pool=pool))
        return found
