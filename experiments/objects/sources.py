"""The models of the packages, one after another, as they lie in the archives or in an unpacked release."""

import io
import re
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from experiments.objects.readers import Model, read_obj, read_vrml
from experiments.packages import debian_files

PART = re.compile(r"([^/]+\.3dshapes/[^/]+)\.wrl$")
CATALOGUE = "PluginFurnitureCatalog.properties"
PROPERTY = re.compile(r"^(\w+)#(\d+)=(.*)$", re.MULTILINE)
# of a Debian copyright file: the patterns of a paragraph, a line each, and its licence
PARAGRAPH = re.compile(r"^Files:(.*(?:\n .*)*)(?:\n(?!\n|License:).*)*\nLicense: *(\S+)", re.MULTILINE)
KICAD_LICENCE = "CC-BY-SA-4.0-with-exception"
KICAD_CREATOR = "KiCad Community"
LICENCES = {
    "Scopia": "CC-BY-3.0",
    "BlendSwap-CC-0": "CC0-1.0",
    "BlendSwap-CC-BY": "CC-BY-3.0",
    "KatorLegaz": "CC-BY-3.0-US",
    "Reallusion": "CC-BY-3.0-US",
}
BESIDE_OBJ = (".mtl", ".jpg", ".jpeg", ".png")


class Source(NamedTuple):
    """A model: its name in the package, the text of its file, the files beside it, and what the lists say of it."""

    name: str
    text: str
    files: dict[str, bytes]
    label: str
    licence: str
    creator: str


def read_model(source: Source) -> Model | None:
    """The model of a source; None if its file is one that is not read."""
    if source.name.endswith(".obj"):
        return read_obj(source.text, source.files.get)
    return read_vrml(source.text)


def installed_files(path: Path) -> Iterator[tuple[str, object]]:
    """Name and open file of each file of a `.deb`, or below an unpacked folder."""
    if not path.is_dir():
        yield from debian_files(path)
        return
    for file in sorted(path.rglob("*")):
        if file.is_file():
            with file.open("rb") as content:
                yield file.relative_to(path).as_posix(), content


def parts(path: Path, selected: set[str] | None = None) -> Iterator[Source]:
    """The parts of KiCad's package, all or those of the `selected` names; label: folder and name."""
    paragraphs = _copyright(path)
    for file_name, file in installed_files(path):
        match = PART.search(file_name)
        if match and (selected is None or match[1] in selected):
            folder, name = match[1].split("/")
            label = f"{folder.removesuffix('.3dshapes').lower()}/{name}".replace(",", "-")
            licence = KICAD_LICENCE
            for patterns, named in paragraphs:
                if any(fnmatchcase(f"{match[1]}.wrl", pattern) for pattern in patterns):
                    licence = named
            yield Source(match[1], file.read().decode("latin-1"), {}, label, licence, KICAD_CREATOR)


def _copyright(path: Path) -> list[tuple[list[str], str]]:
    """File patterns and licence of each paragraph of KiCad's copyright file in Debian, of which the last one counts."""
    for name, file in installed_files(path):
        if name.endswith("kicad-packages3d/copyright"):
            return [(files.split(), licence) for files, licence in PARAGRAPH.findall(file.read().decode())]
    return []


def furniture(path: Path, selected: set[str] | None = None) -> Iterator[Source]:
    """The furniture of Sweet Home 3D's package, all or those of the `selected` names; label: category and name."""
    for file_name, file in installed_files(path):
        if not file_name.endswith(".sh3f"):
            continue
        catalogue = PurePosixPath(file_name).stem
        archive = zipfile.ZipFile(io.BytesIO(file.read()))
        by_folder = {}
        for name in archive.namelist():
            by_folder.setdefault(str(PurePosixPath(name).parent), []).append(name)
        for name, fields in _entries(archive.read(CATALOGUE).decode("latin-1")).items():
            if selected is None or name in selected:
                neighbours = [n for n in by_folder[str(PurePosixPath(name).parent)] if n.lower().endswith(BESIDE_OBJ)]
                files = {PurePosixPath(neighbour).name: archive.read(neighbour) for neighbour in neighbours}
                category = fields["category"].lower().replace(" ", "_")
                label = f"furniture_{category}/{catalogue}_{PurePosixPath(name).stem}".lower().replace(",", "-")
                text = archive.read(name).decode("latin-1")
                yield Source(name, text, files, label, LICENCES.get(catalogue, "unknown"), fields.get("creator", ""))


def _entries(properties: str) -> dict[str, dict[str, str]]:
    """Name of the model -> the fields of its entry in a catalogue."""
    by_number = {}
    for field, number, value in PROPERTY.findall(properties):
        by_number.setdefault(int(number), {})[field] = value.strip()
    return {fields["model"].lstrip("/"): fields for fields in by_number.values()}


def results(function: Callable, items: Iterable, jobs: int) -> Iterator:
    """`function` of each item, in order; of `jobs` processes, which get no more than a few items ahead."""
    if jobs == 1:
        yield from map(function, items)
        return
    with ProcessPoolExecutor(jobs) as pool:
        pending = deque()
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= 4 * jobs:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
