"""The task of each split of a data set, as --eval_reference_set, --tester,
--label_hierarchy_level and --eval_relevance request.

The images of one or several splits become rows (`_all_rows`), of which a split's queries and the gallery of its
reference are taken. Labels have the same number in all splits that are compared. Flags that the data cannot serve are
refused in checks.py.
"""

from dataclasses import replace

import numpy as np

import metrics
from evaluation import galleries, relevance, whitening
from evaluation.galleries import Roles
from evaluation.task import Embedded, Rows, Task, joined, places_in, take_rows
from utilities.errors import NotFinite, UserError
from utilities.evaltypes import of_type
from utilities.levels import n_levels

SELF = "compared_to_self"
COMBINED = "compared_to_sets_combined"
TRAINING = "compared_to_training_set"
INSIDE_PARENTS = "same_parent_label"
# where a data set keeps its names at each --label_hierarchy_level
LEVELS = ("class_names", "super_labels")
# flags of an evaluation -> their plain values
OF_SEARCH = {"eval_reference_set": SELF, "tester": "global", "label_hierarchy_level": 0, "eval_relevance": None}
OF_EMBEDDINGS = {
    "eval_pca": None,
    "eval_no_normalize": False,
    "eval_use_trunk_output": False,
    "eval_scales": [1],
    "eval_whiten": None,
}
OF_DISTANCES = {"eval_space": "euclidean", "rerank": None, "rerank_dba": None, "rerank_pairs": None}


def changed_flags(flags: dict, plain: dict) -> list[str]:
    """The flags of `plain` that have another value in `flags`, as on a command line;
    those that `flags` lacks are plain.
    """
    changed = []
    for name, plain_value in plain.items():
        value = flags.get(name, plain_value)
        if value == plain_value:
            continue
        text = f"--{name}"
        if value is not True:
            text += f" {value}"
        changed.append(text)
    return changed


def images_of(datasets: dict) -> dict[str, Embedded]:
    """Split -> its labels, nothing embedded yet; of split -> data set with `image_list`."""
    images = {}
    for split, dataset in datasets.items():
        images[split] = Embedded({}, np.array([label for _, label in dataset.image_list]), 0.0, dataset)
    return images


def tasks(images: dict[str, Embedded], opt, evaltype: str | None = None) -> dict[str, Task]:
    """Split -> its task, not yet divided into domains or super-classes.

    Args:
        images: the splits `scored`, and those that only serve as reference.
        evaltype: which embedding, see `of_type`; None: nothing is embedded yet, features are None.

    Raises UserError if the training images are the reference but missing,
    or the data set lacks the names that are compared.
    """
    features = dict.fromkeys(images)
    if evaltype is not None:
        features = projected(images, evaltype, opt)
    measured = scored(images, opt)
    roles = galleries.roles_of_all(images)
    rows = _all_rows(images, features, roles, opt)
    # splits -> their gallery, shared by all splits that search it
    references = {}
    of_splits = {}
    for split in images:
        sources = sources_of(split, measured, opt)
        _refuse_missing(sources, images, opt)
        queries = rows[split].take(roles[split].queries)
        gallery = None
        exclude = None
        if opt.eval_reference_set != SELF or roles[split].differ:
            key = tuple(sources)
            if key not in references:
                references[key] = _reference(sources, rows, roles)
            gallery = references[key]
            exclude = _places_of(split, sources, queries, gallery, roles)
        pool = None
        if roles[split].pool is not None:
            pool = rows[split].take(roles[split].pool)
        further_labels = _further(images[split].dataset, roles[split])
        of_splits[split] = Task(queries, gallery, exclude, _relevance(roles[split], opt), further_labels, pool)
    return of_splits


def _all_rows(images: dict[str, Embedded], features: dict, roles: dict[str, Roles], opt) -> dict[str, Rows]:
    """Split -> the rows of all its images."""
    level = opt.label_hierarchy_level
    labels = _codes(images, level, opt)[0]
    levels = _levels(images, opt) if comparing_levels(opt) else {}
    parents = _codes(images, level + 1, opt)[0] if opt.tester == INSIDE_PARENTS else {}
    groups = _codes(images, 1, opt)[0] if grouping(opt) else {}
    sequences = galleries.numbers(roles)
    rows = {}
    for split, of_split in images.items():
        rows[split] = Rows(
            features[split],
            labels[split],
            levels=levels.get(split),
            sequences=sequences[split],
            groups=groups.get(split),
            parents=parents.get(split),
            domains=domains_of(of_split),
            paths=_paths(of_split, opt),
        )
    return rows


def _paths(images: Embedded, opt) -> np.ndarray | None:
    """`(N,)` image files, where --rerank_pairs scores pairs of them. Raises UserError for a data set without files."""
    if opt.rerank_pairs is None:
        return None
    paths = getattr(images.dataset, "paths", None)
    if paths is None:
        raise UserError(
            f"--rerank_pairs {opt.rerank_pairs}: the images of --dataset {opt.dataset} have no files, whose paths "
            "are scored: leave it out"
        )
    return np.array([str(path) for path in paths], dtype=object)


