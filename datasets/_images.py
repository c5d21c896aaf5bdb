"""One image: what a data set knows of it, its size and its pixels.

`Image` is the record that data sets' modules fill. `decode` turns any file that Pillow reads into upright, opaque RGB
of 8 bits; JPEG files go through the faster decoder of torchvision or torchcodec, whose pixels are the same. `size`
reads a file's header alone. `crop` cuts an image to its box.
"""

import contextlib
import functools
import gc
import io
import re
import struct
import sys
import warnings
from typing import NamedTuple

import numpy as np
import torch

from datasets import _content
from utilities.errors import BrokenImage, UserError
from utilities.reading import printable, reason_of

# Formats of pictures, as Pillow or a plug-in of it names them; those without a signature of their own come last.
# Pillow's other formats are documents and programs (EPS, WMF), measurements (FITS, HDF5, GRIB) and films (MPEG, FLI).
PICTURE_FORMATS = (
    *("JPEG", "PNG", "WEBP", "AVIF", "HEIF", "JPEG2000", "BMP", "DIB", "GIF", "TIFF", "PPM", "QOI", "PSD", "DDS"),
    *("ICNS", "SGI", "SUN", "DCX", "PIXAR", "MSP", "IM", "XBM", "XPM", "ICO", "CUR", "PCX", "TGA"),
)
# those that cameras and browsers write, the first of the above: a file is opened as the same format by both lists
PHOTOGRAPHS = ("JPEG", "PNG", "WEBP", "AVIF", "HEIF", "JPEG2000", "BMP", "GIF", "TIFF")
ALSO_JPEG = "MPO"  # several JPEG images in one file, which Pillow opens as JPEG
FRACTIONS = ".pfm"  # an ending of PPM for pixels that are no colours
# What Pillow must be built with to decode a format: names of `PIL.features`.
DECODERS = {"JPEG": "jpg", "WEBP": "webp", "AVIF": "avif", "JPEG2000": "jpg_2000"}
# the most pixels of one image: 512 MB of RGB, Pillow's own limit
MOST_PIXELS = 178_956_970
JPEG_MAGIC = (0xFF, 0xD8)
JPEG_PACKAGES = ("torchvision", "torchcodec")  # torchvision plans to drop its decoders in favour of torchcodec's
MOST_16 = 2**16 - 1  # white in 16 bits
WITH_EXIF_IN_FRONT = ("JPEG", "MPO", "BMP", "WEBP")  # in other formats the EXIF data may follow the pixels
SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap height and width


