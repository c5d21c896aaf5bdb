"""ResNet-50 (He et al., arXiv 1512.03385), torchvision's IMAGENET1K_V1 weights: the backbone of the published runs."""

from architectures import _torchvision


class Network(_torchvision.Network):
    """2048 features; `spatial` is `(B, 2048, H / 32, W / 32)`."""
