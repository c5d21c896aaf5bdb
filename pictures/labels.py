"""Labels beside the points of a figure, none over another."""

import math

import numpy as np

from pictures.fonts import drawable

ANGLES = 20  # directions in which a label is tried
SIZE = 8.5  # points, of the letters
NEAR = 12  # points: a label further away than this is joined to its point by a line


def place_labels(axis, points: list[tuple[float, float]], texts: list[str], colours: list[str]) -> bool:
    """Write each text beside its point if no other point is nearer to the text, else at the nearest free place, with a
    line to the point.

    Returns:
        Whether all found a place inside the axes that touches no other label and no point.
    """
    texts = list(map(drawable, texts))
    figure = axis.figure
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    centres = axis.transData.transform(points)  # (n, 2) pixels
    room = axis.get_window_extent(renderer)
    pixel = figure.dpi / 72
    taken = np.concatenate(
        [centres - 4 * pixel, centres + 4 * pixel], axis=1
    )  # boxes (m, 4): points, labels, pieces of lines
    labels = np.empty((0, 4))
    angles, distances = np.meshgrid(
        np.linspace(0, 2 * math.pi, ANGLES, endpoint=False), np.geomspace(6 * pixel, max(room.width, room.height), 40)
    )
    # (k,) places around a point, the nearest first
    angles = angles.ravel()
    distances = distances.ravel()
    with_line = distances > NEAR * pixel
    complete = True
    for i in np.argsort(-centres[:, 1]):
        probe = axis.text(0, 0, texts[i], fontsize=SIZE)
        box = probe.get_window_extent(renderer)
        probe.remove()
        half = np.array([box.width, box.height]) / 2 + pixel
        # The places form ellipses shaped like the label's box: beside its point, a wide label must stay half its width
        # away.
        middles = centres[i] + np.stack([np.cos(angles), np.sin(angles)], axis=1) * (distances[:, None] + half)
        low = middles - half
        high = middles + half
        inside = (low >= (room.x0, room.y0)).all(1) & (high <= (room.x1, room.y1)).all(1)
        apart = (low[:, None] >= taken[None, :, 2:]) | (high[:, None] <= taken[None, :, :2])  # (k, m, 2)
        free = inside & apart.any(2).all(1)
        own, others = _gaps(centres, i, low, high)
        # A label without a line is taken to belong to the nearest point; one with a line must not seem to belong to
        # another point.
        told = np.where(
            with_line, (others > NEAR * pixel) & _clear(centres, i, middles, labels, 6 * pixel), 1.3 * own < others
        )
        places = np.flatnonzero(free & told) if (free & told).any() else np.flatnonzero(free & with_line)
        if not len(places):
            complete = False
            continue
        spot = places[0]
        labels = np.vstack([labels, [*low[spot], *high[spot]]])
        taken = np.vstack([taken, labels[-1:]])
        x, y = axis.transData.inverted().transform(middles[spot])
        if with_line[spot]:  # above the error bars, and not in their colour
            axis.plot(
                [points[i][0], x],
                [points[i][1], y],
                color=colours[i],
                linewidth=0.7,
                zorder=3.5,
                scalex=False,
                scaley=False,
            )
            taken = np.vstack([taken, np.tile(_along(centres[i], middles[spot : spot + 1])[0], 2)])
        axis.annotate(
            texts[i],
            xy=points[i],
            xytext=(x, y),
            ha="center",
            va="center",
            fontsize=SIZE,
            color=colours[i],
            zorder=4,
            bbox={"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )
    return complete


def _gaps(centres: np.ndarray, own: int, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances `(k,)` of boxes `low` to `high` `(k, 2)` to the point `centres[own]`, and to the nearest other of
    `centres` `(n, 2)`.
    """
    distances = np.linalg.norm(
        np.maximum(np.maximum(low[:, None] - centres, centres - high[:, None]), 0), axis=2
    )  # (k, n)
    return distances[:, own], np.delete(distances, own, axis=1).min(1, initial=np.inf)


def _along(start: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Points `(k, 25, 2)` on the lines from `start` `(2,)` to `ends` `(k, 2)`."""
    return start + np.linspace(0, 1, 25)[:, None] * (ends - start)[:, None]


def _clear(centres: np.ndarray, own: int, ends: np.ndarray, labels: np.ndarray, clearance: float) -> np.ndarray:
    """`(k,)`: whether lines from `centres[own]` to `ends` `(k, 2)` keep clear of the other `centres` `(n, 2)` and of
    `labels` `(m, 4)`.
    """
    others = np.delete(centres, own, axis=0) - centres[own]
    lines = ends - centres[own]
    along = np.clip(
        (lines @ others.T) / (lines**2).sum(1, keepdims=True), 0, 1
    )  # (k, n - 1): where a line comes nearest to a point
    distances = np.linalg.norm(others - along[..., None] * lines[:, None], axis=2)
    passed = _along(centres[own], ends)[:, :, None]
    crossed = ((passed > labels[:, :2]) & (passed < labels[:, 2:])).all(3).any((1, 2))
    return (distances >= np.minimum(clearance, np.linalg.norm(others, axis=1) / 2)).all(1) & ~crossed
