"""An embedding space as one HTML page: map, neighbours, worst queries, confusions, distances.
The page itself: explore_page.py.
"""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

import metrics
from evaluation import from_files, from_splits, galleries, missing_labels
from evaluation.file_arrays import read, written_flags
from evaluation.galleries import ROLES
from evaluation.judgements import LISTS, has_lists, protocol_of
from evaluation.task import Rows, Task, places_in
from metrics import fnmr
from pictures import maps
from pictures.thumbnails import Sheets
from retrieval import data, explore_page, marks, pairs
from runs import Embedder
from utilities.console import propose_view
from utilities.errors import UserError
from utilities.files import write_file

# bins of the histogram of distances
BINS = 100
# flags of an evaluation that the page ignores; of a run also those of its embeddings
UNHEEDED = from_splits.OF_SEARCH | from_splits.OF_DISTANCES
# flags of the command that a file has no use for
OF_RUNS = {
    "split": "test",
    "checkpoint": None,
    "evaltype": None,
    "device": None,
    "batch_size": None,
}


class PageImages(NamedTuple):
    """The images that a page shows.

    features `(N, D)`; labels `(N,)`, and class_names, label -> name; supers: label -> name of the super-class, None
    where none are known;
    paths: of the images, None where unknown; picture: a function, place -> uint8 `(3, H, W)`, which raises UserError
    for a missing image; None without pictures. notes: on flags and roles that the page ignores. listed: what queries
    are to find, where lists say so. marking: the data set whose images are marked.
    """

    title: str
    features: np.ndarray
    labels: np.ndarray
    class_names: dict
    supers: dict | None
    paths: list | None
    picture: object
    notes: tuple = ()
    listed: "Listed | None" = None
    marking: marks.Marking = marks.Marking()


class Listed(NamedTuple):
    """The queries and their gallery, rows of the images shown, whose lists say what is relevant."""

    task: Task

    def precision(self, size: int) -> np.ndarray:
        """Average precision among the first R of each of `size` images, `(N,)`; NaN of those that are no query or have
        nothing to find.
        """
        precision = np.full(size, np.nan)
        space = metrics.EmbeddingSpace(**self.task.arguments())
        precision[self.task.queries.positions] = metrics.per_query(["map_r"], space)["map_r"]
        return precision

    def judged(self, neighbours: np.ndarray) -> np.ndarray:
        """What neighbours `(N, k)` are to each image, `(N, k)`: 0 right, 1 wrong, 2 junk, 3 not judged."""
        places = places_in(self.task.searched.positions, len(neighbours))[neighbours]
        rows = self.task.queries.positions
        lists = self.task.lists
        kinds = np.full(neighbours.shape, 3, dtype=np.uint8)
        for row, positives, junk in zip(rows, lists.each("positive"), lists.each("junk"), strict=True):
            near = places[row]
            kinds[row] = np.select([near < 0, np.isin(near, positives), np.isin(near, junk)], [3, 0, 2], 1)
        return kinds


