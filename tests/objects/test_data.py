"""experiments/objects/data.py on small packages: what it writes, refuses, continues; and the published pictures."""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments import packages
from experiments.objects import data, renderer, sources
from tests.kit.refusals import refused
from tests.kit.runs import run_main
from tests.objects import models
from utilities.errors import UserError
from utilities.reading import read_records

# the published packages, if they are there: target `make objects-data` puts them
REAL = Path(os.environ.get("OBJECTS_PACKAGES", "Datasets/packages"))
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2018-2022, KiCad Community
License: CC-BY-SA-4.0-with-exception

Files: Resistor.3dshapes/*
Copyright: 2017, kicad StepUp
License: GPL-3+
Comment: by a script

Files: Resistor.3dshapes/R_5,0mm.step
 Resistor.3dshapes/R_5,0mm.wrl
Copyright: 2017, kicad StepUp
License: CC-BY-SA-4.0-with-exception
"""
PARTS = {
    "Resistor.3dshapes/R_5,0mm.wrl": models.vrml((5, 1, 1), "0.8 0.2 0.1"),
    "Resistor.3dshapes/R_5,1mm.wrl": models.vrml((5, 1, 1), "0.8 0.2 0.1"),
    "Resistor.3dshapes/Chip.wrl": models.vrml((2, 2, 0.3), "0.1 0.1 0.1"),
    "LED.3dshapes/LED_D5.0mm.wrl": models.vrml((1, 1, 2), "0.9 0.1 0.1"),
    "LED.3dshapes/LED_D3.0mm.wrl": models.vrml((1, 1, 4), "0.1 0.9 0.1"),
    "LED.3dshapes/Odd.wrl": b"#VRML V2.0 utf8\nTransform { children [ ] }\n",
    "LED.3dshapes/LED_D5.0mm.step": b"ISO-10303-21;",
}
FURNITURE = {
    "Scopia": {"bed1": ("Living room", (2, 1, 0.5), None), "bed2": ("Bedroom", (2, 1, 1), "old wood.png")},
    "BlendSwap-CC-0": {"Lamp": ("Lights", (0.3, 2, 0.3), None)},
}
LABELS = [
    "furniture_bedroom/scopia_bed2",
    "furniture_lights/blendswap-cc-0_lamp",
    "furniture_living_room/scopia_bed1",
    "led/LED_D3.0mm",
    "led/LED_D5.0mm",
    "resistor/Chip",
    "resistor/R_5-0mm",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of three small packages, whose hashes are taken for the published ones."""
    target = tmp_path / "packages"
    target.mkdir()
    parts = {f"kicad/3dmodels/{name}": content for name, content in PARTS.items()}
    parts["doc/kicad-packages3d/copyright"] = COPYRIGHT.encode()
    furniture = {f"sweethome3d/{name}.sh3f": models.catalogue(name, entries) for name, entries in FURNITURE.items()}
    droids = [("droids/123", 16), ("items/addons/headlamp", 17), ("items/mug", 1), ("droids/247", 15)]
    turned = {}
    for name, n_views in droids:
        for view in range(n_views):
            path = f"freedroidrpg/data/graphics/{name}/portrait_{view + 1:04}.jpg"
            turned[path] = models.picture_file((view, 9, 9), "JPEG")
        turned[f"freedroidrpg/data/graphics/{name}/portrait.png"] = b"no view"
    for kind, files in (("parts", parts), ("furniture", furniture), ("turned", turned)):
        monkeypatch.setitem(data.SHA256, kind, models.deb(target / data.FILES[kind][0], files))
    return target


def make(folder, out, *flags):
    data.main(["--packages", str(folder), "--out", str(out), "--views", "3", *flags])


def pictures(out):
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*.png"))}


def test_what_is_written(folder, tmp_path, capsys):
    out = tmp_path / "data"
    make(folder, out)
    printed = capsys.readouterr().out
    assert "parts: 5 models, 4 not equal, 4 not nearly equal, 4 of at most 5 per series" in printed
    assert "7 classes of 5 series and 5 super-classes" in printed
    assert printed.count("NOT the published one: results do not compare") == 2
    assert "CC-BY-SA 4.0 with\nexception" in printed
    assert sorted(pictures(out)) == [f"objects/{label}/{view:02}.png" for label in LABELS for view in range(3)]
    with Image.open(out / "objects/led/LED_D5.0mm/01.png") as picture:
        assert picture.size == (128, 128) and picture.mode == "RGB"
        model = sources.read_vrml(PARTS["LED.3dshapes/LED_D5.0mm.wrl"].decode())
        assert (np.asarray(picture) == renderer.render(model, "LED.3dshapes/LED_D5.0mm 1")).all()
    head, rows = read_records(out / "objects.csv")
    assert head == ["label", "path", "split", "category", "category_2", "series", "model", "licence"]
    assert [row["label"] for row in rows[::3]] == LABELS and {row["split"] for row in rows} == {"train", "validation"}
    by_label = {row["label"]: row for row in rows}
    assert by_label["resistor/Chip"]["licence"] == "GPL-3+"
    assert by_label["resistor/R_5-0mm"]["licence"] == "CC-BY-SA-4.0-with-exception"
    lamp = by_label["furniture_lights/blendswap-cc-0_lamp"]
    assert (lamp["model"], lamp["series"], lamp["licence"]) == ("blendswap-cc-0/Lamp/Lamp.obj", "Lamp", "CC0-1.0")
    assert lamp["category_2"] == "furniture" and by_label["led/LED_D3.0mm"]["series"] == "LED.#dshapes/LED_D#mm"
    assert json.loads((out / "objects_sets/100.json").read_text()) == []
    licence = (out / "objects_LICENCE.txt").read_text()
    assert "furniture_bedroom/scopia_bed2, scopia/bed2/bed2.obj, Ana Müller, CC-BY-3.0\n" in licence
    turned = sorted(path.relative_to(out / "turned").as_posix() for path in (out / "turned").glob("*/*"))
    assert turned == ["droids/123", "items/addons_headlamp"]
    assert len(list((out / "turned").rglob("*.jpg"))) == 33
    assert not list(out.glob("*unfinished"))


