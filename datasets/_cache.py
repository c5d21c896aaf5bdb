"""How the images of a data set are read: decoded, limited in size, and kept on disk by --image_cache.

The cache is shared by runs and processes: each combination of data set folder, side and decoders has a folder of its
own below --image_cache (`_cache_files.py`). It is filled before training, not when an image is first loaded: one
process writes, with a lock and a progress bar, and the workers only read.
"""

import functools
import hashlib
import json
from pathlib import Path

import torch

from datasets import _images
from datasets._cache_files import Cache
from options.flags import Flag
from options.flags.roles import DATA, METHOD, PLACE
from utilities.errors import UserError
from utilities.files import expanded
from utilities.numbers import whole

# version of the cache's files: raise it when a change alters them
VERSION = 1

FLAGS = {
    "--image_cache": Flag(
        str,
        None,
        "folder where decoded images are kept, written once and shared by runs and processes; a source file that "
        "has changed is decoded anew. It takes width x height x 3 bytes per image. Results do not depend on it "
        "(unset: each image is decoded whenever it is loaded)",
        metavar="DIR",
        role=PLACE,
    ),
    "--image_cache_side": Flag(
        whole(0, 10**4),
        0,
        "images whose long side is more than N pixels are scaled down to it when they are decoded, in training "
        "and test, with or without --image_cache: a smaller cache, faster crops, other numbers; 0: no limit",
        metavar="N",
        role=DATA,
    ),
    "--decode_once": Flag(
        bool,
        False,
        "with --image_cache: batches of training images are cut out of it by the main process, and cropped, "
        "resized, flipped, jittered and erased on the device, a whole batch at once. Augmentations keep their "
        "distribution but are drawn differently. For --augmentation base, adv and big; images of several sizes need "
        "--image_cache_side",
        role=METHOD,
    ),
    "--max_image_pixels": Flag(
        whole(1, 2**40),
        _images.MOST_PIXELS,
        "largest number of pixels of an image: a larger one ends the run, because decoding a small file can take "
        "all memory",
        metavar="N",
        role=PLACE,
    ),
}


class Reader:
    """`reader(path)`: the decoded image, uint8 `(C, H, W)`, its long side limited; from the cache if that holds it.

    Args:
        decode: path -> uint8 `(C, H, W)`.
        side: limit of the long side in pixels; 0: none.
        decoder: that of the images in the cache, as a step before those of the transform; empty for the package's.
    """

    def __init__(self, decode, side: int = 0, decoder: str = ""):
        self.decode = decode
        self.side = side
        self.decoder = decoder
        self.cache = None

    def __call__(self, path: str) -> torch.Tensor:
        image = None
        if self.cache is not None:
            image = self.cache.get(path)
        if image is None:
            image = self.fresh(path)
        return image

    def fresh(self, path: str) -> torch.Tensor:
        """The image from its source. Raises UserError as `decode`."""
        image = self.decode(path)
        longest = max(image.shape[1:])
        if not self.side or longest <= self.side:
            return image
        from torchvision.transforms.v2 import functional

        smaller = functional.resize(image, list(self._limited(*image.shape[1:])))
        # the memory layout of decoded and cached images
        return smaller.permute(1, 2, 0).contiguous().permute(2, 0, 1)

    def size(self, path: str) -> tuple[int, int]:
        """(height, width) of `self(path)`, without decoding."""
        height, width = _images.size(path)
        longest = max(height, width)
        if self.side and longest > self.side:
            return self._limited(height, width)
        return height, width

    def _limited(self, *lengths: int) -> tuple[int, int]:
        """Height and width, scaled so that the longer one is `side`."""
        return tuple(max(round(length * self.side / max(lengths)), 1) for length in lengths)

    @property
    def text(self) -> str:
        """Another decoder and the resizing, written as steps before those of the transform; empty without them."""
        return f"{self.decoder}LongSide({self.side}); " if self.side else self.decoder


def reader(opt, name: str, root, files, grey: bool = False) -> Reader:
    """The reader of a data set's images under the flags; fills the cache.

    Args:
        files: the data set's `_files.Files`.
        grey: read them as `(1, H, W)`, not as `(3, H, W)`.

    Raises UserError if `--image_cache` is not a folder.
    """
    decode = _images.grey if grey else _images.decode
    decode = functools.partial(decode, most_pixels=opt.max_image_pixels)
    fill_on_gpu = opt.decode_once and not grey and _decodes_on_gpu()
    decoder = f"nvJPEG(CUDA {torch.version.cuda}); " if fill_on_gpu else ""
    read = Reader(decode, opt.image_cache_side, decoder)
    if opt.image_cache is None:
        return read
    parent = expanded(opt.image_cache)
    if parent.exists() and not parent.is_dir():
        raise UserError(f"--image_cache {parent}: a file, expected a folder")
    origin = {
        "version": VERSION,
        "dataset": name,
        "root": str(Path(root).resolve()),
        "grey": grey,
        "decoders": read.decoder + _images.decoders(),
        "side": read.side,
    }
    if read.side:
        origin["torch"] = torch.__version__.partition("+")[0]
    key = hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:16]
    read.cache = Cache(parent / f"{name}-{key}", origin)
    if fill_on_gpu:
        decode = functools.partial(decode, decode_jpeg=_images.on_gpu(torch.device("cuda", _gpu(opt))))
    read.cache.fill(files, Reader(decode, read.side).fresh)
    return read


def _decodes_on_gpu() -> bool:
    """Whether there is a GPU whose decoder torchvision can use."""
    has_gpu = torch.version.cuda is not None and torch.cuda.is_available()
    return has_gpu and _images.jpeg_package() == "torchvision"


def _gpu(opt) -> int:
    """The number of this process's GPU."""
    if torch.distributed.is_initialized():
        return torch.cuda.current_device()
    # main.py's flag: callers without its flags may lack it
    return vars(opt).get("gpu", [0])[0]
