"""Pictures of an embedding space: what sample queries find, and which queries find the wrong things. Charts: charts.py.

They show the space that is evaluated: its reference, its labels and super-classes, its principal components, its distances. The lists are those
of the search, before `--rerank`.
"""

import bisect
from pathlib import Path

import numpy as np
from torch.utils.data import ConcatDataset, Subset

import metrics
from evaluation import charts, galleries, spaces

QUERIES, NEIGHBOURS = 8, 7
CANDIDATES = 750  # queries among which the worst are looked for
RIGHT, WRONG, QUERY, QUIET = "#2a9d3a", "#d03030", "#333333", "#666666"
KEYS = [("same class", RIGHT), ("other class", WRONG)]
TILE = 1.2 * 72  # points: the side of an image
WIDTH, HEIGHT = 1.1, 1.47  # in tiles: the space of a tile with its two lines of text
PIXELS = 240  # of an image's longer side: a tile has 120
NAME_SIZES = (10, 7)  # the first at which all names fit
HEADING, LEGEND, NOTE = 12, 10, 8  # font sizes


def draw(folder: Path, embedded: dict, split: str, opt, title: str) -> list[Path]:
    """Draw all pictures of one epoch into `folder`, in about two seconds whatever the number of images (t-SNE excepted).

    `embedded`: split -> `evaluation.Embedded`; `split`: whose queries are shown; `title`: run and epoch. Returns the paths.
    """
    compared = spaces.compare(embedded, opt.evaltypes[0], opt)
    shown = compared[split]
    whole = {name: one.space.whole() for name, one in compared.items()}
    features, labels = {name: one.features for name, one in whole.items()}, {name: one.labels for name, one in whole.items()}
    parents = {name: one.parents for name, one in whole.items()}
    kept = [_subset(embedded[source].dataset, rows) for source, rows in zip(shown.sources, shown.kept, strict=True)]
    images = _subset(embedded[split].dataset, shown.rows), ConcatDataset(kept)
    searched = f"on {split}" + (
        f" in {', '.join(shown.sources)}" if shown.sources != [split] else " in its gallery" if shown.space.pool is not None else ""
    )
    paths = [folder / "sample_recoveries.png"]
    queries = sample_queries(shown.space.labels, opt.seed)
    recoveries(paths[0], images, shown, queries, f"{title}: nearest neighbours {searched}")
    worst, notes = worst_queries(shown, opt.seed)
    if len(worst):
        paths.append(folder / "worst_queries.png")
        recoveries(paths[-1], images, shown, worst, f"{title}: worst queries {searched}", notes)
    title += ", queries and gallery" * any(one.pool is not None for one in compared.values())
    paths.append(charts.spectra(folder / "spectrum.png", features, opt.seed, title))
    paths.append(charts.distances(folder / "distances.png", features, labels, parents, opt.seed, title, shown.ball))
    if opt.eval_size_of_tsne:
        for name, one in compared.items():
            path = folder / f"tsne_{name}.png"
            about = f"{title}: t-SNE of {name}"
            supers = super_classes(embedded[name]) if opt.label_hierarchy_level == 0 else None
            supers = galleries.taken(supers, one.pool)
            drawn = charts.tsne(path, features[name], labels[name], opt.eval_size_of_tsne, opt.seed, about, one.names, supers, one.ball)
            paths += [path] if drawn else []
    return paths


def _subset(dataset, rows: np.ndarray | None):
    """The images `rows` of a data set; all where it is None."""
    return dataset if rows is None else Subset(dataset, rows)


def sample_queries(labels: np.ndarray, seed: int) -> np.ndarray:
    """Indices of the queries shown, from as many classes as possible: the same in every epoch."""
    order = np.random.default_rng(seed).permutation(len(labels))
    firsts = np.sort(np.unique(labels[order], return_index=True)[1])  # where in `order` each class comes first
    return np.sort(np.concatenate([order[firsts], np.delete(order, firsts)])[:QUERIES])


