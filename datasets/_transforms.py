"""The training and test transforms: presets of `--augmentation`, the flags that override them, and the resulting steps.

All work on uint8 tensors `(3, H, W)` with torchvision's v2 kernels, whose antialiased resize is Pillow's to within rounding, and
draw from torch's global generator in the order of the classic pipeline: same seed, same crop. Only the rectangles of --random_erasing
are drawn here and erased later, on the normalised images (`training.erasing`).
"""

import math
from typing import NamedTuple

import torch

from utilities.errors import UserError

CLASSIC_INPUT, CLASSIC_RESIZE = 224, 256  # test: short side 256, centre 224; other input sizes keep this ratio
MAX_SHIFT = 2  # pixels
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
SHOWN_WHOLE = {"base": "shift", "shift": "shift", "none": "none"}  # presets of images that may be neither cropped nor mirrored
OF_PHOTOGRAPHS = ("eval_long_side", "resize_size", "resize_mode", "pad_crop", "crop_scale", "crop_ratio", "image_cache_side", "decode_once")  # flags that images shown whole do not take
ERASED_AREA, ERASED_RATIO = (0.02, 0.4), (0.3, 1 / 0.3)  # Zhong et al. and BoT; torchvision has .02 to .33 and .3 to 3.3
NEEDS = {"color_jitter_p": "color_jitter", **dict.fromkeys(("random_erasing_area", "random_erasing_ratio", "random_erasing_value"), "random_erasing")}
ADDED = ("color_jitter", "randaugment", "auto_augment", "random_erasing")  # to the training transform of any preset but none


class Steps:
    """Transforms applied in turn; `text` lists them with their values.

    Args:
        size: of the images that come out, in pixels: their side, or height and width.
        erasing: `Erasing` of training images; None: nothing is erased.
        limit: `Limit` of images that keep their shape, before the steps; None: there is none.
    """

    def __init__(self, steps: list, size, erasing: "Erasing | None" = None, limit: "Limit | None" = None):
        self.steps, self.size, self.erasing, self.limit = steps, pair(size), erasing, limit
        self.text = "; ".join(str(step) for step in (limit, *steps, erasing) if step is not None) or "none"

    def __call__(self, image: torch.Tensor, whole: int | None = None) -> torch.Tensor:
        """`image` `(3, H, W)` uint8 -> `(3, H', W')` uint8; `whole`: the long side of the image that it was cut from (None: its own)."""
        image = image if self.limit is None else self.limit(image, whole or max(image.shape[1:]))
        for step in self.steps:
            image = step(image)
        return image


