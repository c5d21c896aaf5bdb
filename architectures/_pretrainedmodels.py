"""Any network of pretrainedmodels (Cadene), by the name of its constructor."""

import copy
import functools
import warnings

import torch

from architectures import _network, _pool
from architectures._torchvision import CLASSES, current_key, cut_classifier
from architectures._weights import Pretrained
from utilities.errors import UserError
from utilities.extras import way_out

# the package loads torchvision's files and renames the layers afterwards
RENAMED = {
    "alexnet": {"features.": "_features.", "classifier.1.": "linear0.", "classifier.4.": "linear1."},
    "vgg": {"features.": "_features.", "classifier.0.": "linear0.", "classifier.3.": "linear1."},
}


def package():
    """The package, imported to the CPU and without a draw from torch's generator.

    At its import it builds two whole networks.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        import pretrainedmodels
    return pretrainedmodels


@functools.cache
def names() -> tuple[str, ...]:
    """The constructors' names; none if the package is absent."""
    try:
        pretrainedmodels = package()
    except ImportError:
        return ()
    constructors = [name for name in pretrainedmodels.model_names if callable(getattr(pretrainedmodels, name, None))]
    return tuple(sorted(constructors))


def separate(backbone: torch.nn.Module) -> torch.nn.Module:
    """A copy with newly drawn weights: all ResNeXts of the package share one body, initialised at import."""
    backbone = copy.deepcopy(backbone)
    for module in backbone.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return backbone


def weights_of(constructor: str) -> str:
    """The name of the published weights; of several, those of ImageNet."""
    published = package().pretrained_settings[constructor]
    return "imagenet" if "imagenet" in published else next(iter(published))


class Network(_network.Network):
    """A pretrainedmodels constructor without its classifier; the last pooling covers the map of any image size."""

    def __init__(self, opt, name):
        try:
            pretrainedmodels = package()
        except ImportError as error:
            raise UserError(
                f"{name.full} needs a package that is not there ({error}): {way_out(error.name or 'pretrainedmodels')}"
            ) from None
        weights_name = weights_of(name.constructor)
        settings = pretrainedmodels.pretrained_settings[name.constructor][weights_name]
        with warnings.catch_warnings():
            # it uses deprecated arguments of torchvision
            warnings.simplefilter("ignore")
            backbone = getattr(pretrainedmodels, name.constructor)(num_classes=CLASSES, pretrained=None)
        if name.constructor.startswith("resnext"):
            backbone = separate(backbone)
        head, feature_dim = cut_classifier(backbone, CLASSES)
        # The package's poolings are made for one image size.
        for child in _pool.POOLINGS:
            if isinstance(getattr(backbone, child, None), torch.nn.AvgPool2d):
                setattr(backbone, child, torch.nn.AdaptiveAvgPool2d(1))
        # dpn pools differently in eval mode and in training
        if hasattr(backbone, "test_time_pool"):
            backbone.test_time_pool = False
        # inceptionv3 would give a second output in training
        if hasattr(backbone, "aux_logits"):
            backbone.aux_logits = False
            backbone.AuxLogits = None
        super().__init__(
            opt,
            name,
            backbone,
            feature_dim,
            Pretrained(weights_name, settings["url"], hashed=False),
            input_size=settings["input_size"][1],
            mean=settings["mean"],
            std=settings["std"],
            input_space=settings["input_space"],
            input_range=max(settings["input_range"]),
            head=head,
        )

    def published_key(self, key: str) -> str:
        """The backbone's name for a published key: the files are torchvision's, and the package renames layers."""
        renamed = next((names for start, names in RENAMED.items() if self.constructor.startswith(start)), {})
        for old, new in renamed.items():
            if key.startswith(old):
                return new + key[len(old) :]
        return current_key(key)

    def extract(self, images: torch.Tensor) -> dict:
        """`pooled`, and `spatial` where the package's `features` gives a map."""
        activations = self.backbone.features(images)
        features = {"pooled": self.pool(activations)}
        return {**features, "spatial": activations} if activations.ndim == 4 else features

    def pool(self, spatial: torch.Tensor) -> torch.Tensor:
        """The pooled features `(B, feature_dim)` of last maps `(B, C, h, w)`."""
        return self.backbone.logits(spatial).flatten(1)
