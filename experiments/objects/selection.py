"""Which models are classes: of equal, nearly equal and serial models only some.

The models are read in the order of their names. Of models with the same triangles and colours the first stays
(`geometry_hash`); of models whose pictures from six fixed views are alike the first stays (`distinct`); of the parts
of a series, whose names differ in numbers alone, the five of the lowest hash (`few_per_series`).
"""

import hashlib
import math
import re
from collections import defaultdict

import numpy as np

from experiments.objects.readers import Model
from experiments.objects.renderer import Camera, Light, picture, unit

# length of a step of the grid on which two models are equal
GRID = 0.001
# odd numbers by which the coordinates of a corner become one number
MIXERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64).astype(np.int64)
VIEWS = (
    (1.0, 0.6, 0.7),
    (-0.6, 1.0, 0.5),
    (-1.0, -0.7, 0.9),
    (0.5, -1.0, 0.6),
    (0.25, 0.1, 1.0),
    (0.9, -0.2, 0.15),
)
VIEW_SIDE = 32
BACKGROUND = AMBIENT = 0.5
LIGHT = 0.6
LIGHT_OFFSET = (0.3, -0.2, 0.5)
# the distance, of 1, below which two models are nearly equal: the third smallest of their six views
NEARLY_EQUAL = 0.04
RANK = 2
BLOCK = 256
SERIES_SIZE = 5
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def geometry_hash(model: Model) -> bytes:
    """A SHA-256 of the triangles and their colours, the same wherever the model lies and however they are ordered."""
    flat = model.corners.reshape(-1, 3)
    centre = (flat.min(axis=0) + flat.max(axis=0)) / 2
    steps = np.floor((model.corners - centre) / GRID + 0.5).astype(np.int64)
    corners = np.sort((steps * MIXERS).sum(axis=2), axis=1)
    colours = np.array([_colour(material) for material in model.materials])[model.material]
    rows = np.concatenate([corners, colours], axis=1)
    rows = rows[np.lexsort(rows.T[::-1])]
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).digest()


def _colour(material) -> list[int]:
    """Red, green and blue of a material in 255 steps; of a texture its mean."""
    if material.texture is not None:
        sums = material.texture.astype(np.int64).sum(axis=(0, 1))
        return (sums // material.texture[:, :, 0].size).tolist()
    return [int(value * 255 + 0.5) for value in material.diffuse]


def fixed_views(model: Model) -> np.ndarray:
    """Six small pictures `(6, 32, 32, 3)` uint8 of a model."""
    backdrop = np.full((VIEW_SIDE, VIEW_SIDE, 3), BACKGROUND)
    pictures = []
    for towards in VIEWS:
        view = unit(towards)
        to_light = unit([eye + offset for eye, offset in zip(view, LIGHT_OFFSET, strict=True)])
        pictures.append(picture(model, Camera(view), AMBIENT, [Light(to_light, (LIGHT,) * 3)], backdrop))
    return np.floor(255 * np.stack(pictures) + 0.5).astype(np.uint8)


def distinct(views: np.ndarray, threshold: float = NEARLY_EQUAL) -> list[int]:
    """The rows of models that are not nearly equal to an earlier one of these rows.

    The sums are of whole numbers below 2**53, so exact in any order.

    Args:
        views: `(N, 6, 32, 32, 3)` uint8.
    """
    n, n_views = views.shape[:2]
    flat = views.reshape(n, n_views, math.prod(views.shape[2:]))
    limit = (threshold * 255) ** 2 * flat.shape[2]
    survivors = []
    for start in range(0, n, BLOCK):
        block = flat[start : start + BLOCK].astype(np.float64)
        is_near = _squares(block, flat[survivors]) < limit
        is_near_within = _squares(block, flat[start : start + BLOCK]) < limit
        chosen = []
        for row in range(len(block)):
            if not is_near[row].any() and not is_near_within[row, chosen].any():
                chosen.append(row)
        survivors += [start + row for row in chosen]
    return survivors


def _squares(block: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """`(B, N)`: the third smallest, over the views, sum of squared differences of `(B, V, P)` and `(N, V, P)`."""
    n_views = block.shape[1]
    squares = np.empty((n_views, len(block), len(flat)))
    for view in range(n_views):
        a = block[:, view]
        b = flat[:, view].astype(np.float64)
        squares[view] = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * (a @ b.T)
    return np.partition(squares, RANK, axis=0)[RANK]


def part_series(name: str) -> str:
    """The series of a part, `<folder>/<name>`: the name with every number replaced."""
    return NUMBER.sub("#", name)


def few_per_series(names: list[str]) -> list[str]:
    """Of each series of parts the five names of the lowest SHA-256, in the order of the names."""
    members = defaultdict(list)
    for name in names:
        members[part_series(name)].append(name)
    chosen = []
    for series in members.values():
        chosen += sorted(series, key=lambda name: hashlib.sha256(name.encode()).digest())[:SERIES_SIZE]
    return sorted(chosen)


def first_of_equal(names: list[str], hashes: list[bytes]) -> list[int]:
    """Rows in the order of the names, of equal hashes the first."""
    seen = set()
    rows = []
    for row in sorted(range(len(names)), key=lambda row: names[row]):
        if hashes[row] not in seen:
            seen.add(hashes[row])
            rows.append(row)
    return rows