@contextlib.contextmanager
def uncollected():
    """Context manager and decorator that turns garbage collection off.

    It is slow while hundreds of thousands of objects are made.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Image(NamedTuple):
    """One image of a data set, as its module reads it.

    Attributes:
        path: its file, or its address in a tar file (`_content.py`).
        class_name: None: a test image without a class: a distractor of the gallery or, with lists of relevant images
            (`_layout.Reading.lists`), any image.
        super_name: its super-class. higher_names: its classes of the levels above, the finest first; the same number
            for every image.
        is_query, is_gallery: its roles in evaluation. sequence: images of one never retrieve each other; None: none.
        box: x_1, y_1, x_2, y_2 in pixels of the file, to which the image is cropped; None: the whole image.
        further_names: classes that a query also shows; in results of single domains their images are relevant too.
        time: when it was taken, in seconds (`_times.py`); None: not known. camera: by what. frame: its number in the
            film of this camera; -1: none. group: images of one group stay on one side of a split (`_groups.py`).
        labels: all of an image that may have several, `class_name` first.
    """

    path: str
    class_name: str | None
    super_name: str | None = None
    is_query: bool = True
    is_gallery: bool = True
    sequence: str | None = None
    box: tuple[float, float, float, float] | None = None
    higher_names: tuple[str | None, ...] = ()
    further_names: tuple[str, ...] = ()
    time: float | None = None
    camera: str | None = None
    group: str | None = None
    frame: int = -1
    labels: tuple[str, ...] = ()


@functools.cache
def formats() -> tuple[str, ...]:
    """Those of `PICTURE_FORMATS` that the installed Pillow decodes."""
    import PIL.features
    import PIL.Image

    PIL.Image.init()
    missing = {name for name, decoder in DECODERS.items() if not PIL.features.check(decoder)}
    return tuple(name for name in PICTURE_FORMATS if name in PIL.Image.OPEN and name not in missing)


@functools.cache
def suffixes() -> frozenset[str]:
    """The endings of image files in lower case, such as `.jpg`: those that Pillow registers for `formats`."""
    import PIL.Image

    readable = {*formats()}
    if "JPEG" in readable:
        readable.add(ALSO_JPEG)
    # ending -> format
    registered = PIL.Image.registered_extensions()
    return frozenset(ending for ending, name in registered.items() if name in readable) - {FRACTIONS}


def decode(path: str, most_pixels: int = MOST_PIXELS, decode_jpeg=None) -> torch.Tensor:
    """The image at `path` as uint8 `(3, H, W)`, RGB.

    `decode_jpeg`: a decoder of JPEG files, such as `on_gpu`'s; None: the package's. Grey images get three equal
    channels, palettes and CMYK are converted to RGB, 16 bits a channel are scaled to 8, transparent images get a white
    background, and images are rotated by their EXIF data. Raises UserError, naming the file, if it is missing,
    cannot be decoded, is of none of `formats` or has more than `most_pixels`.
    """
    try:
        data = _content.read(path)
    except (OSError, ValueError, MemoryError) as error:
        # ValueError: a NUL character in the name
        raise _unreadable(path, error) from error
    decode_jpeg = (decode_jpeg or _jpeg_decoder()) if tuple(data[:2]) == JPEG_MAGIC else None
    if decode_jpeg is not None and _fits(path, *_jpeg_size(data.tobytes()), most_pixels):
        # RuntimeError: an unsupported kind of JPEG, or a broken file. Pillow tries next, and its error says what is
        # wrong
        with contextlib.suppress(RuntimeError, ValueError, MemoryError):
            return decode_jpeg(torch.from_numpy(data))
    return torch.from_numpy(_with_pillow(path, "RGB", most_pixels)).permute(2, 0, 1)


def _unreadable(path: str, error: Exception) -> UserError:
    reason = getattr(error, "strerror", None) or reason_of(error)
    return BrokenImage(f"image {printable(path)} cannot be read ({reason}): restore it")


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """(height, width) by a JPEG file's frame header, before the pixels are decoded; (0, 0) if there is none."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        kind = data[at + 1]
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        # the header of a frame; C4 and CC define tables, C8 is reserved
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")
        is_fill_byte = kind == 0xFF
        at += 1 if is_fill_byte else 2 + length
    return 0, 0


def _fits(path: str, height: int, width: int, most_pixels: int) -> bool:
    """True. Raises UserError if an image has too many pixels."""
    if height * width > most_pixels:
        raise _too_large(path, f"is {width:,} x {height:,}", most_pixels)
    return True


def _too_large(path: str, size: str, most_pixels: int) -> UserError:
    return BrokenImage(
        f"image {path} {size}, more than --max_image_pixels {most_pixels:,}: remove it, or raise the flag if it is to "
        "be trusted"
    )


def size(path: str) -> tuple[int, int]:
    """(height, width) of `decode(path)`: from the file's header if Pillow can read it, else by decoding.

    Raises UserError as `decode`.
    """
    import PIL.ExifTags
    import PIL.Image

    try:
        with PIL.Image.open(_content.opened(path), formats=formats()) as image:
            width, height = image.size
            orientation = 1
            if image.format not in WITH_EXIF_IN_FRONT:
                image.load()
            with contextlib.suppress(ValueError, KeyError, TypeError, struct.error):
                orientation = image.getexif().get(PIL.ExifTags.Base.Orientation, 1)
    except Exception:
        # damaged files make Pillow fail in all kinds of ways; `decode` has the message
        return tuple(decode(path).shape[1:])
    return (width, height) if orientation in SIDEWAYS else (height, width)


def pixel_count(data: bytes) -> int:
    """Height times width of a photograph's file in memory, by its header: no pixel is decoded.

    Raises BrokenImage for bytes that are none of `PHOTOGRAPHS`.
    """
    import PIL.Image

    readable = [name for name in formats() if name in PHOTOGRAPHS]
    try:
        with warnings.catch_warnings():
            # the caller compares the number
            warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
            with PIL.Image.open(io.BytesIO(data), formats=readable) as image:
                return image.width * image.height
    except PIL.Image.DecompressionBombError as error:
        return int(re.search(r"\d+", str(error))[0])
    except Exception as error:
        # damaged files make Pillow fail in all kinds of ways
        raise BrokenImage(f"{len(data):,} bytes that are no image: expected {', '.join(readable)}") from error


