"""The spaces of an evaluation: what each split is compared with, as --eval_reference_set, --tester and
--label_hierarchy_level ask.

One space: space.py. Flags that the data cannot serve: checks.py.
"""

from typing import NamedTuple

import numpy as np

import metrics
from evaluation import galleries, relevance, whitening
from evaluation.galleries import taken
from evaluation.space import Space
from utilities.errors import NotFinite, UserError
from utilities.evaltypes import of_type
from utilities.hyperbolic import Ball
from utilities.levels import n_levels

SELF = "compared_to_self"
COMBINED = "compared_to_sets_combined"
TRAINING = "compared_to_training_set"
INSIDE_PARENTS = "same_parent_label"
LEVELS = ("class_names", "super_labels")  # where a data set keeps its names at each --label_hierarchy_level
OF_SEARCH = {
    "eval_reference_set": SELF,
    "tester": "global",
    "label_hierarchy_level": 0,
    "eval_relevance": None,
}  # flags of an evaluation -> their plain values
OF_EMBEDDINGS = {
    "eval_pca": None,
    "eval_no_normalize": False,
    "eval_use_trunk_output": False,
    "eval_scales": [1],
    "eval_whiten": None,
}
OF_DISTANCES = {"eval_space": "euclidean", "rerank": None}


class Compared(NamedTuple):
    """A split and its reference, not yet split into super-classes.

    names: label -> name, None where the data set knows none. sources: the splits whose images, one after the other, are
    the reference. rows `(N,)`: the split's images that are queries; None: all. kept: for each source, its images that
    are in the reference; None: all.
    pool: the split's images of class-wise numbers; None where these are the queries.
    """

    space: Space
    names: dict | None
    sources: list[str]
    rows: np.ndarray | None = None
    kept: list | None = None
    pool: np.ndarray | None = None
    ball: Ball | None = None  # in which distances are measured; None: Euclidean ones


def asked(flags: dict, plain: dict) -> list[str]:
    """The flags of `plain` with another value in `flags`, in words; those that `flags` lacks are plain."""
    given = {name: flags.get(name, value) for name, value in plain.items()}
    return [
        f"--{name}" if value is True else f"--{name} {value}" for name, value in given.items() if value != plain[name]
    ]


def build(embedded: dict, evaltype: str, opt) -> dict[str, list[Space]]:
    """Split -> its spaces, for the splits `scored`: one, or one for each domain, or with `--tester same_parent_label`
    for each super-class.
    """
    compared = compare(embedded, evaltype, opt)
    return {split: compared[split].space.parts() for split in scored(embedded, opt)}


def compare(embedded: dict, evaltype: str, opt) -> dict[str, Compared]:
    """Split -> what it is compared with, as --eval_reference_set, --eval_pca, --label_hierarchy_level and --tester ask.

    Args:
        embedded: split -> `evaluation.Embedded`, of the splits `scored` and of those that only serve as reference.
        evaltype: which embedding; see `of_type`.
    """
    features = projected(embedded, evaltype, opt)
    references = {}
    ball = metrics.ball(opt)
    compared = {}
    groups = _codes(embedded, 1, opt)[0] if grouping(opt) else {}
    for split, plan in plans(embedded, opt).items():
        key = tuple(plan.sources)
        if plan.space.reference_labels is not None and key not in references:  # shared by all splits that search it
            references[key] = _joined(
                [taken(features[source], kept) for source, kept in zip(plan.sources, plan.kept, strict=True)]
            )
        space = plan.space._replace(
            features=taken(features[split], plan.rows),
            reference=references.get(key),
            groups=taken(groups.get(split), plan.rows),
        )
        if space.pool is not None:
            space = space._replace(pool=space.pool._replace(features=features[split][plan.pool]))
        compared[split] = plan._replace(space=space, ball=ball)
    return compared


