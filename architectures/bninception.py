"""BN-Inception (Ioffe & Szegedy, arXiv 1502.03167), pretrainedmodels' weights, which need BGR images from 0 to 255."""

from architectures import _pretrainedmodels


class Network(_pretrainedmodels.Network):
    """1024 features; `spatial` is `(B, 1024, H / 32, W / 32)`."""

    # branches are concatenated between modules, so a stage is named by the module that takes the concatenated map
    STAGES = {
        "conv2": "inception_3a_1x1",
        "inception_3c": "inception_4a_1x1",
        "inception_4e": "inception_5a_1x1",
        "inception_5b": "global_pool",
    }
    STAGES_ARE_INPUTS = True