def explore(flags) -> Path:
    """Write the page that the flags ask for. Returns its path. Raises UserError."""
    out = Path(flags.out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--out {flags.out}: a page's name ends in .html")
    if not out.absolute().parent.is_dir():
        raise UserError(f"--out {flags.out}: there is no folder {out.absolute().parent}")
    if flags.source.endswith(".npz"):
        for name, plain in OF_RUNS.items():
            if getattr(flags, name) != plain:
                raise UserError(
                    f"--{name} {getattr(flags, name)}: {flags.source} is a file, and all of its rows are shown as "
                    "they are: leave it out"
                )
        images = of_file(flags.source)
    else:
        images = of_run(flags)
    write_file(out, explore_page.html(content(images, flags)))
    print(
        f"{out}: {len(images.features):,} images of {len(set(images.labels.tolist())):,} classes, "
        f"{out.stat().st_size / 1e6:.1f} MB"
    )
    propose_view(out)
    return out


def of_run(flags) -> PageImages:
    """The images of one split of a run, embedded anew."""
    embedder = Embedder(
        flags.source,
        flags.checkpoint or "best",
        device=flags.device,
        batch_size=flags.batch_size,
        evaltype=flags.evaltype,
    )
    embedder.check_images("give the file that --dump_embeddings writes")
    splits = data.splits(embedder)
    dataset = data.named(splits, flags.split)
    supers = set(dataset.super_labels.values())
    labels = np.array([label for _, label in dataset.image_list])
    saved_flags = vars(embedder.opt)
    title = f"{saved_flags.get('group', '')}: {flags.split} of {dataset.name}"
    features = _embedded(embedder, dataset)
    roles = galleries.roles_of(dataset, len(labels))
    listed = None
    if roles.lists is not None:
        listed = _of_roles(features, labels, roles)
    notes = (
        *_unheeded(roles.restrict and listed is None, saved_flags, UNHEEDED | from_splits.OF_EMBEDDINGS),
        *_heeded(listed),
    )
    super_labels = None
    if None not in supers and len(supers) >= 2:
        super_labels = dataset.super_labels
    class_names = sorted({name for images in splits.values() for name in images.class_names.values()})
    marking = marks.Marking(dataset.root, class_names, dataset.fixes)
    return PageImages(
        title,
        features,
        labels,
        dataset.class_names,
        super_labels,
        dataset.paths,
        dataset.original,
        notes,
        listed,
        marking,
    )


def _of_roles(features: np.ndarray, labels: np.ndarray, roles: galleries.Roles) -> Listed:
    """The queries of a data set with lists, and its gallery."""
    rows = Rows(features, labels)
    queries = rows.take(roles.rows("queries"))
    gallery = rows.take(roles.rows("gallery"))
    exclude = places_in(gallery.positions, roles.size)[queries.positions]
    return Listed(Task(queries, gallery, exclude, roles.relevance()))


def _heeded(listed: Listed | None) -> tuple[str, ...]:
    """A note on the lists that the page goes by; none without."""
    if listed is None:
        return ()
    lists = "Lists"
    protocol = next(iter(listed.task.relevance))
    if protocol:
        lists += f" of {protocol}"
    note = f"{lists} say what queries are to find: ✓; – is junk, and images that no list judges have no mark."
    return (note,)


def _embedded(embedder: Embedder, dataset) -> np.ndarray:
    """Embeddings `(N, D)` of the images as the run's evaluation shows them: of their boxes, where they have them."""
    if dataset.boxes is None:
        return embedder(dataset.paths, progress=True)
    return embedder.embed(map(dataset.original, range(len(dataset))), len(dataset), progress=True)


def of_file(path: str) -> PageImages:
    """The content of an .npz file, as `--dump_embeddings` writes it.
    Pictures are read from its paths, where these still exist.
    """
    arrays = read(path, optional=("paths", "class_names", "super_names", *ROLES, *LISTS, "flags"))
    arrays = missing_labels.of_queries(path, arrays, has_lists(arrays))
    listed = None
    if has_lists(arrays):
        listed = Listed(from_files.task_of(path, arrays))
    evaluation_arrays = {}
    for name in list(arrays):
        if name in ROLES or name == "flags" or protocol_of(name) is not None:
            evaluation_arrays[name] = arrays.pop(name)
    size = len(arrays["features"])
    arrays.setdefault("labels", np.zeros(size, dtype=np.int64))
    for name, array in arrays.items():
        if name != "features" and array.shape != (size,):
            raise UserError(
                f"{path}: {name} have shape {array.shape}, expected ({size},), one for each row of features"
            )
    _, firsts, labels = np.unique(arrays["labels"], return_index=True, return_inverse=True)
    labels = np.where(evaluation_arrays.get("is_distractor", np.zeros(size)), -1, labels)
    marking = marks.Marking()
    if "class_names" in arrays:
        names = list(map(str, arrays["class_names"][firsts]))
        marking = marks.Marking(class_names=sorted(set(names)))
    else:
        names = [f"class {label}" for label in arrays["labels"][firsts].tolist()]
    supers = None
    if "super_names" in arrays and len(set(arrays["super_names"].tolist())) > 1:
        supers = dict(enumerate(map(str, arrays["super_names"][firsts])))
    paths = None
    picture = None
    if "paths" in arrays:
        paths = list(map(str, arrays["paths"]))
        picture = functools.partial(_decoded, paths)
    has_roles = not evaluation_arrays.keys().isdisjoint(ROLES)
    notes = _unheeded(has_roles and listed is None, written_flags(evaluation_arrays), UNHEEDED) + _heeded(listed)
    title = Path(path).name
    class_names = dict(enumerate(names))
    return PageImages(title, arrays["features"], labels, class_names, supers, paths, picture, notes, listed, marking)


def _decoded(paths: list[str], place: int):
    """The image at a place of the paths, uint8 `(3, H, W)`."""
    from datasets import decode

    return decode(paths[place])


def _unheeded(has_roles: bool, flags: dict, unheeded: dict) -> tuple[str, ...]:
    """Notes on the evaluation's flags, and the images' roles, that the page ignores."""
    notes = []
    if has_roles:
        notes.append("Roles and sequences of the images are ignored here: each image searches among all others.")
    if changed := from_splits.changed_flags(flags, unheeded):
        notes.append(
            f"{', '.join(changed)} of the evaluation have no effect here: distances are Euclidean and of all images."
        )
    return tuple(notes)


def content(images: PageImages, flags) -> dict:
    """The content of the page, as JSON values and `explore_page.packed` arrays."""
    # distractors, where any image has a class
    of_none = (images.labels < 0) & (images.labels >= 0).any()
    # distractors have no like
    space = metrics.EmbeddingSpace(
        images.features, np.where(of_none, -1 - np.arange(len(of_none)), images.labels), progress=True
    )
    classes, labels = np.unique(images.labels, return_inverse=True)
    classes = classes.tolist()
    neighbours = space.neighbours(min(flags.neighbours, max(space.size - 1, 1)))  # (N, k), -1 for none
    judged = None
    if images.listed is None:
        precision = metrics.per_query(["map_r"], space)["map_r"]
    else:
        precision = images.listed.precision(space.size)
        judged = explore_page.packed(images.listed.judged(neighbours), np.uint8)
    places, how = _places(space.features, flags)
    sheets, notes_on_sheets = _sheets(images, space.size, flags)
    notes = [
        f"Map: {how}. Neighbouring points are usually neighbours in the embedding; gaps and sizes of clusters mean "
        "little."
    ]
    notes += [*images.notes, *notes_on_sheets]
    paths = images.paths
    if paths is not None:
        paths = list(map(str, paths))
    supers, super_of = _supers(images, classes)
    # the histogram's pairs are of images that have a class
    pair_space = space
    if of_none.any():
        pair_space = metrics.EmbeddingSpace(space.features[~of_none], images.labels[~of_none])
    return {
        "title": images.title,
        "notes": notes,
        "size": space.size,
        "dimensions": space.dimensions,
        "k": neighbours.shape[1],
        "classes": [str(images.class_names.get(label, "no class")) for label in classes],
        "supers": supers,
        "superOf": super_of,
        "paths": paths,
        # the place of -1, of images without a class, among the ascending classes: the first
        "classless": 0 if of_none.any() else None,
        "marks": marks.content(
            images.marking, paths, [images.class_names.get(label) for label in images.labels.tolist()]
        ),
        "labels": explore_page.packed(labels, np.uint32),
        "places": explore_page.packed(places, np.uint16),
        "neighbours": explore_page.packed(np.where(neighbours < 0, 2**32 - 1, neighbours), np.uint32),
        "judged": judged,
        "distances": explore_page.packed(_distances(space, neighbours), np.float32),
        "precision": explore_page.packed(precision, np.float32),
        "meanPrecision": None if np.isnan(precision).all() else float(np.nanmean(precision)),
        "sheets": sheets,
        "confusions": confusions(labels, np.where(of_none, -1, neighbours[:, 0])),
        "histogram": histogram(pair_space, flags.fmr, flags.seed),
    }


def _distances(space: metrics.EmbeddingSpace, neighbours: np.ndarray) -> np.ndarray:
    """Distances `(N, k)` of the neighbours, NaN for none."""
    rows, columns = np.nonzero(neighbours >= 0)
    distances = np.full(neighbours.shape, np.nan, dtype=np.float32)
    distances[rows, columns] = np.sqrt(space.squared_distances(rows, neighbours[rows, columns]))
    return distances


def _places(features: np.ndarray, flags) -> tuple[np.ndarray, str]:
    """The places `(N, 2)` of the images on the map, from 0 to 65,535, and how they were found."""
    plane, how = maps.places(features.astype(np.float32), flags.map, flags.map_size, flags.seed)
    extent = float(np.ptp(plane, axis=0).max()) or 1.0
    return (plane - plane.min(0)) / extent * 65535, how


def _supers(images: PageImages, classes: list[int]) -> tuple[list[str] | None, list[int] | None]:
    """The names of the super-classes, and the place among them of each class; None without."""
    if not images.supers:
        return None, None
    names = [images.supers.get(label, "no class") for label in classes]
    supers = sorted(set(names))
    return supers, [supers.index(name) for name in names]


def _sheets(images: PageImages, size: int, flags) -> tuple[dict | None, list[str]]:
    """The sheets of thumbnails, None without, and a note on those that are missing."""
    if images.picture is None or flags.no_thumbnails:
        return None, []
    sheets, missing = _thumbnails(images.picture, size)
    notes = []
    if missing:
        notes.append(
            f"{missing:,} of {size:,} images cannot be shown: their files are not there, or cannot be decoded."
        )
    if sheets is None:
        return None, notes
    return {"images": sheets.addresses(), "side": sheets.side, "across": sheets.across}, notes


def _thumbnails(picture, size: int) -> tuple[Sheets | None, int]:
    """Thumbnails of all images, None where all are missing, and how many are missing."""
    sheets = Sheets(size)
    missing = 0
    # one image in memory at a time
    for place in tqdm(range(size), desc="thumbnails", unit="img", leave=False, disable=None):
        try:
            sheets.put(place, picture(place))
        except UserError:
            missing += 1
    if missing == size:
        sheets = None
    return sheets, missing


def confusions(labels: np.ndarray, nearest: np.ndarray) -> list[list]:
    """[class, class of the nearest image, how many, share of the class's images], where the classes differ;
    the most frequent first.
    """
    has_neighbour = nearest >= 0
    pairs_of, counts = np.unique(
        np.stack([labels[has_neighbour], labels[nearest[has_neighbour]]], axis=1), axis=0, return_counts=True
    )
    sizes = np.bincount(labels)
    rows = []
    for (a, b), count in zip(pairs_of, counts, strict=True):
        if a != b:
            rows.append([int(a), int(b), int(count), float(count / sizes[a])])
    return sorted(rows, key=lambda row: (-row[2], -row[3], row[0], row[1]))


def histogram(space: metrics.EmbeddingSpace, rates: list[float], seed: int) -> dict:
    """Shares of same-class and different-class pairs in `BINS` bars from 0 to `most`, and `thresholds`: fmr, distance,
    fnmr (as metric).
    """
    same_class, different_class, pairs_text = pairs.distances(space.features.astype(np.float32), space.labels, seed)
    farthest = float(np.concatenate([same_class, different_class]).max(initial=0)) or 1.0
    thresholds = []
    for rate in rates:
        distance, missed = fnmr.operating_point(space, rate)
        if not np.isnan(missed):
            thresholds.append({"fmr": rate, "distance": distance, "fnmr": missed})
    return {
        "same": _shares(same_class, farthest),
        "different": _shares(different_class, farthest),
        "most": farthest,
        "pairs": pairs_text,
        "counts": [len(same_class), len(different_class)],
        "thresholds": thresholds,
    }


def _shares(distances: np.ndarray, farthest: float) -> list[float]:
    """Shares of distances `(P,)` in `BINS` bars from 0 to `farthest`."""
    counts, _ = np.histogram(distances, bins=BINS, range=(0, farthest))
    return (counts / max(len(distances), 1)).tolist()
