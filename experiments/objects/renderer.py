"""Pictures of a model, with the same pixels on every machine.

Only + - * /, square roots, floor, comparisons and maxima of float64 are used, in a fixed order: no BLAS, no power, no
trigonometry, no generator of NumPy. What is random about a picture follows from hashes of its key (`uniform`,
`direction`): the view, the lights, the background.

A triangle covers the pixels whose centre lies inside it. For each row of pixels that it reaches, its span is found
from the edges that the row's centre line crosses; all pixels of all spans are then written with `maximum.at`, where
a number holds the depth in its high bits and the triangle in its low ones.
"""

import hashlib
import itertools
import math
from typing import NamedTuple

import numpy as np

from experiments.objects.readers import Model

SIDE = 128
# pixels of the raster per pixel of the picture, each way
FACTOR = 2
DEPTH_STEPS = 2**31
TRIANGLES = 2**32


class Camera(NamedTuple):
    """Where a model is seen from, and where it lies in the picture.

    `view` points to the camera, `sine` turns the picture, `distance` is in radii of the model, `fill` the longer side
    of its box and `shift` its offset (x, y), as shares of the picture's side.
    """

    view: tuple[float, float, float]
    sine: float = 0.0
    distance: float = 4.0
    fill: float = 0.95
    shift: tuple[float, float] = (0.0, 0.0)


class Light(NamedTuple):
    """A light from far away: the direction to it, and its red, green and blue."""

    direction: tuple[float, float, float]
    colour: tuple[float, float, float]