def _reference(sources: list[str], rows: dict[str, Rows], roles: dict[str, Roles]) -> Rows:
    """The galleries of several splits, one after the other; `ids` count the images of the whole splits through."""
    parts = []
    ids = []
    for source in sources:
        parts.append(rows[source].take(roles[source].gallery))
        ids.append(parts[-1].positions + _first_row(source, sources, roles))
    return replace(joined(parts), ids=np.concatenate(ids))


def _first_row(split: str, sources: list[str], roles: dict[str, Roles]) -> int:
    """The row of a split's first image, where the splits stand one after the other."""
    return sum(roles[source].size for source in sources[: sources.index(split)])


def _places_of(split: str, sources: list[str], queries: Rows, gallery: Rows, roles: dict[str, Roles]) -> np.ndarray:
    """`(N,)` index of each of a split's queries in the gallery of `sources`, -1 where it is not there."""
    if split not in sources:
        return np.full(len(queries), -1)
    places = places_in(gallery.ids, sum(roles[source].size for source in sources))
    return places[queries.positions + _first_row(split, sources, roles)]


def _relevance(roles: Roles, opt) -> dict[str, metrics.Lists] | None:
    """Protocol -> what the queries of a split are to find: by --eval_relevance, else by its own lists;
    None without either.
    """
    if opt.eval_relevance is None:
        return roles.relevance()
    queries = roles.rows("queries")
    gallery = roles.rows("gallery")
    return {"": relevance.lists(opt.eval_relevance, queries, gallery, places_in(gallery, roles.size)[queries])}


def _further(dataset, roles: Roles) -> dict[int, list[int]]:
    """Query, numbered among the queries, -> labels of its further classes."""
    places = places_in(roles.rows("queries"), roles.size)
    of_queries = {}
    for row, labels in (getattr(dataset, "further_labels", None) or {}).items():
        if places[row] >= 0:
            of_queries[int(places[row])] = labels
    return of_queries


def scored(splits, opt) -> list[str]:
    """The splits to measure: all but training, unless --splits_to_eval names it;
    otherwise training is only a reference.
    """
    return [split for split in splits if split != "train" or "train" in opt.splits_to_eval]


def sources_of(split: str, scored: list[str], opt) -> list[str]:
    """The splits that together are the reference of `split`."""
    return {SELF: [split], COMBINED: scored, TRAINING: ["train"]}[opt.eval_reference_set]


def reference_sizes(sizes: dict, opt) -> set[int]:
    """The sizes of the references. `sizes`: embedded split -> how many of its samples can be in a reference."""
    measured = scored(sizes, opt)
    return {sum(sizes[source] for source in sources_of(split, measured, opt)) for split in measured}


def roles(images: dict[str, Embedded], opt) -> dict[str, str]:
    """Split -> one line on its queries, its gallery and the images of class-wise numbers; of the measured splits with
    roles or sequences.
    """
    of_all = galleries.roles_of_all(images)
    skips = bool(opt.eval_skip_unmatched)
    if not skips and opt.eval_relevance is None and not any(of_split.restrict for of_split in of_all.values()):
        return {}
    measured = scored(images, opt)
    of_tasks = tasks(images, opt)
    lines = {}
    for split in measured:
        task = of_tasks[split]
        sources = sources_of(split, measured, opt)
        if task.relevance is not None:
            lines[split] = galleries.lists_described(task)
        elif skips or of_all[split].restrict or any(of_all[source].gallery is not None for source in sources):
            gallery_name = "its gallery"
            if sources != [split]:
                gallery_name = f"the gallery of {', '.join(sources)}"
            draws = max(of_all[name].draws for name in {split, *sources})
            lines[split] = galleries.described(task, of_all[split], gallery_name, skips, draws)
    return {split: line for split, line in lines.items() if line}


def projected(embedded: dict[str, Embedded], evaltype: str, opt) -> dict[str, np.ndarray]:
    """Split -> features `(N, D')` of all its images as they are measured: under --eval_pca and --eval_whiten projected.

    Raises UserError for impossible dimensions, and where whitening is
    to be fitted on training images that are missing.
    """
    features = {split: of_type(of_split.features, evaltype) for split, of_split in embedded.items()}
    if opt.eval_pca is None and opt.eval_whiten is None:
        return features
    training = None
    if "train" in embedded:
        training = (features["train"], embedded["train"].labels)
    roles = galleries.roles_of_all(embedded)
    measured = scored(embedded, opt)
    # splits -> the function that their gallery defines
    projections = {}
    results = {}
    for split, rows in features.items():
        sources = sources_of(split, measured, opt)
        _refuse_missing(sources, embedded, opt)
        key = tuple(sources)
        if key not in projections:
            parts = [take_rows(features[source], roles[source].gallery) for source in sources]
            gallery = parts[0]
            if len(parts) > 1:
                gallery = np.concatenate(parts)
            if opt.eval_pca is None:
                projections[key] = whitening.of_flags(opt, training, gallery)
            else:
                projections[key] = _projection(gallery, opt.eval_pca)
        results[split] = projections[key](rows)
    return results