def super_classes(embedded) -> np.ndarray | None:
    """`(N,)` names of the samples' super-classes; None where the data set knows none, or only one."""
    table = getattr(embedded.dataset, "super_labels", None) or {}
    names = np.array([str(table.get(label)) for label in embedded.labels.tolist()])
    return names if None not in table.values() and len(set(names)) > 1 else None


def searches(compared: spaces.Compared, queries: np.ndarray):
    """The searches of `queries` `(Q,)`: one for each super-class where they search inside these, else one.

    Yields for each the positions of its queries in `queries`, their `metrics.EmbeddingSpace`, and the indices of its reference in the whole
    reference.
    """
    space = compared.space
    size = len(space.gallery()[0])
    parents = np.zeros(len(space.features), int) if space.parents is None else space.parents
    reference_parents = np.zeros(size, int) if space.parents is None else space.reference_parents
    for parent in np.unique(parents[queries]):
        here, kept = np.flatnonzero(parents[queries] == parent), np.flatnonzero(reference_parents == parent)
        yield here, metrics.space_of(compared.ball, **space.part(queries[here], kept).arguments()), kept


def worst_queries(compared: spaces.Compared, seed: int) -> tuple[np.ndarray, list[str]]:
    """Queries with the lowest average precision, at most one a class, and a note on each; none where no query can find its class.

    Of `CANDIDATES` random queries. Average precision is a query's term of `map_r`; of two equal ones, the query whose first hit comes later
    is worse. The note gives both.
    """
    candidates = np.flatnonzero(compared.space.findable()[0])
    if len(candidates) > CANDIDATES:
        candidates = np.sort(np.random.default_rng(seed).choice(candidates, size=CANDIDATES, replace=False))
    precisions, firsts = np.empty(len(candidates)), np.empty(len(candidates), dtype=np.int64)
    for here, space, _ in searches(compared, candidates):
        scores = metrics.per_query(["map_r", "mrr"], space)
        precisions[here], firsts[here] = scores["map_r"], np.rint(1 / scores["mrr"])
    order = np.lexsort((-firsts, precisions))
    order = order[np.sort(np.unique(compared.space.labels[candidates[order]], return_index=True)[1])][:QUERIES]  # the worst of each class
    return candidates[order], [f"AP {precisions[i]:.2f}\nfirst hit at {firsts[i]:,}" for i in order]


def nearest(compared: spaces.Compared, queries: np.ndarray, count: int) -> list[np.ndarray]:
    """For each of `queries` the indices in the reference of its `count` nearest samples that it may find, nearest first; fewer if need be."""
    found = [None] * len(queries)
    for here, space, kept in searches(compared, queries):
        for place, row in zip(here, space.neighbours(count), strict=True):
            found[place] = kept[row[row >= 0]]
    return found


