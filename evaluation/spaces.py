"""What is compared with what: the queries of a split, the reference in which they search, and the labels that judge both."""

from typing import NamedTuple

import numpy as np

import metrics
from evaluation import galleries
from evaluation.galleries import taken
from utilities.errors import UserError
from utilities.evaltypes import BARE as BARE
from utilities.evaltypes import of_type
from utilities.hyperbolic import Ball

SELF, COMBINED, TRAINING = "compared_to_self", "compared_to_sets_combined", "compared_to_training_set"
INSIDE_PARENTS = "same_parent_label"
LEVELS = ("class_names", "super_labels")  # a data set's names of each --label_hierarchy_level


class Space(NamedTuple):
    """Queries and what they search in. `exclude` `(N,)`: index of each query in the reference, -1 where it is not there.

    `query_sequences` `(N,)`, `reference_sequences` `(M,)`: sequences, whose images never find each other. `groups` `(N,)`: the queries'
    super-classes, for metrics that compare these. `pool`: the space that class-wise numbers are of, where that is not the queries'. A
    super-class whose images are all gallery has a pool alone: `features` is None.
    """

    features: np.ndarray | None
    labels: np.ndarray | None
    reference: np.ndarray | None = None
    reference_labels: np.ndarray | None = None
    exclude: np.ndarray | None = None
    query_sequences: np.ndarray | None = None
    reference_sequences: np.ndarray | None = None
    pool: "Space | None" = None
    groups: np.ndarray | None = None

    def arguments(self) -> dict:
        """Those of `metrics.compute` and `metrics.EmbeddingSpace`."""
        return {name: value for name, value in self._asdict().items() if name != "pool"}

    def compute(self, names: list[str], **about) -> dict:
        """`metrics.compute`: neighbours are those of the queries, class-wise numbers the pool's."""
        if self.pool is None:
            return metrics.compute(names, **self.arguments(), **about)
        of_queries = [name for name in names if metrics.searches(name)]
        found = dict.fromkeys(of_queries, float("nan"))
        if of_queries and self.features is not None:
            found = metrics.compute(of_queries, **self.arguments(), **about)
        of_classes = [name for name in names if name not in found]
        found |= metrics.compute(of_classes, **self.pool.arguments(), **about) if of_classes else {}
        return {name: found[name] for name in names}

    def gallery(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the queries search in: features `(M, D)`, labels `(M,)`, and the index `(N,)` of each query in them, -1 for none."""
        if self.reference is None:
            return self.features, self.labels, np.arange(len(self.features))
        return self.reference, self.reference_labels, self.exclude

    def sequences(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Those of the queries and of what they search in."""
        return self.query_sequences, self.query_sequences if self.reference is None else self.reference_sequences

    def findable(self) -> tuple[np.ndarray, np.ndarray]:
        """See `findable`."""
        return findable(self.labels, *self.gallery()[1:], self.sequences())

    def part(self, rows: np.ndarray, kept: np.ndarray) -> "Space":
        """The queries `rows` in the part `kept` of what they search in, both ascending indices."""
        reference, reference_labels, exclude = self.gallery()
        of_reference = self.sequences()[1]
        places = np.full(len(reference) + 1, -1)  # one more, for queries that are not in the reference: index -1
        places[kept] = np.arange(len(kept))
        sequences = taken(self.query_sequences, rows), taken(of_reference, kept)
        found = Space(self.features[rows], self.labels[rows], reference[kept], reference_labels[kept], places[exclude[rows]], *sequences)
        return found._replace(groups=taken(self.groups, rows))


class Plan(NamedTuple):
    """Who of a split searches where, before there are features.

    labels `(N,)`: of the queries, and `exclude`, `query_sequences` as in `Space`. reference_labels `(M,)`, reference_sequences: of what they
    search in; None: of themselves. names: label -> name, None where the data set knows none. sources: the splits whose images, one after
    the other, are the reference. parents `(N,)`, reference_parents `(M,)`: super-classes, inside which alone is searched; None where
    everywhere is. rows `(N,)`: which of the split's images the queries are, and kept: of each source which are the reference; None: all.
    pool `(P,)`: the split's images that class-wise numbers are of, with pool_labels and pool_parents; None: the queries.
    """

    labels: np.ndarray
    reference_labels: np.ndarray | None
    exclude: np.ndarray | None
    query_sequences: np.ndarray | None
    reference_sequences: np.ndarray | None
    names: dict | None
    sources: list[str]
    parents: np.ndarray | None
    reference_parents: np.ndarray | None
    rows: np.ndarray | None
    kept: list
    pool: np.ndarray | None
    pool_labels: np.ndarray | None
    pool_parents: np.ndarray | None

    def space(self, rows: np.ndarray, reference: np.ndarray | None) -> Space:
        """The space of the split's features `rows` `(N', D)` in the features `reference` `(M, D)`, the images of `kept`."""
        own = self.reference_labels is None
        pool = None if self.pool is None else Space(rows[self.pool], self.pool_labels)
        sequences = self.query_sequences, self.reference_sequences
        return Space(taken(rows, self.rows), self.labels, None if own else reference, self.reference_labels, self.exclude, *sequences, pool)

    def findable(self) -> tuple[np.ndarray, np.ndarray]:
        """See `findable`."""
        reference = self.labels if self.reference_labels is None else self.reference_labels
        exclude = np.arange(len(self.labels)) if self.reference_labels is None else self.exclude
        of_reference = self.query_sequences if self.reference_labels is None else self.reference_sequences
        return findable(self.labels, reference, exclude, (self.query_sequences, of_reference), self.parents, self.reference_parents)


class Compared(NamedTuple):
    """A split and what it is compared with, not yet cut into super-classes. The other fields are those of `Plan`."""

    space: Space
    names: dict | None
    sources: list[str]
    parents: np.ndarray | None = None
    reference_parents: np.ndarray | None = None
    rows: np.ndarray | None = None
    kept: list | None = None
    pool: np.ndarray | None = None
    pool_parents: np.ndarray | None = None
    ball: Ball | None = None  # in which distances are measured; None: Euclidean ones

    def whole(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Features, labels and super-classes of the images that class-wise numbers are of."""
        if self.space.pool is None:
            return self.space.features, self.space.labels, self.parents
        return self.space.pool.features, self.space.pool.labels, self.pool_parents


def findable(labels, reference_labels, exclude, sequences, parents=None, reference_parents=None) -> tuple[np.ndarray, np.ndarray]:
    """`(N,)` images of its class, and images at all, that each query can find; with `parents` in its super-class. See `metrics.findable`."""
    if parents is None:
        return metrics.findable(labels, reference_labels, exclude, *sequences)
    apart = max(labels.max(), reference_labels.max()) + 1  # a class in two super-classes counts as two
    inside = labels + apart * parents, reference_labels + apart * reference_parents
    return metrics.findable(*inside, exclude, *sequences)[0], metrics.findable(parents, reference_parents, exclude, *sequences)[0]


def scored(splits, opt) -> list[str]:
    """The splits to measure: all, but the training images only where --splits_to_eval names them; else they are a reference."""
    return [split for split in splits if split != "train" or "train" in opt.splits_to_eval]


def check(datasets: dict, opt) -> None:
    """Refuse, before anything is trained, what the splits' data sets cannot satisfy; say where no query can find its class.

    Raises UserError for a level without names, or a super-class with nothing to search in.
    """
    measured = scored(datasets, opt)
    deepest = opt.label_hierarchy_level + (opt.tester == INSIDE_PARENTS)
    flag = "--tester same_parent_label" if opt.tester == INSIDE_PARENTS else f"--label_hierarchy_level {opt.label_hierarchy_level}"
    for dataset in datasets.values():
        if deepest and None in names_at(dataset, deepest).values():
            those = "online_products, glyphs and a folder X/<super>/<class>/ do"
            raise UserError(f"{flag}: --dataset {dataset.name} knows no super-classes; {those}")
    galleries.check(datasets, measured)
    if opt.tester == INSIDE_PARENTS:
        for split in measured:
            found = set().union(*(_names_of(datasets[source], deepest, "gallery") for source in sources_of(split, measured, opt)))
            alone = _names_of(datasets[split], deepest, "queries") - found
            if alone:
                reference = f"--eval_reference_set {opt.eval_reference_set}"
                raise UserError(f"{flag}: the super-class {min(alone)!r} of {split} has no image in the reference, {reference}")
    _check_groups(datasets, measured, opt)
    if opt.eval_reference_set == TRAINING:
        found = _names_of(datasets["train"], opt.label_hierarchy_level, "gallery")
        for split in measured:
            if found.isdisjoint(_names_of(datasets[split], opt.label_hierarchy_level, "queries")):
                print(f"--eval_reference_set {TRAINING}: no query of {split} has a counterpart in the reference, it can find nothing")


def _names_of(dataset, level: int, role: str) -> set:
    """The names at a level of a data set's `queries` or `gallery`."""
    table, rows = names_at(dataset, level), getattr(galleries.of(dataset, len(dataset)), role)
    return set(table.values()) if rows is None else {table[dataset.image_list[row][1]] for row in rows.tolist()}


def roles(images: dict, opt) -> dict[str, str]:
    """Split -> in words who of it asks, who is found and what class-wise numbers are of; of the splits to measure where that is to be said.

    `images`: split -> `galleries.Images` or `evaluation.Embedded`.
    """
    of_all, found = galleries.of_all(images), {}
    if not any(one.differ or one.sequences is not None for one in of_all.values()):
        return found
    for split, plan in plans(images, opt).items():
        one = of_all[split]
        if split in scored(images, opt) and (one.differ or one.sequences is not None or any(kept is not None for kept in plan.kept)):
            where = "its gallery" if plan.sources == [split] else f"the gallery of {', '.join(plan.sources)}"
            one = one._replace(draws=max(of_all[name].draws for name in {split, *plan.sources}))
            searched = len(plan.labels if plan.reference_labels is None else plan.reference_labels)
            found[split] = galleries.described(one, searched, where, int((plan.findable()[0] == 0).sum()))
    return {split: text for split, text in found.items() if text}


def _grouping(opt) -> str | None:
    """The first of `--evaluation_metrics` that compares super-classes."""
    return next((name for name in getattr(opt, "evaluation_metrics", ()) if metrics.needs_groups(name)), None)


def _check_groups(datasets: dict, measured: list[str], opt) -> None:
    """Refuse a metric that compares super-classes where there are no two of them to compare."""
    name = _grouping(opt)
    if name is None:
        return
    if opt.label_hierarchy_level or opt.tester == INSIDE_PARENTS:
        flag = "--tester same_parent_label" if opt.tester == INSIDE_PARENTS else f"--label_hierarchy_level {opt.label_hierarchy_level}"
        raise UserError(
            f"--evaluation_metrics {name} compares the super-classes in which classes are searched everywhere: leave out {flag}"
        )
    for split in measured:
        there = set(names_at(datasets[split], 1).values())
        if len(there) < 2 or None in there:
            found = "no super-classes" if None in there else f"the super-class {min(there)!r} alone"
            raise UserError(
                f"--evaluation_metrics {name}: {split} of --dataset {datasets[split].name} has {found}; a gap is between two or more: leave it out"
            )


def check_components(components: int | None, size: int, width: int) -> None:
    """Raise UserError for an `--eval_pca` that a reference of `size` x `width` does not have."""
    if components is not None and components > min(size, width):
        raise UserError(f"--eval_pca {components}: at most {min(size, width)}: the reference is {size} x {width}")


def reference_sizes(sizes: dict, opt) -> set[int]:
    """How many samples each of the references has. `sizes`: split -> how many it has, of all that are embedded."""
    measured = scored(sizes, opt)
    return {sum(sizes[source] for source in sources_of(split, measured, opt)) for split in measured}


def build(embedded: dict, evaltype: str, opt) -> dict[str, list[Space]]:
    """The spaces that each of the splits `scored` is measured in: one, or with `--tester same_parent_label` one a super-class."""
    compared = compare(embedded, evaltype, opt)
    return {split: _inside_parents(compared[split]) for split in scored(embedded, opt)}


def compare(embedded: dict, evaltype: str, opt) -> dict[str, Compared]:
    """What each split is compared with, as --eval_reference_set, --eval_pca, --label_hierarchy_level and --tester ask.

    Args:
        embedded: split -> `evaluation.Embedded`, of the splits `scored` and of those that only serve as reference.
        evaltype: which embedding; see `of_type`.
    """
    rows, references, ball = projected(embedded, evaltype, opt), {}, metrics.ball(opt)
    compared, groups = {}, _codes(embedded, 1, opt)[0] if _grouping(opt) else {}
    for split, plan in plans(embedded, opt).items():
        key = tuple(plan.sources)
        if plan.reference_labels is not None and key not in references:  # one array for all that search in it
            references[key] = _joined([taken(rows[source], kept) for source, kept in zip(plan.sources, plan.kept, strict=True)])
        about = plan.names, plan.sources, plan.parents, plan.reference_parents, plan.rows, plan.kept, plan.pool, plan.pool_parents
        space = plan.space(rows[split], references.get(key))._replace(groups=taken(groups.get(split), plan.rows))
        compared[split] = Compared(space, *about, ball)
    return compared


def plans(images: dict, opt) -> dict[str, Plan]:
    """Split -> who of it searches where. `images`: split -> anything with `labels` and `dataset`, of all splits that are embedded.

    Raises UserError where the training images are the reference and are not there, or the data set lacks what is compared by.
    """
    level, measured = opt.label_hierarchy_level, scored(images, opt)
    labels, names = _codes(images, level, opt)
    parents = _codes(images, level + 1, opt)[0] if opt.tester == INSIDE_PARENTS else dict.fromkeys(images)
    of_all = galleries.of_all(images)
    sequences, found = galleries.numbers(of_all), {}
    for split in images:
        own, sources = of_all[split], sources_of(split, measured, opt)
        _there(sources, images, opt)
        kept = [of_all[source].gallery for source in sources]
        by_images = [labels, sequences, parents]
        queries = [taken(values[split], own.queries) for values in by_images]
        if opt.eval_reference_set == SELF and not own.differ:
            reference, exclude = [None, None, queries[2]], None
        else:
            parts = [[taken(values[source], rows) for source, rows in zip(sources, kept, strict=True)] for values in by_images]
            reference = [None if part[0] is None else _joined(part) for part in parts]
            exclude = taken(_places(split, sources, kept, [len(part) for part in parts[0]], own.size), own.queries)
        found[split] = Plan(
            labels=queries[0], reference_labels=reference[0], exclude=exclude, query_sequences=queries[1], reference_sequences=reference[1],
            names=names[split], sources=sources, parents=queries[2], reference_parents=reference[2], rows=own.queries, kept=kept,
            pool=own.pool, pool_labels=taken(labels[split], own.pool), pool_parents=taken(parents[split], own.pool),
        )  # fmt: skip
    return found


def _places(split: str, sources: list[str], kept: list, sizes: list[int], size: int) -> np.ndarray:
    """Index `(N,)` of each of a split's images in the reference that the `sources` make, -1 where it is not there."""
    if split not in sources:
        return np.full(size, -1)
    number = sources.index(split)
    places = np.full(size, -1)
    places[slice(None) if kept[number] is None else kept[number]] = sum(sizes[:number]) + np.arange(sizes[number])
    return places


def projected(embedded: dict, evaltype: str, opt) -> dict[str, np.ndarray]:
    """Split -> features `(N', D)` of all its images as they are measured: their principal components, where --eval_pca asks for them."""
    features = {split: of_type(e.features, evaltype) for split, e in embedded.items()}
    if opt.eval_pca is None:
        return features
    of_all = galleries.of_all(embedded)
    found = {split: taken(rows, of_all[split].gallery) for split, rows in features.items()}
    if opt.eval_reference_set == SELF:
        return {split: _projection(found[split], opt.eval_pca)(rows) for split, rows in features.items()}
    sources = sources_of(None, scored(embedded, opt), opt)
    _there(sources, embedded, opt)
    project = _projection(_joined([found[source] for source in sources]), opt.eval_pca)
    return {split: project(rows) for split, rows in features.items()}


def _there(sources: list[str], images: dict, opt) -> None:
    if not set(sources) <= set(images):
        raise UserError(f"--eval_reference_set {opt.eval_reference_set}: the training images were not embedded")


def sources_of(split: str | None, scored: list[str], opt) -> list[str]:
    """The splits that together are the reference of `split`."""
    return {SELF: [split], COMBINED: scored, TRAINING: ["train"]}[opt.eval_reference_set]


def _joined(arrays: list) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def names_at(dataset, level: int) -> dict:
    """Label -> name at a level."""
    table = getattr(dataset, LEVELS[level], None)
    if table is None:
        raise UserError(f"the data set has no {LEVELS[level]}, by which --eval_reference_set, --tester or --label_hierarchy_level compare")
    return table


def _codes(embedded: dict, level: int, opt) -> tuple[dict[str, np.ndarray], dict[str, dict | None]]:
    """split -> `(N,)` labels at a level of the hierarchy, and split -> their names, label -> name.

    A name has the same number in all splits, whose own labels all begin at 0; but where each is alone and by classes, its own is kept.
    """
    if level == 0 and opt.eval_reference_set == SELF:
        names = {split: getattr(e.dataset, LEVELS[0], None) for split, e in embedded.items()}
        return {split: e.labels for split, e in embedded.items()}, names
    tables = {split: names_at(e.dataset, level) for split, e in embedded.items()}
    numbers = {name: number for number, name in enumerate(sorted({str(n) for table in tables.values() for n in table.values()}))}
    codes = {}
    for split, e in embedded.items():
        table = {label: numbers[str(name)] for label, name in tables[split].items()}
        lookup = np.array([table.get(label, -1) for label in range(max(table) + 1)])  # names are Python strings: looked up one by one
        codes[split] = lookup[e.labels]
    return codes, dict.fromkeys(embedded, {number: name for name, number in numbers.items()})


def _inside_parents(compared: Compared) -> list[Space]:
    """The parts of a space that hold one super-class each, its queries and its reference; the whole where there are no super-classes."""
    space = compared.space
    if compared.parents is None:
        return [space]
    whole, parts = compared.parents if space.pool is None else compared.pool_parents, []
    for parent in np.unique(whole):  # each is a space of its own, searched and clustered by itself
        rows = np.flatnonzero(compared.parents == parent)
        if space.pool is not None:
            inside = np.flatnonzero(whole == parent)
            pool = Space(space.pool.features[inside], space.pool.labels[inside])
            kept = np.flatnonzero(compared.reference_parents == parent)
            parts.append((space.part(rows, kept) if len(rows) else Space(None, None))._replace(pool=pool))
        elif space.reference is None:
            parts.append(Space(space.features[rows], space.labels[rows], query_sequences=taken(space.query_sequences, rows)))
        else:
            parts.append(space.part(rows, np.flatnonzero(compared.reference_parents == parent)))
    return parts


def _projection(reference: np.ndarray, components: int | None):
    """What takes features to the first principal components of `reference`, as they are where none are asked for.

    The components are centred and neither whitened nor brought to unit length: c_ metrics normalise them.
    """
    if components is None:
        return lambda features: features
    check_components(components, *reference.shape)
    from sklearn.decomposition import PCA

    solver = "covariance_eigh" if len(reference) >= reference.shape[1] else "full"  # both exact; the first is fast on many rows
    pca = PCA(components, svd_solver=solver).fit(reference.astype(np.float64))
    mean, directions = pca.mean_.astype(np.float32), pca.components_.T.astype(np.float32)  # (D,), (D, components)
    return lambda features: (features - mean) @ directions
