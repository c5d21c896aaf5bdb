"""How a map becomes features: the pooling of `--pool`, the pooling of the stem, the stride of the last stage."""

import torch

from utilities.errors import UserError

GEM_POWER = 3.0
GEM_LEAST = 1e-6
# the learned power's name among a pooling's parameters
POWER = "power"
KINDS = ("token", "token_avg", "avg", "max", "avgmax", "gem", "gem_learned")
# names of the last pooling in torchvision and pretrainedmodels
POOLINGS = ("avgpool", "avg_pool", "avgpool_1a", "global_pool")
HALVING = torch.nn.Conv2d | torch.nn.MaxPool2d | torch.nn.AvgPool2d  # layers whose stride halves a map
LAST_STAGES = (  # what halves the map for the last time: ResNets, RegNets, GoogLeNet, BN-Inception
    "layer4",
    "trunk_output.block4",
    "s4",
    "maxpool4",
    "inception_4e_3x3",
    "inception_4e_double_3x3_2",
    "inception_4e_pool",
)


class GeneralisedMean(torch.nn.Module):
    """(mean of max(x, 1e-6)^p)^(1/p) over a map, p = 3 (Radenović et al., arXiv 1711.02512).

    Args:
        learned: p is a parameter that starts at 3.
        over: dimensions of the map. keepdim: its sides become 1.
    """

    def __init__(self, learned: bool = False, over: tuple[int, int] = (2, 3), keepdim: bool = True):
        super().__init__()
        self.over = over
        self.keepdim = keepdim
        if learned:
            self.register_parameter(POWER, torch.nn.Parameter(torch.full((1,), GEM_POWER)))
        else:
            self.power = GEM_POWER

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Pooled maps, `(B, C)` or with sides of 1."""
        return maps.clamp(min=GEM_LEAST).pow(self.power).mean(self.over, keepdim=self.keepdim).pow(1 / self.power)


class MeanAndMaximum(torch.nn.Module):
    """The mean of average and maximum of a map `(B, C, h, w)`, with sides of 1, as timm's `avgmax`."""

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Pooled maps `(B, C, 1, 1)`."""
        return (maps.mean((2, 3), keepdim=True) + maps.amax((2, 3), keepdim=True)) / 2


class Maximum(torch.nn.AdaptiveMaxPool2d):
    """`AdaptiveMaxPool2d(1)`, by an operation whose gradient has a deterministic form on a GPU."""

    def __init__(self):
        super().__init__(1)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """The first maximum of each map, `(B, C, 1, 1)`."""
        return maps.flatten(2).max(2).values[..., None, None]


def pooling(kind: str) -> torch.nn.Module:
    """The pooling `kind` of maps `(B, C, h, w)`, with sides of 1."""
    if kind.startswith("gem"):
        return GeneralisedMean(kind == "gem_learned")
    if kind == "avg":
        return torch.nn.AdaptiveAvgPool2d(1)
    if kind == "max":
        return Maximum()
    return MeanAndMaximum()


def place(backbone: torch.nn.Module) -> str | None:
    """The name of a torchvision or pretrainedmodels backbone's last pooling; None if no module pools the whole map."""
    for name in POOLINGS:
        layer = getattr(backbone, name, None)
        is_pooling = isinstance(layer, torch.nn.AdaptiveAvgPool2d | torch.nn.AdaptiveMaxPool2d)
        if is_pooling and layer.output_size in (1, (1, 1)):
            return name
    return None


def replace(backbone: torch.nn.Module, name: str, kind: str) -> None:
    """Replace the last pooling by `kind`. Raises UserError if the backbone has no such pooling, or no tokens."""
    layer_name = place(backbone)
    if layer_name is None:
        raise UserError(f"--pool {kind}: {name} does not support it (no separate layer pools its map): leave it out")
    if kind.startswith("token"):
        raise UserError(f"--pool {kind}: {name} does not support it (it has no class token): leave it out, or take avg")
    setattr(backbone, layer_name, pooling(kind))


def pad_no_stem(backbone: torch.nn.Module, name: str) -> None:
    """Pool behind the stem without padding, incomplete windows at the end included (`--stem_pool ceil`).

    Raises UserError for a backbone whose stem is not pooled by 3 x 3, stride 2 and padding 1.
    """
    layer = getattr(backbone, "maxpool", None)
    sides = [getattr(layer, key, None) for key in ("kernel_size", "stride", "padding")]
    if not isinstance(layer, torch.nn.MaxPool2d) or sides != [3, 2, 1]:
        raise UserError(f"--stem_pool ceil: {name} has no pooling of 3 x 3 behind its stem; ResNets have: leave it out")
    backbone.maxpool = torch.nn.MaxPool2d(3, 2, ceil_mode=True)


def keep_last_map(backbone: torch.nn.Module, name: str) -> None:
    """Let the last stage keep the size of its map: strides of 1 in place of 2 (`--last_stride 1`).

    Convolutions and overlapping pools keep their padding; a pool of 2 x 2 is left out. Raises UserError for a backbone
    without such a stage.
    """
    modules = dict(backbone.named_modules())
    is_changed = False
    for stage in LAST_STAGES:
        if stage not in modules:
            continue
        for path, layer in list(modules[stage].named_modules(prefix=stage)):
            if not isinstance(layer, HALVING) or layer.stride not in (2, (2, 2)):
                continue
            is_changed = True
            if isinstance(layer, torch.nn.Conv2d):
                layer.stride = (1, 1)
            elif isinstance(layer, torch.nn.MaxPool2d) and layer.kernel_size in (3, (3, 3)):
                # Overlapping windows still pool with a stride of 1.
                backbone.set_submodule(path, torch.nn.MaxPool2d(3, 1, 1))
            else:
                backbone.set_submodule(path, torch.nn.Identity())
    if not is_changed:
        raise UserError(
            f"--last_stride 1: {name} has no last stage whose stride is known; ResNets, RegNets, GoogLeNet and "
            "BN-Inception have: leave it out"
        )
