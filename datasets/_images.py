"""A split as a torch `Dataset`: decoding, labels, counts."""

import contextlib
import functools
import gc
import math
import struct
import sys
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch

from datasets import _content
from utilities.errors import BrokenImage, UserError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")  # Pillow's others hold programs and documents
MOST_PIXELS = 178_956_970  # of one image, 512 MB of RGB; Pillow's own limit
JPEG_MAGIC = (0xFF, 0xD8)
JPEG_PACKAGES = ("torchvision", "torchcodec")  # torchvision plans to drop its decoders in favour of torchcodec's
MOST_16 = 2**16 - 1  # white in 16 bits
WITH_EXIF_IN_FRONT = ("JPEG", "MPO", "BMP", "WEBP")  # in other formats the EXIF data may follow the pixels
SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap height and width


@contextlib.contextmanager
def uncollected():
    """Context manager and decorator that turns garbage collection off: it is slow while hundreds of thousands of objects are made."""
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
        class_name: None: of no class, of the test set alone, and in no class-wise number: a distractor of the gallery, or, where lists say what is
            found (`_layout.Reading.lists`), any image.
        is_query, is_gallery: its roles in evaluation.
        sequence: images of one sequence are never each other's neighbours; None: no sequence.
        box: x_1, y_1, x_2, y_2 in pixels of the file, to which the image is cropped; None: the whole image.
        higher_names: its classes of the levels above the super-class, the finest first; the same number for every image.
        further_names: classes that a query shows beside `class_name`: in searches that come one a domain it is to find their images too.
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


def decode(path: str, most_pixels: int = MOST_PIXELS, decode_jpeg=None) -> torch.Tensor:
    """The image at `path` as uint8 `(3, H, W)`, RGB. `decode_jpeg`: of JPEG files, such as `on_gpu`'s; None: the package's.

    Grey images get three equal channels, palettes and CMYK are converted to RGB, 16 bits a channel are scaled to 8, transparent images
    get a white background, and images are rotated by their EXIF data.
    Raises UserError, naming the file, where it is missing, cannot be decoded, is of none of `FORMATS` or has more than `most_pixels`.
    """
    try:
        data = _content.read(path)
    except OSError as error:
        raise BrokenImage(f"image {path} cannot be read ({error.strerror or error}): restore it") from error
    decode_jpeg = (decode_jpeg or _jpeg_decoder()) if tuple(data[:2]) == JPEG_MAGIC else None
    if decode_jpeg is not None and _fits(path, *_jpeg_size(data.tobytes()), most_pixels):
        # RuntimeError: an unsupported kind of JPEG, or a broken file. Pillow tries next, and its error says what is wrong
        with contextlib.suppress(RuntimeError):
            return decode_jpeg(torch.from_numpy(data))
    return torch.from_numpy(_with_pillow(path, "RGB", most_pixels)).permute(2, 0, 1)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """(height, width) by a JPEG file's frame header, before the pixels are decoded; (0, 0) where there is none."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        kind, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):  # a frame; the others define tables
            return int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")
        at += 1 if kind == 0xFF else 2 + length  # a fill byte, or a segment
    return 0, 0


def _fits(path: str, height: int, width: int, most_pixels: int) -> bool:
    """True. Raises UserError where an image has too many pixels."""
    if height * width > most_pixels:
        raise _too_large(path, f"is {width:,} x {height:,}", most_pixels)
    return True


def _too_large(path: str, size: str, most_pixels: int) -> UserError:
    return BrokenImage(f"image {path} {size}, more than --max_image_pixels {most_pixels:,}: remove it, or raise the flag if it is to be trusted")


def size(path: str) -> tuple[int, int]:
    """(height, width) of `decode(path)`: from the file's header if Pillow can read it, else by decoding. Raises UserError as `decode`."""
    import PIL.ExifTags
    import PIL.Image

    try:
        with PIL.Image.open(_content.opened(path), formats=FORMATS) as image:
            (width, height), turned = image.size, 1
            if image.format not in WITH_EXIF_IN_FRONT:
                image.load()
            with contextlib.suppress(ValueError, KeyError, TypeError, struct.error):
                turned = image.getexif().get(PIL.ExifTags.Base.Orientation, 1)
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError):
        return tuple(decode(path).shape[1:])
    return (width, height) if turned in SIDEWAYS else (height, width)


