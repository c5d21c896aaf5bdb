"""The queries of `decide`: read from files of embeddings, with their answers, and divided into those that choose the
threshold and those on which it is reported.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import metrics
from evaluation import enrolment, file_arrays, from_files, naming, promise
from evaluation.enrolment import Images
from evaluation.file_arrays import GROUPS, NAMES
from evaluation.galleries import ROLES
from evaluation.judgements import has_lists
from evaluation.task import Task
from metrics._answers import Answers
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.reading import read_json, read_text

FACTS = ("group", "time")  # arrays of a file that only this program reads
NEXT = 5  # images with which each makes a pair of one class, and of two
OF_SPACE = ("eval_space", "eval_space_c", "eval_space_clip_r")


@dataclass(frozen=True)
class Gallery:
    """The file whose gallery is searched: its path, its arrays without distractors, and of each gallery image the name
    of its class and its unit, `(M,)` each.
    """

    path: str
    arrays: dict
    classes: np.ndarray
    units: np.ndarray

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(np.unique(self.classes))

    @property
    def n_units(self) -> int:
        """The number of units."""
        return len(np.unique(self.units))

    def __str__(self):
        return f"{count_of(self.n_classes, 'class', 'classes')}, {count_of(len(self.classes), 'image')}"


@dataclass(frozen=True)
class Queries:
    """Queries that search a gallery.

    spaces: their embedding spaces, one for each network. rows `(Q,)`: which of the spaces' queries these are. images:
    what is known of each. is_new `(Q,)`: whether its unit has nothing in the gallery. answers: see `metrics._answers`.
    """

    spaces: list
    rows: np.ndarray
    images: Images
    is_new: np.ndarray
    answers: Answers

    def __len__(self):
        return len(self.rows)

    def take(self, chosen: np.ndarray) -> "Queries":
        """Those of the mask, or places, `chosen`."""
        answers = Answers(*(array[chosen] for array in self.answers))
        return Queries(self.spaces, self.rows[chosen], self.images.take(chosen), self.is_new[chosen], answers)

    def units(self, new: bool) -> np.ndarray:
        """The distinct units of the new classes, or of the classes in the gallery."""
        is_kind = self.is_new if new else self.answers.known
        return np.unique(self.images.units[is_kind])


def read(path: str) -> dict:
    """The arrays of a file. Raises UserError for lists, several draws of a gallery, and what is no .npz file."""
    if Path(path).suffix == ".npy":
        raise UserError(f"{path}: an .npz file is expected, with features, labels and perhaps is_query and is_gallery")
    arrays = file_arrays.read_queries(path, False, with_names=True)
    size = len(arrays["features"])
    facts = file_arrays.read(path, FACTS)
    arrays |= {name: facts[name] for name in FACTS if name in facts}
    for name in (*FACTS, *NAMES, *GROUPS):
        if name in arrays and arrays[name].shape != (size,):
            raise UserError(f"{path}: {name} has shape {arrays[name].shape}: ({size},) is expected")
    if has_lists(arrays):
        raise UserError(
            f"{path}: lists say what is relevant to each query, not which class it is of: decide needs labels"
        )
    if "role_draws" in arrays:
        raise UserError(
            f"{path}: it has role_draws, {len(arrays['role_draws'])} galleries: give one by is_gallery (N,)"
        )
    return arrays


def ball_of(arrays: dict):
    """The ball of the embeddings, if they were written with `--eval_space hyperbolic`."""
    written = file_arrays.written_flags(arrays)
    return metrics.ball(SimpleNamespace(**{name: written.get(name) for name in OF_SPACE}))


def gather(flags) -> tuple[Queries, Gallery, list[str]]:
    """The queries of the files with the answers of the first, their gallery, and notes on what is left out."""
    path = flags.files[0]
    arrays = read(path)
    networks = [_same_rows(path, arrays, network_path) for network_path in flags.files[1:]]
    arrays, n_distractors = enrolment.without_distractors(arrays)
    networks = [enrolment.without_distractors(network)[0] for network in networks]
    notes = []
    if n_distractors:
        notes.append(f"{path}: {count_of(n_distractors, 'image')} of no class left out of the gallery")
    if "domains" in arrays:
        notes.append(f"{path}: domains are not distinguished: all queries search the whole gallery")
    images = enrolment.images_of(path, arrays, flags.unit)
    if flags.open_set is not None:
        arrays = enrolment.with_open_set(path, arrays, images, flags.open_set)
    task = from_files.task_of(path, arrays)
    spaces = [_space(task, arrays)]
    for network in networks:
        spaces.append(_space(from_files.task_of(path, {**arrays, "features": network["features"]}), arrays))
    gallery = _gallery(path, arrays, images, task)
    if images.n_joined:
        notes.append(f"{path}: {count_of(images.n_joined, 'class', 'classes')} counted with another, by a common group")
    if len(spaces) > 1:
        for space in spaces:
            # one search for all that fusion reads
            space.neighbours(naming.NEAR)
    queries = _answered(task, spaces, images, gallery, flags.answer)
    return queries, gallery, notes


def _same_rows(path: str, arrays: dict, network_path: str) -> dict:
    """The arrays of a further network's file. Raises UserError where its rows are other images."""
    network = read(network_path)
    identity = "paths" if "paths" in arrays else "labels"
    for name in (identity, *ROLES):
        if not np.array_equal(arrays.get(name), network.get(name)):
            raise UserError(
                f"{network_path}: its {name} differ from those of {path}: fusion needs the same images, row by row"
            )
    if "reference_features" in arrays or ball_of(arrays) is not None:
        raise UserError(f"{path}: fusion is of Euclidean embeddings in one file each, without reference_features")
    return network


