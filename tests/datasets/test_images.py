"""Every kind of image becomes upright, opaque RGB of 8 bits; broken ones are named; roles, sequences and boxes."""

import os
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

import datasets
from datasets import _image_set, _images
from tests.kit.images import random_picture, write_image
from tests.kit.refusals import refused


def decoded(path):
    """`(H, W, 3)`, of a type whose differences do not wrap round."""
    image = _images.decode(str(path))
    assert image.dtype == torch.uint8
    return image.permute(1, 2, 0).numpy().astype(int)


def test_decoding_agrees_with_pillow(tmp_path):
    kinds = "jpg-RGB jpg-L jpg-CMYK png-RGB png-L png-P png-1 gif-P bmp-RGB webp-RGB"
    for suffix, mode in (kind.split("-") for kind in kinds.split()):
        path = write_image(tmp_path / f"a.{suffix}", 3, (41, 29), mode)
        pixels = decoded(path)
        expected = np.asarray(Image.open(path).convert("RGB"))
        assert pixels.shape == (29, 41, 3) and np.abs(pixels - expected).max() <= 1, (suffix, mode)


@pytest.mark.parametrize("progressive", [False, True])
def test_the_size_of_a_jpeg_is_read_from_its_frame(tmp_path, progressive):
    Image.new("RGB", (41, 29)).save(tmp_path / "a.jpg", progressive=progressive, optimize=True)
    assert _images._jpeg_size((tmp_path / "a.jpg").read_bytes()) == (29, 41)