def _refuse_missing(sources: list[str], images: dict, opt) -> None:
    if not set(sources) <= set(images):
        raise UserError(f"--eval_reference_set {opt.eval_reference_set}: the training images were not embedded")


def _projection(reference: np.ndarray, components: int):
    """A function that projects features on the first principal components of `reference`.

    The components are centred and neither whitened nor brought to unit length: c_ metrics normalise them.
    """
    check_components(components, *reference.shape)
    from sklearn.decomposition import PCA

    # both are exact, the first is fast on many rows
    solver = "covariance_eigh" if len(reference) >= reference.shape[1] else "full"
    try:
        pca = PCA(components, svd_solver=solver).fit(reference.astype(np.float64))
    except ValueError as error:
        if np.isfinite(reference).all():
            raise
        raise NotFinite(
            f"--eval_pca {components}: the reference holds NaN or infinity, so no metric can be computed"
        ) from error
    mean = pca.mean_.astype(np.float32)  # (D,)
    directions = pca.components_.T.astype(np.float32)  # (D, components)
    return lambda features: (features - mean) @ directions


def check_components(components: int | None, size: int, width: int) -> None:
    """Raise UserError for an `--eval_pca` of more components than a reference of `size` x `width` has."""
    if components is not None and components > min(size, width):
        raise UserError(f"--eval_pca {components}: at most {min(size, width)}: the reference is {size} x {width}")


def domains_of(images: Embedded) -> np.ndarray | None:
    """`(N,)` names of the images' domains, "" for a distractor; None if results do not come one per domain."""
    if not getattr(images.dataset, "by_domain", False):
        return None
    names = {**images.dataset.super_labels, -1: ""}
    return np.array([names[label] for label in images.labels.tolist()])


def names_at(dataset, level: int) -> dict:
    """Label -> name at a level."""
    if level >= len(LEVELS):
        of_class = {names[0]: names[level] for names in dataset.lineages}
        names_of = {}
        for label, name in dataset.class_names.items():
            if name in of_class:
                names_of[label] = of_class[name]
        return names_of
    table = getattr(dataset, LEVELS[level], None)
    if table is None:
        raise UserError(
            f"the data set has no {LEVELS[level]}, by which --eval_reference_set, --tester or "
            "--label_hierarchy_level compare"
        )
    return table


def class_names(images: dict[str, Embedded], opt) -> dict[str, dict | None]:
    """Split -> names of the classes that are compared, label -> name; None if the data set has none."""
    return _codes(images, opt.label_hierarchy_level, opt)[1]


def _codes(images: dict[str, Embedded], level: int, opt) -> tuple[dict[str, np.ndarray], dict[str, dict | None]]:
    """Split -> `(N,)` labels at a level of the hierarchy, and split -> their names, label -> name.

    A name has the same number in all splits. If each split is compared with itself,
    by classes, its own labels are used.
    """
    if level == 0 and opt.eval_reference_set == SELF:
        own_labels = {}
        own_names = {}
        for split, of_split in images.items():
            own_labels[split] = of_split.labels
            own_names[split] = getattr(of_split.dataset, LEVELS[0], None)
        return own_labels, own_names
    tables = {split: names_at(of_split.dataset, level) for split, of_split in images.items()}
    all_names = set()
    for table in tables.values():
        all_names |= set(map(str, table.values()))
    names = sorted(all_names)
    numbers = {name: number for number, name in enumerate(names)}
    codes = {}
    for split, of_split in images.items():
        table = {label: numbers[str(name)] for label, name in tables[split].items()}
        by_label = np.array([table.get(label, -1) for label in range(max(table) + 1)])
        # -1: a distractor
        codes[split] = np.where(of_split.labels < 0, -1, by_label[of_split.labels])
    return codes, dict.fromkeys(images, dict(enumerate(names)))


def _levels(images: dict[str, Embedded], opt) -> dict[str, np.ndarray]:
    """Split -> labels `(N, L - 1)` of the levels above the classes."""
    first = next(iter(images.values())).dataset
    codes = [_codes(images, level, opt)[0] for level in range(1, n_levels(first))]
    return {split: np.stack([of_level[split] for of_level in codes], 1) for split in images}


def grouping(opt) -> str | None:
    """The first of `--evaluation_metrics` that compares super-classes."""
    return next(filter(metrics.needs_groups, opt.evaluation_metrics), None)


def comparing_levels(opt) -> str | None:
    """The first of `--evaluation_metrics` that compares levels."""
    return next(filter(metrics.needs_levels, opt.evaluation_metrics), None)
