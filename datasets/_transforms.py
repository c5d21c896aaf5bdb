"""The training and test transforms: presets of `--augmentation`, and the flags that override them.

`check` refuses impossible flags, `build` makes the two transforms of the steps in `_steps.py`, `sizes` says to which
size images are resized and cropped. Photographs are resized and cropped; small images of one size (glyphs) are shown
whole, at most shifted.
"""

import math
from typing import NamedTuple

from datasets._steps import Erasing, Limit, Multiple, OnDevice, OnPillow, ShiftedCrop, Sometimes, Steps
from utilities.errors import UserError
from utilities.shapes import pair, side_or_pair

# test: short side 256, centre 224; other input sizes keep this ratio
CLASSIC_INPUT = 224
CLASSIC_RESIZE = 256
# half the circle: all hues
MOST_HUE = 0.5


class Shape(NamedTuple):
    """The images that a network takes.

    Attributes:
        input_size: side, or (height, width), in pixels; None: 224, or the images' own where they are shown whole.
        interpolation: of every resize, "bilinear" (also None) or "bicubic".
        multiple: what sides of images in their own shape are multiples of: a side, or (height, width).
    """

    input_size: int | tuple[int, int] | None = None
    interpolation: str | None = None
    multiple: int | tuple[int, int] = 1


class Preset(NamedTuple):
    """The transform of one value of `--augmentation`."""

    crop: str  # random_resized, random, shift or centre
    crop_size: int | None = None  # None: the network's input size
    resize_first: bool = False  # training images are resized like test images before the crop
    resize: int | tuple[int, int] | None = None  # None: 256, or for other crops the same ratio as 256 : 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    # grey in one of five images, and brightness, contrast, saturation, hue by up to .2
    jitter: bool = False
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
# presets of images that may be neither cropped nor mirrored
SHOWN_WHOLE = {"base": "shift", "shift": "shift", "none": "none"}
# flags that images shown whole do not take
OF_PHOTOGRAPHS = (
    "eval_long_side",
    "eval_resize_size",
    "resize_size",
    "resize_mode",
    "pad_crop",
    "crop_scale",
    "crop_ratio",
    "image_cache_side",
    "decode_once",
)
# Zhong et al. and BoT; torchvision has .02 to .33 and .3 to 3.3
ERASED_AREA = (0.02, 0.4)
ERASED_RATIO = (0.3, 1 / 0.3)
# to the training transform of any preset but none
ADDED = ("color_jitter", "randaugment", "auto_augment", "random_erasing")
# flags of two numbers -> the limit of the greater one
BOUNDS = {
    "crop_scale": 1.0,
    "crop_ratio": math.inf,
    "random_erasing_area": 1.0,
    "random_erasing_ratio": math.inf,
}


def check(opt, shown_whole: bool = False) -> None:
    """Refuse values that are impossible for any image. Raises UserError.

    Args:
        shown_whole: the data set's images are small and shown whole, never cropped or mirrored.
    """
    preset = PRESETS[opt.augmentation or "base"]
    if shown_whole:
        _check_shown_whole(opt)
    for flag in ("resize_size", "crop_size"):
        value = getattr(opt, flag)
        if value is not None and min(pair(value)) < 1:
            raise UserError(f"--{flag} {words_of(value)}: expected 1 or more")
    _check_bounds(opt, preset)
    _check_crop_and_resize(opt, preset)
    _check_added(opt, preset)
    if opt.decode_once:
        _check_decode_once(opt, preset)
    if opt.color_jitter and opt.color_jitter[3] > MOST_HUE:
        raise UserError(
            f"--color_jitter {words_of(opt.color_jitter)}: the last, the hue, is a share of the circle, at most "
            f"{MOST_HUE} each way"
        )
    if opt.random_erasing_value is not None and len(opt.random_erasing_value) not in (1, 3):
        raise UserError(
            f"--random_erasing_value {words_of(opt.random_erasing_value)}: expected one number, or three for R, G, B"
        )


def _check_shown_whole(opt) -> None:
    if opt.augmentation is not None and opt.augmentation not in SHOWN_WHOLE:
        raise UserError(
            f"--augmentation {opt.augmentation} crops and mirrors: --dataset {opt.dataset} takes "
            f"{', '.join(sorted(SHOWN_WHOLE))}"
        )
    for flag in OF_PHOTOGRAPHS:
        if getattr(opt, flag):
            raise UserError(
                f"--{flag}: images of --dataset {opt.dataset} are shown whole. Leave it out; --crop_size sets their "
                "size"
            )


