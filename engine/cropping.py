"""Crops of a whole batch resized, flipped and coloured on its device: --decode_once.

`datasets._transforms.OnDevice` draws, `engine.loading.CutBatches` copies the drawn rows out of the image cache; here
its crops become the images of a batch, or of whatever part of it reaches the device. On a CPU torch's resize of bytes
runs image by image. A GPU would wait for the start of ten kernels an image, so that there the resize is two matrix
products for the whole batch, of the same weights.
"""

import torch

from datasets._steps import OnDevice

# of grey, as torchvision has them
RED = 0.2989
GREEN = 0.587
BLUE = 0.114


class Cut:
    """Crops of a batch, or of a part of it, before they are resized.

    Args:
        pixels: uint8 `(B, H, W, 3)`, from the top the rows of each crop, in the width of its image;
        the rest is arbitrary.
        draws: what `transform.draw` gives, of these images; it stays in main memory, so that no choice of rows waits
        for the device.
    """

    def __init__(self, pixels: torch.Tensor, draws: dict, transform: OnDevice):
        self.pixels = pixels
        self.draws = draws
        self.transform = transform
        self.device = pixels.device

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, rows) -> "Cut":
        return Cut(self.pixels[rows], {name: values[rows] for name, values in self.draws.items()}, self.transform)

    def on(self, device: torch.device) -> torch.Tensor:
        """The images on the device, uint8 `(B, 3, h, w)`."""
        arguments = self.draws["boxes"], self.draws["flip"], self.transform.size, self.transform.interpolation
        with torch.autocast(device.type, enabled=False):
            resize = resized if device.type == "cpu" else resized_at_once
            images = resize(self.pixels.to(device, non_blocking=True), *arguments)
            for rows, change, factors in self._colours():
                rows = rows.to(device, non_blocking=True)
                factors = factors.to(device, non_blocking=True)[:, None, None, None]
                images[rows] = change(images[rows].float(), factors).clamp_(0, 255).byte()
        return images

    def _colours(self):
        """(Rows, change, its factors) of grey and jitter, in turn.

        Each image has the jitter's changes in an order of its own.
        """
        if "grey" in self.draws:
            rows = self.draws["grey"].nonzero()[:, 0]
            yield rows, lambda images, factors: grey(images) * factors, torch.ones(len(rows))
        if "order" in self.draws:
            for changes in self.draws["order"].unbind(1):
                for number, bounds in enumerate(self.transform.jitter):
                    rows = (changes == number).nonzero()[:, 0]
                    if bounds is not None and len(rows):
                        yield rows, JITTER[number], self.draws["factors"][rows, number]


def resized(
    pixels: torch.Tensor, boxes: torch.Tensor, flips: torch.Tensor, size: tuple[int, int], mode: str
) -> torch.Tensor:
    """Each crop resized as torchvision's RandomResizedCrop does, and flipped: uint8 `(B, 3, *size)`, bit for bit.

    Args:
        pixels: as those of `Cut`. boxes: int64 `(B, 4)`: top, left, height, width.
        flips: bool `(B,)`. mode: "bilinear" or "bicubic".
    """
    images = pixels.new_empty(len(pixels), *size, 3).permute(0, 3, 1, 2)
    # One image after another: the crops have different sizes.
    for image, rows, box, flip in zip(images, pixels, boxes.tolist(), flips.tolist(), strict=True):
        _, first_column, height, width = box
        crop = rows[None, :height, first_column : first_column + width].permute(0, 3, 1, 2)
        if (height, width) != size:
            crop = torch.nn.functional.interpolate(crop, size, mode=mode, antialias=True)
        if flip:
            crop = crop.flip(3)
        image.copy_(crop[0])
    return images


