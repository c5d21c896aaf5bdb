"""Pairs of images side by side."""

from pathlib import Path
from typing import NamedTuple

from pictures.fonts import save_figure
from pictures.neighbours import whole_image
from pictures.text import fitted

# pairs in a row of the picture, inches of an image
ACROSS = 3
TILE = 1.6


class PairImage(NamedTuple):
    """One image of a pair: its data set and index, what stands above it, and the name below."""

    dataset: object
    index: int
    title: str
    name: str


def draw_pairs(path: Path, pairs: list[tuple[PairImage, PairImage]]) -> None:
    """Draw the pairs, the first image left, the other right."""
    from matplotlib.figure import Figure

    across = min(ACROSS, len(pairs))
    rows = -(-len(pairs) // ACROSS)
    points = 72 * TILE * 0.95
    figure = Figure(figsize=(across * (2 * TILE + 0.4), rows * (TILE + 0.65)))
    axes = figure.subplots(rows, 3 * across, squeeze=False, width_ratios=[1, 1, 0.2] * across)
    for axis in axes.flat:
        axis.axis("off")
    for place, pair in enumerate(pairs):
        for step, image in enumerate(pair):
            axis = axes[place // ACROSS, 3 * (place % ACROSS) + step]
            axis.imshow(whole_image(image.dataset, image.index))
            axis.set_title(fitted(image.title, 8, points), fontsize=8, pad=3, parse_math=False)
            name = fitted(image.name, 7, points)
            axis.text(0.5, -0.05, name, fontsize=7, ha="center", va="top", transform=axis.transAxes, parse_math=False)
    save_figure(figure, path, dpi=100, bbox_inches="tight")