class OnDevice(Steps):
    """The training transform of --decode_once: here it is drawn, for a whole batch; `training.cropping` applies it on the device.

    The draws have the distribution of those of the steps, but come from a generator of their own, all at once. `steps`: RandomResizedCrop, then
    whichever of grey, ColorJitter and flip there are.

    Attributes:
        interpolation: of the crop's resize, "bilinear" or "bicubic".
        jitter: least and greatest factor of brightness, contrast, saturation and hue, each None where it stays.
    """

    def __init__(self, steps: list, size, erasing: "Erasing | None" = None):
        from torchvision.transforms import v2

        super().__init__(steps, size, erasing)
        self.text = f"on the device, drawn by batch: {self.text}"
        self.crop, self.interpolation = steps[0], steps[0].interpolation.value
        self.jitter, self.jitter_p, self.grey_p, self.flip_p = (None,) * 4, 0.0, 0.0, 0.0
        for step in steps[1:]:
            share, step = (step.p, step.step) if isinstance(step, Sometimes) else (1.0, step)
            step = step.policy if isinstance(step, OnPillow) else step
            if isinstance(step, v2.ColorJitter):
                self.jitter, self.jitter_p = (step.brightness, step.contrast, step.saturation, step.hue), share
            elif isinstance(step, v2.RandomGrayscale):
                self.grey_p = step.p
            else:
                self.flip_p = step.p

    def draw(self, sizes: torch.Tensor, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """The draws of a batch, a row an image.

        Args:
            sizes: int64 `(B, 2)`, heights and widths.

        Returns:
            `boxes` int64 `(B, 4)`: top, left, height, width of the crop; `flip` bool `(B,)`; where some images lose their colours `grey` bool
            `(B,)`; with jitter `order` int64 `(B, 4)`, the places in `jitter` in the order of their turn (-1: none), and `factors` `(B, 4)`.
        """
        count = len(sizes)
        draws = {"boxes": self._boxes(sizes, generator), "flip": torch.rand(count, generator=generator) < self.flip_p}
        if self.grey_p:
            draws["grey"] = torch.rand(count, generator=generator) < self.grey_p
        if self.jitter_p:
            least, greatest = torch.tensor([bounds or (0.0, 0.0) for bounds in self.jitter]).unbind(1)
            draws["factors"] = least + (greatest - least) * torch.rand(count, 4, generator=generator)
            draws["order"] = torch.rand(count, 4, generator=generator).argsort(1)
            draws["order"][torch.rand(count, generator=generator) >= self.jitter_p] = -1
        return draws

    def _boxes(self, sizes: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """RandomResizedCrop's rule: of ten draws of area and ratio the first that fits, else the largest centre of an allowed ratio."""
        (least, greatest), (flat, wide) = self.crop.scale, self.crop.ratio
        height, width = sizes.double().unbind(1)
        drawn = torch.rand(2, len(sizes), 10, generator=generator, dtype=torch.float64)
        areas = (height * width)[:, None] * (least + (greatest - least) * drawn[0])
        ratios = torch.exp(math.log(flat) + math.log(wide / flat) * drawn[1])
        heights, widths = (areas / ratios).sqrt().round(), (areas * ratios).sqrt().round()
        fits = (heights >= 1) & (heights <= height[:, None]) & (widths >= 1) & (widths <= width[:, None])
        first, found = fits.int().argmax(1, keepdim=True), fits.any(1)
        rows = torch.where(found, heights.gather(1, first)[:, 0], torch.minimum(height, (width / flat).round()))
        columns = torch.where(found, widths.gather(1, first)[:, 0], torch.minimum(width, (height * wide).round()))
        at = torch.where(found, torch.rand(2, len(sizes), generator=generator, dtype=torch.float64), torch.full((), -1.0))
        top, left = (torch.where(found, share * (room + 1), room / 2).floor() for share, room in zip(at, (height - rows, width - columns), strict=True))
        return torch.stack([top, left, rows, columns], 1).long()


class Limit:
    """Images that keep their shape, their long side at most `side`, never enlarged; a part has the scale of its whole image.

    As Oxford and Paris are measured (Radenovic et al., arXiv 1711.02512), by Pillow's `thumbnail` like their code.
    """

    def __init__(self, side: int):
        self.side = side

    def __call__(self, image: torch.Tensor, whole: int) -> torch.Tensor:
        """uint8 `(3, H, W)`; `whole`: the long side of the image that it was cut from."""
        import PIL.Image
        from torchvision.transforms.v2 import functional

        picture = functional.to_pil_image(image)
        picture.thumbnail((self.side * max(picture.size) / whole,) * 2, PIL.Image.Resampling.LANCZOS)
        return functional.pil_to_tensor(picture)

    def __repr__(self):
        return f"Limit(side={self.side})"


class ShiftedCrop:
    """The crop of `size` (its side, or height and width) from the image's centre, moved by up to `pixels` each way; black beyond the border."""

    def __init__(self, size, pixels: int = MAX_SHIFT):
        self.size, self.pixels = size, pixels

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        (height, width), (rows, columns) = image.shape[-2:], pair(self.size)
        down, right = torch.randint(-self.pixels, self.pixels + 1, (2,)).tolist()
        top, left = round((height - rows) / 2) + down, round((width - columns) / 2) + right
        y, x = max(top, 0), max(left, 0)  # where the part that lies within the image begins
        inside = image[:, y : max(top + rows, 0), x : max(left + columns, 0)]
        crop = image.new_zeros(len(image), rows, columns)
        crop[:, y - top : y - top + inside.shape[1], x - left : x - left + inside.shape[2]] = inside
        return crop

    def __repr__(self):
        return f"ShiftedCrop(size={self.size}, pixels={self.pixels})"


class OnPillow:
    """A policy, or ColorJitter, of torchvision's v2 on a Pillow image: the published operations, in half the time of those on tensors.

    `python benchmarks/input.py --additions` measures it.
    """

    def __init__(self, policy):
        self.policy = policy

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        from torchvision.transforms.v2 import functional

        if image.is_meta:  # only draws: they do not depend on the image
            self.policy(functional.to_pil_image(torch.zeros(3, 1, 1, dtype=torch.uint8)))
            return image
        return functional.pil_to_tensor(self.policy(functional.to_pil_image(image)))

    def __repr__(self):
        return str(self.policy)


class Sometimes:
    """A step on a share `p` of the images: torchvision's RandomApply, whose text does not tell the share."""

    def __init__(self, step, p: float):
        self.step, self.p = step, p

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return self.step(image) if torch.rand(()) < self.p else image

    def __repr__(self):
        return f"Sometimes({self.step}, p={self.p:g})"


class Erasing:
    """Random Erasing (Zhong et al., arXiv 1708.04896): draws the rectangles; `training.erasing` erases them on the normalised images.

    Args:
        p: share of the images that get a rectangle.
        area: least and greatest share of the image. ratio: least and greatest height by width.
        value: what erased pixels are after normalisation, one number or three (RGB), for `text` alone.
        size: height and width of the images.
    """

    def __init__(self, p: float, area, ratio, value, size: tuple[int, int]):
        from torchvision.transforms import v2

        self.rule, self.image = v2.RandomErasing(p, tuple(area), tuple(ratio), tuple(value)), torch.empty(3, *size, device="meta")

    def draw(self, count: int) -> torch.Tensor:
        """Top, left, height, width of the rectangle of each of `count` images, int64 `(count, 4)`; without one the height is 0."""
        return torch.tensor([self._box() for _ in range(count)]).view(count, 4)

    def _box(self) -> tuple[int, int, int, int]:
        if torch.rand(()) >= self.rule.p:
            return 0, 0, 0, 0
        found = self.rule.make_params([self.image])
        return (0, 0, 0, 0) if found["v"] is None else (found["i"], found["j"], found["h"], found["w"])

    def __repr__(self):
        return str(self.rule)


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
        if getattr(opt, flag) is not None and min(pair(getattr(opt, flag))) < 1:
            raise UserError(f"--{flag} {shown(getattr(opt, flag))}: expected 1 or more")
    for flag, limit in (("crop_scale", 1.0), ("crop_ratio", math.inf), ("random_erasing_area", 1.0), ("random_erasing_ratio", math.inf)):
        bounds = getattr(opt, flag)
        if bounds is None:
            continue
        if not 0 < bounds[0] <= bounds[1] <= limit:
            raise UserError(f"--{flag} {shown(bounds)}: expected 0 < least <= greatest" + (" <= 1" if limit == 1 else ""))
        if preset.crop != "random_resized" and flag.startswith("crop"):
            raise UserError(f"--{flag} is RandomResizedCrop's, not that of --augmentation {opt.augmentation}: take base, adv, big or mlrc")
    if opt.pad_crop and preset.crop != "random":
        raise UserError(f"--pad_crop {opt.pad_crop} is RandomCrop's, not that of --augmentation {opt.augmentation or 'base'}: take red or plain")
    if opt.resize_mode == "none" and opt.resize_size:
        raise UserError(f"--resize_size {opt.resize_size} with --resize_mode none, which resizes nothing: leave one out")
    for flag in ADDED:
        if getattr(opt, flag) and preset.crop == "centre":
            raise UserError(f"--{flag} {shown(getattr(opt, flag))}: --augmentation none is the test transform alone. Take another, or leave it out")
    for flag, needed in NEEDS.items():
        if getattr(opt, flag) is not None and not getattr(opt, needed):
            raise UserError(f"--{flag} {shown(getattr(opt, flag))} has no effect without --{needed}: add it")
    if opt.decode_once:
        _check_decode_once(opt, preset)
    if opt.color_jitter and opt.color_jitter[3] > MOST_HUE:
        raise UserError(f"--color_jitter {shown(opt.color_jitter)}: the last, the hue, is a share of the circle, at most {MOST_HUE} each way")
    if opt.random_erasing_value is not None and len(opt.random_erasing_value) not in (1, 3):
        raise UserError(f"--random_erasing_value {shown(opt.random_erasing_value)}: expected one number, or three for R, G, B")


def _check_decode_once(opt, preset: Preset) -> None:
    if opt.image_cache is None:
        raise UserError("--decode_once cuts its batches out of --image_cache DIR: name a folder for the decoded images")
    if preset.crop != "random_resized" or preset.resize_first or opt.resize_size or opt.resize_mode not in (None, "none"):
        raise UserError(
            "--decode_once is for RandomResizedCrop of whole images: take --augmentation base, adv or big, without --resize_size and --resize_mode; "
            "--image_cache_side makes images smaller"
        )
    for flag in ("randaugment", "auto_augment"):
        if getattr(opt, flag):
            raise UserError(f"--{flag} works image by image, not on whole batches as --decode_once does: leave one of them out")


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
    preset = PRESETS[opt.augmentation or "base"]
    if image_size is not None:
        size = _short(opt.crop_size) or input_size or image_size
        test = [] if size == image_size else [v2.Resize(pair(size), **by)]
        training = [ShiftedCrop(image_size), *test] if SHOWN_WHOLE[opt.augmentation or "base"] == "shift" else test
        return Steps([*training, *_added(opt)], size, _erasing(opt, size)), Steps(test, size)

    size, resize = sizes(opt, input_size)
    limited = None if opt.eval_long_side is None else Steps([], opt.eval_long_side, limit=Limit(opt.eval_long_side))
    if resize is not None and any(side < least for side, least in zip(pair(resize), pair(size), strict=True)):
        raise UserError(f"a crop of {shown(size)} reaches over the border of images resized to {resize}: raise --resize_size or lower --crop_size")
    resized = [] if resize is None else [v2.Resize(None, max_size=int(resize), **by) if isinstance(resize, LongSide) else v2.Resize(resize, **by)]
    test = [*resized, v2.CenterCrop(size)]
    if preset.crop == "centre":
        return Steps(test, size), limited or Steps(test, size)
    training = resized if preset.resize_first or opt.resize_size or opt.resize_mode or preset.crop == "shift" else []
    if preset.crop == "random_resized":
        scale, ratio = tuple(opt.crop_scale or preset.scale), tuple(opt.crop_ratio or preset.ratio)
        crop = v2.RandomResizedCrop(size, scale=scale, ratio=ratio, **by)
    elif preset.crop == "random":  # black where an image is smaller, as in the centre crop
        crop = v2.RandomCrop(size, padding=opt.pad_crop or None, pad_if_needed=opt.resize_mode in ("long", "none"))
    else:
        crop = ShiftedCrop(size)
    training = [*training, crop]
    if preset.jitter:
        training += [v2.RandomGrayscale(p=0.2), *([] if opt.color_jitter else [v2.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.2)])]
    training += _added(opt)
    if preset.flip:
        training.append(v2.RandomHorizontalFlip(p=0.5))
    return (OnDevice if opt.decode_once else Steps)(training, size, _erasing(opt, size)), limited or Steps(test, size)


def _added(opt) -> list:
    """The steps of --color_jitter, --auto_augment and --randaugment. On the crop: FastReID's AutoAugment is before the resize, and slower."""
    from torchvision.transforms import v2

    steps = []
    if opt.color_jitter:
        jitter = v2.ColorJitter(*opt.color_jitter)
        jitter = OnPillow(jitter) if opt.color_jitter[3] else jitter  # Pillow turns hues in half the time; without, tensors are faster
        steps.append(jitter if opt.color_jitter_p is None else Sometimes(jitter, opt.color_jitter_p))
    if opt.auto_augment:
        steps.append(Sometimes(OnPillow(v2.AutoAugment()), opt.auto_augment))
    if opt.randaugment:
        steps.append(OnPillow(v2.RandAugment(*opt.randaugment)))
    return steps


def _erasing(opt, size) -> Erasing | None:
    if not opt.random_erasing:
        return None
    area, ratio = opt.random_erasing_area or ERASED_AREA, opt.random_erasing_ratio or ERASED_RATIO
    return Erasing(opt.random_erasing, area, ratio, opt.random_erasing_value or (0.0,), pair(size))


class LongSide(int):
    """The length in pixels that the long side gets; the ratio is kept."""

    def __str__(self):
        return f"long side {int(self)}"

    __format__ = object.__format__


def sizes(opt, input_size: int | None = None) -> tuple:
    """Size of the crop, and that which images are resized to before it, for a network of `input_size` (None: 224).

    Returns:
        The crop's side, or (height, width) where they differ; the resized image's short side, its (height, width), a `LongSide`, or None for
        no resize. One `--resize_size` under squash is the longer side, the other one is in the crop's ratio.
    """
    preset, mode = PRESETS[opt.augmentation or "base"], opt.resize_mode
    size = _short(opt.crop_size) or preset.crop_size or input_size or CLASSIC_INPUT
    longest = max(pair(size))
    if mode is None:
        return size, opt.resize_size or preset.resize or _test_resize(longest)
    to = opt.resize_size or max(pair(preset.resize or 0)) or (longest if mode == "long" else _test_resize(longest))
    squashed = tuple(round(to * side / longest) for side in pair(size))
    return size, {"short": to, "squash": squashed, "long": LongSide(to), "none": None}[mode]


def pair(size) -> tuple[int, int]:
    """(height, width) of a side, or of both."""
    return (size, size) if isinstance(size, int) else (*size,)


def shown(value) -> str:
    """Numbers of a flag as the command line has them."""
    return " ".join(f"{number:g}" for number in value) if isinstance(value, list | tuple) else f"{value:g}"


def _short(size):
    """The side of a square for two equal ones, else (height, width); None for None."""
    return size if size is None or isinstance(size, int) else size[0] if len(set(size)) == 1 else tuple(size)


def _test_resize(size: int) -> int:
    """Short side before a centre crop of `size`: 256 for 224 to 256 (the field's 224, 227 and 256), else in the ratio 256 : 224."""
    return CLASSIC_RESIZE if CLASSIC_INPUT <= size <= CLASSIC_RESIZE else round(size * CLASSIC_RESIZE / CLASSIC_INPUT)
