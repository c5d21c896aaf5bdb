"""3D models as triangles: VRML as KiCad exports it, and OBJ with its materials and textures.

Both are read into one `Model`. Of VRML the shapes with a list of polygons and a material are read, of OBJ the faces,
their materials and texture coordinates; z is up in both. Polygons become fans of triangles, and triangles that are
nearly transparent are left out.
"""

import io
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

GREY = (0.8, 0.8, 0.8)
# the highest opacity of triangles that are left out
TRANSPARENT = 0.3
# the longer side of a texture, at most
TEXTURE_SIDE = 256
# these begin with letters, by which `re` finds them fast in long lists of numbers
SHAPE = re.compile(r"Shape\s*\{")
COORDINATES = re.compile(r"coordIndex\s*\[([^\]]*)\]")
POINTS = re.compile(r"point\s*\[([^\]]*)\]")
MATERIAL = re.compile(r"material\s+(?:USE\s+([^\s{}]+)|(?:DEF\s+([^\s{}]+?)\s+)?Material\s*\{([^}]*)\})")
FIELD = re.compile(r"\b(diffuseColor|specularColor|transparency)\s+((?:[-+.\d][-+.\deE]*[\s,]*)+)")
SEPARATORS = str.maketrans(",\t\r\n", "    ")


class Material(NamedTuple):
    """Colour and shine `(3,)` of 0 to 1, opacity, and the texture `(H, W, 3)` uint8 that replaces the colour."""

    diffuse: tuple[float, ...] = GREY
    specular: tuple[float, ...] = (0.0, 0.0, 0.0)
    opacity: float = 1.0
    texture: np.ndarray | None = None


class Model(NamedTuple):
    """T triangles: corners `(T, 3, 3)`, material numbers `(T,)`, texture coordinates `(T, 3, 2)`, the materials."""

    corners: np.ndarray
    material: np.ndarray
    uv: np.ndarray
    materials: list[Material]


def visible(model: Model) -> Model:
    """The model without its triangles that are nearly transparent, unless all are."""
    opacity = np.array([material.opacity for material in model.materials])
    rows = np.flatnonzero(opacity[model.material] > TRANSPARENT)
    if not rows.size or rows.size == len(model.material):
        return model
    return Model(model.corners[rows], model.material[rows], model.uv[rows], model.materials)