def _check_bounds(opt, preset: Preset) -> None:
    """The flags of two numbers, a least and a greatest one."""
    for flag, limit in BOUNDS.items():
        bounds = getattr(opt, flag)
        if bounds is None:
            continue
        if not 0 < bounds[0] <= bounds[1] <= limit:
            rule = "0 < least <= greatest"
            if limit == 1:
                rule += " <= 1"
            raise UserError(f"--{flag} {words_of(bounds)}: expected {rule}")
        if preset.crop != "random_resized" and flag.startswith("crop"):
            raise UserError(
                f"--{flag} is RandomResizedCrop's, not that of --augmentation {opt.augmentation}: take base, adv, big "
                "or mlrc"
            )


def _check_crop_and_resize(opt, preset: Preset) -> None:
    if opt.pad_crop and preset.crop != "random":
        raise UserError(
            f"--pad_crop {opt.pad_crop} is RandomCrop's, not that of --augmentation {opt.augmentation or 'base'}: "
            "take red or plain"
        )
    for flag in ("resize_size", "eval_resize_size"):
        if opt.resize_mode == "none" and getattr(opt, flag):
            raise UserError(
                f"--{flag} {getattr(opt, flag)} with --resize_mode none, which resizes nothing: leave one out"
            )


def _check_added(opt, preset: Preset) -> None:
    """What is added to the training transform: under --augmentation none nothing can be."""
    for flag in ADDED:
        if getattr(opt, flag) and preset.crop == "centre":
            raise UserError(
                f"--{flag} {words_of(getattr(opt, flag))}: --augmentation none is the test transform alone. Take "
                "another, or leave it out"
            )


def _check_decode_once(opt, preset: Preset) -> None:
    if opt.image_cache is None:
        raise UserError("--decode_once cuts its batches out of --image_cache DIR: name a folder for the decoded images")
    is_plain_crop = preset.crop == "random_resized" and not preset.resize_first
    if not is_plain_crop or opt.resize_size or opt.resize_mode not in (None, "none"):
        raise UserError(
            "--decode_once is for RandomResizedCrop of whole images: take --augmentation base, adv or big, without "
            "--resize_size and --resize_mode; --image_cache_side makes images smaller"
        )
    for flag in ("randaugment", "auto_augment"):
        if getattr(opt, flag):
            raise UserError(
                f"--{flag} works image by image, not on whole batches as --decode_once does: leave one of them out"
            )


def build(
    opt, input_size=None, image_size: int | None = None, interpolation: str | None = None, multiple=1
) -> tuple[Steps, Steps]:
    """The training and the test transform.

    Args:
        input_size: side, or (height, width), that the network expects; None: 224, or the images' own where they are
            shown whole.
        image_size: side of images that are shown whole; None: photographs of any size.
        interpolation: that of every resize, as torchvision names it: "bilinear" (also None) or "bicubic".
        multiple: what sides of images in their own shape are multiples of: a side, or (height, width).
    """
    from torchvision.transforms import v2

    check(opt, shown_whole=image_size is not None)
    resizing = {"interpolation": v2.InterpolationMode(interpolation or "bilinear")}
    if image_size is not None:
        return _shown_whole(opt, input_size, image_size, resizing)

    preset = PRESETS[opt.augmentation or "base"]
    size, resize = sizes(opt, input_size)
    _, test_resize = sizes(opt, input_size, test=True)
    for flag, side in (("resize_size", resize), ("eval_resize_size", test_resize)):
        if side is not None and _reaches_over(size, side):
            raise UserError(
                f"a crop of {words_of(size)} reaches over the border of images resized to {side}: raise --{flag} or "
                "lower --crop_size"
            )
    test = Steps([*_resized(test_resize, resizing), v2.CenterCrop(size)], size)
    own_shape = None
    if opt.eval_long_side:
        steps = [] if max(pair(multiple)) == 1 else [Multiple(side_or_pair(multiple))]
        own_shape = Steps(steps, opt.eval_long_side, limit=Limit(opt.eval_long_side))
    if preset.crop == "centre":
        return test, own_shape or test
    steps = []
    if preset.resize_first or opt.resize_size or opt.resize_mode or preset.crop == "shift":
        steps += _resized(resize, resizing)
    steps.append(_training_crop(opt, preset, size, resizing))
    if preset.jitter:
        steps.append(v2.RandomGrayscale(p=0.2))
        if not opt.color_jitter:
            steps.append(v2.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.2))
    steps += _added(opt)
    if preset.flip:
        steps.append(v2.RandomHorizontalFlip(p=0.5))
    kind = OnDevice if opt.decode_once else Steps
    return kind(steps, size, _erasing(opt, size)), own_shape or test


def _shown_whole(opt, input_size, image_size: int, resizing: dict) -> tuple[Steps, Steps]:
    """The training and the test transform of small images that are neither cropped nor mirrored."""
    from torchvision.transforms import v2

    size = side_or_pair(opt.crop_size) or side_or_pair(input_size) or image_size
    test = [] if size == image_size else [v2.Resize(pair(size), **resizing)]
    training = list(test)
    if SHOWN_WHOLE[opt.augmentation or "base"] == "shift":
        training.insert(0, ShiftedCrop(image_size))
    return Steps([*training, *_added(opt)], size, _erasing(opt, size)), Steps(test, size)