def uniform(key: str, n: int) -> list[float]:
    """`n` numbers of [0, 1): the SHA-256 of "<key> <i>" for i = 0, 1 ... as four big-endian integers each."""
    numbers = []
    for i in range(-(-n // 4)):
        digest = hashlib.sha256(f"{key} {i}".encode()).digest()
        numbers += [int.from_bytes(digest[start : start + 8], "big") / 2**64 for start in range(0, 32, 8)]
    return numbers[:n]


def direction(key: str, low: float, high: float) -> tuple[float, float, float]:
    """A direction of length 1, uniform among those with z of `low` to `high`."""
    for i in itertools.count():
        x, y, z = (2 * number - 1 for number in uniform(f"{key} d{i}", 3))
        square = x * x + y * y + z * z
        if 1e-4 < square <= 1:
            radius = math.sqrt(square)
            if low <= z / radius <= high:
                return x / radius, y / radius, z / radius


def dot(a, b):
    """The product of two vectors, whose coordinates are the first axis; summed in order."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def unit(vector):
    """The vector of length 1 of a sequence of three numbers or `(3, ...)`; zero stays zero."""
    length = np.sqrt(dot(vector, vector))
    length = np.where(length > 0, length, 1.0)
    return tuple(coordinate / length for coordinate in vector)


def cross(a, b):
    """The vector product of two vectors, whose coordinates are the first axis."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def axes(camera: Camera) -> tuple[tuple, tuple]:
    """The directions to the right and upwards of a camera's picture."""
    right = unit((-camera.view[1], camera.view[0], 0.0))
    up = cross(camera.view, right)
    cosine = np.sqrt(1 - camera.sine * camera.sine)
    turned_right = tuple(cosine * r + camera.sine * u for r, u in zip(right, up, strict=True))
    turned_up = tuple(cosine * u - camera.sine * r for r, u in zip(right, up, strict=True))
    return turned_right, turned_up


def place(corners: np.ndarray, camera: Camera, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Corners `(T, 3, 3)` as points less the box's centre `(3, T, 3)`, pixels `(2, T, 3)` and depths `(T, 3)`.

    The last value is the model's radius. The depth is 1 / distance along the view, of radii: linear in the picture.
    """
    points = corners.transpose(2, 0, 1)
    flat = points.reshape(3, -1)
    centre = (flat.min(axis=1) + flat.max(axis=1)) / 2
    points = points - centre[:, None, None]
    radius = np.sqrt(dot(points, points).max())
    right, up = axes(camera)
    distances = camera.distance * radius - dot(points, camera.view)
    screen = np.stack([dot(points, right) / distances, -dot(points, up) / distances])
    lowest = screen.min(axis=(1, 2))
    highest = screen.max(axis=(1, 2))
    scale = camera.fill * side / max((highest - lowest).max(), 1e-300)
    offset = side / 2 + np.array(camera.shift) * side - scale * (lowest + highest) / 2
    return points, screen * scale + offset[:, None, None], radius / distances, radius


def span_rows(screen: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Triangle, row, first pixel and end of each span of `screen` `(2, T, 3)` that has pixels."""
    order = np.argsort(screen[1], axis=1, kind="stable")
    x, y = np.take_along_axis(screen, order[None], axis=2).transpose(0, 2, 1)
    first = np.clip(np.ceil(y[0] - 0.5), 0, side).astype(np.int64)
    end = np.clip(np.ceil(y[2] - 0.5), 0, side).astype(np.int64)
    n_rows = end - first
    triangle = np.repeat(np.arange(len(first)), n_rows)
    row = np.arange(len(triangle)) - np.repeat(np.cumsum(n_rows) - n_rows, n_rows) + first[triangle]
    centre = row + 0.5
    is_lower = (centre >= y[1][triangle]).astype(np.int64)
    long_edge = _crossing(x, y, 0, 2, triangle, centre)
    short_edge = np.where(is_lower, _crossing(x, y, 1, 2, triangle, centre), _crossing(x, y, 0, 1, triangle, centre))
    start = np.clip(np.ceil(np.minimum(long_edge, short_edge) - 0.5), 0, side).astype(np.int64)
    stop = np.clip(np.ceil(np.maximum(long_edge, short_edge) - 0.5), 0, side).astype(np.int64)
    full = np.flatnonzero(stop > start)
    return triangle[full], row[full], start[full], stop[full]


def _crossing(x, y, a: int, b: int, triangle, centre) -> np.ndarray:
    """Where the edge of corners `a` and `b`, `b` below `a`, crosses the line of a row; of no use for a level edge."""
    height = y[b] - y[a]
    slope = (x[b] - x[a]) / np.where(height > 0, height, 1.0)
    return x[a][triangle] + (centre - y[a][triangle]) * slope[triangle]


def gradients(screen: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value at (0, 0) and its changes per pixel to the right and down, of `values` `(T, 3)` linear in the picture."""
    x, y = screen
    x1 = x[:, 1] - x[:, 0]
    y1 = y[:, 1] - y[:, 0]
    x2 = x[:, 2] - x[:, 0]
    y2 = y[:, 2] - y[:, 0]
    area = x1 * y2 - x2 * y1
    area = np.where(area != 0, area, np.inf)
    value1 = values[:, 1] - values[:, 0]
    value2 = values[:, 2] - values[:, 0]
    right = (value1 * y2 - value2 * y1) / area
    down = (value2 * x1 - value1 * x2) / area
    return values[:, 0] - x[:, 0] * right - y[:, 0] * down, right, down


def rasterise(screen: np.ndarray, depth: np.ndarray, side: int) -> np.ndarray:
    """The number of the nearest triangle at each pixel `(side * side,)`, -1 where there is none.

    The higher depth is nearer; of equal ones, of `DEPTH_STEPS`, the lower triangle.
    """
    triangle, row, start, stop = span_rows(screen, side)
    lengths = stop - start
    span = np.repeat(np.arange(len(triangle)), lengths)
    column = np.arange(len(span)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + start[span]
    at_corner, right, down = gradients(screen, depth)
    at_row = at_corner[triangle] + (row + 0.5) * down[triangle]
    values = at_row[span] + (column + 0.5) * right[triangle][span]
    # rounding does not bring a narrow triangle nearer than its nearest corner
    values = np.clip(values, depth.min(axis=1)[triangle][span], depth.max(axis=1)[triangle][span])
    steps = np.clip(np.floor(values * DEPTH_STEPS), 0, DEPTH_STEPS - 1).astype(np.int64)
    nearest = np.full(side * side, -1, dtype=np.int64)
    np.maximum.at(nearest, (row * side)[span] + column, steps * TRIANGLES + (TRIANGLES - 1 - triangle)[span])
    return np.where(nearest < 0, -1, TRIANGLES - 1 - nearest % TRIANGLES)


def shade(
    model: Model, camera: Camera, ambient: float, lights: list[Light], side: int
) -> tuple[np.ndarray, np.ndarray]:
    """Colours `(P, 3)` and pixels `(P,)` of the raster of `side` x `side` that the model covers."""
    points, screen, depth, radius = place(model.corners, camera, side)
    nearest = rasterise(screen, depth, side)
    pixels = np.flatnonzero(nearest >= 0)
    seen, rows = np.unique(nearest[pixels], return_inverse=True)
    points = points[:, seen]
    screen = screen[:, seen]
    depth = depth[seen]
    material = model.material[seen]
    normal = np.stack(unit(cross(points[:, :, 1] - points[:, :, 0], points[:, :, 2] - points[:, :, 0])))
    to_camera = [camera.distance * radius * v - p for v, p in zip(camera.view, points[:, :, 0], strict=True)]
    normal = np.where(dot(normal, to_camera) < 0, -normal, normal)
    light = np.zeros((3, len(seen))) + ambient * (0.6 + 0.4 * (0.5 + 0.5 * normal[2]))
    shine = np.zeros((3, len(seen)))
    for source in lights:
        half = unit([to_light + to_eye for to_light, to_eye in zip(source.direction, camera.view, strict=True)])
        highlight = np.maximum(dot(normal, half), 0)
        for _ in range(4):
            highlight = highlight * highlight
        colour = np.array(source.colour)[:, None]
        light += colour * np.maximum(dot(normal, source.direction), 0)
        shine += colour * highlight
    specular = np.minimum(np.array([entry.specular for entry in model.materials]), 0.6)[material]
    diffuse = np.array([entry.diffuse for entry in model.materials])[material][rows]
    for number, entry in enumerate(model.materials):
        textured = np.flatnonzero(material[rows] == number)
        if entry.texture is not None and textured.size:
            uv = _texture_coordinates(model.uv[seen], screen, depth, rows[textured], pixels[textured], side)
            diffuse[textured] = _texture_colours(entry.texture, *uv)
    return diffuse * light.T[rows] + (specular * shine.T)[rows], pixels


def _texture_coordinates(uv, screen, depth, rows, pixels, side) -> list[np.ndarray]:
    """Texture coordinates u and v of `pixels`, each on the triangle of `rows`: linear in space, not in the picture."""
    x = pixels % side + 0.5
    y = pixels // side + 0.5
    values = []
    for corners in (depth, uv[:, :, 0] * depth, uv[:, :, 1] * depth):
        start, right, down = gradients(screen, corners)
        values.append(start[rows] + x * right[rows] + y * down[rows])
    return [value / values[0] for value in values[1:]]


def _texture_colours(texture: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The nearest colours `(P, 3)` of 0 to 1; the texture repeats, and v points upwards."""
    height, width = texture.shape[:2]
    column = np.floor((u - np.floor(u)) * width).astype(np.int64)
    row = np.floor((1 - (v - np.floor(v))) * height).astype(np.int64)
    return texture[np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)] / 255


def noise(key: str, n_points: int) -> np.ndarray:
    """`(SIDE, SIDE)` of 0 to 1: a grid of `n_points` x `n_points` random numbers, smooth between them."""
    grid = np.array(uniform(key, n_points * n_points)).reshape(n_points, n_points)
    place = np.arange(SIDE) / SIDE * (n_points - 1)
    cell = np.floor(place).astype(np.int64)
    share = place - cell
    share = share * share * (3 - 2 * share)
    rows = grid[cell] + (grid[cell + 1] - grid[cell]) * share[:, None]
    return rows[:, cell] + (rows[:, cell + 1] - rows[:, cell]) * share


def background(key: str, brightness: float) -> np.ndarray:
    """`(SIDE, SIDE, 3)`: in four of five pictures as in a photograph of a product, else a pattern of two colours."""
    b = uniform(f"{key} back", 12)
    row = np.arange(SIDE)[:, None] / SIDE
    column = np.arange(SIDE) / SIDE
    if b[9] < 0.8:
        grey = 0.62 + 0.36 * b[0] + 0.16 * (b[4] - 0.5) * (row - 0.5) + 0.16 * (b[5] - 0.5) * (column - 0.5)
        grey = grey + 0.06 * (noise(f"{key} backa", 5) - 0.5)
        tint = 1 + 0.08 * (np.array(b[1:4]) - 0.5)
        return brightness * (grey[:, :, None] * tint)
    colours = []
    for red, green, blue in (b[0:3], b[3:6]):
        grey = (red + green + blue) / 3
        colours.append(0.45 * np.array([red, green, blue]) + 0.55 * grey)
    kind = math.floor(4 * b[7])
    n_cells = 4 + math.floor(12 * b[8])
    if kind < 2:
        share = noise(f"{key} backa", 5 + 12 * kind)
    elif kind == 2:
        share = (np.floor(row * n_cells + b[10]) + np.floor(column * n_cells + b[11])) % 2
    else:
        share = np.floor((row * (2 * b[10] - 1) + column * (2 * b[11] - 1)) * 2 * n_cells) % 2
    return brightness * (colours[0] + (colours[1] - colours[0]) * share[:, :, None])


def picture(model: Model, camera: Camera, ambient: float, lights: list[Light], backdrop: np.ndarray) -> np.ndarray:
    """A model on a background `(S, S, 3)`, of 0 to 1: the mean of FACTOR x FACTOR pixels of the raster."""
    side = len(backdrop) * FACTOR
    colours, pixels = shade(model, camera, ambient, lights, side)
    raster = backdrop.repeat(FACTOR, axis=0).repeat(FACTOR, axis=1)
    raster.reshape(-1, 3)[pixels] = colours
    mean = (raster[::2, ::2] + raster[::2, 1::2] + raster[1::2, ::2] + raster[1::2, 1::2]) / 4
    return np.clip(mean, 0, 1)


def view_camera(key: str) -> Camera:
    """The camera of a picture, by its key "<model> <view>"."""
    u = uniform(key, 24)
    shift = 0.04 * (2 * u[2] - 1), 0.04 * (2 * u[3] - 1)
    return Camera(direction(f"{key} view", 0.2, 0.9), 0.2 * (2 * u[0] - 1), 2 + 3 * u[4], 0.7 + 0.25 * u[1], shift)


def view_lights(key: str, view: tuple[float, float, float]) -> list[Light]:
    """The key light and the fill light of a picture."""
    u = uniform(key, 24)
    toward = direction(f"{key} key", 0.1, 1)
    main = unit([eye + 0.9 * light for eye, light in zip(view, toward, strict=True)])
    return [
        Light(main, _tinted(0.7 + 0.3 * (u[5] - 0.5), u[7:10])),
        Light(direction(f"{key} fill", -0.3, 0.9), _tinted(0.25 + 0.18 * (u[6] - 0.5), u[10:13])),
    ]


def _tinted(strength: float, numbers: list[float]) -> tuple[float, ...]:
    tint = [1 + width * (number - 0.5) for width, number in zip((0.125, 0.075, 0.125), numbers, strict=True)]
    return tuple(strength * part for part in tint)


def render(model: Model, key: str) -> np.ndarray:
    """The picture `(SIDE, SIDE, 3)` uint8 of a model by its key "<model> <view>"."""
    u = uniform(key, 24)
    camera = view_camera(key)
    backdrop = background(key, 0.8 + 0.24 * (u[14] - 0.5))
    values = picture(model, camera, 0.325 + 0.15 * (u[13] - 0.5), view_lights(key, camera.view), backdrop)
    if u[15] < 0.5:
        values = blurred(blurred(values).transpose(1, 0, 2)).transpose(1, 0, 2)
    return np.floor(255 * values + 0.5).astype(np.uint8)


def blurred(values: np.ndarray) -> np.ndarray:
    """The mean of each row with its neighbours, weighted 1, 2, 1; the border repeats."""
    above = np.concatenate([values[:1], values[:-1]])
    below = np.concatenate([values[1:], values[-1:]])
    return (above + 2 * values + below) / 4