def test_two_processes_write_the_same(folder, tmp_path):
    make(folder, tmp_path / "one", "--only", "furniture", "parts")
    make(folder, tmp_path / "two", "--only", "parts", "furniture", "--jobs", "2")
    first = pictures(tmp_path / "one")
    assert len(first) == 21 and pictures(tmp_path / "two") == first
    assert (tmp_path / "two/objects.csv").read_bytes() == (tmp_path / "one/objects.csv").read_bytes()
    assert not (tmp_path / "one/turned").exists()


def test_an_interrupted_call_goes_on(folder, tmp_path, monkeypatch, capsys):
    out = tmp_path / "data"
    paint = renderer.render
    n_pictures = 0

    def killed(model, key):
        nonlocal n_pictures
        n_pictures += 1
        if n_pictures == 5:
            raise KeyboardInterrupt
        return paint(model, key)

    monkeypatch.setattr(data, "render", killed)
    with pytest.raises(KeyboardInterrupt):
        make(folder, out)
    # a whole class, and no part of the second
    finished = pictures(out / "objects")
    assert len(finished) == 3 and not (out / "objects.csv").exists()
    times = {name: (out / "objects" / name).stat().st_mtime_ns for name in finished}
    capsys.readouterr()
    make(folder, out)
    assert "looking at" not in capsys.readouterr().out
    assert len(pictures(out / "objects")) == 21 and n_pictures == 5 + 18
    assert {name: (out / "objects" / name).stat().st_mtime_ns for name in finished} == times
    make(folder, out)
    assert n_pictures == 5 + 18


def test_an_unpacked_release(folder, tmp_path, capsys):
    release = tmp_path / "release"
    for kind in data.KINDS:
        for name, file in packages.debian_files(folder / data.FILES[kind][0]):
            (release / name).parent.mkdir(parents=True, exist_ok=True)
            (release / name).write_bytes(file.read())
    make(folder, tmp_path / "packed")
    data.main(["--unpacked", str(release), "--out", str(tmp_path / "unpacked"), "--views", "3"])
    assert pictures(tmp_path / "unpacked") == pictures(tmp_path / "packed")
    assert (tmp_path / "unpacked/objects.csv").read_bytes() == (tmp_path / "packed/objects.csv").read_bytes()
    # other files are looked at again
    shutil.rmtree(release / "usr/share/kicad/3dmodels/LED.3dshapes")
    capsys.readouterr()
    data.main(["--unpacked", str(release), "--out", str(tmp_path / "unpacked"), "--views", "3", "--list_only"])
    assert "looking at parts: 3 in all" in capsys.readouterr().out


