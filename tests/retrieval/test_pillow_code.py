"""The card's lines of Pillow and NumPy give the exact input of the network, of every kind of test transform."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import architectures
import datasets
import parameters
from retrieval import card, pillow_code
from tests.kit.images import random_picture

SIZES = [(40, 30), (61, 97), (33, 300), (64, 64), (90, 40)]  # (width, height)
# number of lines that resize and crop, below the function
LINES = 6


def noise(size, channels=3):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], channels), dtype=np.uint8))


def write_photographs(folder):
    """Files of many formats, sizes and pixel types. Returns their paths."""
    pictures = {f"{width}x{height}.jpg": random_picture(width, (width, height)) for width, height in SIZES}
    pictures |= {f"noise_{width}x{height}.png": noise((width, height)) for width, height in SIZES}
    picture = random_picture(7, (70, 50))
    pictures |= {f"mode_{mode}.png": picture.convert(mode) for mode in ("L", "LA", "1", "P")}
    pictures |= {"alpha.png": noise((50, 41), 4), "cmyk.jpg": picture.convert("CMYK"), "few.gif": picture}
    for name, content in pictures.items():
        content.save(folder / name)
    turned = Image.Exif()
    turned[0x112] = 6
    picture.save(folder / "turned.jpg", exif=turned)
    picture.quantize(9).save(folder / "transparent.png", transparency=3)
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    return write_photographs(tmp_path_factory.mktemp("photographs"))


def preparation(words, interpolation=None, input_size=32):
    words = words if "--dataset" in words else f"--dataset folder --dataset_folder_path . {words}"
    network = SimpleNamespace(input_size=input_size, interpolation=interpolation)
    return datasets.preparation(parameters.read(words.split()), network)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "words",
    [
        "",
        "--crop_size 20 31 --resize_size 40",
        "--resize_mode long",
        "--resize_mode squash --crop_size 24 33",
        "--resize_mode none --crop_size 63 36",
        "--augmentation plain --crop_size 55",
        "--dataset glyphs",
        "--dataset glyphs --crop_size 40",
    ],
)
def test_the_lines_give_the_runs_input_to_the_last_bit(words, interpolation, photographs, tmp_path, monkeypatch):
    run_preparation = preparation(words, interpolation)
    lines = pillow_code.code(run_preparation)
    assert max(map(len, lines.splitlines())) <= 120
    monkeypatch.chdir(tmp_path)
    for path in photographs:
        (tmp_path / "photo.jpg").write_bytes(path.read_bytes())
        names = {}
        exec(lines, names)
        expected = run_preparation(path).numpy()[None]
        assert names["images"].dtype == np.uint8 and np.array_equal(names["images"], expected), path.name


@pytest.mark.long
@pytest.mark.parametrize("arch", ["resnet18", "bninception", "timm:test_vit"])
def test_the_lines_suit_the_networks_own_size_and_interpolation(arch, photographs, tmp_path, monkeypatch):
    network = architectures.select(arch, not_pretrained=True, embed_dim=8).eval()
    words = f"--dataset folder --dataset_folder_path . --arch {arch} --not_pretrained"
    run_preparation = datasets.preparation(parameters.read(words.split()), network)
    lines = pillow_code.code(run_preparation)
    assert ("np.where" in lines) == (getattr(network, "interpolation", None) == "bicubic")
    monkeypatch.chdir(tmp_path)
    for path in photographs[:4]:
        (tmp_path / "photo.jpg").write_bytes(path.read_bytes())
        names = {}
        exec(lines, names)
        expected = run_preparation(path)[None]
        assert np.array_equal(names["images"], expected.numpy())
    with torch.no_grad():
        difference = network(torch.from_numpy(names["images"]))[0] - network(expected)[0]
    assert difference.abs().max() < 1e-6


def test_six_lines_resize_and_crop_and_nothing_but_pillow_and_numpy_is_imported():
    lines = pillow_code.code(preparation(""))
    *_, first = lines.partition("\n\n\nimage = ")
    assert first.count("\n") == LINES - 1
    imports = [line for line in lines.splitlines() if "import" in line]
    assert imports == ["import numpy as np", "from PIL import Image, ImageOps"]
    assert "def resize" not in pillow_code.code(preparation("--resize_mode none"))


def test_a_limit_of_the_long_side_comes_before_and_two_interpolations_are_said(photographs, tmp_path):
    words = f"--image_cache {tmp_path} --image_cache_side 60"
    limited = preparation(words)
    files = photographs[:8]
    prepared = np.stack([limited(path).numpy() for path in files])
    assert pillow_code.greatest_difference(pillow_code.code(limited), files, prepared) == 0
    plain = pillow_code.code(preparation(""))
    assert pillow_code.greatest_difference(plain, files, prepared) > 20
    assert pillow_code.code(preparation(words, "bicubic")) is None
    (line,) = card._preparation(card.Checked({}, 8))
    assert "no short code" in line


def test_the_card_says_by_how_much_the_lines_differ(tmp_path):
    lines = pillow_code.code(preparation(""))
    damaged = tmp_path / "damaged.jpg"
    damaged.write_bytes(b"\xff\xd8 no")
    assert pillow_code.greatest_difference(lines, [damaged], np.zeros((1, 3, 32, 32), np.uint8)) == 255
    for difference, words in ((0, "these lines give the run's input exactly"), (3, "by at most 3 of 255")):
        parts = card._preparation(card.Checked({}, 8, preparation=lines, difference=difference))
        assert f"```python\n{lines}\n```" in parts and words in parts[-1]
