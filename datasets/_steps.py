"""The steps of a transform.

All work on uint8 tensors `(3, H, W)` with torchvision's v2 kernels, whose antialiased resize is Pillow's to within
rounding, and draw from torch's global generator in the order of the classic pipeline: same seed, same crop. Only the
rectangles of --random_erasing are drawn here and erased later, on the normalised images (`engine.erasing`).
"""

import math

import torch

from utilities.shapes import nearest_multiples, pair

# pixels
MAX_SHIFT = 2


class Steps:
    """Transforms applied in turn; `text` lists them with their values.

    Args:
        size: of the images that come out, in pixels: their side, or height and width.
        erasing: `Erasing` of training images; None: nothing is erased.
        limit: `Limit` of images that keep their shape, before the steps; None: there is none.
    """

    def __init__(self, steps: list, size, erasing: "Erasing | None" = None, limit: "Limit | None" = None):
        self.steps = steps
        self.size = pair(size)
        self.erasing = erasing
        self.limit = limit
        self.text = "; ".join(str(step) for step in (limit, *steps, erasing) if step is not None) or "none"

    def __call__(self, image: torch.Tensor, long_side: int | None = None) -> torch.Tensor:
        """`image` `(3, H, W)` uint8 -> `(3, H', W')` uint8.

        `long_side`: that of the image that it was cut from; None: its own.
        """
        if self.limit is not None:
            image = self.limit(image, long_side or max(image.shape[1:]))
        for step in self.steps:
            image = step(image)
        return image


