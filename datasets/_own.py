"""The user's own images, read and transformed like the test images of a run."""

import numpy as np
import torch

from datasets import _cache, _content, _images, _transforms
from utilities.errors import UserError
from utilities.shapes import pair


class Preparation:
    """`preparation(path or image)`: uint8 `(3, H, W)`, as the run's network takes it.

    An image is a Pillow image, an array `(H, W, 3)` or `(H, W)` of uint8, a tensor `(3, H, W)` or `(1, H, W)`, uint8
    or float in [0, 1], or the bytes of a file, `datasets.Encoded`.

    Args:
        opt: the run's flags. image_size: side of its data set's images where they are shown whole, in grey; else None.
        shape: of the images that the network takes.

    Attributes:
        size: (height, width) of the result. steps: the transform's steps; `text` lists them with the reading.
    """

    def __init__(self, opt, image_size: int | None, shape: _transforms.Shape):
        from torchvision.transforms import v2

        self.grey = image_size is not None
        decode = _images.grey if self.grey else _images.decode
        self.read = _cache.Reader(decode, opt.image_cache_side)
        self.transform = _transforms.build(opt, shape.input_size, image_size, shape.interpolation, shape.multiple)[1]
        # The data set's own images have this size, so no step resizes them; others are resized to it.
        if self.grey and not self.transform.steps:
            mode = v2.InterpolationMode(shape.interpolation or "bilinear")
            self.transform = _transforms.Steps([v2.Resize((image_size, image_size), interpolation=mode)], image_size)
        self.steps = self.transform.steps
        self.size = tuple(self(np.zeros((256, 256, 3), np.uint8)).shape[1:])

    @property
    def text(self) -> str:
        """All steps, as text."""
        grey = "Grey; " if self.grey else ""
        return grey + self.read.text + self.transform.text

    def described(self) -> list[dict]:
        """The steps in order, for use by another program."""
        steps = [{"decode": "RGB, 8 bits a channel, turned as EXIF data say, white behind transparent parts"}]
        if self.grey:
            steps.append({"grey": "Y = 0.299 R + 0.587 G + 0.114 B, in all three channels"})
        if self.read.side:
            steps.append({"limit_long_side": self.read.side, "interpolation": "bilinear", "antialias": True})
        limit = self.transform.limit
        if limit:
            steps.append({"limit_long_side": limit.side, "interpolation": "lanczos", "antialias": True})
        return steps + [_described(step) for step in self.steps]

    def original(self, image) -> torch.Tensor:
        """The image before the transform, uint8 `(3, H, W)`.

        Raises UserError if it cannot be decoded, or is not an image.
        """
        if isinstance(image, _content.Encoded):
            pixels = self.read(image)
        elif isinstance(image, str) or hasattr(image, "__fspath__"):
            pixels = self.read(str(image))
        else:
            pixels = self._pixels(image)
        return pixels.repeat(3, 1, 1) if len(pixels) == 1 else pixels

    def blank(self, count: int) -> torch.Tensor:
        """Black images, uint8 `(count, 3, H, W)`."""
        return torch.zeros(count, 3, *self.size, dtype=torch.uint8)

    def __call__(self, image) -> torch.Tensor:
        """uint8 `(3, H, W)` of a path or an image. Raises UserError as `original`."""
        return self.transform(self.original(image))

    def _pixels(self, image) -> torch.Tensor:
        """uint8 `(1 or 3, H, W)` of an image in memory, its long side limited like that of a file."""
        import PIL.Image

        if not isinstance(image, PIL.Image.Image):
            image = PIL.Image.fromarray(_as_array(image))
        mode = "L" if self.grey else "RGB"
        pixels = torch.from_numpy(np.array(_images._plain(image).convert(mode)))
        pixels = pixels[None] if self.grey else pixels.permute(2, 0, 1)
        return _cache.Reader(lambda _: pixels, self.read.side).fresh("")


def _described(step) -> dict:
    """A step of the test transform, a resize or a centre crop, for use by another program."""
    if type(step).__name__ == "Multiple":
        sides = list(pair(step.patch))
        return {"resize_to_nearest_multiples": sides, "interpolation": "bilinear", "antialias": True}
    size = list(step.size) if isinstance(step.size, list | tuple) else [step.size]
    if type(step).__name__ != "Resize":
        return {"center_crop": size}
    how = {"interpolation": step.interpolation.value, "antialias": True}
    if step.size is None:
        return {"resize_long_side": step.max_size, **how}
    if len(size) == 1:
        return {"resize_short_side": size[0], **how}
    return {"resize": size, **how}


def _as_array(image) -> np.ndarray:
    """uint8 `(H, W, 3)` or `(H, W)` of a tensor or array. Raises UserError for another shape or type."""
    if torch.is_tensor(image):
        image = image.detach().cpu()
        if image.is_floating_point():
            if image.numel() and (image.min() < 0 or image.max() > 1):
                raise UserError(
                    f"an image of floats from {image.min():g} to {image.max():g}: floats are from 0 to 1, or give uint8"
                )
            image = (image * 255).round().to(torch.uint8)
        if image.ndim == 3:
            image = image.permute(1, 2, 0)
            if image.shape[2] == 1:
                image = image[:, :, 0]
        image = image.numpy()
    array = np.asarray(image)
    is_image = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)
    if array.dtype != np.uint8 or not is_image or not array.size:
        raise UserError(
            f"an image of shape {array.shape} and type {array.dtype}: a path, a Pillow image, uint8 (H, W, 3), or a "
            "tensor (3, H, W) is expected"
        )
    return np.ascontiguousarray(array)
