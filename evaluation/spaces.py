"""The spaces of an evaluation: the queries of a split, the reference that they search, and the labels of both."""

from typing import NamedTuple

import numpy as np

import metrics
from evaluation import galleries, relevance, whitening
from evaluation.galleries import taken
from utilities.errors import NotFinite, UserError
from utilities.evaltypes import BARE as BARE
from utilities.evaltypes import of_type
from utilities.hyperbolic import Ball
from utilities.levels import n_levels, names_of, refuse_unnested

SELF, COMBINED, TRAINING = "compared_to_self", "compared_to_sets_combined", "compared_to_training_set"
INSIDE_PARENTS = "same_parent_label"
LEVELS = ("class_names", "super_labels")  # where a data set keeps its names at each --label_hierarchy_level


class Space(NamedTuple):
    """Queries and the reference that they search.

    features `(N, D)`, labels `(N,)`: of the queries. reference `(M, D)`, reference_labels `(M,)`: of the reference; None: the queries
    search each other. exclude `(N,)`: index of each query in the reference, -1 where it is not there. query_sequences `(N,)`,
    reference_sequences `(M,)`: images of one sequence never find each other. groups `(N,)`: super-classes of the queries, for metrics that
    compare these. above `(N, L - 1)`, reference_above `(M, L - 1)`: labels of the coarser levels, for metrics that compare levels.
    lists: protocol -> positives and junk of each query in the reference, in place of classes and sequences; a protocol "" has no name.
    parents `(N,)`, reference_parents `(M,)`: super-classes; a query searches only its own. pool: the images of class-wise numbers, where
    these are not the queries. domains `(N,)`: names; each domain's queries are measured by themselves. domain: that of all queries.
    further: query -> labels whose images it is to find beside those of its own. Features are None before anything is embedded, and for a super-class whose images are all gallery.
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
        """The arguments of `metrics.compute` and `metrics.EmbeddingSpace`; `levels`: labels `(N, L)` where both sides have such.

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
        of_protocol = {protocol: metrics.compute(of_queries, **self.arguments(protocol, levels), **about) for protocol in self.lists}
        return {f"{protocol}/{name}": value for protocol, of in of_protocol.items() for name, value in of.items()} | {name: found[name] for name in of_classes}

    def whole(self) -> "Space":
        """The space of the images of class-wise numbers."""
        return self if self.pool is None else self.pool

    def gallery(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The reference of the queries: features `(M, D)`, labels `(M,)`, and the index `(N,)` of each query in them, -1 for none."""
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
        return self._with_further_counted(metrics.findable(*classes, *others)[0], metrics.findable(self.parents, self.reference_parents, *others)[0])

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
        """The space of the queries `rows` and the part `kept` of their reference, both ascending indices; with lists that is all of it."""
        whole = len(kept) == len(self.gallery()[1])  # a large reference is not copied
        found = Space(
            self.features[rows], self.labels[rows], query_sequences=taken(self.query_sequences, rows), groups=taken(self.groups, rows),
            lists=self.lists and {protocol: lists.part(rows) for protocol, lists in self.lists.items()},
            above=taken(self.above, rows),
        )  # fmt: skip
        if self.reference_labels is None and np.array_equal(rows, kept):
            return found
        reference, labels, exclude = self.gallery()
        places = galleries.places_in(kept, len(labels))[exclude[rows]]
        reference, labels, sequences, above = (taken(of, None if whole else kept) for of in (reference, labels, self.gallery_sequences(), self.gallery_above()))
        return found._replace(
            reference=reference, reference_labels=labels, exclude=places, reference_sequences=sequences, reference_above=above
        )


class Compared(NamedTuple):
    """A split and its reference, not yet split into super-classes.

    names: label -> name, None where the data set knows none. sources: the splits whose images, one after the other, are the reference.
    rows `(N,)`: the split's images that are queries; None: all. kept: for each source, its images that are in the reference; None: all.
    pool: the split's images of class-wise numbers; None where these are the queries.
    """

    space: Space
    names: dict | None
    sources: list[str]
    rows: np.ndarray | None = None
    kept: list | None = None
    pool: np.ndarray | None = None
    ball: Ball | None = None  # in which distances are measured; None: Euclidean ones


def scored(splits, opt) -> list[str]:
    """The splits to measure: all but training, unless --splits_to_eval names it; otherwise training is only a reference."""
    return [split for split in splits if split != "train" or "train" in opt.splits_to_eval]


def check(datasets: dict, opt) -> None:
    """Raise UserError, before anything is trained, for a level without names or a super-class with nothing to search in.

    Print a line where no query can find its class.
    """
    measured = scored(datasets, opt)
    deepest = opt.label_hierarchy_level + (opt.tester == INSIDE_PARENTS)
    flag = "--tester same_parent_label" if opt.tester == INSIDE_PARENTS else f"--label_hierarchy_level {opt.label_hierarchy_level}"
    for dataset in datasets.values():
        if deepest and None in names_at(dataset, deepest).values():
            those = "online_products, glyphs and a folder X/<super>/<class>/ do"
            raise UserError(f"{flag}: --dataset {dataset.name} knows no super-classes; {those}")
    galleries.check(datasets, measured)
    _check_lists({split: datasets[split] for split in measured}, opt)
    _check_domains({split: datasets[split] for split in measured}, opt)
    if opt.tester == INSIDE_PARENTS:
        for split in measured:
            found = set().union(*(_names_of(datasets[source], deepest, "gallery") for source in sources_of(split, measured, opt)))
            alone = _names_of(datasets[split], deepest, "queries") - found
            if alone:
                reference = f"--eval_reference_set {opt.eval_reference_set}"
                raise UserError(f"{flag}: the super-class {min(alone)!r} of {split} has no image in the reference, {reference}")
    _check_groups(datasets, measured, opt, flag if deepest else None)
    _check_levels(datasets, opt, flag if deepest else None)
    if opt.eval_reference_set == TRAINING:
        found = _names_of(datasets["train"], opt.label_hierarchy_level, "gallery")
        for split in measured:
            if found.isdisjoint(_names_of(datasets[split], opt.label_hierarchy_level, "queries")):
                print(f"--eval_reference_set {TRAINING}: no query of {split} has a counterpart in the reference, it can find nothing")


def _check_lists(datasets: dict, opt) -> None:
    """Raise UserError for flags that do not go with lists of what queries are to find."""
    by_function = getattr(opt, "eval_relevance", None) is not None
    for split, dataset in datasets.items():
        if getattr(dataset, "lists", None) is None and not by_function:
            continue
        if by_function and getattr(dataset, "sequences", None) is not None:
            raise UserError(f"--eval_relevance {opt.eval_relevance}: {split} of --dataset {dataset.name} has sequences, which say too what is found: leave one out")
        for flag, value, needed in (("eval_reference_set", opt.eval_reference_set, SELF), ("tester", opt.tester, "global"), ("label_hierarchy_level", opt.label_hierarchy_level, 0)):
            if value != needed:
                raise UserError(f"--{flag} {value}: lists, or --eval_relevance, say what a query of --dataset {dataset.name} finds, in its own gallery: take {needed}")
        if not dataset.n_classes:
            metrics.refuse_class_wise(opt.evaluation_metrics)


def _check_domains(datasets: dict, opt) -> None:
    """Raise UserError for flags that do not go with results one a domain."""
    for split, dataset in datasets.items():
        if not getattr(dataset, "by_domain", False):
            continue
        of_dataset = f"--dataset {dataset.name} is measured domain by domain"
        if (name := _grouping(opt)) is not None:
            raise UserError(f"--evaluation_metrics {name}: {of_dataset}, and one has a single super-class: leave it out")
        if dataset.further_labels and (name := _comparing_levels(opt)) is not None:
            raise UserError(f"--evaluation_metrics {name}: {of_dataset}, and queries of {split} show several classes, whose levels are not compared: leave it out")
        if opt.tester == INSIDE_PARENTS and "distractors" in dataset.counts:
            raise UserError(f"--tester {INSIDE_PARENTS}: {of_dataset}, and the distractors of {split} are of no domain, so nobody would search them: take global")
        for flag, value, needed in (("eval_relevance", getattr(opt, "eval_relevance", None), None), *(
            (("eval_reference_set", opt.eval_reference_set, SELF), ("label_hierarchy_level", opt.label_hierarchy_level, 0)) if dataset.further_labels else ()
        )):  # fmt: skip
            if value != needed:
                why = f"queries of {split} show several classes" if needed is not None else "its classes say what is found"
                raise UserError(f"--{flag} {value}: {of_dataset}, and {why}: leave it out")


def _names_of(dataset, level: int, role: str) -> set:
    """The names at a level of a data set's `queries` or `gallery`."""
    table, rows = names_at(dataset, level), getattr(galleries.roles_of(dataset, len(dataset)), role)
    return set(table.values()) if rows is None else {table.get(dataset.image_list[row][1]) for row in rows.tolist()}


def roles(images: dict, opt) -> dict[str, str]:
    """Split -> one line: its queries, its gallery, the images of class-wise numbers; of the measured splits with roles or sequences.

    `images`: split -> `galleries.Images` or `evaluation.Embedded`.
    """
    of_all, found, skips = galleries.roles_of_all(images), {}, bool(getattr(opt, "eval_skip_unmatched", None))
    if not skips and not any(one.restrict for one in of_all.values()) and getattr(opt, "eval_relevance", None) is None:
        return found
    for split, plan in plans(images, opt).items():
        one = of_all[split]
        if split in scored(images, opt) and (skips or one.restrict or plan.space.lists is not None or any(kept is not None for kept in plan.kept)):
            where = "its gallery" if plan.sources == [split] else f"the gallery of {', '.join(plan.sources)}"
            one = one._replace(draws=max(of_all[name].draws for name in {split, *plan.sources}))
            searched = len(plan.space.gallery()[1])
            if plan.space.lists is not None:
                found[split] = galleries.lists_in_words(plan.space.lists, searched)
                continue
            found[split] = galleries.described(one, searched, where, int((plan.space.findable()[0] == 0).sum()), skips)
    return {split: text for split, text in found.items() if text}


def _grouping(opt) -> str | None:
    """The first of `--evaluation_metrics` that compares super-classes."""
    return next((name for name in getattr(opt, "evaluation_metrics", ()) if metrics.needs_groups(name)), None)


def _check_groups(datasets: dict, measured: list[str], opt, flag: str | None) -> None:
    """Raise UserError for a metric that compares super-classes where there are not two, or where `flag` uses super-classes already."""
    name = _grouping(opt)
    if name is None:
        return
    if flag is not None:
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


def _comparing_levels(opt) -> str | None:
    """The first of `--evaluation_metrics` that compares levels."""
    return next(filter(metrics.needs_levels, getattr(opt, "evaluation_metrics", ())), None)


def _check_levels(datasets: dict, opt, flag: str | None) -> None:
    """Raise UserError for a metric that compares levels where there are too few, where they do not nest, or where `flag` chooses one."""
    name = _comparing_levels(opt)
    if name is None:
        return
    if flag is not None:
        raise UserError(f"--evaluation_metrics {name} compares levels of classes that are searched everywhere: leave out {flag}")
    for dataset in datasets.values():
        metrics.check_levels(opt.evaluation_metrics, n_levels(dataset), f"the classes of --dataset {dataset.name}")
    refuse_unnested(names_of(datasets.values()), f"--evaluation_metrics {name}: --dataset {next(iter(datasets.values())).name}")


def check_components(components: int | None, size: int, width: int) -> None:
    """Raise UserError for an `--eval_pca` of more components than a reference of `size` x `width` has."""
    if components is not None and components > min(size, width):
        raise UserError(f"--eval_pca {components}: at most {min(size, width)}: the reference is {size} x {width}")


def reference_sizes(sizes: dict, opt) -> set[int]:
    """The sizes of the references. `sizes`: embedded split -> how many of its samples can be in a reference."""
    measured = scored(sizes, opt)
    return {sum(sizes[source] for source in sources_of(split, measured, opt)) for split in measured}


def build(embedded: dict, evaltype: str, opt) -> dict[str, list[Space]]:
    """Split -> its spaces, for the splits `scored`: one, or one for each domain, or with `--tester same_parent_label` for each super-class."""
    compared = compare(embedded, evaltype, opt)
    return {split: parts(compared[split].space) for split in scored(embedded, opt)}


def compare(embedded: dict, evaltype: str, opt) -> dict[str, Compared]:
    """Split -> what it is compared with, as --eval_reference_set, --eval_pca, --label_hierarchy_level and --tester ask.

    Args:
        embedded: split -> `evaluation.Embedded`, of the splits `scored` and of those that only serve as reference.
        evaltype: which embedding; see `of_type`.
    """
    features, references, ball = projected(embedded, evaltype, opt), {}, metrics.ball(opt)
    compared, groups = {}, _codes(embedded, 1, opt)[0] if _grouping(opt) else {}
    for split, plan in plans(embedded, opt).items():
        key = tuple(plan.sources)
        if plan.space.reference_labels is not None and key not in references:  # shared by all splits that search it
            references[key] = _joined([taken(features[source], kept) for source, kept in zip(plan.sources, plan.kept, strict=True)])
        space = plan.space._replace(
            features=taken(features[split], plan.rows), reference=references.get(key), groups=taken(groups.get(split), plan.rows)
        )
        if space.pool is not None:
            space = space._replace(pool=space.pool._replace(features=features[split][plan.pool]))
        compared[split] = plan._replace(space=space, ball=ball)
    return compared


def plans(images: dict, opt) -> dict[str, Compared]:
    """Split -> its queries and reference, in a space without features yet. `images`: split -> anything with `labels` and `dataset`.

    Raises UserError where the training images are the reference but missing, or the data set lacks the names that are compared.
    """
    level, measured = opt.label_hierarchy_level, scored(images, opt)
    labels, names = _codes(images, level, opt)
    parents = _codes(images, level + 1, opt)[0] if opt.tester == INSIDE_PARENTS else dict.fromkeys(images)
    of_all = galleries.roles_of_all(images)
    above = _above(images, opt) if _comparing_levels(opt) else dict.fromkeys(images)
    domains = {split: domains_of(one) for split, one in images.items()}
    by_images, found = (labels, galleries.numbers(of_all), parents, above), {}
    for split, own in of_all.items():
        sources = sources_of(split, measured, opt)
        _refuse_missing(sources, images, opt)
        kept = [of_all[source].gallery for source in sources]
        its_labels, its_sequences, its_parents, its_above = (taken(values[split], own.queries) for values in by_images)
        space = Space(
            None, its_labels, query_sequences=its_sequences, lists=_lists(own, opt), above=its_above, parents=its_parents, reference_parents=its_parents,
            domains=taken(domains[split], own.queries), further=_further(images[split].dataset, own),
        )  # fmt: skip
        if opt.eval_reference_set != SELF or own.differ:
            rows = {source: np.arange(own.size) if source == split else np.full(of_all[source].size, -1) for source in sources}
            joined = [
                _joined([taken(values[source], which) for source, which in zip(sources, kept, strict=True)])
                for values in (*by_images, rows)
            ]
            exclude = taken(galleries.places_in(joined.pop(), own.size)[:-1], own.queries)
            reference = dict(zip(("reference_labels", "reference_sequences", "reference_parents", "reference_above"), joined, strict=True))
            space = space._replace(exclude=exclude, **reference)
        if own.pool is not None:
            space = space._replace(pool=Space(None, labels[split][own.pool], parents=taken(parents[split], own.pool), domains=taken(domains[split], own.pool)))
        found[split] = Compared(space, names[split], sources, own.queries, kept, own.pool)
    return found


def domains_of(images) -> np.ndarray | None:
    """`(N,)` names of the images' domains, "" for a distractor; None where results do not come one a domain."""
    if not getattr(images.dataset, "by_domain", False):
        return None
    names = {**images.dataset.super_labels, -1: ""}
    return np.array([names[label] for label in images.labels.tolist()])


def _further(dataset, own: galleries.Roles) -> dict[int, list[int]]:
    """Query, numbered among the queries, -> labels of its further classes."""
    further = getattr(dataset, "further_labels", None) or {}
    places = galleries.places_in(taken(np.arange(own.size), own.queries), own.size)
    return {int(places[row]): labels for row, labels in further.items() if places[row] >= 0}


def _lists(own: galleries.Roles, opt) -> dict[str, metrics.Lists] | None:
    """Protocol -> what the queries of a split are to find: by --eval_relevance, else by its own lists; None where it has none."""
    if getattr(opt, "eval_relevance", None) is None:
        return own.listed()
    queries, gallery = (taken(np.arange(own.size), rows) for rows in (own.queries, own.gallery))
    return {"": relevance.lists(opt.eval_relevance, queries, gallery, galleries.places_in(gallery, own.size)[queries])}


def projected(embedded: dict, evaltype: str, opt) -> dict[str, np.ndarray]:
    """Split -> features `(N', D)` of all its images as they are measured: under --eval_pca and --eval_whiten projected.

    Raises UserError for impossible dimensions, and where whitening is to be fitted on training images that there are not.
    """
    features = {split: of_type(e.features, evaltype) for split, e in embedded.items()}
    if opt.eval_pca is None and getattr(opt, "eval_whiten", None) is None:
        return features
    training = (features["train"], embedded["train"].labels) if "train" in embedded else None
    of_all, projections, found = galleries.roles_of_all(embedded), {}, {}
    for split, rows in features.items():
        sources = sources_of(split, scored(embedded, opt), opt)
        _refuse_missing(sources, embedded, opt)
        key = tuple(sources)
        if key not in projections:
            reference = _joined([taken(features[source], of_all[source].gallery) for source in sources])
            projections[key] = whitening.of_flags(opt, training, reference) if opt.eval_pca is None else _projection(reference, opt.eval_pca)
        found[split] = projections[key](rows)
    return found


def _refuse_missing(sources: list[str], images: dict, opt) -> None:
    if not set(sources) <= set(images):
        raise UserError(f"--eval_reference_set {opt.eval_reference_set}: the training images were not embedded")


def sources_of(split: str, scored: list[str], opt) -> list[str]:
    """The splits that together are the reference of `split`."""
    return {SELF: [split], COMBINED: scored, TRAINING: ["train"]}[opt.eval_reference_set]


def _joined(arrays: list) -> np.ndarray | None:
    return arrays[0] if len(arrays) == 1 or arrays[0] is None else np.concatenate(arrays)


def names_at(dataset, level: int) -> dict:
    """Label -> name at a level."""
    if level >= len(LEVELS):
        of_class = {names[0]: names[level] for names in dataset.lineages}
        return {label: of_class[name] for label, name in dataset.class_names.items() if name in of_class}
    table = getattr(dataset, LEVELS[level], None)
    if table is None:
        raise UserError(f"the data set has no {LEVELS[level]}, by which --eval_reference_set, --tester or --label_hierarchy_level compare")
    return table


def _codes(embedded: dict, level: int, opt) -> tuple[dict[str, np.ndarray], dict[str, dict | None]]:
    """Split -> `(N,)` labels at a level of the hierarchy, and split -> their names, label -> name.

    A name has the same number in all splits. Where each split is compared with itself, by classes, its own labels are kept.
    """
    if level == 0 and opt.eval_reference_set == SELF:
        names = {split: getattr(e.dataset, LEVELS[0], None) for split, e in embedded.items()}
        return {split: e.labels for split, e in embedded.items()}, names
    tables = {split: names_at(e.dataset, level) for split, e in embedded.items()}
    numbers = {name: number for number, name in enumerate(sorted({str(n) for table in tables.values() for n in table.values()}))}
    codes = {}
    for split, e in embedded.items():
        table = {label: numbers[str(name)] for label, name in tables[split].items()}
        lookup = np.array([table.get(label, -1) for label in range(max(table) + 1)])  # one look-up of names a label, not an image
        codes[split] = np.where(e.labels < 0, -1, lookup[e.labels])  # -1: a distractor
    return codes, dict.fromkeys(embedded, {number: name for name, number in numbers.items()})


def _above(images: dict, opt) -> dict[str, np.ndarray]:
    """Split -> labels `(N, L - 1)` of the levels above the classes."""
    levels = [_codes(images, level, opt)[0] for level in range(1, n_levels(next(iter(images.values())).dataset))]
    return {split: np.stack([codes[split] for codes in levels], 1) for split in images}


def parts(space: Space) -> list[Space]:
    """The spaces that are measured by themselves; the space itself where it is one."""
    return _of_domains(space) if space.domains is not None else [space] if space.parents is None else _inside_parents(space)


def _of_domains(space: Space) -> list[Space]:
    """A space for each domain: its queries, which search in the whole reference, or, where super-classes are given, in that of their own."""
    whole, parts = space.whole(), []
    for domain in np.unique(whole.domains).tolist():
        rows, inside = np.flatnonzero(space.domains == domain), np.flatnonzero(whole.domains == domain)
        if not len(rows):
            part = Space(None, None)
        elif space.parents is None:
            part = space.part(rows, np.arange(len(space.gallery()[1])))
        else:
            part = space.part(rows, np.flatnonzero(space.gallery_parents() == space.parents[rows[0]]))
        pool = None if space.pool is None else Space(whole.features[inside], whole.labels[inside])
        parts.append(with_further(part._replace(domain=domain, pool=pool), space, rows))
    return parts


def with_further(part: Space, space: Space, rows: np.ndarray) -> Space:
    """The part of `space` with lists, where a query among its `rows` is to find the images of several classes."""
    if not space.further or not any(row in space.further for row in rows.tolist()):
        return part
    _, labels, exclude = part.gallery()
    order = np.argsort(labels, kind="stable")
    starts, stops = (np.searchsorted(labels[order], range(labels.max() + 2), side) for side in ("left", "right"))
    positives = []
    for row, own, label in zip(rows.tolist(), exclude.tolist(), part.labels.tolist(), strict=True):
        found = np.concatenate([order[starts[one] : stops[one]] for one in {label, *space.further.get(row, ())} if one < len(starts)])
        positives.append(np.sort(found[found != own]))
    return part._replace(lists={"": metrics.Lists.of(positives)})


def _inside_parents(space: Space) -> list[Space]:
    """A space for each super-class, with its queries and its reference."""
    whole, parts = space.whole(), []
    for parent in np.unique(whole.parents):  # each is a space of its own, searched and clustered by itself
        rows, inside = np.flatnonzero(space.parents == parent), np.flatnonzero(whole.parents == parent)
        part = space.part(rows, np.flatnonzero(space.reference_parents == parent)) if len(rows) else Space(None, None)
        parts.append(part if space.pool is None else part._replace(pool=Space(whole.features[inside], whole.labels[inside])))
    return parts


def _projection(reference: np.ndarray, components: int):
    """A function that projects features on the first principal components of `reference`.

    The components are centred and neither whitened nor brought to unit length: c_ metrics normalise them.
    """
    check_components(components, *reference.shape)
    from sklearn.decomposition import PCA

    solver = "covariance_eigh" if len(reference) >= reference.shape[1] else "full"  # both exact; the first is fast on many rows
    try:
        pca = PCA(components, svd_solver=solver).fit(reference.astype(np.float64))
    except ValueError as error:
        if np.isfinite(reference).all():
            raise
        raise NotFinite(f"--eval_pca {components}: the reference holds NaN or infinity, so no metric can be computed") from error
    mean, directions = pca.mean_.astype(np.float32), pca.components_.T.astype(np.float32)  # (D,), (D, components)
    return lambda features: (features - mean) @ directions