def recoveries(path: Path, images: tuple, compared: spaces.Compared, queries: np.ndarray, title: str, notes=()) -> None:
    """One row a query: the query, then its nearest neighbours in the reference, those of its class framed green, others red.

    Below each stand its class and how far it is from the query. Images are shown whole, not as the transform crops them.

    Args:
        images: the data sets of queries and reference: `(label, image (3, H, W), index)` by index; `original`, where there is such a
            method, is the image before the transform.
        queries: `(Q,)` indices. notes: the text beside each, two short lines.
    """
    from matplotlib.figure import Figure

    (features, labels, *_), (reference, reference_labels, _) = compared.space, compared.space.gallery()
    found = nearest(compared, queries, NEIGHBOURS)
    lines = [line for note in notes for line in note.split("\n")]
    left = 0.2 + max((charts.text_width(line, NOTE) for line in lines), default=0) / TILE
    heading = [charts.text_width(title, HEADING), *(charts.text_width(text, LEGEND) for text, _ in KEYS)]
    content = left + 1.35 + max(len(few) for few in found) * WIDTH
    size = (max(content, (sum(heading) + 3 * LEGEND) / TILE + 0.3), len(queries) * HEIGHT + 0.45)
    figure = Figure(figsize=(TILE / 72 * size[0], TILE / 72 * size[1]))
    axis = figure.add_axes((0, 0, 1, 1), xlim=(0, size[0]), ylim=(size[1], 0), aspect="equal")
    axis.axis("off")  # one axis for all: sixty of them take seconds
    axis.text(0.15, 0.22, title, fontsize=HEADING, va="center", parse_math=False)
    end = size[0] - 0.15
    for (text, colour), points in zip(KEYS, heading[1:], strict=True):
        axis.text(end, 0.22, text, color=colour, fontsize=LEGEND, ha="right", va="center")
        end -= (points + LEGEND) / TILE
    names = _names({*labels[queries].tolist(), *reference_labels[np.concatenate(found)].tolist()}, compared.names)
    for row, (query, few) in enumerate(zip(queries, found, strict=True)):
        top = 0.5 + row * HEIGHT
        if notes:
            axis.text(left - 0.08, top + 0.5, notes[row], fontsize=NOTE, ha="right", va="center", linespacing=1.5)
        _tile(axis, left, top, _image(images[0], int(query)), names[int(labels[query])], "query", QUERY)
        for position, index in enumerate(few, start=1):
            colour = RIGHT if reference_labels[index] == labels[query] else WRONG
            distance = charts.distances_of(*(rows.astype(np.float64) for rows in (features[[query]], reference[[index]])), compared.ball)[0]
            start, name = left + position * WIDTH + 0.2, names[int(reference_labels[index])]
            _tile(axis, start, top, _image(images[1], int(index)), name, f"distance {distance:#.3g}", colour)
    axis.set(xlim=(0, size[0]), ylim=(size[1], 0))
    figure.savefig(path, dpi=100, pil_kwargs={"compress_level": 3})


def _tile(axis, left: float, top: float, image: np.ndarray, name: dict, note: str, colour: str) -> None:
    """An image `(H, W, 3)` with its frame in a square of side 1, its name below, and a note below that."""
    from matplotlib.patches import Rectangle

    height, width = image.shape[:2]
    across, down = width / max(height, width), height / max(height, width)
    x, y = left + (1 - across) / 2, top + (1 - down) / 2
    axis.add_patch(Rectangle((left, top), 1, 1, facecolor="#f0f0f0", edgecolor="none", zorder=-1))
    smooth = "nearest" if max(height, width) < 100 else "antialiased"
    axis.imshow(image, extent=(x, x + across, y + down, y), interpolation=smooth)
    axis.add_patch(Rectangle((left, top), 1, 1, fill=False, edgecolor=colour, linewidth=3))
    axis.text(left + 0.5, top + 1.13, **name, ha="center", va="center", color=colour, parse_math=False)
    axis.text(left + 0.5, top + 1.29, note, fontsize=NAME_SIZES[-1], ha="center", va="center", color=QUIET)


def _image(dataset, index: int) -> np.ndarray:
    """The whole image `(H, W, 3)` of a data set or of several joined, at most `PIXELS` wide and high."""
    import PIL.Image

    if isinstance(dataset, Subset):
        return _image(dataset.dataset, int(dataset.indices[index]))
    if isinstance(dataset, ConcatDataset):
        number = bisect.bisect_right(dataset.cumulative_sizes, index)
        return _image(dataset.datasets[number], index - (dataset.cumulative_sizes[number - 1] if number else 0))
    image = dataset.original(index) if hasattr(dataset, "original") else dataset[index][1]
    image = PIL.Image.fromarray(np.ascontiguousarray(np.asarray(image).transpose(1, 2, 0)))
    image.thumbnail((PIXELS, PIXELS))
    return np.asarray(image)


def _names(labels: set, names: dict | None) -> dict[int, dict]:
    """label -> text and font size of the name under its tiles; the size is the same in the whole picture."""
    texts = {label: charts.printable(names[label] if names else f"class {label}") for label in labels}
    fits = (size for size in NAME_SIZES if all(charts.text_width(text, size) <= TILE for text in texts.values()))
    size = next(fits, NAME_SIZES[-1])
    short = charts.shortened(texts.values(), size, TILE)
    return {label: {"s": short[text], "fontsize": size} for label, text in texts.items()}
