"""BN-Inception (Ioffe & Szegedy, arXiv 1502.03167), pretrainedmodels' weights, which need BGR images from 0 to 255."""

from architectures import _pretrainedmodels


class Network(_pretrainedmodels.Network):
    """1024 features; `spatial` is `(B, 1024, H / 32, W / 32)`."""