def fans(indices: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Triangles `(T, 3)` of polygons: (first, k-th, next corner), as positions in `indices` translated to its values.

    Args:
        indices: `(N,)` corners of all polygons, one after another.
        sizes: `(P,)` number of corners of each polygon; polygons of less than three have no triangle.
    """
    starts = np.cumsum(sizes) - sizes
    n_triangles = np.maximum(sizes - 2, 0)
    first = np.repeat(starts, n_triangles)
    number = np.arange(n_triangles.sum()) - np.repeat(np.cumsum(n_triangles) - n_triangles, n_triangles)
    return indices[np.stack([first, first + number + 1, first + number + 2], axis=1)]


def numbers(text: str) -> np.ndarray:
    """The numbers of a text, separated by commas or space."""
    return np.fromstring(text.translate(SEPARATORS), sep=" ")


def read_vrml(text: str) -> Model | None:
    """The model of a VRML file. None for one with `Transform`, which is not read, or without triangles."""
    if "Transform" in text:
        return None
    names = {}
    materials = [Material()]
    material_numbers = []
    index_lists = []
    point_lists = []
    for shape in SHAPE.split(text)[1:]:
        number = _vrml_material(shape, names, materials)
        polygons = COORDINATES.search(shape)
        points = POINTS.search(shape)
        if polygons is not None and points is not None:
            material_numbers.append(number)
            index_lists.append(polygons[1])
            point_lists.append(points[1])
    # all lists are read at once: "-1 -2" ends the last polygon and the polygons of a shape, a row of NaN its points
    indices = numbers(" -1 -2 ".join([*index_lists, ""])).astype(np.int64)
    points = numbers(" nan nan nan ".join([*point_lists, ""])).reshape(-1, 3)
    first_points = np.flatnonzero(np.isnan(np.concatenate([[[np.nan] * 3], points])[:, 0]))
    shape_numbers = np.cumsum(indices == -2)
    is_corner = indices >= 0
    sizes = np.diff(np.flatnonzero(~is_corner), prepend=-1) - 1
    rows = fans(np.flatnonzero(is_corner), sizes)
    if not len(rows):
        return None
    corners = points[indices[rows] + first_points[shape_numbers[rows]]]
    material = np.array(material_numbers)[shape_numbers[rows[:, 0]]]
    return visible(Model(corners, material, np.zeros((len(corners), 3, 2)), materials))


def _vrml_material(shape: str, names: dict[str, int], materials: list[Material]) -> int:
    """The number in `materials` of a shape's material, which is added to the two if the shape defines it."""
    match = MATERIAL.search(shape)
    if match is None:
        return 0
    reference, definition, body = match.groups()
    if reference is not None:
        return names.get(reference, 0)
    fields = {name: tuple(numbers(value).tolist()) for name, value in FIELD.findall(body)}
    # without the rounding error of 1 - .7, which is above .3
    opacity = round(1 - fields.get("transparency", (0.0,))[0], 9)
    materials.append(
        Material(fields.get("diffuseColor", GREY)[:3], fields.get("specularColor", (0.0,) * 3)[:3], opacity)
    )
    if definition is not None:
        names[definition] = len(materials) - 1
    return len(materials) - 1


def read_obj(text: str, read_file: Callable[[str], bytes | None]) -> Model | None:
    """The model of an OBJ file, turned so that z is up. None if it has no triangle.

    Args:
        read_file: content of a file beside it by its name, None if it is missing: `mtllib` and textures.
    """
    points = []
    coordinates = []
    polygons = []
    polygon_materials = []
    names = {}
    materials = [Material()]
    number = 0
    for line in text.replace("\\\n", " ").splitlines():
        word, _, arguments = line.strip().partition(" ")
        if word == "v":
            points.append([float(value) for value in arguments.split()[:3]])
        elif word == "vt":
            coordinates.append([float(value) for value in (arguments.split() + ["0"])[:2]])
        elif word == "f":
            polygons.append([_corner(corner, len(points), len(coordinates)) for corner in arguments.split()])
            polygon_materials.append(number)
        elif word == "usemtl":
            number = names.get(arguments.strip(), 0)
        elif word == "mtllib":
            _read_materials(arguments.strip(), read_file, names, materials)
    sizes = np.array([len(polygon) for polygon in polygons], dtype=np.int64)
    if not (sizes > 2).any():
        return None
    triangles = fans(np.array([corner for polygon in polygons for corner in polygon]), sizes)
    x, y, z = np.array(points)[triangles[:, :, 0]].transpose(2, 0, 1)
    # without texture coordinates a corner has the number -1: the row of zeros at the end
    uv = np.array([*coordinates, [0.0, 0.0]])[triangles[:, :, 1]]
    material = np.repeat(np.array(polygon_materials), np.maximum(sizes - 2, 0))
    return visible(Model(np.stack([x, -z, y], axis=2), material, uv, materials))


def _corner(text: str, n_points: int, n_coordinates: int) -> tuple[int, int]:
    """Rows of point and texture coordinate of `a`, `a/b` or `a/b/c`: from 1, or negative from the last one."""
    point, _, suffix = text.partition("/")
    coordinate = int(suffix.partition("/")[0] or 0)
    if coordinate < 0:
        coordinate += n_coordinates + 1
    row = int(point)
    if row < 0:
        row += n_points + 1
    return row - 1, coordinate - 1


def _read_materials(name: str, read_file: Callable, names: dict[str, int], materials: list[Material]) -> None:
    """Add the materials of the file `name` to `materials`, and their numbers to `names`."""
    content = read_file(name)
    if content is None:
        return
    for line in content.decode("latin-1").splitlines():
        word, _, arguments = line.strip().partition(" ")
        if word == "newmtl":
            names[arguments.strip()] = len(materials)
            materials.append(Material())
        elif word == "Kd":
            materials[-1] = materials[-1]._replace(diffuse=tuple(map(float, arguments.split()[:3])))
        elif word == "Ks":
            materials[-1] = materials[-1]._replace(specular=tuple(map(float, arguments.split()[:3])))
        elif word == "d":
            materials[-1] = materials[-1]._replace(opacity=float(arguments.split()[-1]))
        elif word == "map_Kd":
            picture = read_file(arguments.strip())
            if picture is not None:
                materials[-1] = materials[-1]._replace(texture=read_texture(picture))


def read_texture(content: bytes) -> np.ndarray:
    """A picture `(H, W, 3)` uint8, reduced by the whole factor that brings its longer side to 256 pixels or less."""
    from PIL import Image

    picture = Image.open(io.BytesIO(content)).convert("RGB")
    factor = -(-max(picture.size) // TEXTURE_SIDE)
    if factor > 1:
        picture = picture.reduce(factor)
    return np.asarray(picture)
