"""experiments/objects/renderer.py: its random numbers, its raster against a plain loop, its geometry."""

import hashlib
import math

import numpy as np
import pytest

from experiments.objects import renderer
from experiments.objects.readers import Material, Model
from experiments.objects.renderer import Camera, Light

SIDE = 32


def test_numbers_of_a_key():
    assert renderer.uniform("a 0", 2) == pytest.approx([0.0645797, 0.8902396], abs=2e-7)
    numbers = renderer.uniform("a 0", 9)
    assert renderer.uniform("a 0", 2) == numbers[:2] and len(set(numbers)) == 9
    second = hashlib.sha256(b"a 0 1").digest()
    assert numbers[4] == int.from_bytes(second[:8], "big") / 2**64


def test_directions_of_a_key():
    directions = np.array([renderer.direction(f"key {number}", 0.2, 0.9) for number in range(300)])
    assert np.allclose((directions**2).sum(axis=1), 1, atol=1e-14)
    assert directions[:, 2].min() >= 0.2 and directions[:, 2].max() <= 0.9
    # uniform on the sphere: z is uniform
    assert directions[:, 2].mean() == pytest.approx(0.55, abs=0.05)
    for number in range(200):
        x, y, z = (2 * value - 1 for value in renderer.uniform(f"LED {number} d0", 3))
        length = math.sqrt(x * x + y * y + z * z)
        if length <= 1 and z / length >= -0.3:
            assert renderer.direction(f"LED {number}", -0.3, 1) == (x / length, y / length, z / length)


def slow_raster(screen, depth, side):
    """The nearest triangle of each pixel, pixel by pixel, by the signs of three areas."""
    nearest = np.full((side, side), -1)
    for row in range(side):
        for column in range(side):
            best = -1.0
            for triangle in range(screen.shape[1]):
                value = depth_at(screen[:, triangle], depth[triangle], column + 0.5, row + 0.5)
                if value is not None and math.floor(value * 2**31) > best:
                    best = math.floor(value * 2**31)
                    nearest[row, column] = triangle
    return nearest.reshape(-1)


def depth_at(corners, depths, x, y):
    """The depth of a triangle at a point, None outside."""
    (x0, x1, x2), (y0, y1, y2) = corners
    areas = [
        (x1 - x) * (y2 - y) - (x2 - x) * (y1 - y),
        (x2 - x) * (y0 - y) - (x0 - x) * (y2 - y),
        (x0 - x) * (y1 - y) - (x1 - x) * (y0 - y),
    ]
    if not (min(areas) > 0 or max(areas) < 0):
        return None
    return sum(area * value for area, value in zip(areas, depths, strict=True)) / sum(areas)


def test_the_raster_equals_a_plain_loop():
    rng = np.random.default_rng(0)
    centres = rng.uniform(-4, SIDE + 4, (2, 200, 1))
    screen = centres + rng.normal(0, 5, (2, 200, 3))
    depth = rng.uniform(0.2, 0.9, (200, 3))
    # a narrow triangle, a point, and two that lie in the plane of an earlier one
    screen[:, 5] = [[3, 30, 30], [4, 28, 28.01]]
    screen[:, 6] = 7.5
    screen[:, 190:192] = screen[:, 20:22]
    depth[190:192] = depth[20:22]
    result = renderer.rasterise(screen, depth, SIDE)
    assert (result == slow_raster(screen, depth, SIDE)).all()
    assert len(set(result.tolist())) > 50 and not {190, 191} & set(result.tolist())


def test_triangles_side_by_side_cover_each_pixel_once():
    rng = np.random.default_rng(1)
    grid = np.stack(np.meshgrid(np.linspace(0, SIDE, 9), np.linspace(0, SIDE, 9)), axis=-1)
    grid[1:-1, 1:-1] += rng.uniform(-1.5, 1.5, (7, 7, 2))
    triangles = []
    for row in range(8):
        for column in range(8):
            a = grid[row, column]
            b = grid[row, column + 1]
            c = grid[row + 1, column]
            d = grid[row + 1, column + 1]
            triangles += [(a, b, c), (d, c, b)]
    screen = np.array(triangles).transpose(2, 0, 1)
    _, _, start, stop = renderer.span_rows(screen, SIDE)
    assert (stop - start).sum() == SIDE * SIDE
    assert (renderer.rasterise(screen, np.full((len(triangles), 3), 0.5), SIDE) >= 0).all()


def square(size, height, **material):
    """A level square of two triangles at a height."""
    a, b, c, d = ((x * size, y * size, height) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1)))
    uv = np.array([[[0, 0], [1, 0], [1, 1]], [[0, 0], [1, 1], [0, 1]]], dtype=np.float64)
    return Model(np.array([(a, b, c), (a, c, d)]), np.zeros(2, dtype=np.int64), uv, [Material(**material)])


