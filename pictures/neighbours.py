"""Queries and the nearest images that they find, one row per query.

`recoveries` draws a picture of `Rankings`: each row has the query and its neighbours, framed by whether they are
right, with their class and distance below. Sizes are in tiles, the square of one image; the names below all tiles have
one font size.
"""

import bisect
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from pictures.fonts import names_or_numbers, save_figure
from pictures.space import distances_of
from pictures.text import printable, shortened, text_width

QUERY = "#333333"
QUIET = "#666666"
# colours of what is right, wrong and junk, in the order of `evaluation.queries`
COLOURS = ("#2a9d3a", "#d03030", "#9a9a9a")
KEYS = ("same class", "other class")
LISTED_KEYS = ("right", "wrong", "junk")
# side of an image in points
TILE = 1.2 * 72
# in tiles: the space of a tile with its two lines of text
WIDTH = 1.1
HEIGHT = 1.47
PIXELS = 240  # of an image's longer side: a tile has 120
NAME_SIZES = (10, 7)  # the first at which all names fit
# font sizes
HEADING = 12
LEGEND = 10
NOTE = 8


class Rankings(NamedTuple):
    """Queries and their neighbours in the gallery.

    Attributes:
        queries: `(Q,)` indices.
        neighbours: for each query the indices of its neighbours, nearest first.
        judged: for each query what these are to it, places in `COLOURS`.
        notes: for each query the text beside it, two short lines; empty: there is none.
    """

    queries: np.ndarray
    neighbours: list[np.ndarray]
    judged: list[np.ndarray]
    notes: tuple | list = ()


def recoveries(
    path: Path,
    images: tuple,
    task,
    rankings: Rankings,
    title: str,
    class_names: dict | None = None,
    ball=None,
) -> None:
    """One row per query: the query, then its neighbours in the reference, nearest first.

    Images of the query's class are framed green, others red.

    Where lists give the ground truth, relevant images are framed green, ignored ones grey.

    Below each image are its class and its distance to the query.
    Images are shown whole, not as the transform crops them.

    Args:
        images: the data sets of queries and reference: `(label, image (3, H, W), index)` by index; the method
            `original`, if there is one, gives the image before the transform.
        task: an `evaluation.task.Task`: features and labels of queries and gallery.
        class_names: label -> name.
        ball: in which distances are measured; None: Euclidean ones.
    """
    from matplotlib.figure import Figure

    labels = task.queries.labels
    reference_labels = task.searched.labels
    keys = KEYS
    name_of_none = "distractor"
    if task.relevance is not None:
        keys = LISTED_KEYS
        name_of_none = ""
    lines = "\n".join(rankings.notes).split("\n")
    margin = 0.2 + max(text_width(line, NOTE) for line in lines) / TILE
    heading = [text_width(title, HEADING), *(text_width(text, LEGEND) for text in keys)]
    content = margin + 1.35 + max(map(len, rankings.neighbours)) * WIDTH
    size = (max(content, (sum(heading) + (1 + len(keys)) * LEGEND) / TILE + 0.3), len(rankings.queries) * HEIGHT + 0.45)
    figure = Figure(figsize=(TILE / 72 * size[0], TILE / 72 * size[1]))
    # one axis for all images: sixty axes would take seconds
    axis = figure.add_axes((0, 0, 1, 1), xlim=(0, size[0]), ylim=(size[1], 0), aspect="equal")
    axis.axis("off")
    axis.text(0.15, 0.22, title, fontsize=HEADING, va="center", parse_math=False)
    _draw_keys(axis, keys, heading[1:], size[0] - 0.15)
    drawn_labels = {*labels[rankings.queries].tolist(), *reference_labels[np.concatenate(rankings.neighbours)].tolist()}
    names = _names(drawn_labels, class_names, name_of_none)
    for row, query in enumerate(rankings.queries):
        top = 0.5 + row * HEIGHT
        if rankings.notes:
            note = rankings.notes[row]
            axis.text(margin - 0.08, top + 0.5, note, fontsize=NOTE, ha="right", va="center", linespacing=1.5)
        _tile(axis, margin, top, whole_image(images[0], int(query)), names[int(labels[query])], "query", QUERY)
        neighbours = rankings.neighbours[row]
        distances = _distances(task, int(query), neighbours, ball)
        for position, (index, kind) in enumerate(zip(neighbours, rankings.judged[row], strict=True)):
            start = margin + (position + 1) * WIDTH + 0.2
            image = whole_image(images[1], int(index))
            note = f"distance {distances[position]:#.3g}"
            _tile(axis, start, top, image, names[int(reference_labels[index])], note, COLOURS[kind])
    axis.set(xlim=(0, size[0]), ylim=(size[1], 0))
    save_figure(figure, path, dpi=100, pil_kwargs={"compress_level": 3})


