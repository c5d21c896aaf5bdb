"""Small models and packages for the tests of the objects."""

import hashlib
import io
import lzma
import tarfile
import zipfile

import numpy as np
from PIL import Image

from experiments.objects.readers import Material, Model

CUBE = [
    [(0, 1, 3), (0, 3, 2)],
    [(4, 6, 7), (4, 7, 5)],
    [(0, 4, 5), (0, 5, 1)],
    [(2, 3, 7), (2, 7, 6)],
    [(0, 2, 6), (0, 6, 4)],
    [(1, 5, 7), (1, 7, 3)],
]
ROOT = "./usr/share/"


def box(size, place=(0.0, 0.0, 0.0), **material):
    """A box of size (x, y, z) as a model."""
    corners = np.array([(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)], dtype=np.float64)
    triangles = np.array([triangle for face in CUBE for triangle in face])
    corners = (corners * size + place)[triangles]
    return Model(corners, np.zeros(12, dtype=np.int64), np.zeros((12, 3, 2)), [Material(**material)])


def joined(*models):
    """The triangles of several models as one."""
    materials = [material for model in models for material in model.materials]
    starts = np.cumsum([0, *(len(model.materials) for model in models[:-1])])
    numbers = [model.material + start for model, start in zip(models, starts, strict=True)]
    corners, uv = (np.concatenate([getattr(model, name) for model in models]) for name in ("corners", "uv"))
    return Model(corners, np.concatenate(numbers), uv, materials)


def vrml(size, colour):
    """A box as KiCad writes it."""
    model = box(size)
    points = ",".join(" ".join(map(str, corner)) for corner in model.corners.reshape(-1, 3).tolist())
    indices = ",".join(f"{3 * k},{3 * k + 1},{3 * k + 2},-1" for k in range(12))
    return (
        f"#VRML V2.0 utf8\nShape {{ appearance Appearance {{material DEF BODY Material {{ diffuseColor {colour} }} }} "
        f"}}\nShape {{ geometry IndexedFaceSet\n{{ coordIndex [{indices}] coord Coordinate {{ point [{points}] }} }}\n"
        "appearance Appearance{material USE BODY }}\n"
    ).encode()


def obj(size, texture_file=None):
    """A box as OBJ, and its files beside it."""
    corners = box(size).corners.reshape(-1, 3).tolist()
    lines = ["mtllib box.mtl", *(f"v {x} {y} {z}" for x, y, z in corners), "vt 0 0", "vt 1 0", "vt 1 1", "usemtl skin"]
    lines += [f"f {k}/1 {k + 1}/2 {k + 2}/3" for k in range(1, 37, 3)]
    material = "newmtl skin\nKd .2 .4 .6\n"
    if texture_file is not None:
        material += f"map_Kd {texture_file}\n"
    return "\n".join(lines).encode(), material.encode()


def picture_file(colour, kind="PNG"):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(file, kind)
    return file.getvalue()


def catalogue(name, models):
    """A `.sh3f`: stem -> (category, size, texture file)."""
    properties = ["id=test", "license=free"]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for number, (stem, (category, size, texture)) in enumerate(models.items(), start=1):
            folder = f"{name.lower()}/{stem}"
            properties += [f"category#{number}={category}", f"model#{number}=/{folder}/{stem}.obj"]
            properties.append(f"creator#{number}=Ana Müller")
            model, material = obj(size, texture)
            archive.writestr(f"{folder}/{stem}.obj", model)
            archive.writestr(f"{folder}/box.mtl", material)
            archive.writestr(f"{folder}/readme.html", b"no model")
            if texture is not None:
                archive.writestr(f"{folder}/{texture}", picture_file((200, 30, 30)))
        archive.writestr("PluginFurnitureCatalog.properties", "\r\n".join(properties).encode("latin-1"))
    return content.getvalue()


def ar_member(name, content):
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n"
    return head.encode() + content + b"\n" * (len(content) % 2)


def deb(path, files):
    """Write a package of Debian that installs files, name -> content. Returns its SHA-256."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(ROOT + name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.xz", b"odd"),
        ("data.tar.xz", lzma.compress(archive.getvalue())),
    ]
    path.write_bytes(b"!<arch>\n" + b"".join(ar_member(*member) for member in members))
    return hashlib.sha256(path.read_bytes()).hexdigest()