def _reaches_over(crop, resized) -> bool:
    """Whether a crop is higher or wider than the resized image."""
    height, width = pair(crop)
    image_height, image_width = pair(resized)
    return height > image_height or width > image_width


def _training_crop(opt, preset: Preset, size, resizing: dict):
    from torchvision.transforms import v2

    if preset.crop == "random_resized":
        scale = tuple(opt.crop_scale or preset.scale)
        ratio = tuple(opt.crop_ratio or preset.ratio)
        return v2.RandomResizedCrop(size, scale=scale, ratio=ratio, **resizing)
    # black where an image is smaller, as in the centre crop
    if preset.crop == "random":
        return v2.RandomCrop(size, padding=opt.pad_crop or None, pad_if_needed=opt.resize_mode in ("long", "none"))
    return ShiftedCrop(size)


def _resized(size, resizing: dict) -> list:
    """The step that resizes to a size of `sizes`; none for None. resizing: keywords of `v2.Resize`."""
    from torchvision.transforms import v2

    if size is None:
        return []
    if isinstance(size, LongSide):
        return [v2.Resize(None, max_size=int(size), **resizing)]
    return [v2.Resize(size, **resizing)]


def _added(opt) -> list:
    """The steps of --color_jitter, --auto_augment and --randaugment.

    They work on the crop: FastReID's AutoAugment is before the resize, and slower.
    """
    from torchvision.transforms import v2

    steps = []
    if opt.color_jitter:
        jitter = v2.ColorJitter(*opt.color_jitter)
        # Pillow turns hues in half the time; without hue, tensors are faster
        if opt.color_jitter[3]:
            jitter = OnPillow(jitter)
        if opt.color_jitter_p is not None:
            jitter = Sometimes(jitter, opt.color_jitter_p)
        steps.append(jitter)
    if opt.auto_augment:
        steps.append(Sometimes(OnPillow(v2.AutoAugment()), opt.auto_augment))
    if opt.randaugment:
        steps.append(OnPillow(v2.RandAugment(*opt.randaugment)))
    return steps


def _erasing(opt, size) -> Erasing | None:
    if not opt.random_erasing:
        return None
    area = opt.random_erasing_area or ERASED_AREA
    ratio = opt.random_erasing_ratio or ERASED_RATIO
    value = opt.random_erasing_value or (0.0,)
    aspect = opt.random_erasing_aspect or "uniform"
    return Erasing(opt.random_erasing, area, ratio, value, pair(size), aspect)


class LongSide(int):
    """The length in pixels that the long side gets; the ratio is kept."""

    def __str__(self):
        return f"long side {int(self)}"

    __format__ = object.__format__


def sizes(opt, input_size=None, test: bool = False) -> tuple:
    """Size of the crop, and that which images are resized to before it, for a network of `input_size`, a side or
    (height, width) (None: 224).

    `test`: of test images, which have `--eval_resize_size`.

    Returns:
        The crop's side, or (height, width) where they differ; the resized image's short side, its (height, width), a
        `LongSide`, or None for no resize. One `--resize_size` under squash is the longer side, the other one is in
        the crop's ratio.
    """
    preset = PRESETS[opt.augmentation or "base"]
    mode = opt.resize_mode
    size = side_or_pair(opt.crop_size) or preset.crop_size or side_or_pair(input_size) or CLASSIC_INPUT
    longest = max(pair(size))
    resize_size = opt.resize_size
    if test and opt.eval_resize_size:
        resize_size = opt.eval_resize_size
    if mode is None:
        return size, resize_size or preset.resize or _test_resize(longest)
    if mode == "none":
        return size, None
    default = longest if mode == "long" else _test_resize(longest)
    if preset.resize:
        default = max(pair(preset.resize))
    side = resize_size or default
    if mode == "short":
        return size, side
    if mode == "long":
        return size, LongSide(side)
    # squash
    return size, tuple(round(side * length / longest) for length in pair(size))


def words_of(value) -> str:
    """Words and numbers of a flag as the command line has them."""
    values = value if isinstance(value, list | tuple) else [value]
    words = [value if isinstance(value, str) else f"{value:g}" for value in values]
    return " ".join(words)


def _test_resize(size: int) -> int:
    """Short side before a centre crop of `size`.

    It is 256 for 224 to 256 (the field's 224, 227 and 256), else in the ratio 256 : 224.
    """
    if CLASSIC_INPUT <= size <= CLASSIC_RESIZE:
        return CLASSIC_RESIZE
    return round(size * CLASSIC_RESIZE / CLASSIC_INPUT)