def resized_at_once(
    pixels: torch.Tensor, boxes: torch.Tensor, flips: torch.Tensor, size: tuple[int, int], mode: str
) -> torch.Tensor:
    """As `resized`, to two of 255: first along the rows, then along the columns, to whole numbers both times.

    The result is contiguous.
    """
    _, first_column, height, width = boxes.T[..., None, None].to(pixels.device, non_blocking=True)
    flips = flips[:, None, None].to(pixels.device, non_blocking=True)
    rows = _weights(torch.zeros_like(height), height, size[0], pixels.shape[1], mode, torch.zeros_like(flips))
    columns = _weights(first_column, width, size[1], pixels.shape[2], mode, flips)
    images = torch.einsum("bpx,byxc->bcyp", columns, pixels.float()).round_().clamp_(0, 255)
    return torch.einsum("boy,bcyp->bcop", rows, images).round_().clamp_(0, 255).byte()


def _weights(first, lengths, out: int, n_pixels: int, mode: str, flips: torch.Tensor) -> torch.Tensor:
    """The antialiased resize as Pillow has it: the share of each pixel in each output pixel, `(B, out, n_pixels)`.

    Args:
        first, lengths: int64 `(B, 1, 1)`, the pixels that are resized. flips: bool `(B, 1, 1)`.
    """
    scale = lengths / out
    places = torch.arange(out, device=lengths.device)[None, :, None]
    places = torch.where(flips, out - 1 - places, places)
    pixels = torch.arange(n_pixels, device=lengths.device) - first
    distances = ((pixels + 0.5 - (places + 0.5) * scale) / scale.clamp(min=1)).abs()
    kernel = _triangle if mode == "bilinear" else _cubic
    is_inside = (pixels >= 0) & (pixels < lengths)
    weights = kernel(distances) * is_inside
    return weights / weights.sum(2, keepdim=True)


def _triangle(x: torch.Tensor) -> torch.Tensor:
    return (1 - x).clamp(min=0)


def _cubic(x: torch.Tensor) -> torch.Tensor:
    """Keys' cubic with a = -1/2, that of Pillow and of torch's antialiased resize."""
    return torch.where(x < 1, (1.5 * x - 2.5) * x * x + 1, ((2.5 - 0.5 * x) * x - 4) * x + 2) * (x < 2)


def grey(images: torch.Tensor) -> torch.Tensor:
    """`(B, 1, h, w)`, whole numbers, of images `(B, 3, h, w)` from 0 to 255."""
    red, green, blue = images.split(1, 1)
    return (RED * red + GREEN * green + BLUE * blue).floor_()


def _hue(images: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Hues turned by a share `turn (B, 1, 1, 1)` of the circle; value and saturation stay.

    Images `(B, 3, h, w)` from 0 to 255.
    """
    largest = images.amax(1, keepdim=True)
    least = images.amin(1, keepdim=True)
    spread = largest - least
    red, green, blue = images.split(1, 1)
    sixths = torch.where(
        largest == red,
        (green - blue) / spread,
        torch.where(largest == green, 2 + (blue - red) / spread, 4 + (red - green) / spread),
    )
    sixths = torch.where(spread > 0, sixths, 0) + 6 * turn
    # 5, 3, 1 for red, green, blue
    hues_of_channels = torch.arange(5.0, 0, -2, device=images.device).view(3, 1, 1)
    # distance of each channel from its hue, in sixths of the circle
    hue_distances = (sixths + hues_of_channels) % 6
    turned = largest - spread * torch.minimum(hue_distances, 4 - hue_distances).clamp(0, 1)
    # torchvision's rounding of floats to bytes
    return (turned * (255.999 / 255)).floor_()


# brightness, contrast, saturation, hue: torchvision's on bytes; factors (B, 1, 1, 1)
JITTER = (
    lambda images, factors: images * factors,
    lambda images, factors: images * factors + grey(images).mean((1, 2, 3), keepdim=True) * (1 - factors),
    lambda images, factors: images * factors + grey(images) * (1 - factors),
    _hue,
)