def test_lists_alone(folder, tmp_path, capsys):
    make(folder, tmp_path / "data", "--list_only")
    assert not pictures(tmp_path / "data") and not (tmp_path / "data/turned").exists()
    assert len(read_records(tmp_path / "data/objects.csv")[1]) == 21
    assert "images' pixels" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--views", "1"], "--views"),
        (["--views", "100"], "--views"),
        (["--jobs", "0"], "--jobs"),
        (["--only", "cars"], "cars"),
        (["--only"], "--only"),
        (["--unpacked", "x"], "--packages: leave one of them out"),
    ],
)
def test_refused_flags(flags, words, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        data.main(["--packages", str(tmp_path), "--out", str(tmp_path / "data"), *flags])
    lines = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and len(lines) == 1 and words in lines[0]
    assert not (tmp_path / "data").exists()


def test_refused_packages(folder, tmp_path, monkeypatch):
    (folder / data.FILES["turned"][0]).write_bytes(b"!<arch>\nodd")
    with refused("is not the published package", "SHA-256 differs"):
        make(folder, tmp_path / "data")
    (folder / data.FILES["turned"][0]).unlink()
    with refused("is missing", "leave out --packages"):
        make(folder, tmp_path / "data")
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    with refused("apt-get is not installed", data.FILES["parts"][0]):
        data.main(["--out", str(tmp_path / "data")])
    with refused("no such folder"):
        data.main(["--unpacked", str(tmp_path / "nowhere"), "--out", str(tmp_path / "data")])
    with refused("no models of parts", "--only"):
        data.main(["--unpacked", str(tmp_path / "packages"), "--out", str(tmp_path / "data")])


def test_a_reason_of_apt_get(tmp_path, monkeypatch):
    program = tmp_path / "bin/apt-get"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'E: Unable to locate package kicad-packages3d' >&2\nexit 100\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with refused("kicad-packages3d_6.0.10-1_all.deb cannot be fetched", "E: Unable to locate package"):
        data.main(["--out", str(tmp_path / "data")])


def test_other_numbers_of_views_are_refused(folder, tmp_path):
    make(folder, tmp_path / "data", "--only", "parts")
    with refused("has 3 files, not --views 4"):
        make(folder, tmp_path / "data", "--only", "parts", "--views", "4")
    assert len(read_records(tmp_path / "data/objects.csv")[1]) == 12


def test_a_full_disk_is_one_line(folder, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(data, "render", full)
    with refused("No space left on device", "run the same command again"):
        make(folder, tmp_path / "data", "--only", "parts")


def test_labels_that_differ_in_case_alone_are_refused():
    entry = data.Entry("led/LED_a", "LED.3dshapes/LED_a", "", "")
    with pytest.raises(UserError, match="two models have the label led/led_a"):
        data.unique_labels([entry, entry._replace(label="led/LED_A")])


@pytest.mark.long
def test_the_table_is_a_data_set(folder, tmp_path, capsys):
    make(folder, tmp_path / "data")
    run_main(
        "--dataset",
        "csv",
        "--dataset_csv",
        tmp_path / "data/objects.csv",
        "--check_data",
        "--arch",
        "conv4",
        "--bs",
        "12",
    )
    assert "9 images of 3 classes" in " ".join(capsys.readouterr().out.split())


needs_packages = pytest.mark.skipif(
    not all((REAL / name).exists() for name, _ in data.FILES.values()),
    reason="the folder OBJECTS_PACKAGES has not the three packages",
)


@needs_packages
@pytest.mark.long
def test_the_published_pictures():
    _, pins = read_records(data.PINS)
    expected = {pin["model"]: pin["sha256"] for pin in pins}
    assert len(expected) == 16
    digests = {}
    for kind, read in (("parts", sources.parts), ("furniture", sources.furniture)):
        for source in read(REAL / data.FILES[kind][0], set(expected)):
            picture = renderer.render(sources.read_model(source), f"{source.name} 0")
            digests[source.name] = hashlib.sha256(picture.tobytes()).hexdigest()
    assert digests == expected


@needs_packages
@pytest.mark.long
def test_pictures_of_the_design():
    """Triangles, share of the raster, mean colour and view of three parts, as the design has them."""
    expected = {
        "Package_TO_SOT_THT.3dshapes/TO-220-3_Vertical": (280, 0.0884, (170.7, 161.2, 168.9)),
        "Connector_JST.3dshapes/JST_PH_B11B-PH-K_1x11_P2.00mm_Vertical": (1000, 0.2036, (182.3, 185.0, 188.7)),
        "LED_THT.3dshapes/LED_D5.0mm": (941, 0.2593, (129.3, 99.0, 96.1)),
    }
    seen = 0
    for source in sources.parts(REAL / data.FILES["parts"][0], set(expected)):
        n_triangles, share, colour = expected[source.name]
        model = sources.read_model(source)
        key = f"{source.name} 0"
        assert len(model.corners) == n_triangles
        camera = renderer.view_camera(key)
        _, pixels = renderer.shade(model, camera, 0.3, renderer.view_lights(key, camera.view), 256)
        assert len(pixels) / 256**2 == pytest.approx(share, abs=0.002)
        assert renderer.render(model, key).reshape(-1, 3).mean(axis=0) == pytest.approx(colour, abs=1.5)
        seen += 1
    assert seen == 3
    view = renderer.view_camera("Package_TO_SOT_THT.3dshapes/TO-220-3_Vertical 0").view
    assert view == pytest.approx((0.847, 0.274, 0.455), abs=5e-4)
