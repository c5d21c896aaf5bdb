"""What every network shares: input as the weights need it, embedding layer, traits, optimiser groups."""

import contextlib

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from architectures import _weights
from utilities.errors import UserError
from utilities.numbers import WIDEST, whole
from utilities.roles import PLACE
from utilities.tensors import normalize, raise_half

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def add_arguments(group) -> None:
    """Declare the flags that every network reads."""
    help_weights = (
        "start from this state dict: of the bare backbone (classifier keys are passed over) or of a whole network of this program; "
        "stands above --not_pretrained (unset: the package's ImageNet weights)"
    )
    help_hidden = "widths of hidden layers, ReLU after each, between backbone and embedding layer"
    group.add_argument("--not_pretrained", action="store_true", help="start from random weights")
    group.add_argument("--weights", default=None, metavar="FILE", help=help_weights)
    group.add_argument(
        "--weights_cache", default=None, metavar="DIR", help="folder for downloaded weights (unset: torch hub's cache)"
    ).role = PLACE
    group.add_argument(
        "--freeze_backbone",
        action="store_true",
        help="train what stands behind the backbone alone: embedding layer, heads, criterion; the backbone rests, its layers as in evaluation",
    )
    group.add_argument(
        "--feature_cache",
        action="store_true",
        help="with --freeze_backbone and --augmentation none: compute the pooled features of every image once a run, and train and evaluate what "
        "stands behind the backbone on them; memory: features x 4 bytes an image",
    ).role = PLACE
    group.add_argument("--embed_hidden", type=whole(1, WIDEST), nargs="*", default=[], help=help_hidden)


class Pooled(dict):
    """The activations of a network that was given its pooled features: `{"pooled": (B, F)}`, and no other."""

    def __missing__(self, key):
        raise UserError(f"--feature_cache keeps the pooled features alone, and {key!r} is asked for: leave it out")