def plans(images: dict, opt) -> dict[str, Compared]:
    """Split -> its queries and reference, in a space without features yet. `images`: split -> anything with `labels`
    and `dataset`.

    Raises UserError where the training images are the reference but missing, or the data set lacks the names that are
    compared.
    """
    level = opt.label_hierarchy_level
    measured = scored(images, opt)
    labels, names = _codes(images, level, opt)
    parents = _codes(images, level + 1, opt)[0] if opt.tester == INSIDE_PARENTS else dict.fromkeys(images)
    of_all = galleries.roles_of_all(images)
    above = _above(images, opt) if comparing_levels(opt) else dict.fromkeys(images)
    domains = {split: domains_of(one) for split, one in images.items()}
    by_images = (labels, galleries.numbers(of_all), parents, above)
    found = {}
    for split, own in of_all.items():
        sources = sources_of(split, measured, opt)
        _refuse_missing(sources, images, opt)
        kept = [of_all[source].gallery for source in sources]
        its_labels, its_sequences, its_parents, its_above = (taken(values[split], own.queries) for values in by_images)
        space = Space(
            None,
            its_labels,
            query_sequences=its_sequences,
            lists=_lists(own, opt),
            above=its_above,
            parents=its_parents,
            reference_parents=its_parents,
            domains=taken(domains[split], own.queries),
            further=_further(images[split].dataset, own),
        )
        if opt.eval_reference_set != SELF or own.differ:
            rows = {
                source: np.arange(own.size) if source == split else np.full(of_all[source].size, -1)
                for source in sources
            }
            joined = [
                _joined([taken(values[source], which) for source, which in zip(sources, kept, strict=True)])
                for values in (*by_images, rows)
            ]
            exclude = taken(galleries.places_in(joined.pop(), own.size)[:-1], own.queries)
            reference = dict(
                zip(
                    ("reference_labels", "reference_sequences", "reference_parents", "reference_above"),
                    joined,
                    strict=True,
                )
            )
            space = space._replace(exclude=exclude, **reference)
        if own.pool is not None:
            space = space._replace(
                pool=Space(
                    None,
                    labels[split][own.pool],
                    parents=taken(parents[split], own.pool),
                    domains=taken(domains[split], own.pool),
                )
            )
        found[split] = Compared(space, names[split], sources, own.queries, kept, own.pool)
    return found


def scored(splits, opt) -> list[str]:
    """The splits to measure: all but training, unless --splits_to_eval names it; otherwise training is only a
    reference.
    """
    return [split for split in splits if split != "train" or "train" in opt.splits_to_eval]


def sources_of(split: str, scored: list[str], opt) -> list[str]:
    """The splits that together are the reference of `split`."""
    return {SELF: [split], COMBINED: scored, TRAINING: ["train"]}[opt.eval_reference_set]


def reference_sizes(sizes: dict, opt) -> set[int]:
    """The sizes of the references. `sizes`: embedded split -> how many of its samples can be in a reference."""
    measured = scored(sizes, opt)
    return {sum(sizes[source] for source in sources_of(split, measured, opt)) for split in measured}


def roles(images: dict, opt) -> dict[str, str]:
    """Split -> one line: its queries, its gallery, the images of class-wise numbers; of the measured splits with roles
    or sequences.

    `images`: split -> `galleries.Images` or `evaluation.Embedded`.
    """
    of_all = galleries.roles_of_all(images)
    found = {}
    skips = bool(getattr(opt, "eval_skip_unmatched", None))
    if not skips and not any(one.restrict for one in of_all.values()) and getattr(opt, "eval_relevance", None) is None:
        return found
    for split, plan in plans(images, opt).items():
        one = of_all[split]
        if split in scored(images, opt) and (
            skips or one.restrict or plan.space.lists is not None or any(kept is not None for kept in plan.kept)
        ):
            where = "its gallery" if plan.sources == [split] else f"the gallery of {', '.join(plan.sources)}"
            one = one._replace(draws=max(of_all[name].draws for name in {split, *plan.sources}))
            searched = len(plan.space.gallery()[1])
            if plan.space.lists is not None:
                found[split] = galleries.lists_in_words(plan.space.lists, searched)
                continue
            found[split] = galleries.described(one, searched, where, int((plan.space.findable()[0] == 0).sum()), skips)
    return {split: text for split, text in found.items() if text}


def projected(embedded: dict, evaltype: str, opt) -> dict[str, np.ndarray]:
    """Split -> features `(N', D)` of all its images as they are measured: under --eval_pca and --eval_whiten projected.

    Raises UserError for impossible dimensions, and where whitening is to be fitted on training images that there are
    not.
    """
    features = {split: of_type(e.features, evaltype) for split, e in embedded.items()}
    if opt.eval_pca is None and getattr(opt, "eval_whiten", None) is None:
        return features
    training = (features["train"], embedded["train"].labels) if "train" in embedded else None
    of_all = galleries.roles_of_all(embedded)
    projections = {}
    found = {}
    for split, rows in features.items():
        sources = sources_of(split, scored(embedded, opt), opt)
        _refuse_missing(sources, embedded, opt)
        key = tuple(sources)
        if key not in projections:
            reference = _joined([taken(features[source], of_all[source].gallery) for source in sources])
            projections[key] = (
                whitening.of_flags(opt, training, reference)
                if opt.eval_pca is None
                else _projection(reference, opt.eval_pca)
            )
        found[split] = projections[key](rows)
    return found


def _refuse_missing(sources: list[str], images: dict, opt) -> None:
    if not set(sources) <= set(images):
        raise UserError(f"--eval_reference_set {opt.eval_reference_set}: the training images were not embedded")


