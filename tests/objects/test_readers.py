"""experiments/objects/readers.py on a cube, as VRML and as OBJ."""

import io

import numpy as np
import pytest
from PIL import Image

from experiments.objects import readers

CORNERS = [(x, y, z) for x in (0, 1) for y in (0, 2) for z in (0, 3)]
# outward, as polygons of four corners
FACES = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
POINTS = ",".join(f"{x} {y} {z}" for x, y, z in CORNERS)
INDICES = ",".join(",".join(map(str, face)) + ",-1" for face in FACES)
RED = "Shape { appearance Appearance { material DEF RED Material { diffuseColor 1 0 0 specularColor .5 .5 .5 } } }"
GEOMETRY = (
    f"geometry IndexedFaceSet {{ creaseAngle 0.5 coordIndex [{INDICES}] coord Coordinate {{ point [{POINTS}] }} }}"
)
APPEARANCE = "appearance Appearance { material USE RED }"


def triangle_set(model):
    """The triangles of a model, each as the set of its corners."""
    return {frozenset(map(tuple, triangle)) for triangle in model.corners.tolist()}


def expected_triangles(turn=lambda x, y, z: (x, y, z)):
    fans = [(face[0], face[k], face[k + 1]) for face in FACES for k in (1, 2)]
    return {frozenset(tuple(map(float, turn(*CORNERS[corner]))) for corner in fan) for fan in fans}


@pytest.mark.parametrize("order", [(APPEARANCE, GEOMETRY), (GEOMETRY, APPEARANCE)])
@pytest.mark.parametrize("brace", [" {", "{", "\n{"])
def test_a_cube_of_vrml_in_any_order(order, brace):
    text = f"#VRML V2.0 utf8\n{RED}\nShape {{ {' '.join(order)} }}".replace(" {", brace)
    model = readers.read_vrml(text)
    assert triangle_set(model) == expected_triangles()
    assert len(model.corners) == 12
    material = model.materials[model.material[0]]
    assert material.diffuse == (1, 0, 0) and material.specular == (0.5, 0.5, 0.5) and material.opacity == 1
    assert len(set(model.material.tolist())) == 1


def test_shapes_keep_their_points_and_materials():
    triangle = "geometry IndexedFaceSet { coordIndex [0 1 2] coord Coordinate { point [0 0 0, 1 0 0, 0 1 0] } }"
    blue = "appearance Appearance { material Material { diffuseColor 0,0,1 } }"
    unknown = "appearance Appearance { material USE NOWHERE }"
    shapes = [f"{GEOMETRY} {APPEARANCE}", f"{blue} {triangle}", f"{triangle} {unknown}", triangle]
    model = readers.read_vrml(RED + "".join(f"Shape {{ {shape} }}\n" for shape in shapes))
    colours = [model.materials[number].diffuse for number in model.material]
    assert colours == [(1, 0, 0)] * 12 + [(0, 0, 1)] + [(0.8, 0.8, 0.8)] * 2
    assert (model.corners[12:] == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]).all()


def test_glass_is_left_out_unless_all_is_glass():
    def cube(transparency):
        material = f"material Material {{ diffuseColor 0 1 0 transparency {transparency} }}"
        return f"Shape {{ appearance Appearance {{ {material} }} {GEOMETRY} }}"

    assert len(readers.read_vrml(cube(0.5) + cube(0.7)).corners) == 12
    assert len(readers.read_vrml(cube(0.69) + cube(0)).corners) == 24
    assert len(readers.read_vrml(cube(0.9)).corners) == 12


@pytest.mark.parametrize("text", ["", RED, f"Transform {{ children [ Shape {{ {GEOMETRY} }} ] }}"])
def test_files_that_are_not_read(text):
    assert readers.read_vrml(text) is None


def obj_lines(first_corner, step):
    """A cube whose corners are counted from `first_corner` on by `step`."""
    lines = ["mtllib the cube.mtl", *(f"v {x} {y} {z}" for x, y, z in CORNERS)]
    lines += ["vt 0 0", "vt 1 0", "vt 1 1", "vt 0 1", "usemtl wood"]
    for face in FACES:
        corners = [first_corner + step * corner for corner in face]
        lines.append("f " + " ".join(f"{corner}/{k + 1}/7" for k, corner in enumerate(corners)))
    return "\n".join(lines)


def png(width, height):
    file = io.BytesIO()
    Image.fromarray(np.full((height, width, 3), (10, 20, 30), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def test_a_cube_of_obj_with_a_texture():
    files = {
        "the cube.mtl": b"newmtl wood\nKd .1 .2 .3\n Ks .4 .4 .4\nmap_Kd old wood.png\nnewmtl gone\nmap_Kd gone.png\n",
        "old wood.png": png(600, 300),
    }
    model = readers.read_obj(obj_lines(1, 1), files.get)
    assert triangle_set(model) == expected_triangles(lambda x, y, z: (x, -z, y))
    material = model.materials[model.material[0]]
    assert material.diffuse == (0.1, 0.2, 0.3) and material.specular == (0.4, 0.4, 0.4)
    # 600 pixels by the factor 3
    assert material.texture.shape == (100, 200, 3) and (material.texture == (10, 20, 30)).all()
    assert model.uv[:2].tolist() == [[[0, 0], [1, 0], [1, 1]], [[0, 0], [1, 1], [0, 1]]]
    assert model.materials[2].texture is None


def test_negative_indices_count_from_the_last():
    positive = readers.read_obj(obj_lines(1, 1), {}.get)
    negative = readers.read_obj(obj_lines(-len(CORNERS), 1).replace("/1/", "/-4/").replace("/2/", "/-3/"), {}.get)
    assert (negative.corners == positive.corners).all() and (negative.uv == positive.uv).all()
    # without the file of materials all is grey
    assert positive.materials == [readers.Material()]


def test_faces_without_texture_coordinates():
    model = readers.read_obj("v 0 0 0\nv 1 0 0\nv 0 1 0\nvt .5 .5\nf 1 2 3\nf 1//1 2//1 3//1\nf 1 2", {}.get)
    assert len(model.corners) == 2 and not model.uv.any()
    assert readers.read_obj("v 0 0 0\n", {}.get) is None