@functools.cache
def _jpeg_decoder():
    """The RGB decoder of torchvision or, where it has dropped its own, of torchcodec; None where both lack one, and Pillow decodes.

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

        return functools.partial(decode_jpeg, mode="RGB")  # always rotates by the EXIF data
    return None


def on_gpu(device: torch.device):
    """A decoder of JPEG files by nvJPEG, whose rounding is another; it raises RuntimeError for those that it cannot read and those that EXIF data may turn."""
    from torchvision.io import ImageReadMode, decode_jpeg

    def decoded(data: torch.Tensor) -> torch.Tensor:
        if b"Exif" in data[:MOST_16].numpy().tobytes():
            raise RuntimeError("nvJPEG does not look at the orientation")
        return decode_jpeg(data, ImageReadMode.RGB, device).cpu().permute(1, 2, 0).contiguous().permute(2, 0, 1)  # the layout of the other decoders

    return decoded


@functools.cache
def jpeg_package() -> str | None:
    """The first package of `JPEG_PACKAGES` that can decode; None where none can."""
    for package in JPEG_PACKAGES:
        with contextlib.suppress(ImportError, OSError, RuntimeError):  # not installed, or its libraries are missing
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
        PIL.Image.MAX_IMAGE_PIXELS = most_pixels  # it refuses twice as many; here the limit is ours
    try:
        with PIL.Image.open(_content.opened(path), formats=FORMATS) as image:
            _fits(path, *image.size[::-1], most_pixels)
            plain = _plain(image)
            return np.array(plain if plain.mode == mode else plain.convert(mode))  # avoids a copy: each costs a fifth of the decoding time
    except PIL.Image.DecompressionBombError as error:
        raise _too_large(path, str(error).partition(" exceeds")[0], most_pixels) from error
    except (OSError, ValueError, SyntaxError) as error:
        reason = "no known image format" if isinstance(error, PIL.UnidentifiedImageError) else error
        raise BrokenImage(f"image {path} cannot be decoded ({reason}, {_content.stat(path)[0]} bytes): restore or remove it") from error


def _plain(image):
    """The Pillow image, upright, opaque and with 8 bits a channel. Raises ValueError for pixel types whose white value is unknown."""
    import PIL.ExifTags
    import PIL.Image
    import PIL.ImageOps

    with contextlib.suppress(ValueError, KeyError, TypeError, struct.error):  # damaged EXIF data: no rotation
        image.load()  # in some formats the EXIF data follow the pixels
        if image.getexif().get(PIL.ExifTags.Base.Orientation, 1) != 1:  # for 1 it would only copy
            image = PIL.ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() > MOST_16:
            raise ValueError(f"{image.mode}: fractions or 32 bits a pixel, of which white is not known: save it with 8 or 16 bits")
        image = PIL.Image.fromarray(((values.astype(np.uint32) * 255 + MOST_16 // 2) // MOST_16).astype(np.uint8))
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = PIL.Image.alpha_composite(PIL.Image.new("RGBA", rgba.size, "white"), rgba)
    return image


def grey(path: str, most_pixels: int = MOST_PIXELS) -> torch.Tensor:
    """The image at `path` as uint8 `(1, H, W)`. Raises UserError as `decode`."""
    return torch.from_numpy(_with_pillow(path, "L", most_pixels))[None]


def decode_grey(paths: list[str], read=grey) -> torch.Tensor:
    """All images at once, uint8 `(N, 1, H, W)`: for small grey images of one size, which are kept in memory."""
    return torch.stack([read(path) for path in paths])  # one at a time


def crop(image: torch.Tensor, box, path: str, scale: tuple[float, float] = (1.0, 1.0)) -> torch.Tensor:
    """The part of `image` `(C, H, W)` within `box`: a dense copy `(C, H', W')` with the memory layout of decoded images.

    Args:
        box: x_1, y_1, x_2, y_2 in pixels of the file, rounded; parts beyond the border are left out.
        scale: height and width of `image` divided by those of the file.

    Raises UserError, naming `path`, for a box outside the image.
    """
    top, bottom, left, right = _edges(box, *image.shape[1:], path, scale)
    return image[:, top:bottom, left:right].permute(1, 2, 0).contiguous().permute(2, 0, 1)


def _edges(box, height: int, width: int, path: str, scale: tuple[float, float]) -> tuple[int, int, int, int]:
    """Top, bottom, left and right of a box in an image of this size, at least one pixel high and wide."""
    ends = []
    for first, last, length, by in ((box[1], box[3], height, scale[0]), (box[0], box[2], width, scale[1])):
        begin, end = max(round(float(first) * by), 0), min(round(float(last) * by), length)
        if not first < last or begin >= length or end <= 0:
            raise BrokenImage(
                f"image {path}, {width} x {height}: nothing of it lies in its box {tuple(map(float, box))}: mend or remove the box"
            )
        ends += [begin, max(end, begin + 1)]
    return tuple(ends)


class ImageSet(torch.utils.data.Dataset):
    """One split. Item: `(label, image uint8 (3, H, W), index)`.

    Args:
        images: the split's images, those of a class together, classes in order: they get the labels 0..C-1, unless `labels` gives others.
            Those of no class come last, with the label -1.
        transform: from uint8 `(3, H, W)` to the same.
        pixels: the decoded images, uint8 `(N, 1 or 3, H, W)`; None: each is decoded whenever it is loaded.
        labels: class name -> label, of all classes that occur; for splits that share their classes.
        read: path -> image before the transform, uint8 `(3, H, W)`; `before`: its steps beside decoding, in words.

    Attributes:
        image_list: list of `(path, class)`, in the order of the indices.
        image_dict: class -> list of `[path, index]`.
        avail_classes, n_classes: the labels, 0..C-1 in training and where `labels` is None, and their number C.
        class_names, super_labels: label -> name of the class, and of its super-class (None where that is not known).
        lineages: set of the names (class, super-class, further levels …) that images have; a class in two super-classes has two.
        paths: of all images.
        counts: numbers of images of a class, classes, and classes with a single image; of `distractors` where there are some.
        name, split, root: the data set's name, which of its splits this is, the folder where it was found.
        partial: None, or a text on how the data set differs from the published one. notes: further notes to print at the start.
        is_query, is_gallery: bool `(N,)`, the images' roles. sequences: int64 `(N,)`, the number of an image's sequence, -1 for none;
            sequence_names: number -> name. Both None where no image has a sequence.
        role_draws: bool `(D, N)`, the gallery of each of D random draws; the other images are queries. Metrics are means over the draws;
            `is_query` and `is_gallery` are those of the first. None where the roles are not drawn.
        is_distractor: bool `(N,)`, images of no class; None where every image has a class.
        lists: protocol -> rows of the positives, and of the junk, of each query (`_lists.rows`); None where classes say what is found.
        by_domain: whether super-classes are domains, and results come one a domain.
        further_labels: row -> labels of `Image.further_names`, of classes that occur; empty where no image has any.
        boxes: float32 `(N, 4)` of `Image.box`, NaN for a whole image; None where no image has a box.
        fingerprint: `sha256` of all names and sizes of the data set, of names and `times`, number of `files` and `bytes`, `by_content`.
        class_lists: split -> its classes in lines, see `datasets._files.Files.class_lists`.
        features: None, or `(N, F)`: items then hold an image's row of these in place of the image.
    """

    @uncollected()
    def __init__(
        self, images: list[Image], transform, pixels: torch.Tensor | None = None, name="", split="", root="", labels=None, read=decode,
        before="",
    ):  # fmt: skip
        self.transform, self.pixels, self.read, self.before = transform, pixels, read, before
        self.name, self.split, self.root = name, split, str(root)
        self.partial, self.notes, self.fingerprint, self.class_lists, self.features, self.lists = None, [], {}, {}, None, None
        of_class = [image for image in images if image.class_name is not None]
        labels = {} if labels is None else {image.class_name: labels[image.class_name] for image in of_class}  # in order of appearance
        self.image_list = [(image.path, labels.setdefault(image.class_name, len(labels))) for image in of_class]
        self.image_dict = {label: [] for label in labels.values()}
        for index, (path, label) in enumerate(self.image_list):
            self.image_dict[label].append([path, index])
        sizes, of_none = Counter(label for _, label in self.image_list), images[len(of_class) :]
        self.image_list += [(image.path, -1) for image in of_none]
        self.avail_classes = list(self.image_dict)
        self.n_classes = len(self.avail_classes)
        self.class_names = {label: class_name for class_name, label in labels.items()}
        self.super_labels = {labels[image.class_name]: image.super_name for image in of_class}
        self.by_domain = False
        self.further_labels = {
            row: [labels[name] for name in image.further_names if name in labels] for row, image in enumerate(images) if image.further_names
        }
        self.lineages = {(image.class_name, image.super_name, *image.higher_names) for image in of_class}
        self.paths = [path for path, _ in self.image_list]
        self.is_query = np.fromiter((image.is_query for image in images), bool, len(images))
        self.is_gallery = np.fromiter((image.is_gallery for image in images), bool, len(images))
        (self.sequences, self.sequence_names), self.boxes, self.role_draws = _sequences(images), _boxes(images), None
        self.is_distractor = np.arange(len(images)) >= len(of_class) if of_none else None
        self.counts = {"images": len(of_class), "classes": self.n_classes, "single_image_classes": sum(n == 1 for n in sizes.values())}
        self.counts |= {"distractors" if of_class else "images": len(of_none)} if of_none else {}

    def draw_roles(self, draws: np.ndarray) -> None:
        """Set the roles from random galleries, bool `(D, N)`, one row a draw; the other images are queries."""
        self.role_draws, self.is_gallery, self.is_query = draws, draws[0], ~draws[0]

    @property
    def roles(self) -> dict[str, int]:
        """Numbers of queries and of gallery images; empty where all images are both."""
        if self.is_query.all() and self.is_gallery.all():
            return {}
        drawn = {} if self.role_draws is None else {"draws": len(self.role_draws)}
        return {"query_images": int(self.is_query.sum()), "gallery_images": int(self.is_gallery.sum()), **drawn}

    @property
    def transforms_as_resolved(self) -> str:
        """The transform's steps with their values."""
        return self.before + ("" if self.boxes is None else "Box; ") + self.transform.text

    def __len__(self):
        return len(self.image_list)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, int]:
        """`(label, image, index)`; the image uint8 `(3, H, W)`, transformed, or its features `(F,)`."""
        image = self._transformed(index) if self.features is None else self.features[index]
        return self.image_list[index][1], image, index

    def _transformed(self, index: int) -> torch.Tensor:
        cut = self.transform.limit is not None and self._box(index) is not None
        return self.transform(self.original(index), max(self._whole_size(index)) if cut else None)

    def pass_over(self, index: int) -> None:
        """Make the random draws of `[index]` without loading it: under torchrun for a batch's images that another process loads.

        The transform runs on an image without pixels, as its draws may depend on the image's size, and on nothing else.
        """
        if self.features is None:
            self.transform(torch.empty(3, *self._size(index), dtype=torch.uint8, device="meta"))

    def _size(self, index: int) -> tuple[int, int]:
        """(height, width) of `original(index)`."""
        whole, path, box = self._whole_size(index), self.image_list[index][0], self._box(index)
        if box is None:
            return whole
        top, bottom, left, right = _edges(box, *whole, path, self._scale(path, whole))
        return bottom - top, right - left

    def _whole_size(self, index: int) -> tuple[int, int]:
        """(height, width) of the image as read, before it is cropped to its box."""
        if self.pixels is not None:
            return tuple(self.pixels[index].shape[1:])
        path, measure = self.image_list[index][0], getattr(self.read, "size", None) or (size if self.read is decode else None)
        return tuple(self.read(path).shape[1:]) if measure is None else measure(path)

    def _box(self, index: int) -> np.ndarray | None:
        """The image's box `(4,)`; None where it is shown whole."""
        return None if self.boxes is None or math.isnan(self.boxes[index, 0]) else self.boxes[index]

    def _scale(self, path: str, shape) -> tuple[float, float]:
        """Height and width of an image as read, divided by those of its file."""
        if not getattr(self.read, "side", 0):  # no limit of the long side: not resized
            return 1.0, 1.0
        return tuple(length / of_file for length, of_file in zip(shape, size(path), strict=True))

    def view(self, index: int) -> np.ndarray:
        """`original(index)` on the memory map of the image cache, uint8 `(H, W, 3)`, to be read only. KeyError where it is not there."""
        path, box = self.image_list[index][0], self._box(index)
        image = self.read.cache.view(path)
        if box is None:
            return image
        top, bottom, left, right = _edges(box, *image.shape[:2], path, self._scale(path, image.shape[:2]))
        return image[top:bottom, left:right]

    def original(self, index: int) -> torch.Tensor:
        """The image before the transform, uint8 `(3, H, W)`, cropped to its box."""
        if self.pixels is None:
            path, box = self.image_list[index][0], self._box(index)
            image = self.read(path)
            return image if box is None else crop(image, box, path, self._scale(path, image.shape[1:]))
        image = self.pixels[index]
        return image.repeat(3, 1, 1) if len(image) == 1 else image.clone()


def _sequences(images: list[Image]) -> tuple[np.ndarray, dict[int, str]] | tuple[None, None]:
    """Each image's sequence as a number, int64 `(N,)`, in order of appearance, -1 for none; number -> name. Both None without sequences."""
    numbers = {None: -1}
    found = np.fromiter((numbers.setdefault(image.sequence, len(numbers) - 1) for image in images), np.int64, len(images))
    del numbers[None]
    return (found, {number: name for name, number in numbers.items()}) if numbers else (None, None)


def _boxes(images: list[Image]) -> np.ndarray | None:
    """The boxes, float32 `(N, 4)`, NaN for a whole image; None where no image has one."""
    if all(image.box is None for image in images):
        return None
    return np.array([(math.nan,) * 4 if image.box is None else image.box for image in images], dtype=np.float32)