@functools.cache
def _jpeg_decoder():
    """The RGB decoder of torchvision or, if it has dropped its own, of torchcodec; None: Pillow decodes.

    Both save the copies between Pillow's image and a tensor. Pixels are the same in all three, which use libjpeg-turbo.
    """
    return _decoder_of(jpeg_package())


def _decoder_of(package: str | None):
    """A function from bytes, uint8 `(N,)`, to uint8 `(3, H, W)`; it raises RuntimeError for unsupported files."""
    if package == "torchvision":
        from torchvision.io import ImageReadMode, decode_jpeg

        return functools.partial(decode_jpeg, mode=ImageReadMode.RGB, apply_exif_orientation=True)
    if package == "torchcodec":
        from torchcodec.decoders import decode_jpeg

        # always rotates by the EXIF data
        return functools.partial(decode_jpeg, mode="RGB")
    return None


def on_gpu(device: torch.device):
    """A decoder of JPEG files by nvJPEG, whose pixels differ, by about one of 255 in the mean. It raises RuntimeError
    for files that it cannot read and those that EXIF data may turn.
    """
    from torchvision.io import ImageReadMode, decode_jpeg

    def decoded(data: torch.Tensor) -> torch.Tensor:
        if b"Exif" in data[:MOST_16].numpy().tobytes():
            raise RuntimeError("nvJPEG does not look at the orientation")
        image = decode_jpeg(data, ImageReadMode.RGB, device).cpu()
        # the memory layout of the other decoders
        return image.permute(1, 2, 0).contiguous().permute(2, 0, 1)

    return decoded


@functools.cache
def jpeg_package() -> str | None:
    """The first package of `JPEG_PACKAGES` that can decode; None if none can."""
    for package in JPEG_PACKAGES:
        # not installed, or its libraries are missing
        with contextlib.suppress(ImportError, OSError, RuntimeError):
            _decoder_of(package)
            return package
    return None


def decoders() -> str:
    """Names and versions of the packages that decode images."""
    import PIL

    packages = [sys.modules[jpeg_package()]] if jpeg_package() else []
    return ", ".join(f"{package.__name__} {package.__version__.partition('+')[0]}" for package in (*packages, PIL))


def _with_pillow(path: str, mode: str, most_pixels: int = MOST_PIXELS) -> np.ndarray:
    """The image as an array `(H, W)` or `(H, W, 3)`, uint8."""
    import PIL.Image

    if most_pixels > MOST_PIXELS:
        # Pillow refuses an image of twice as many pixels; `_fits` refuses it from the limit on.
        PIL.Image.MAX_IMAGE_PIXELS = most_pixels
    try:
        with PIL.Image.open(_content.opened(path), formats=formats()) as image:
            _fits(path, *image.size[::-1], most_pixels)
            plain = _plain(image)
            # `convert` copies even into the same mode, which costs a fifth of the decoding time
            if plain.mode != mode:
                plain = plain.convert(mode)
            return np.array(plain)
    except UserError:
        raise
    except FileNotFoundError as error:
        raise _unreadable(path, error) from error
    except PIL.Image.DecompressionBombError as error:
        raise _too_large(path, str(error).partition(" exceeds")[0], most_pixels) from error
    except Exception as error:
        # damaged files make Pillow fail in all kinds of ways
        is_unknown = isinstance(error, PIL.UnidentifiedImageError)
        reason = "no known image format" if is_unknown else reason_of(error)
        raise BrokenImage(
            f"image {printable(path)} cannot be decoded ({reason}, {_size_in_words(path)}): restore or remove it"
        ) from error


def _size_in_words(path: str) -> str:
    try:
        return f"{_content.stat(path)[0]} bytes"
    except (OSError, ValueError):
        return "of unknown size"


