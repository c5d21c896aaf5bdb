"""Labels beside the points of a figure, none over another."""

import math

import numpy as np

from pictures.fonts import drawable

ANGLES = 20  # directions in which a label is tried
SIZE = 8.5  # points, of the letters
NEAR = 12  # points: a label further away than this is joined to its point by a line


def place_labels(axis, points: list[tuple[float, float]], texts: list[str], colours: list[str]) -> bool:
    """Write each text beside its point, or at the nearest free place with a line to the point.

    No other point is nearer to a text without a line.

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
    # boxes (m, 4) of points, labels and pieces of lines
    occupied = np.concatenate([centres - 4 * pixel, centres + 4 * pixel], axis=1)
    labels = np.empty((0, 4))
    angles, distances = np.meshgrid(
        np.linspace(0, 2 * math.pi, ANGLES, endpoint=False), np.geomspace(6 * pixel, max(room.width, room.height), 40)
    )
    # k places around a point, the nearest first
    directions = np.stack([np.cos(angles.ravel()), np.sin(angles.ravel())], axis=1)
    distances = distances.ravel()
    with_line = distances > NEAR * pixel
    complete = True
    for i in np.argsort(-centres[:, 1]):
        half = _half_size(axis, texts[i], renderer) + pixel
        # The places form ellipses shaped like the label's box: beside its point, a wide label must stay half its width
        # away.
        middles = centres[i] + directions * (distances[:, None] + half)
        low = middles - half
        high = middles + half
        inside = (low >= (room.x0, room.y0)).all(1) & (high <= (room.x1, room.y1)).all(1)
        is_separate = (low[:, None] >= occupied[None, :, 2:]) | (high[:, None] <= occupied[None, :, :2])  # (k, m, 2)
        free = inside & is_separate.any(2).all(1)
        to_point, to_nearest = _gaps(centres, i, low, high)
        # A label without a line is taken to belong to the nearest point; one with a line must not seem to belong to
        # another point.
        with_clear_line = (to_nearest > NEAR * pixel) & _clear(centres, i, middles, labels, 6 * pixel)
        unmistakable = np.where(with_line, with_clear_line, 1.3 * to_point < to_nearest)
        places = np.flatnonzero(free & unmistakable)
        if not len(places):
            places = np.flatnonzero(free & with_line)
        if not len(places):
            complete = False
            continue
        spot = places[0]
        labels = np.vstack([labels, [*low[spot], *high[spot]]])
        occupied = np.vstack([occupied, labels[-1:]])
        x, y = axis.transData.inverted().transform(middles[spot])
        if with_line[spot]:
            _draw_line(axis, points[i], (x, y), colours[i])
            occupied = np.vstack([occupied, np.tile(_along(centres[i], middles[spot : spot + 1])[0], 2)])
        _write(axis, texts[i], (x, y), colours[i])
    return complete


def _half_size(axis, text: str, renderer) -> np.ndarray:
    """Half the width and height of a label, in pixels."""
    probe = axis.text(0, 0, text, fontsize=SIZE)
    box = probe.get_window_extent(renderer)
    probe.remove()
    return np.array([box.width, box.height]) / 2


def _write(axis, text: str, middle: tuple[float, float], colour: str) -> None:
    """A label on a light ground, around `middle`."""
    ground = {"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    axis.annotate(
        text, xy=middle, xytext=middle, ha="center", va="center", fontsize=SIZE, color=colour, zorder=4, bbox=ground
    )


def _draw_line(axis, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    """A line from a point to its label, above the error bars and not in their colour."""
    xs, ys = zip(start, end, strict=True)
    axis.plot(xs, ys, color=colour, linewidth=0.7, zorder=3.5, scalex=False, scaley=False)


def _gaps(centres: np.ndarray, index: int, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances `(k,)` of boxes to the point `centres[index]`, and to the nearest other of `centres` `(n, 2)`.

    The boxes reach from `low` to `high` `(k, 2)`.
    """
    outside = np.maximum(np.maximum(low[:, None] - centres, centres - high[:, None]), 0)
    distances = np.linalg.norm(outside, axis=2)  # (k, n)
    return distances[:, index], np.delete(distances, index, axis=1).min(1, initial=np.inf)


def _along(start: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Points `(k, 25, 2)` on the lines from `start` `(2,)` to `ends` `(k, 2)`."""
    return start + np.linspace(0, 1, 25)[:, None] * (ends - start)[:, None]


def _clear(centres: np.ndarray, index: int, ends: np.ndarray, labels: np.ndarray, clearance: float) -> np.ndarray:
    """`(k,)`: whether lines from `centres[index]` to `ends` `(k, 2)` keep clear of all else.

    That is of the other `centres` `(n, 2)` and of `labels` `(m, 4)`.
    """
    neighbours = np.delete(centres, index, axis=0) - centres[index]
    lines = ends - centres[index]
    # (k, n - 1): where a line comes nearest to a point
    along = np.clip((lines @ neighbours.T) / (lines**2).sum(1, keepdims=True), 0, 1)
    distances = np.linalg.norm(neighbours - along[..., None] * lines[:, None], axis=2)
    passed = _along(centres[index], ends)[:, :, None]
    crossed = ((passed > labels[:, :2]) & (passed < labels[:, 2:])).all(3).any((1, 2))
    return (distances >= np.minimum(clearance, np.linalg.norm(neighbours, axis=1) / 2)).all(1) & ~crossed
