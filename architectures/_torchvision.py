"""Any classification network of torchvision, by the name of its constructor."""

import functools
import importlib.util
import re
from pathlib import Path

import torch

from architectures import _network
from architectures._weights import Pretrained
from utilities.errors import UserError

CLASSES = 1000
# classes whose children, run in order up to `avgpool`, give the map
STAGED = ("ResNet", "GoogLeNet", "Inception3", "RegNet")
# class -> the last module before each halving of the map, and the last of all
STAGES = {
    "ResNet": ("layer1", "layer2", "layer3", "layer4"),
    "GoogLeNet": ("conv3", "inception3b", "inception4e", "inception5b"),
    "Inception3": ("Conv2d_4a_3x3", "Mixed_5d", "Mixed_6e", "Mixed_7c"),
    "RegNet": ("trunk_output.block1", "trunk_output.block2", "trunk_output.block3", "trunk_output.block4"),
}
# of weights ported from TensorFlow; torchvision converts ImageNet's to them by `transform_input`
HALVES = (0.5, 0.5, 0.5)
# published keys have dots in layer names, which torch forbids today
DENSE_LAYER = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\.)")


@functools.cache
def names() -> tuple[str, ...]:
    """The constructors' names, without networks for detection, segmentation and video, and without quantised ones."""
    import torchvision

    return tuple(torchvision.models.list_models(module=torchvision.models))


def cut_classifier(backbone: torch.nn.Module, classes: int) -> tuple[str, int]:
    """Replace the layer of the logits by an identity.

    It is the last linear layer, or 1x1 convolution, with `classes` outputs. Returns its name and its number of input
    features. Raises UserError if there is none.
    """
    for name, module in reversed(list(backbone.named_modules())):
        if isinstance(module, torch.nn.Linear) and module.out_features == classes:
            feature_dim = module.in_features
        elif isinstance(module, torch.nn.Conv2d) and module.out_channels == classes and module.kernel_size == (1, 1):
            feature_dim = module.in_channels
        else:
            continue
        parent, _, child = name.rpartition(".")
        setattr(backbone.get_submodule(parent), child, torch.nn.Identity())
        return name, feature_dim
    raise UserError(
        f"{type(backbone).__name__} has no layer of {classes} outputs that an embedding layer could replace"
    )


def published(constructor: str):
    """torchvision's record of the weights; None without any.

    IMAGENET1K_V1, those of the published runs, if the network has them, else torchvision's default.
    """
    import torchvision

    weights = torchvision.models.get_model_weights(constructor)
    return getattr(weights, "IMAGENET1K_V1", None) or getattr(weights, "DEFAULT", None)


@functools.cache
def weights_of(constructor: str) -> str | None:
    """The name of the published weights; None without any.

    Searches torchvision's source first, as its import takes 1.6 s and 160 MB.
    """
    spec = importlib.util.find_spec("torchvision")
    definition = re.compile(rf"_Weights\.IMAGENET1K_V1\)\)\ndef {re.escape(constructor)}\(")
    if spec:
        for path in Path(spec.origin).parent.glob("models/*.py"):
            if definition.search(path.read_text(encoding="utf-8")):
                return "IMAGENET1K_V1"
    weights = published(constructor)
    return weights and weights.name


def current_key(key: str) -> str:
    """A key of a published file, with the names of today's torchvision."""
    return DENSE_LAYER.sub(r"\1\2", key)


class Network(_network.Network):
    """A torchvision constructor without its classifier."""

    def __init__(self, opt, name):
        import torchvision

        weights = published(name.constructor)
        pretrained = None
        input_format = {"input_size": 224}
        if weights:
            pretrained = Pretrained(weights.name, weights.url, hashed=True)
            transforms = weights.transforms()
            input_format = {
                "input_size": transforms.crop_size[0],
                "mean": transforms.mean,
                "std": transforms.std,
                "interpolation": transforms.interpolation.value,
            }
        arguments = {}
        if name.constructor in ("googlenet", "inception_v3"):
            # torchvision's random weights are so small that all images have nearly equal features until BatchNorm
            # adapts (never if frozen)
            arguments = {"aux_logits": False, "transform_input": False, "init_weights": False}
            input_format |= {"mean": HALVES, "std": HALVES}
        if name.constructor.startswith("vit_"):
            # its position embedding is made for one size
            arguments = {"image_size": input_format["input_size"]}
        backbone = torchvision.models.get_model(name.constructor, weights=None, **arguments)
        head, feature_dim = cut_classifier(backbone, CLASSES)
        self.fixed_size = name.constructor.startswith(("vit_", "maxvit"))
        self.native_shapes = not self.fixed_size
        super().__init__(opt, name, backbone, feature_dim, pretrained, head=head, **input_format)
        self.STAGES = {stage: stage for stage in STAGES.get(type(backbone).__name__, ())}

    def published_key(self, key: str) -> str:
        """The backbone's name for a published key; DenseNet's files have old names."""
        return current_key(key)

    def extract(self, images: torch.Tensor) -> dict:
        """`pooled`, and `spatial` for the classes in STAGED."""
        if self.fixed_size and images.shape[2:] != (self.input_size, self.input_size):
            raise self.wrong_size(images)
        if type(self.backbone).__name__ not in STAGED:
            return super().extract(images)
        spatial = images
        for stage, module in self.backbone.named_children():
            if stage == "avgpool":
                break
            spatial = module(spatial)
        return {"pooled": self.pool(spatial), "spatial": spatial}

    def pool(self, spatial: torch.Tensor) -> torch.Tensor:
        """The pooled features `(B, feature_dim)` of last maps `(B, C, h, w)`."""
        layers = list(self.backbone.named_children())
        position = [name for name, _ in layers].index("avgpool")
        pooled = layers[position][1](spatial).flatten(1)
        # dropout, if any, and the identity in place of the classifier
        for _, layer in layers[position + 1 :]:
            pooled = layer(pooled)
        return pooled