class Network(torch.nn.Module):
    """Base of the networks here: backbone without its classifier, then `last_linear`, the embedding layer.

    Scaling, colour order and normalisation happen here, on the images' device, with buffers that stay out of the state dict.

    Args:
        opt: the shared namespace; read are embed_dim, embed_hidden, freeze_backbone, not_pretrained, weights, weights_cache.
        name: the parsed `--arch`.
        backbone: images as it needs them -> pooled features `(B, feature_dim)`.
        feature_dim: how many features it gives.
        pretrained: where its ImageNet weights are; None where there are none.
        input_size: side in pixels of the images its weights were trained on.
        mean, std: three numbers each, in the backbone's colour order and range.
        input_space: "RGB" or "BGR". input_range: the value of white, 1 or 255.
        head: prefix of the classifier's keys in the backbone's published state dict.

    Attributes: the arguments, `name` (the whole), `constructor`, `embed_dim` (what comes out), `frozen`, `normalizes`, `backbone_rests`,
    `weights_name`, `weights_file` (of --weights).
    """

    def __init__(
        self, opt, name, backbone: torch.nn.Module, feature_dim: int, pretrained: "_weights.Pretrained | None", *,
        input_size: int = 224, mean=IMAGENET_MEAN, std=IMAGENET_STD, input_space: str = "RGB", input_range: float = 1, head: str = "fc",
    ):  # fmt: skip
        super().__init__()
        if opt.embed_dim < 0 or min(opt.embed_hidden, default=1) < 1:
            given = f"--embed_dim {opt.embed_dim} --embed_hidden {' '.join(map(str, opt.embed_hidden))}"
            raise UserError(f"{given}: a width is at least 1 (--embed_dim 0: no embedding layer)")
        if opt.embed_hidden and not opt.embed_dim:
            raise UserError("--embed_hidden puts layers before the embedding layer, which --embed_dim 0 leaves out: give a dimension")
        self.name, self.constructor = name.full, name.constructor
        self.frozen, self.normalizes = "frozen" in name.traits, "normalize" in name.traits
        self.backbone_rests = opt.freeze_backbone
        self.feature_dim, self.embed_dim = feature_dim, opt.embed_dim or feature_dim
        self.input_size, self.input_space, self.input_range = int(input_size), input_space, input_range
        self.mean, self.std, self.head = tuple(mean), tuple(std), head
        mean, std = (torch.tensor(values, dtype=torch.float64).view(1, 3, 1, 1) for values in (self.mean, self.std))
        self.register_buffer("scale", (input_range / std).to(torch.get_default_dtype()), persistent=False)  # (1, 3, 1, 1)
        self.register_buffer("shift", (-mean / std).to(torch.get_default_dtype()), persistent=False)  # (1, 3, 1, 1)

        self.backbone = backbone
        widths = [feature_dim, *opt.embed_hidden]
        layers = [[torch.nn.Linear(*pair), torch.nn.ReLU()] for pair in zip(widths, widths[1:], strict=False)]
        self.hidden = torch.nn.Sequential(*(layer for pair in layers for layer in pair))
        self.last_linear = torch.nn.Linear(widths[-1], opt.embed_dim) if opt.embed_dim else torch.nn.Identity()
        self.weights_name, self.weights_file = _weights.fill(self, opt, pretrained), opt.weights
        if self.backbone_rests:
            self.backbone.requires_grad_(False)
        self.train()

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, dict]:
        """Embed `images` `(B, 3, H, W)`, RGB, uint8 or float in [0, 1]; where the backbone rests also their pooled features `(B, feature_dim)`.

        Returns:
            embeddings `(B, embed_dim)`, and the earlier activations: `pooled` `(B, feature_dim)`, the bare backbone's output,
            and where the backbone is known to have one, `spatial` `(B, C, h, w)`, the map before pooling.

        Raises ValueError for images of another shape, UserError for a size that the backbone cannot take.
        """
        if self.backbone_rests and images.ndim == 2:
            features = Pooled(pooled=images.to(self.scale.dtype))
        else:
            with torch.no_grad() if self.backbone_rests else contextlib.nullcontext():
                features = self.extract(self.prepare(images))
        if features["pooled"].shape[1] != self.feature_dim:
            raise self.wrong_size(images)
        embeddings = self.last_linear(self.hidden(features["pooled"]))
        if self.normalizes:
            embeddings = normalize(raise_half(embeddings))
        return embeddings, features

    def extract(self, images: torch.Tensor) -> dict:
        """Activations of prepared `images`; at least `pooled`."""
        return {"pooled": self.backbone(images).flatten(1)}

    def published_key(self, key: str) -> str:
        """The backbone's name for a key of its published state dict."""
        return key

    def prepare(self, images: torch.Tensor) -> torch.Tensor:
        """`images` in the colour order, range and normalisation of the backbone's weights, in the network's float type."""
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"images are {tuple(images.shape)}: expected (B, 3, H, W)")
        if self.input_space == "BGR":
            images = images.flip(1)
        scale = self.scale if images.is_floating_point() else self.scale / 255
        return torch.addcmul(self.shift, images.to(scale.dtype), scale)

    def wrong_size(self, images: torch.Tensor) -> UserError:
        """The error for images of a size that the backbone cannot take."""
        height, width = images.shape[2:]
        size = self.input_size
        return UserError(f"{self.name} takes images of {size} x {size} pixels, not {height} x {width}: --crop_size {size}")

    def train(self, mode: bool = True) -> "Network":
        """As ever, but BatchNorm layers of a `_frozen` network stay in eval mode, as does all of a backbone that rests.

        The affine weights of the former train, as published.
        """
        super().train(mode)
        if self.frozen:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        if self.backbone_rests:
            self.backbone.eval()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> "Network":
        """As ever, but a backbone that rests has no gradient, through every phase of a trainer."""
        super().requires_grad_(requires_grad)
        if self.backbone_rests:
            self.backbone.requires_grad_(False)
        return self

    def param_groups(self, opt) -> list[dict]:
        """Optimiser groups, every parameter in exactly one: the backbone unless it rests, the layers behind it at --fc_lr and --fc_decay.

        Where these are not given (--fc_lr at most 0, --fc_decay None), the backbone's rates hold for all.
        """
        fc_lr, fc_decay = getattr(opt, "fc_lr", -1), getattr(opt, "fc_decay", None)
        fc_lr, fc_decay = fc_lr if fc_lr > 0 else opt.lr, opt.decay if fc_decay is None else fc_decay
        last = [*self.hidden.parameters(), *self.last_linear.parameters()]
        groups = [
            {"name": "backbone", "params": list(self.backbone.parameters()), "lr": opt.lr, "weight_decay": opt.decay},
            {"name": "last_linear", "params": last, "lr": fc_lr, "weight_decay": fc_decay},
        ]
        return [group for group in groups[self.backbone_rests :] if group["params"]]
