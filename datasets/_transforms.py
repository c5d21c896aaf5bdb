"""The training and test transforms: presets of `--augmentation`, and the flags that override them. Their steps:
_steps.py.
"""

import math
from typing import NamedTuple

from datasets._steps import Erasing, Limit, OnDevice, OnPillow, ShiftedCrop, Sometimes, Steps, pair
from utilities.errors import UserError

# test: short side 256, centre 224; other input sizes keep this ratio
CLASSIC_INPUT = 224
CLASSIC_RESIZE = 256
MOST_HUE = 0.5  # half the circle: all hues


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
SHOWN_WHOLE = {
    "base": "shift",
    "shift": "shift",
    "none": "none",
}  # presets of images that may be neither cropped nor mirrored
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
)  # flags that images shown whole do not take
# Zhong et al. and BoT; torchvision has .02 to .33 and .3 to 3.3
ERASED_AREA = (0.02, 0.4)
ERASED_RATIO = (0.3, 1 / 0.3)
OF_ERASING = ("random_erasing_area", "random_erasing_ratio", "random_erasing_value", "random_erasing_aspect")
NEEDS = {"color_jitter_p": "color_jitter", **dict.fromkeys(OF_ERASING, "random_erasing")}
ADDED = (
    "color_jitter",
    "randaugment",
    "auto_augment",
    "random_erasing",
)  # to the training transform of any preset but none


def check(opt, whole: bool = False) -> None:
    """Refuse values that are impossible for any image. Raises UserError.

    Args:
        whole: the data set's images are small and shown whole, never cropped or mirrored.
    """
    preset = PRESETS[opt.augmentation or "base"]
    if whole:
        if opt.augmentation is not None and opt.augmentation not in SHOWN_WHOLE:
            raise UserError(
                f"--augmentation {opt.augmentation} crops and mirrors: --dataset {opt.dataset} takes "
                f"{', '.join(sorted(SHOWN_WHOLE))}"
            )
        for flag in OF_PHOTOGRAPHS:
            if getattr(opt, flag):
                raise UserError(
                    f"--{flag}: images of --dataset {opt.dataset} are shown whole. Leave it out; --crop_size sets "
                    "their size"
                )
    for flag in ("resize_size", "crop_size"):
        if getattr(opt, flag) is not None and min(pair(getattr(opt, flag))) < 1:
            raise UserError(f"--{flag} {shown(getattr(opt, flag))}: expected 1 or more")
    for flag, limit in (
        ("crop_scale", 1.0),
        ("crop_ratio", math.inf),
        ("random_erasing_area", 1.0),
        ("random_erasing_ratio", math.inf),
    ):
        bounds = getattr(opt, flag)
        if bounds is None:
            continue
        if not 0 < bounds[0] <= bounds[1] <= limit:
            raise UserError(
                f"--{flag} {shown(bounds)}: expected 0 < least <= greatest" + (" <= 1" if limit == 1 else "")
            )
        if preset.crop != "random_resized" and flag.startswith("crop"):
            raise UserError(
                f"--{flag} is RandomResizedCrop's, not that of --augmentation {opt.augmentation}: take base, adv, big "
                "or mlrc"
            )
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
    for flag in ADDED:
        if getattr(opt, flag) and preset.crop == "centre":
            raise UserError(
                f"--{flag} {shown(getattr(opt, flag))}: --augmentation none is the test transform alone. Take "
                "another, or leave it out"
            )
    for flag, needed in NEEDS.items():
        if getattr(opt, flag) is not None and not getattr(opt, needed):
            raise UserError(f"--{flag} {shown(getattr(opt, flag))} has no effect without --{needed}: add it")
    if opt.decode_once:
        _check_decode_once(opt, preset)
    if opt.color_jitter and opt.color_jitter[3] > MOST_HUE:
        raise UserError(
            f"--color_jitter {shown(opt.color_jitter)}: the last, the hue, is a share of the circle, at most "
            f"{MOST_HUE} each way"
        )
    if opt.random_erasing_value is not None and len(opt.random_erasing_value) not in (1, 3):
        raise UserError(
            f"--random_erasing_value {shown(opt.random_erasing_value)}: expected one number, or three for R, G, B"
        )