TURNS = {2: lambda x: x[:, ::-1], 3: lambda x: x[::-1, ::-1], 6: lambda x: np.rot90(x, -1), 8: lambda x: np.rot90(x)}


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_images_are_turned_as_their_exif_data_say(tmp_path, kind):
    # the content decides, not the suffix
    picture = random_picture(1, (41, 29))
    path = tmp_path / "a.png"
    for orientation, turn in TURNS.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        options = {"lossless": True} if kind == "WEBP" else {}
        picture.save(path, format=kind, exif=exif, **options)
        pixels = decoded(path)
        expected = turn(np.asarray(picture))
        assert pixels.shape == expected.shape, orientation
        assert np.abs(pixels - expected).mean() < (8 if kind == "JPEG" else 0.01), orientation
    if kind in ("JPEG", "PNG"):
        # Damaged EXIF data leave the picture as it lies
        picture.save(path, format=kind, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\xff")
        assert decoded(path).shape == (29, 41, 3)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB key", "PA webp"])
def test_white_stands_behind_what_is_transparent(tmp_path, mode):
    alpha = np.zeros((8, 12, 1), dtype=np.uint8)
    colours = np.full((8, 12, 3), 40, dtype=np.uint8)
    alpha[:, 4:8] = 128
    alpha[:, 8:] = 255
    path = tmp_path / "a.png"
    options = {}
    if mode in ("P", "RGB key"):
        colours[:, :4] = 200
        alpha[:, 4:] = 255
        picture = Image.fromarray(colours) if mode == "RGB key" else Image.fromarray(colours).quantize(2)
        options = {"transparency": (200, 200, 200) if mode == "RGB key" else picture.getpixel((0, 0))}
    else:
        picture = Image.fromarray(np.dstack([colours, alpha]))
        if mode == "LA":
            picture = picture.convert("LA")
    if mode == "PA webp":
        path = tmp_path / "a.webp"
        options = {"lossless": True, "exact": True}
    picture.save(path, **options)
    pixels = decoded(path)
    expected = np.rint(40 * (alpha / 255) + 255 * (1 - alpha / 255))
    assert pixels.shape == (8, 12, 3) and np.abs(pixels - expected).max() <= 1


def test_sixteen_bits_are_scaled_to_eight_and_cmyk_is_converted(tmp_path):
    values = np.linspace(0, 65535, 12 * 9).astype(np.uint16).reshape(9, 12)
    for suffix in ("png", "tif"):
        path = tmp_path / f"a.{suffix}"
        Image.fromarray(values).save(path)
        pixels = decoded(path)
        assert pixels.shape == (9, 12, 3) and np.abs(pixels - values[..., None] / 257).max() <= 0.5 + 1e-9
        assert _images.decode_grey([str(path)]).numpy()[0, 0].tolist() == pixels[..., 0].tolist()
    # of each colour, which Pillow cannot write
    values = np.random.default_rng(0).integers(0, 65536, (9, 12, 3), dtype=np.uint16)

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = zlib.compress(b"".join(b"\0" + row.astype(">u2").tobytes() for row in values))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 12, 9, 16, 2, 0, 0, 0))
    (tmp_path / "b.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    assert np.abs(decoded(tmp_path / "b.png") - values / 257).max() <= 1
    Image.fromarray(np.full((8, 8), 70_000, dtype=np.int32)).save(tmp_path / "d.tif")
    with refused("d.tif.*white is not known"):
        decoded(tmp_path / "d.tif")
    colours = np.zeros((8, 12, 4), dtype=np.uint8)
    # cyan
    colours[:, :4, 0] = 255
    # black; the others are white
    colours[:, 4:8, 3] = 255
    expected = [(0, 255, 255), (0, 0, 0), (255, 255, 255)]
    for name, options in (("a.tif", {}), ("a.jpg", {"quality": 100, "subsampling": 0})):
        Image.fromarray(colours, mode="CMYK").save(tmp_path / name, **options)
        assert np.abs(decoded(tmp_path / name)[4, [1, 6, 11]] - expected).max() <= 6, name


def test_endings_are_those_that_the_installed_pillow_reads(monkeypatch):
    def forget():
        _images.formats.cache_clear()
        _images.suffixes.cache_clear()

    forget()
    assert {".jpg", ".jpe", ".jfif", ".mpo", ".avif", ".webp", ".jp2", ".tga"} < _images.suffixes()
    assert not {".eps", ".pdf", ".h5", ".mpg", ".pcd", ".pfm", ".txt"} & _images.suffixes()
    forget()
    with monkeypatch.context() as patch:
        patch.setattr("PIL.features.check", lambda name: name != "avif")
        assert ".avif" not in _images.suffixes() and ".webp" in _images.suffixes()
    forget()


def test_almost_black_images_of_16_bits_are_noted(tmp_path, monkeypatch):
    values = np.zeros((6, 8), dtype=np.uint16)
    values[2, 3] = 4000
    paths = []
    for number, ending in enumerate(["png", "tif", "png"]):
        paths.append(str(tmp_path / f"{number}.{ending}"))
        Image.fromarray(values + np.uint16(number)).save(paths[-1])
    message = datasets.dark_16_bit([*paths, str(write_image(tmp_path / "8.png", 1))])
    assert "the highest value in 3 of them is 4,002 of 65,535" in message
    assert message.endswith("12-bit data, multiply the values by 16")
    colours = np.repeat(values[..., None], 3, axis=2)
    Image.fromarray(values * 8).save(tmp_path / "15.png")
    assert datasets.dark_16_bit([*paths, str(tmp_path / "15.png")]) is None
    (tmp_path / "c.ppm").write_bytes(b"P6 8 6 65535\n" + colours.astype(">u2").tobytes())
    assert 3900 < _images.highest_of_16_bits(str(tmp_path / "c.ppm")) < 4400
    # scaled to its own white
    (tmp_path / "g.pgm").write_bytes(b"P5 8 6 4095\n" + values.astype(">u2").tobytes())
    assert _images.highest_of_16_bits(str(tmp_path / "g.pgm")) > 60_000
    # as Pillow fails on some damaged JPEG 2000 and TIFF files
    with monkeypatch.context() as patched:
        patched.setattr(Image, "open", lambda *_, **__: (_ for _ in ()).throw(MemoryError()))
        assert _images.highest_of_16_bits(paths[0]) is None
    root = tmp_path / "set"
    for name in "abcd":
        (root / name).mkdir(parents=True)
        Image.fromarray(values).save(root / name / "1.png")
    flags = {"dataset_folder_path": str(root), "input_size": 8}
    assert any("is 4,000 of 65,535" in note for note in datasets.select("folder", **flags)["training"].notes)
    opt = datasets.REGISTRY.options(None, dataset="folder", dataset_folder_path=str(root))
    assert any("is 4,000 of 65,535" in problem for problem in datasets.problems(opt))


def test_what_cannot_be_decoded_is_no_picture_or_too_large_is_named(tmp_path):
    victim = tmp_path / "001.jpg"
    small = write_image(tmp_path / "small.jpg", 1, (40, 30))
    png = write_image(tmp_path / "large.png", 1, (120, 90)).read_bytes()
    jpeg = small.read_bytes()
    frame = jpeg.index(b"\xff\xc0")
    huge = jpeg[: frame + 5] + b"\xff\xff\xff\xff" + jpeg[frame + 9 :]
    for content, words in (
        (jpeg[: len(jpeg) // 2], ""),
        (jpeg[:-2], ""),
        (b"", ""),
        (b"an image", ""),
        (png[: len(png) // 2], ""),
        (png, "120 x 90, more than"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n", "no known image format"),
        (None, "cannot be read .No such file"),
        ("pipe", "pipe or device"),
        (huge, "(65,535 x 65,535|4294836225 pixels.), more than --max_image_pixels 1,200"),
    ):
        victim.unlink(missing_ok=True)
        if content is not None:
            os.mkfifo(victim) if content == "pipe" else victim.write_bytes(content)
        for read in (_images.decode, _images.grey):
            with refused(words, victim):
                read(str(victim), 1200)
    assert _images.decode(str(small), 1200).shape == (3, 30, 40)


def test_a_box_is_what_pillow_crops_and_one_beside_its_image_is_named(tmp_path):
    path = str(write_image(tmp_path / "a.png", 3, (41, 29)))

    def boxed(box):
        images = [_images.Image(path, "a", box=box), _images.Image(path, "a")]
        return _image_set.ImageSet(images, transform=lambda image: image)

    for box, rounded in (
        ((0, 0, 41, 29), (0, 0, 41, 29)),
        ((3, 2, 10, 20), (3, 2, 10, 20)),
        ((2.4, 1.6, 9.5, 7.2), (2, 2, 10, 7)),
        ((30, 20, 100, 100), (30, 20, 41, 29)),
        ((-5, -3, 4, 4), (0, 0, 4, 4)),
        ((3, 3, 3.2, 3.3), (3, 3, 4, 4)),
    ):
        image = boxed(box).original(0)
        pixels = image.permute(1, 2, 0)
        assert np.array_equal(pixels.numpy(), np.asarray(Image.open(path).crop(rounded))) and pixels.is_contiguous()
        assert tuple(image.shape[1:]) == boxed(box)._size(0) and boxed(box).original(1).shape == (3, 29, 41)
    for box in ((41, 0, 50, 10), (0, 29, 10, 40), (-9, 0, -1, 5), (5, 5, 5, 9)):
        with refused("a.png, 41 x 29: nothing of it lies in its box"):
            boxed(box).original(0)