def shaded(model, camera, lights=(), ambient=1.0):
    colours, pixels = renderer.shade(model, camera, ambient, list(lights), SIDE)
    picture = np.full((SIDE * SIDE, 3), np.nan)
    picture[pixels] = colours
    return picture.reshape(SIDE, SIDE, 3)


ABOVE = Camera((0.0, 0.6, 0.8), fill=0.5)


def test_box_and_light():
    picture = shaded(square(1, 5.0, diffuse=(0.5, 0.25, 1.0)), ABOVE)
    covered = np.isfinite(picture[:, :, 0])
    rows = np.flatnonzero(covered.any(axis=1))
    columns = np.flatnonzero(covered.any(axis=0))
    # the longer side is half of the picture, in its middle
    assert len(columns) == SIDE // 2 and columns[0] == SIDE // 4
    assert len(rows) < SIDE // 2 and abs(rows.mean() - (SIDE - 1) / 2) <= 0.5
    # the normal is (0, 0, 1): all of the ambient light
    assert np.allclose(picture[covered], (0.5, 0.25, 1.0))
    below = shaded(square(1, 5.0, diffuse=(1.0, 1.0, 1.0)), Camera((0.0, 0.6, -0.8)))
    assert np.nanmax(below) == pytest.approx(0.6)


def test_lights_and_highlights():
    towards = (0.0, 0.0, 1.0)
    model = square(1, 0.0, diffuse=(0.5, 0.5, 0.5), specular=(0.9, 0.1, 0.0))
    picture = shaded(model, ABOVE, [Light(towards, (1.0, 0.5, 0.25))], ambient=0.0)
    half = np.array([0, 0.6, 1.8]) / math.sqrt(0.6**2 + 1.8**2)
    shine = half[2] ** 16
    expected = [0.5 + 0.6 * shine, 0.25 + 0.1 * 0.5 * shine, 0.125]
    assert np.allclose(picture[SIDE // 2, SIDE // 2], expected)
    # a light below the plane gives nothing
    assert not np.nansum(shaded(model, ABOVE, [Light((0.0, 0.0, -1.0), (1.0,) * 3)], ambient=0.0))


def test_a_texture_lies_as_seen_from_its_side():
    texture = np.zeros((2, 2, 3), dtype=np.uint8)
    # rows from above: red, green; blue, white
    texture[:] = [[(255, 0, 0), (0, 255, 0)], [(0, 0, 255), (255, 255, 255)]]
    model = square(1, 0.0, texture=texture)
    # seen from the south, x is to the right and y is upwards
    picture = shaded(model, Camera((0.0, -0.6, 0.8)))
    covered = np.isfinite(picture[:, :, 0])
    rows = np.flatnonzero(covered.any(axis=1))
    columns = np.flatnonzero(covered.any(axis=0))
    corners = [picture[row, column].tolist() for row in (rows[1], rows[-2]) for column in (columns[8], columns[-9])]
    assert corners == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]
    # perspective: the nearer half of the square is higher in the picture
    blue = np.nansum(picture[:, columns[8], 2] == 1)
    assert blue > np.nansum(picture[:, columns[8], 0] == 1)


def test_pictures_differ_by_key_alone():
    model = square(1, 0.0, diffuse=(0.5, 0.25, 1.0))
    first = renderer.render(model, "square 0")
    assert first.shape == (128, 128, 3) and first.dtype == np.uint8
    assert (renderer.render(model, "square 0") == first).all()
    moved = model._replace(corners=model.corners * 4 + 8)
    assert (renderer.render(moved, "square 0") == first).mean() > 0.999
    assert (renderer.render(model, "square 1") != first).mean() > 0.5


def test_backgrounds_have_their_kinds():
    pictures = [renderer.background(f"key {number}", 1.0) for number in range(60)]
    deviations = [picture.std(axis=(0, 1)).max() for picture in pictures]
    product = sum(renderer.uniform(f"key {number} back", 12)[9] < 0.8 for number in range(60))
    assert 40 <= product <= 56
    assert sum(deviation < 0.05 for deviation in deviations) >= product
    assert all(picture.shape == (128, 128, 3) and np.isfinite(picture).all() for picture in pictures)


def test_blur_keeps_a_level_picture_and_the_sum_of_a_point():
    assert (renderer.blurred(np.full((5, 4, 3), 0.5)) == 0.5).all()
    point = np.zeros((5, 5, 1))
    point[2, 2] = 1
    assert renderer.blurred(point)[:, 2, 0].tolist() == [0, 0.25, 0.5, 0.25, 0]
