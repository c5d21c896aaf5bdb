"""The images that a network takes: their size and normalisation, whether their shape is fixed, and what is refused."""

from dataclasses import dataclass

import torch

from utilities.errors import UserError
from utilities.shapes import flag_words, in_words, nearest_multiples

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class InputFormat:
    """The images that a backbone's weights were trained on.

    Attributes:
        input_size: side in pixels, or (height, width).
        mean, std: of the pixels, three numbers each, in the weights' colour order and range.
        input_space: colour order, "RGB" or "BGR".
        input_range: the value of white, 1 or 255.
        interpolation: how images are resized, "bilinear" or "bicubic".
    """

    input_size: int | tuple[int, int] = 224
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    input_space: str = "RGB"
    input_range: float = 1
    interpolation: str = "bilinear"


def keeps_shapes(opt) -> bool:
    """Whether a network is to embed images of other shapes than its input size: in their own, or at several scales."""
    return bool(opt.eval_long_side) or list(opt.eval_scales) != [1]


def one_shape(name: str, opt) -> UserError:
    """The error for a network that takes images of one shape, where the flags evaluate others."""
    if opt.eval_long_side:
        flag = f"--eval_long_side {opt.eval_long_side}"
        remedy = "--eval_long_side 0"
    else:
        scales = " ".join(f"{scale:g}" for scale in opt.eval_scales)
        flag = f"--eval_scales {scales}"
        remedy = "--eval_scales 1"
    return UserError(
        f"{flag}: {name} takes images of one shape: take {remedy}, or a convolutional network, a VisionTransformer, "
        "Eva or NaFlexVit of timm"
    )


def check(network, name: str, opt) -> None:
    """Raise UserError, before weights are loaded, where a network cannot take the images of the flags."""
    if not network.native_shapes and keeps_shapes(opt):
        raise one_shape(name, opt)
    if opt.patch_stride is not None and not network.overlaps_patches:
        raise UserError(
            f"--patch_stride {opt.patch_stride}: {name} is no VisionTransformer of timm, whose patches could overlap: "
            "leave it out"
        )


def wrong_size(network, images: torch.Tensor) -> UserError:
    """The error for images of a size that the backbone cannot take."""
    size = network.input_size
    shown_size = in_words(images.shape[2:])
    return UserError(
        f"{network.name} takes images of {in_words(size)} pixels, not {shown_size}: --crop_size {flag_words(size)}"
    )


def uncut(network, images: torch.Tensor) -> UserError:
    """The error for images that the backbone's patches do not fill."""
    size = images.shape[2:]
    nearest = nearest_multiples(size, network.patch)
    return UserError(
        f"{network.name} cuts images into patches of {in_words(network.patch)}, and {in_words(size)} pixels are no "
        f"multiples: --crop_size {flag_words(nearest)}"
    )
