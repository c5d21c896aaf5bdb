"""The training and test transforms: presets of `--augmentation`, the flags that override them, and the resulting steps.

All work on uint8 tensors `(3, H, W)` with torchvision's v2 kernels, whose antialiased resize is Pillow's to within rounding, and
draw from torch's global generator in the order of the classic pipeline: same seed, same crop.
"""

import math
from typing import NamedTuple

import torch

from utilities.errors import UserError

CLASSIC_INPUT, CLASSIC_RESIZE = 224, 256  # test: short side 256, centre 224; other input sizes keep this ratio
MAX_SHIFT = 2  # pixels


class Preset(NamedTuple):
    """The transform of one value of `--augmentation`."""

    crop: str  # random_resized, random, shift or centre
    crop_size: int | None = None  # None: the network's input size
    resize_first: bool = False  # training images are resized like test images before the crop
    resize: int | tuple[int, int] | None = None  # None: 256, or for other crops the same ratio as 256 : 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    jitter: bool = False  # grey in one of five images, and brightness, contrast, saturation, hue by up to .2
    flip: bool = True


PRESETS = {
    "base": Preset("random_resized"),
    "adv": Preset("random_resized", jitter=True),
    "big": Preset("random_resized", crop_size=256),
    "red": Preset("random", resize_first=True),
    "mlrc": Preset("random_resized", crop_size=227, resize_first=True, resize=256, scale=(0.16, 1.0)),
    "plain": Preset("random", crop_size=227, resize_first=True, resize=(256, 256)),
    "shift": Preset("shift", flip=False),
    "none": Preset("centre", flip=False),
}
SHOWN_WHOLE = {"base": "shift", "shift": "shift", "none": "none"}  # presets of images that may be neither cropped nor mirrored
OF_PHOTOGRAPHS = ("resize_size", "crop_scale", "crop_ratio", "image_cache_side")  # flags that images shown whole do not take


class Steps:
    """Transforms applied in turn; `text` lists them with their values. `side`: of the square images that come out, in pixels."""

    def __init__(self, steps: list, side: int):
        self.steps, self.side = steps, side
        self.text = "; ".join(map(str, steps)) or "none"

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """`image` `(3, H, W)` uint8 -> `(3, H', W')` uint8."""
        for step in self.steps:
            image = step(image)
        return image


class ShiftedCrop:
    """The crop `size` x `size` from the image's centre, moved by up to `pixels` each way; black beyond the border."""

    def __init__(self, size: int, pixels: int = MAX_SHIFT):
        self.size, self.pixels = size, pixels

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        height, width = image.shape[-2:]
        down, right = torch.randint(-self.pixels, self.pixels + 1, (2,)).tolist()
        top, left = round((height - self.size) / 2) + down, round((width - self.size) / 2) + right
        y, x = max(top, 0), max(left, 0)  # where the part that lies within the image begins
        inside = image[:, y : max(top + self.size, 0), x : max(left + self.size, 0)]
        crop = image.new_zeros(len(image), self.size, self.size)
        crop[:, y - top : y - top + inside.shape[1], x - left : x - left + inside.shape[2]] = inside
        return crop

    def __repr__(self):
        return f"ShiftedCrop(size={self.size}, pixels={self.pixels})"


def check(opt, whole: bool = False) -> None:
    """Refuse values that are impossible for any image. Raises UserError.

    Args:
        whole: the data set's images are small and shown whole, never cropped or mirrored.
    """
    preset = PRESETS[opt.augmentation or "base"]
    if whole:
        if opt.augmentation is not None and opt.augmentation not in SHOWN_WHOLE:
            raise UserError(
                f"--augmentation {opt.augmentation} crops and mirrors: --dataset {opt.dataset} takes {', '.join(sorted(SHOWN_WHOLE))}"
            )
        for flag in OF_PHOTOGRAPHS:
            if getattr(opt, flag):
                raise UserError(f"--{flag}: images of --dataset {opt.dataset} are shown whole. Leave it out; --crop_size sets their size")
    for flag in ("resize_size", "crop_size"):
        if getattr(opt, flag) is not None and getattr(opt, flag) < 1:
            raise UserError(f"--{flag} {getattr(opt, flag)}: expected 1 or more")
    for flag, limit in (("crop_scale", 1.0), ("crop_ratio", math.inf)):
        pair = getattr(opt, flag)
        if pair is None:
            continue
        if not 0 < pair[0] <= pair[1] <= limit:
            raise UserError(f"--{flag} {pair[0]:g} {pair[1]:g}: expected 0 < least <= greatest" + (" <= 1" if limit == 1 else ""))
        if preset.crop != "random_resized":
            raise UserError(f"--{flag} is RandomResizedCrop's, not that of --augmentation {opt.augmentation}: take base, adv, big or mlrc")


def build(opt, input_size: int | None = None, image_size: int | None = None, interpolation: str | None = None) -> tuple[Steps, Steps]:
    """The training and the test transform.

    Args:
        input_size: side that the network expects; None: 224, or the images' own where they are shown whole.
        image_size: side of images that are shown whole; None: photographs of any size.
        interpolation: that of every resize, as torchvision names it: "bilinear" (also None) or "bicubic".
    """
    from torchvision.transforms import v2

    check(opt, whole=image_size is not None)
    by = {"interpolation": v2.InterpolationMode(interpolation or "bilinear")}
    if image_size is not None:
        size = opt.crop_size or input_size or image_size
        test = [] if size == image_size else [v2.Resize((size, size), **by)]
        moved = SHOWN_WHOLE[opt.augmentation or "base"] == "shift"
        return Steps([ShiftedCrop(image_size), *test] if moved else test, size), Steps(test, size)

    preset = PRESETS[opt.augmentation or "base"]
    size, resize = sizes(opt, input_size)
    if (resize if isinstance(resize, int) else min(resize)) < size:
        raise UserError(f"a crop of {size} reaches over the border of images resized to {resize}: raise --resize_size or lower --crop_size")
    test = [v2.Resize(resize, **by), v2.CenterCrop(size)]
    if preset.crop == "centre":
        return Steps(test, size), Steps(test, size)
    training = [v2.Resize(resize, **by)] if preset.resize_first or opt.resize_size or preset.crop == "shift" else []
    if preset.crop == "random_resized":
        scale, ratio = tuple(opt.crop_scale or preset.scale), tuple(opt.crop_ratio or preset.ratio)
        training.append(v2.RandomResizedCrop(size, scale=scale, ratio=ratio, **by))
    else:
        training.append(v2.RandomCrop(size) if preset.crop == "random" else ShiftedCrop(size))
    if preset.jitter:
        training += [v2.RandomGrayscale(p=0.2), v2.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.2)]
    if preset.flip:
        training.append(v2.RandomHorizontalFlip(p=0.5))
    return Steps(training, size), Steps(test, size)


def sizes(opt, input_size: int | None = None) -> tuple[int, int | tuple[int, int]]:
    """Side of the crop, and the size that images are resized to before it, for a network of `input_size` (None: 224)."""
    preset = PRESETS[opt.augmentation or "base"]
    size = opt.crop_size or preset.crop_size or input_size or CLASSIC_INPUT
    return size, opt.resize_size or preset.resize or _test_resize(size)


def _test_resize(size: int) -> int:
    """Short side before a centre crop of `size`: 256 for 224 to 256 (the field's 224, 227 and 256), else in the ratio 256 : 224."""
    return CLASSIC_RESIZE if CLASSIC_INPUT <= size <= CLASSIC_RESIZE else round(size * CLASSIC_RESIZE / CLASSIC_INPUT)
