"""What is compared with what: the queries of a split, the reference in which they search, and the labels that judge both."""

from typing import NamedTuple

import numpy as np

from utilities.errors import UserError
from utilities.evaltypes import BARE as BARE
from utilities.evaltypes import of_type

SELF, COMBINED, TRAINING = "compared_to_self", "compared_to_sets_combined", "compared_to_training_set"
INSIDE_PARENTS = "same_parent_label"
LEVELS = ("class_names", "super_labels")  # a data set's names of each --label_hierarchy_level


class Space(NamedTuple):
    """Arguments of `metrics.compute`. `exclude` `(N,)`: index of each query in the reference, -1 where it is not there."""

    features: np.ndarray
    labels: np.ndarray
    reference: np.ndarray | None = None
    reference_labels: np.ndarray | None = None
    exclude: np.ndarray | None = None

    def gallery(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the queries search in: features `(M, D)`, labels `(M,)`, and the index `(N,)` of each query in them, -1 for none."""
        if self.reference is None:
            return self.features, self.labels, np.arange(len(self.features))
        return self.reference, self.reference_labels, self.exclude

    def part(self, rows: np.ndarray, kept: np.ndarray) -> "Space":
        """The queries `rows` in the part `kept` of what they search in, both ascending indices."""
        reference, reference_labels, exclude = self.gallery()
        places = np.full(len(reference) + 1, -1)  # one more, for queries that are not in the reference: index -1
        places[kept] = np.arange(len(kept))
        return Space(self.features[rows], self.labels[rows], reference[kept], reference_labels[kept], places[exclude[rows]])


class Compared(NamedTuple):
    """A split and what it is compared with, not yet cut into super-classes.

    names: label -> name, None where the data set knows none. sources: the splits whose images, one after the other, are the reference.
    parents `(N,)`, reference_parents `(M,)`: super-classes, inside which alone is searched; None where everywhere is.
    """

    space: Space
    names: dict | None
    sources: list[str]
    parents: np.ndarray | None = None
    reference_parents: np.ndarray | None = None


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
    parents = {}
    for split, dataset in datasets.items():
        table = names_at(dataset, deepest) if deepest else {}
        if None in table.values():
            those = "online_products, glyphs and a folder X/<super>/<class>/ do"
            raise UserError(f"{flag}: --dataset {dataset.name} knows no super-classes; {those}")
        parents[split] = set(table.values())
    if opt.tester == INSIDE_PARENTS:
        for split in measured:
            alone = parents[split] - set().union(*(parents[source] for source in sources_of(split, measured, opt)))
            if alone:
                reference = f"--eval_reference_set {opt.eval_reference_set}"
                raise UserError(f"{flag}: the super-class {min(alone)!r} of {split} has no image in the reference, {reference}")
    if opt.eval_reference_set == TRAINING:
        names = {split: set(names_at(dataset, opt.label_hierarchy_level).values()) for split, dataset in datasets.items()}
        for split in measured:
            if names[split].isdisjoint(names["train"]):
                print(f"--eval_reference_set {TRAINING}: no query of {split} has a counterpart in the reference, it can find nothing")


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
    features = {split: of_type(e.features, evaltype) for split, e in embedded.items()}
    labels, names = _codes(embedded, opt.label_hierarchy_level, opt)
    parents = _codes(embedded, opt.label_hierarchy_level + 1, opt)[0] if opt.tester == INSIDE_PARENTS else dict.fromkeys(embedded)
    if opt.eval_reference_set == SELF:
        own = {split: Space(_projection(rows, opt.eval_pca)(rows), labels[split]) for split, rows in features.items()}
        return {split: Compared(space, names[split], [split], parents[split], parents[split]) for split, space in own.items()}
    sources = sources_of(None, scored(embedded, opt), opt)
    if not set(sources) <= set(features):
        raise UserError(f"--eval_reference_set {opt.eval_reference_set}: the training images were not embedded")
    project = _projection(_joined(features, sources), opt.eval_pca)
    projected = {split: project(rows) for split, rows in features.items()}
    reference, reference_labels = _joined(projected, sources), _joined(labels, sources)
    reference_parents = _joined(parents, sources) if opt.tester == INSIDE_PARENTS else None
    starts = dict(zip(sources, np.cumsum([0, *(len(features[split]) for split in sources)]), strict=False))
    compared = {}
    for split, rows in projected.items():
        exclude = starts[split] + np.arange(len(rows)) if split in starts else np.full(len(rows), -1)
        space = Space(rows, labels[split], reference, reference_labels, exclude)
        compared[split] = Compared(space, names[split], sources, parents[split], reference_parents)
    return compared


def sources_of(split: str | None, scored: list[str], opt) -> list[str]:
    """The splits that together are the reference of `split`."""
    return {SELF: [split], COMBINED: scored, TRAINING: ["train"]}[opt.eval_reference_set]


def _joined(arrays: dict, splits: list[str]) -> np.ndarray:
    return arrays[splits[0]] if len(splits) == 1 else np.concatenate([arrays[split] for split in splits])


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
    parts = []
    for parent in np.unique(compared.parents):  # each is a space of its own, searched and clustered by itself
        rows = np.flatnonzero(compared.parents == parent)
        if space.reference is None:
            parts.append(Space(space.features[rows], space.labels[rows]))
            continue
        kept = np.flatnonzero(compared.reference_parents == parent)
        parts.append(space.part(rows, kept))
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