class OnDevice(Steps):
    """The training transform of --decode_once, drawn for a whole batch; `engine.cropping` applies it on the device.

    The draws have the distribution of those of the steps, but come from a generator of their own, all at once. `steps`:
    RandomResizedCrop, then whichever of grey, ColorJitter and flip there are.

    Attributes:
        interpolation: of the crop's resize, "bilinear" or "bicubic".
        jitter: least and greatest factor of brightness, contrast, saturation and hue, each None if it stays.
    """

    def __init__(self, steps: list, size, erasing: "Erasing | None" = None):
        from torchvision.transforms import v2

        super().__init__(steps, size, erasing)
        self.text = f"on the device, drawn by batch: {self.text}"
        self.crop = steps[0]
        self.interpolation = steps[0].interpolation.value
        self.jitter = (None,) * 4
        self.jitter_p = 0.0
        self.grey_p = 0.0
        self.flip_p = 0.0
        for step in steps[1:]:
            share = 1.0
            if isinstance(step, Sometimes):
                share = step.p
                step = step.step
            if isinstance(step, OnPillow):
                step = step.policy
            if isinstance(step, v2.ColorJitter):
                self.jitter = (step.brightness, step.contrast, step.saturation, step.hue)
                self.jitter_p = share
            elif isinstance(step, v2.RandomGrayscale):
                self.grey_p = step.p
            else:
                self.flip_p = step.p

    def draw(self, sizes: torch.Tensor, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """The draws of a batch, a row an image.

        Args:
            sizes: int64 `(B, 2)`, heights and widths.

        Returns:
            `boxes` int64 `(B, 4)`: top, left, height, width of the crop; `flip` bool `(B,)`; where some images lose
            their colours `grey` bool `(B,)`; with jitter `order` int64 `(B, 4)`, the places in `jitter` in the order of
            their turn (-1: none), and `factors` `(B, 4)`.
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
        """RandomResizedCrop's rule: the first of ten draws of area and ratio that fits in the image.

        If none fits, the largest centre of an allowed ratio.
        """
        least, greatest = self.crop.scale
        flat, wide = self.crop.ratio
        height, width = sizes.double().unbind(1)
        area_draws, ratio_draws = torch.rand(2, len(sizes), 10, generator=generator, dtype=torch.float64)
        areas = (height * width)[:, None] * (least + (greatest - least) * area_draws)
        ratios = torch.exp(math.log(flat) + math.log(wide / flat) * ratio_draws)
        heights = (areas / ratios).sqrt().round()
        widths = (areas * ratios).sqrt().round()
        fits = (heights >= 1) & (heights <= height[:, None]) & (widths >= 1) & (widths <= width[:, None])
        has_fit = fits.any(1)
        first = fits.int().argmax(1, keepdim=True)
        centre_rows = torch.minimum(height, (width / flat).round())
        centre_columns = torch.minimum(width, (height * wide).round())
        rows = torch.where(has_fit, heights.gather(1, first)[:, 0], centre_rows)
        columns = torch.where(has_fit, widths.gather(1, first)[:, 0], centre_columns)
        row_draws, column_draws = torch.rand(2, len(sizes), generator=generator, dtype=torch.float64)
        first_row = _start(has_fit, row_draws, height - rows)
        first_column = _start(has_fit, column_draws, width - columns)
        return torch.stack([first_row, first_column, rows, columns], 1).long()


def _start(is_drawn: torch.Tensor, draws: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
    """Where crops begin: at a drawn place within `room` pixels, else in the middle of it; all `(B,)`."""
    return torch.where(is_drawn, draws * (room + 1), room / 2).floor()


class Limit:
    """Images that keep their shape, their long side at most `side`, never enlarged.

    A part has the scale of its whole image. As Oxford and Paris are measured (Radenovic et al., arXiv 1711.02512), by
    Pillow's `thumbnail` like their code.
    """

    def __init__(self, side: int):
        self.side = side

    def __call__(self, image: torch.Tensor, long_side: int) -> torch.Tensor:
        """uint8 `(3, H, W)`; `long_side`: that of the image that it was cut from."""
        import PIL.Image
        from torchvision.transforms.v2 import functional

        picture = functional.to_pil_image(image)
        side = max(self.side * max(picture.size) / long_side, 1)
        picture.thumbnail((side, side), PIL.Image.Resampling.LANCZOS)
        return functional.pil_to_tensor(picture)

    def __repr__(self):
        return f"Limit(side={self.side})"


class Multiple:
    """Resizes so that each side is the nearest multiple of `patch`, at least one patch, for networks of patches.

    patch: side, or height and width, in pixels.
    """

    def __init__(self, patch):
        self.patch = patch

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """uint8 `(3, H, W)` -> `(3, H', W')`, bilinearly resized; one that fits is returned as it is."""
        from torchvision.transforms.v2 import functional

        size = nearest_multiples(image.shape[-2:], self.patch)
        if size == tuple(image.shape[-2:]):
            return image
        return functional.resize(image, list(size), functional.InterpolationMode.BILINEAR, antialias=True)

    def __repr__(self):
        return f"Multiple({self.patch})"


class ShiftedCrop:
    """The centre crop of `size` (its side, or height and width), moved by up to `pixels` each way.

    It is black beyond the border.
    """

    def __init__(self, size, pixels: int = MAX_SHIFT):
        self.size = size
        self.pixels = pixels

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        height, width = image.shape[-2:]
        rows, columns = pair(self.size)
        down, right = torch.randint(-self.pixels, self.pixels + 1, (2,)).tolist()
        # negative beyond the border, as is `x`
        y = round((height - rows) / 2) + down
        x = round((width - columns) / 2) + right
        inside = image[:, max(y, 0) : max(y + rows, 0), max(x, 0) : max(x + columns, 0)]
        crop = image.new_zeros(len(image), rows, columns)
        first_row = max(-y, 0)
        first_column = max(-x, 0)
        crop[:, first_row : first_row + inside.shape[1], first_column : first_column + inside.shape[2]] = inside
        return crop

    def __repr__(self):
        return f"ShiftedCrop(size={self.size}, pixels={self.pixels})"


class OnPillow:
    """A policy, or ColorJitter, of torchvision's v2 on a Pillow image.

    The published operations, in half the time of those on tensors.
    `python benchmarks/input.py --additions` measures it.
    """

    def __init__(self, policy):
        self.policy = policy

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        from torchvision.transforms.v2 import functional

        # An image without data is for the draws alone, which do not depend on it.
        if image.is_meta:
            self.policy(functional.to_pil_image(torch.zeros(3, 1, 1, dtype=torch.uint8)))
            return image
        return functional.pil_to_tensor(self.policy(functional.to_pil_image(image)))

    def __repr__(self):
        return str(self.policy)


class Sometimes:
    """A step on a share `p` of the images: torchvision's RandomApply, whose text does not tell the share."""

    def __init__(self, step, p: float):
        self.step = step
        self.p = p

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return self.step(image) if torch.rand(()) < self.p else image

    def __repr__(self):
        return f"Sometimes({self.step}, p={self.p:g})"


class Erasing:
    """Random Erasing (Zhong et al., arXiv 1708.04896): draws the rectangles.

    `engine.erasing` erases them on the normalised images.

    Args:
        p: share of the images that get a rectangle.
        area: least and greatest share of the image. ratio: least and greatest height by width.
        value: what erased pixels are after normalisation, one number or three (RGB), for `text` alone.
        size: height and width of the images.
        aspect: log: the logarithm of height by width is drawn uniformly, as in torchvision; uniform: height by width
            itself, as in the authors' code.
    """

    # draws until one fits in the image, as in the authors' code
    TRIALS = 100

    def __init__(self, p: float, area, ratio, value, size: tuple[int, int], aspect: str = "log"):
        from torchvision.transforms import v2

        self.aspect = aspect
        self.size = size
        self.rule = v2.RandomErasing(p, tuple(area), tuple(ratio), tuple(value))
        self.image = torch.empty(3, *size, device="meta")

    def draw(self, count: int) -> torch.Tensor:
        """Top, left, height, width of each of `count` images' rectangle, int64 `(count, 4)`; height 0: no rectangle."""
        return torch.tensor([self._box() for _ in range(count)]).view(count, 4)

    def _box(self) -> tuple[int, int, int, int]:
        if torch.rand(()) >= self.rule.p:
            return 0, 0, 0, 0
        if self.aspect == "uniform":
            return self._uniform_box()
        box = self.rule.make_params([self.image])
        return (0, 0, 0, 0) if box["v"] is None else (box["i"], box["j"], box["h"], box["w"])

    def _uniform_box(self) -> tuple[int, int, int, int]:
        image_height, image_width = self.size
        for _ in range(self.TRIALS):
            area = image_height * image_width * _between(*self.rule.scale)
            aspect = _between(*self.rule.ratio)
            height = round(math.sqrt(area * aspect))
            width = round(math.sqrt(area / aspect))
            if height < image_height and width < image_width:
                y = int(torch.randint(image_height - height + 1, ()))
                x = int(torch.randint(image_width - width + 1, ()))
                return y, x, height, width
        return 0, 0, 0, 0

    def __repr__(self):
        return f"{self.rule}, aspect={self.aspect}"


def _between(least: float, greatest: float) -> float:
    """A number drawn uniformly."""
    return float(torch.empty(()).uniform_(least, greatest))