def _check_decode_once(opt, preset: Preset) -> None:
    if opt.image_cache is None:
        raise UserError("--decode_once cuts its batches out of --image_cache DIR: name a folder for the decoded images")
    if (
        preset.crop != "random_resized"
        or preset.resize_first
        or opt.resize_size
        or opt.resize_mode not in (None, "none")
    ):
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
    opt, input_size: int | None = None, image_size: int | None = None, interpolation: str | None = None
) -> tuple[Steps, Steps]:
    """The training and the test transform.

    Args:
        input_size: side that the network expects; None: 224, or the images' own where they are shown whole.
        image_size: side of images that are shown whole; None: photographs of any size.
        interpolation: that of every resize, as torchvision names it: "bilinear" (also None) or "bicubic".
    """
    from torchvision.transforms import v2

    check(opt, whole=image_size is not None)
    by = {"interpolation": v2.InterpolationMode(interpolation or "bilinear")}
    preset = PRESETS[opt.augmentation or "base"]
    if image_size is not None:
        size = _short(opt.crop_size) or input_size or image_size
        test = [] if size == image_size else [v2.Resize(pair(size), **by)]
        training = [ShiftedCrop(image_size), *test] if SHOWN_WHOLE[opt.augmentation or "base"] == "shift" else test
        return Steps([*training, *_added(opt)], size, _erasing(opt, size)), Steps(test, size)

    size, resize = sizes(opt, input_size)
    limited = Steps([], opt.eval_long_side, limit=Limit(opt.eval_long_side)) if opt.eval_long_side else None
    _, test_resize = sizes(opt, input_size, test=True)
    for flag, side in (("resize_size", resize), ("eval_resize_size", test_resize)):
        if side is not None and any(given < least for given, least in zip(pair(side), pair(size), strict=True)):
            raise UserError(
                f"a crop of {shown(size)} reaches over the border of images resized to {side}: raise --{flag} or "
                "lower --crop_size"
            )
    resized = _resized(resize, by)
    test = [*_resized(test_resize, by), v2.CenterCrop(size)]
    if preset.crop == "centre":
        return Steps(test, size), limited or Steps(test, size)
    training = resized if preset.resize_first or opt.resize_size or opt.resize_mode or preset.crop == "shift" else []
    if preset.crop == "random_resized":
        scale = tuple(opt.crop_scale or preset.scale)
        ratio = tuple(opt.crop_ratio or preset.ratio)
        crop = v2.RandomResizedCrop(size, scale=scale, ratio=ratio, **by)
    elif preset.crop == "random":  # black where an image is smaller, as in the centre crop
        crop = v2.RandomCrop(size, padding=opt.pad_crop or None, pad_if_needed=opt.resize_mode in ("long", "none"))
    else:
        crop = ShiftedCrop(size)
    training = [*training, crop]
    if preset.jitter:
        training += [
            v2.RandomGrayscale(p=0.2),
            *([] if opt.color_jitter else [v2.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.2)]),
        ]
    training += _added(opt)
    if preset.flip:
        training.append(v2.RandomHorizontalFlip(p=0.5))
    return (OnDevice if opt.decode_once else Steps)(training, size, _erasing(opt, size)), limited or Steps(test, size)


def _resized(size, by: dict) -> list:
    """The step that resizes to a size of `sizes`; none for None. `by`: the interpolation."""
    from torchvision.transforms import v2

    if size is None:
        return []
    return [v2.Resize(None, max_size=int(size), **by) if isinstance(size, LongSide) else v2.Resize(size, **by)]


def _added(opt) -> list:
    """The steps of --color_jitter, --auto_augment and --randaugment. On the crop: FastReID's AutoAugment is before the
    resize, and slower.
    """
    from torchvision.transforms import v2

    steps = []
    if opt.color_jitter:
        jitter = v2.ColorJitter(*opt.color_jitter)
        jitter = (
            OnPillow(jitter) if opt.color_jitter[3] else jitter
        )  # Pillow turns hues in half the time; without, tensors are faster
        steps.append(jitter if opt.color_jitter_p is None else Sometimes(jitter, opt.color_jitter_p))
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


def sizes(opt, input_size: int | None = None, test: bool = False) -> tuple:
    """Size of the crop, and that which images are resized to before it, for a network of `input_size` (None: 224).

    `test`: of test images, which have `--eval_resize_size`.

    Returns:
        The crop's side, or (height, width) where they differ; the resized image's short side, its (height, width), a
        `LongSide`, or None for no resize. One `--resize_size` under squash is the longer side, the other one is in the
        crop's ratio.
    """
    preset = PRESETS[opt.augmentation or "base"]
    mode = opt.resize_mode
    size = _short(opt.crop_size) or preset.crop_size or input_size or CLASSIC_INPUT
    longest = max(pair(size))
    asked = (opt.eval_resize_size if test else None) or opt.resize_size
    if mode is None:
        return size, asked or preset.resize or _test_resize(longest)
    to = asked or max(pair(preset.resize or 0)) or (longest if mode == "long" else _test_resize(longest))
    squashed = tuple(round(to * side / longest) for side in pair(size))
    return size, {"short": to, "squash": squashed, "long": LongSide(to), "none": None}[mode]


def shown(value) -> str:
    """Words and numbers of a flag as the command line has them."""
    values = value if isinstance(value, list | tuple) else [value]
    words = [item if isinstance(item, str) else f"{item:g}" for item in values]
    return " ".join(words)


def _short(size):
    """The side of a square for two equal ones, else (height, width); None for None."""
    return size if size is None or isinstance(size, int) else size[0] if len(set(size)) == 1 else tuple(size)


def _test_resize(size: int) -> int:
    """Short side before a centre crop of `size`: 256 for 224 to 256 (the field's 224, 227 and 256), else in the ratio
    256 : 224.
    """
    return CLASSIC_RESIZE if CLASSIC_INPUT <= size <= CLASSIC_RESIZE else round(size * CLASSIC_RESIZE / CLASSIC_INPUT)
