"""A chain of boxes: the steps of an experiment, from its data to what is compared."""

import textwrap
from pathlib import Path
from typing import NamedTuple

from pictures.fonts import save_figure
from pictures.groups import BASE, DPI, new_figure

# inches: the text is legible where a phone shrinks the picture to 360 pixels
WIDTH = 6.2
STEP_HEIGHT = 0.82
BOX_HEIGHT = 0.6
MARGIN = 0.08
TITLE_WIDTH = 1.3
FONT_SIZE = 13
# characters of a line of text
LINE_LENGTH = 42


class Step(NamedTuple):
    """A box: what is done, and with what."""

    title: str
    text: str


def draw_flow(steps: list[Step], path: Path) -> None:
    """Write a PNG with the steps below each other, an arrow between two."""
    from matplotlib.patches import FancyBboxPatch

    height = STEP_HEIGHT * len(steps) - (STEP_HEIGHT - BOX_HEIGHT) + 2 * MARGIN
    figure = new_figure(WIDTH, height)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(0, height)
    axes.axis("off")
    for place, step in enumerate(steps):
        bottom = height - MARGIN - BOX_HEIGHT - place * STEP_HEIGHT
        box = FancyBboxPatch(
            (MARGIN, bottom),
            WIDTH - 2 * MARGIN,
            BOX_HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor="#eef3f8",
            edgecolor=BASE,
        )
        axes.add_patch(box)
        middle = bottom + BOX_HEIGHT / 2
        axes.text(MARGIN + 0.12, middle, step.title, va="center", weight="bold", size=FONT_SIZE)
        axes.text(MARGIN + TITLE_WIDTH, middle, textwrap.fill(step.text, LINE_LENGTH), va="center", size=FONT_SIZE)
        if place:
            ends = {"xy": (0.6, bottom + BOX_HEIGHT), "xytext": (0.6, bottom + STEP_HEIGHT)}
            axes.annotate("", **ends, arrowprops={"arrowstyle": "->", "color": BASE})
    save_figure(figure, path, dpi=DPI)