def _space(task: Task, arrays: dict) -> metrics.EmbeddingSpace:
    return metrics.space_of(ball_of(arrays), **task.arguments())


def _gallery(path: str, arrays: dict, images: Images, task: Task) -> Gallery:
    if "reference_features" in arrays:
        classes = from_files.finest(arrays, "reference_features", "reference_labels").astype(str)
        return Gallery(path, arrays, classes, classes)
    rows = task.searched.positions
    return Gallery(path, arrays, images.classes[rows], images.units[rows])


def _answered(task: Task, spaces: list, images: Images, gallery: Gallery, how: str) -> Queries:
    of_queries = images.take(task.queries.positions)
    answers = naming.answers(spaces[0], how)
    numbers = np.unique(np.concatenate([of_queries.units, gallery.units]), return_inverse=True)[1]
    n_queries = len(of_queries.units)
    hidden = task.places, task.queries.sequences, task.searched.sequences
    of_unit = metrics.findable(numbers[:n_queries], numbers[n_queries:], *hidden)[0]
    is_new = ~answers.known & (of_unit == 0)
    return Queries(spaces, np.arange(n_queries), of_queries, is_new, answers)


def of_file(path: str, gallery: Gallery, flags) -> Queries:
    """The rows of another file, all of them set aside, that search the gallery."""
    if "reference_features" in gallery.arrays:
        raise UserError(f"--set_aside {path}: {gallery.path} has reference_features: give it is_query and is_gallery")
    arrays, _ = enrolment.without_distractors(read(path))
    roles = [name for name in ("is_query", "is_gallery", "reference_features") if name in arrays]
    if roles:
        raise UserError(f"--set_aside {path}: it has {roles[0]}, and all of its images are set aside: leave it out")
    images = enrolment.images_of(path, arrays, flags.unit)
    task = from_files.task_of(path, arrays, gallery.path, gallery.arrays)
    return _answered(task, [_space(task, gallery.arrays)], images, gallery, flags.answer)


