"""One embedding of an image from several sizes of it (`--eval_scales`), as Radenovic et al. (arXiv 1711.02512) describe
images of landmarks.
"""

import math

import torch

from utilities.errors import UserError
from utilities.shapes import nearest_multiples, pair
from utilities.tensors import normalize


def joined(outputs: list[torch.Tensor], power: float) -> torch.Tensor:
    """`(B, D)` at unit length of the outputs `(B, D)` of each scale: of their unit vectors the mean, of power `power`;
    of infinite power it is the maximum of each dimension.

    Raises UserError for negative numbers where the power is not 1: they have no root.
    """
    units = torch.stack([normalize(output.float()) for output in outputs])
    if power == math.inf:
        return normalize(units.amax(0))
    if power == 1:
        return normalize(units.mean(0))
    if bool((units < 0).any()):
        raise UserError("--eval_scales_join gem: there are negative features, of which there is no root: take mean")
    return normalize(units.pow(power).mean(0).pow(1 / power))


def power_of(model, opt, bare: bool) -> float:
    """The power with which --eval_scales_join joins.
    Raises UserError where the features are not those of a generalised mean.
    """
    if opt.eval_scales_join == "mean":
        return 1.0
    if opt.eval_scales_join == "max":
        return math.inf
    power = getattr(model, "gem_power", None)
    if power is None or not (bare or opt.embed_dim == 0):
        raise UserError(
            "--eval_scales_join gem joins what a generalised mean has pooled: take --pool gem and --embed_dim 0, "
            "or --eval_scales_join mean"
        )
    return power


def resized(images: torch.Tensor, scale: float, patch=1) -> torch.Tensor:
    """Images `(B, 3, H, W)`, bilinearly resized; other sizes than 1 as float in [0, 1], which networks take beside
    uint8.

    patch: side, or (height, width): the resized sides are the nearest multiples.
    """
    if scale == 1:
        return images
    if not images.is_floating_point():
        images = images.float() / 255
    settings = {"mode": "bilinear", "align_corners": False}
    if max(pair(patch)) == 1:
        return torch.nn.functional.interpolate(images, scale_factor=scale, **settings)
    size = nearest_multiples([scale * side for side in images.shape[2:]], patch)
    return torch.nn.functional.interpolate(images, size=size, **settings)


def outputs_at(model, images: torch.Tensor, scales, power: float, outputs) -> dict[str, torch.Tensor]:
    """Name -> embeddings `(B, D)` of `images`; `outputs`: what the network gives -> name -> `(B, D)`. One scale of 1
    leaves them as they are.
    """
    patch = getattr(model, "patch", 1)
    of_scales = [outputs(*model(resized(images, scale, patch))) for scale in scales]
    if list(scales) == [1]:
        return of_scales[0]
    return {name: joined([of_scale[name] for of_scale in of_scales], power) for name in of_scales[0]}