def _distances(task, query: int, neighbours: np.ndarray, ball) -> np.ndarray:
    """Distances `(K,)` of a query to its neighbours, in float64; see `recoveries`."""
    query_rows = np.repeat(task.queries.features[[query]].astype(np.float64), len(neighbours), axis=0)
    return distances_of(query_rows, task.searched.features[neighbours].astype(np.float64), ball)


def _draw_keys(axis, keys: tuple[str, ...], widths: list[float], end: float) -> None:
    """What the colours of the frames mean, to the left from `end`; `widths`: points of each text."""
    for text, colour, width in zip(keys, COLOURS, widths, strict=False):
        axis.text(end, 0.22, text, color=colour, fontsize=LEGEND, ha="right", va="center")
        end -= (width + LEGEND) / TILE


def _tile(axis, start: float, top: float, image: np.ndarray, name: dict, note: str, colour: str) -> None:
    """An image `(H, W, 3)` with its frame in a square of side 1, its name below, and a note below that."""
    from matplotlib.patches import Rectangle

    height, width = image.shape[:2]
    across = width / max(height, width)
    down = height / max(height, width)
    x = start + (1 - across) / 2
    y = top + (1 - down) / 2
    axis.add_patch(Rectangle((start, top), 1, 1, facecolor="#f0f0f0", edgecolor="none", zorder=-1))
    smooth = "nearest" if max(height, width) < 100 else "antialiased"
    axis.imshow(image, extent=(x, x + across, y + down, y), interpolation=smooth)
    axis.add_patch(Rectangle((start, top), 1, 1, fill=False, edgecolor=colour, linewidth=3))
    axis.text(start + 0.5, top + 1.13, **name, ha="center", va="center", color=colour, parse_math=False)
    axis.text(start + 0.5, top + 1.29, note, fontsize=NAME_SIZES[-1], ha="center", va="center", color=QUIET)


def whole_image(dataset, index: int) -> np.ndarray:
    """The whole image `(H, W, 3)` of a data set or of several joined, at most `PIXELS` wide and high."""
    import PIL.Image

    if isinstance(dataset, Subset):
        return whole_image(dataset.dataset, int(dataset.indices[index]))
    if isinstance(dataset, ConcatDataset):
        number = bisect.bisect_right(dataset.cumulative_sizes, index)
        part = dataset.datasets[number]
        start = dataset.cumulative_sizes[number] - len(part)
        return whole_image(part, index - start)
    if hasattr(dataset, "original"):
        image = dataset.original(index)
    else:
        image = dataset[index][1]
    image = PIL.Image.fromarray(np.ascontiguousarray(np.asarray(image).transpose(1, 2, 0)))
    image.thumbnail((PIXELS, PIXELS))
    return np.asarray(image)


def _names(labels: set, names: dict | None, of_none: str) -> dict[int, dict]:
    """label -> text and font size of the name under its tiles; the size is the same in the whole picture.

    `of_none`: the name of images without a class.
    """
    texts = {}
    for label in labels:
        if label < 0:
            texts[label] = of_none
        elif names:
            texts[label] = names[label]
        else:
            texts[label] = f"class {label}"
    drawn_texts = names_or_numbers(texts, lambda label: f"class {label}")
    texts = {label: printable(text) for label, text in drawn_texts.items()}
    size = NAME_SIZES[-1]
    for candidate in NAME_SIZES:
        if all(text_width(text, candidate) <= TILE for text in texts.values()):
            size = candidate
            break
    short = shortened(texts.values(), size, TILE)
    return {label: {"s": short[text], "fontsize": size} for label, text in texts.items()}