def divided(queries: Queries, gallery: Gallery, flags) -> tuple[Queries, Queries, Queries]:
    """The queries of new classes that are set aside, all set-aside queries, and those on which a threshold is reported.

    Without `--set_aside` all are set aside, and reported on themselves. Known queries that nothing is chosen on, by
    `--threshold_by promise` or `far` without a calibration, are always reported.
    """
    rule = flags.set_aside
    if isinstance(rule, str) and rule != enrolment.NEWEST:
        if rule.endswith(".npz"):
            aside = of_file(rule, gallery, flags)
            repeated = np.intersect1d(aside.units(new=True), queries.units(new=True))
            if len(repeated):
                raise UserError(
                    f"--set_aside {rule}: {count_of(len(repeated), 'class', 'classes')}, such as {repeated[0]}, are "
                    f"also queries of {gallery.path}: those that choose the threshold cannot report it"
                )
            return aside.take(aside.is_new), aside, queries
        units = _listed(rule, queries, gallery)
        is_aside = np.isin(queries.images.units, units)
    elif rule is None:
        is_aside = np.ones(len(queries), dtype=bool)
    else:
        is_aside = np.zeros(len(queries), dtype=bool)
        for new in (True, False):
            units = queries.units(new)
            if len(units):
                units = enrolment.set_aside(units, queries.images, rule, flags.open_set or 0)
                is_kind = queries.is_new if new else queries.answers.known
                is_aside |= is_kind & np.isin(queries.images.units, units)
    aside = queries.take(is_aside)
    is_reported = np.ones(len(queries), dtype=bool) if rule is None else ~is_aside
    if needs_new_alone(flags):
        is_reported |= queries.answers.known
    reported = queries.take(is_reported)
    return queries.take(is_aside & queries.is_new), aside, reported


def is_verification(flags) -> bool:
    """Whether pairs of images are judged, not answers."""
    return flags.verify or (flags.threshold_by == "promise" and flags.promise == "pairs")


def needs_new_alone(flags) -> bool:
    """Whether only queries of new classes choose the threshold, and nothing is calibrated."""
    return flags.threshold_by in ("promise", "far") and flags.calibrate is None and not is_verification(flags)


def _listed(path: str, queries: Queries, gallery: Gallery) -> np.ndarray:
    """The units of the classes that a file lists: a JSON list, or a name in each line."""
    if path.endswith(".json"):
        names = read_json(path)
        if isinstance(names, dict):
            names = names.get("classes")
        if not isinstance(names, list):
            raise UserError(f"--set_aside {path}: a list of classes is expected, or an object with the list classes")
    else:
        names = [line.strip() for line in read_text(path, encoding="utf-8-sig").splitlines() if line.strip()]
    names = list(map(str, names))
    unknown = sorted(set(names) - set(queries.images.classes.tolist()))
    if unknown or not names:
        example = f", such as {unknown[0]}" if unknown else ""
        raise UserError(
            f"--set_aside {path}: {len(unknown)} of its {len(names)} names are of no query{example}: name classes of "
            f"{gallery.path}"
        )
    return np.unique(queries.images.units[np.isin(queries.images.classes, names)])


def fused(queries: Queries, calibrations: list) -> Queries:
    """The same queries with the answers of several networks together."""
    return replace(queries, answers=naming.fused(queries.spaces, calibrations, queries.rows))


def distances_between(queries: Queries, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Distances `(P,)` between queries at the places `first` and `second`."""
    space = queries.spaces[0]
    among_queries = space.view(type(space), reference=space.features, reference_norms=space.norms)
    return np.sqrt(among_queries.squared_distances(queries.rows[first], queries.rows[second]))


def as_pairs(queries: Queries) -> Queries:
    """Pairs of the queries in place of their answers: a pair of one unit is known and right, another is new.

    Images in the order of SHA-256 of class/file make pairs with the next `NEXT` ones, of their unit and of all.
    """
    if len(queries) < 2:
        raise UserError(f"pairs of images: {count_of(len(queries), 'image')}, and at least 2 are needed")
    order = np.array(
        sorted(
            range(len(queries)),
            key=lambda place: promise.digest(f"{queries.images.classes[place]}/{queries.images.files[place]}"),
        )
    )
    numbers = np.unique(queries.images.units, return_inverse=True)[1]
    by_unit = order[np.argsort(numbers[order], kind="stable")]
    parts = []
    for shift in range(1, min(NEXT, len(order) - 1) + 1):
        parts.append((by_unit[:-shift], by_unit[shift:], True))
        parts.append((order, np.roll(order, -shift), False))
    pairs = []
    for first, second, is_same in parts:
        chosen = (numbers[first] == numbers[second]) == is_same
        pairs.append((first[chosen], second[chosen], np.full(int(chosen.sum()), is_same)))
    first, second, is_same = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
    answers = Answers(distances_between(queries, first, second), is_same, is_same, numbers[first])
    return Queries(queries.spaces, queries.rows[first], queries.images.take(first), ~is_same, answers)
