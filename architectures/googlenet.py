"""GoogLeNet / Inception v1 with BatchNorm (Szegedy et al., arXiv 1409.4842), torchvision's IMAGENET1K_V1 weights."""

from architectures import _torchvision


class Network(_torchvision.Network):
    """1024 features, without the auxiliary classifiers; `spatial` is `(B, 1024, H / 32, W / 32)`."""