def _plain(image):
    """The Pillow image, upright, opaque and with 8 bits per channel.

    Raises ValueError for pixel types whose white value is unknown.
    """
    import PIL.ExifTags
    import PIL.Image
    import PIL.ImageOps

    # damaged EXIF data: no rotation
    with contextlib.suppress(ValueError, KeyError, TypeError, struct.error):
        # in some formats the EXIF data follow the pixels
        image.load()
        # `exif_transpose` would only copy an image of orientation 1
        if image.getexif().get(PIL.ExifTags.Base.Orientation, 1) != 1:
            image = PIL.ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() > MOST_16:
            raise ValueError(
                f"{image.mode}: fractions or 32 bits a pixel, of which white is not known: save it with 8 or 16 bits"
            )
        image = PIL.Image.fromarray(((values.astype(np.uint32) * 255 + MOST_16 // 2) // MOST_16).astype(np.uint8))
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = PIL.Image.alpha_composite(PIL.Image.new("RGBA", rgba.size, "white"), rgba)
    return image


def highest_of_16_bits(path: str) -> int | None:
    """The highest value of an image with 16 bits per channel, 0 to 65,535; None for fewer bits, and for a broken file.
    Pillow cuts colours to their upper 8 bits, of which the highest 16-bit value that they allow is given.
    """
    import PIL.Image

    try:
        with PIL.Image.open(_content.opened(path), formats=formats()) as image:
            if image.mode.startswith("I"):
                highest = int(np.asarray(image).max())
                return highest if highest <= MOST_16 else None
            if not _has_16_bits(image):
                return None
            colours = np.asarray(image.convert("RGB"))
            return int(colours.max()) * 256 + 255
    except Exception:
        # damaged files make Pillow fail in all kinds of ways; reported when it is decoded
        return None


def _has_16_bits(image) -> bool:
    """Whether the channels of a colour image have 16 bits in its file. Pillow must not have decoded the pixels yet."""
    for tile in image.tile:
        arguments = tile[3] if isinstance(tile[3], tuple) else (tile[3],)
        is_deep_ppm = image.format == "PPM" and len(arguments) > 1 and arguments[1] > 255
        if is_deep_ppm or ";16" in str(arguments[0]):
            return True
    return False


def grey(path: str, most_pixels: int = MOST_PIXELS) -> torch.Tensor:
    """The image at `path` as uint8 `(1, H, W)`. Raises UserError as `decode`."""
    return torch.from_numpy(_with_pillow(path, "L", most_pixels))[None]


def decode_grey(paths: list[str], read=grey) -> torch.Tensor:
    """All images at once, uint8 `(N, 1, H, W)`: for small grey images of one size, which are kept in memory."""
    return torch.stack([read(path) for path in paths])


def crop(image: torch.Tensor, box, path: str, scale: tuple[float, float] = (1.0, 1.0)) -> torch.Tensor:
    """The part of `image` `(C, H, W)` within `box`, `(C, H', W')`: a dense copy with decoded images' memory layout.

    Args:
        box: x_1, y_1, x_2, y_2 in pixels of the file, rounded; parts beyond the border are left out.
        scale: height and width of `image` divided by those of the file.

    Raises UserError, naming `path`, for a box outside the image.
    """
    rows, columns = window(box, image.shape[1:], path, scale)
    return image[:, rows, columns].permute(1, 2, 0).contiguous().permute(2, 0, 1)


def window(box, size: tuple[int, int], path: str, scale: tuple[float, float]) -> tuple[slice, slice]:
    """The rows and the columns of a box in an image of `size` (height, width), at least one pixel high and wide.

    Arguments and errors are those of `crop`.
    """
    x_1, y_1, x_2, y_2 = (float(edge) for edge in box)
    height, width = size
    rows = _span(y_1, y_2, height, scale[0])
    columns = _span(x_1, x_2, width, scale[1])
    if rows is None or columns is None:
        raise BrokenImage(
            f"image {path}, {width} x {height}: nothing of it lies in its box {(x_1, y_1, x_2, y_2)}: correct or "
            "remove the box"
        )
    return rows, columns


def _span(first: float, last: float, length: int, scale: float) -> slice | None:
    """The pixels of a side of a box in an image of this length; None if nothing of the image is in it."""
    begin = max(round(first * scale), 0)
    end = min(round(last * scale), length)
    if not first < last or begin >= length or end <= 0:
        return None
    return slice(begin, max(end, begin + 1))