def _projection(reference: np.ndarray, components: int):
    """A function that projects features on the first principal components of `reference`.

    The components are centred and neither whitened nor brought to unit length: c_ metrics normalise them.
    """
    check_components(components, *reference.shape)
    from sklearn.decomposition import PCA

    solver = (
        "covariance_eigh" if len(reference) >= reference.shape[1] else "full"
    )  # both exact; the first is fast on many rows
    try:
        pca = PCA(components, svd_solver=solver).fit(reference.astype(np.float64))
    except ValueError as error:
        if np.isfinite(reference).all():
            raise
        raise NotFinite(
            f"--eval_pca {components}: the reference holds NaN or infinity, so no metric can be computed"
        ) from error
    # (D,), (D, components)
    mean = pca.mean_.astype(np.float32)
    directions = pca.components_.T.astype(np.float32)
    return lambda features: (features - mean) @ directions


def check_components(components: int | None, size: int, width: int) -> None:
    """Raise UserError for an `--eval_pca` of more components than a reference of `size` x `width` has."""
    if components is not None and components > min(size, width):
        raise UserError(f"--eval_pca {components}: at most {min(size, width)}: the reference is {size} x {width}")


def _lists(own: galleries.Roles, opt) -> dict[str, metrics.Lists] | None:
    """Protocol -> what the queries of a split are to find: by --eval_relevance, else by its own lists; None where it
    has none.
    """
    if getattr(opt, "eval_relevance", None) is None:
        return own.listed()
    queries, gallery = (taken(np.arange(own.size), rows) for rows in (own.queries, own.gallery))
    return {"": relevance.lists(opt.eval_relevance, queries, gallery, galleries.places_in(gallery, own.size)[queries])}


def _further(dataset, own: galleries.Roles) -> dict[int, list[int]]:
    """Query, numbered among the queries, -> labels of its further classes."""
    further = getattr(dataset, "further_labels", None) or {}
    places = galleries.places_in(taken(np.arange(own.size), own.queries), own.size)
    return {int(places[row]): labels for row, labels in further.items() if places[row] >= 0}


def domains_of(images) -> np.ndarray | None:
    """`(N,)` names of the images' domains, "" for a distractor; None where results do not come one a domain."""
    if not getattr(images.dataset, "by_domain", False):
        return None
    names = {**images.dataset.super_labels, -1: ""}
    return np.array([names[label] for label in images.labels.tolist()])


def names_at(dataset, level: int) -> dict:
    """Label -> name at a level."""
    if level >= len(LEVELS):
        of_class = {names[0]: names[level] for names in dataset.lineages}
        return {label: of_class[name] for label, name in dataset.class_names.items() if name in of_class}
    table = getattr(dataset, LEVELS[level], None)
    if table is None:
        raise UserError(
            f"the data set has no {LEVELS[level]}, by which --eval_reference_set, --tester or "
            "--label_hierarchy_level compare"
        )
    return table


def _codes(embedded: dict, level: int, opt) -> tuple[dict[str, np.ndarray], dict[str, dict | None]]:
    """Split -> `(N,)` labels at a level of the hierarchy, and split -> their names, label -> name.

    A name has the same number in all splits. Where each split is compared with itself, by classes, its own labels are
    kept.
    """
    if level == 0 and opt.eval_reference_set == SELF:
        names = {split: getattr(e.dataset, LEVELS[0], None) for split, e in embedded.items()}
        return {split: e.labels for split, e in embedded.items()}, names
    tables = {split: names_at(e.dataset, level) for split, e in embedded.items()}
    numbers = {
        name: number
        for number, name in enumerate(sorted({str(n) for table in tables.values() for n in table.values()}))
    }
    codes = {}
    for split, e in embedded.items():
        table = {label: numbers[str(name)] for label, name in tables[split].items()}
        lookup = np.array(
            [table.get(label, -1) for label in range(max(table) + 1)]
        )  # one look-up of names a label, not an image
        codes[split] = np.where(e.labels < 0, -1, lookup[e.labels])  # -1: a distractor
    return codes, dict.fromkeys(embedded, {number: name for name, number in numbers.items()})


def _above(images: dict, opt) -> dict[str, np.ndarray]:
    """Split -> labels `(N, L - 1)` of the levels above the classes."""
    levels = [_codes(images, level, opt)[0] for level in range(1, n_levels(next(iter(images.values())).dataset))]
    return {split: np.stack([codes[split] for codes in levels], 1) for split in images}


def _joined(arrays: list) -> np.ndarray | None:
    return arrays[0] if len(arrays) == 1 or arrays[0] is None else np.concatenate(arrays)


def grouping(opt) -> str | None:
    """The first of `--evaluation_metrics` that compares super-classes."""
    return next(filter(metrics.needs_groups, getattr(opt, "evaluation_metrics", ())), None)


def comparing_levels(opt) -> str | None:
    """The first of `--evaluation_metrics` that compares levels."""
    return next(filter(metrics.needs_levels, getattr(opt, "evaluation_metrics", ())), None)
