"""OSNet: omni-scale networks for re-identification (Zhou et al., arXiv 1905.00953; instance norms: arXiv 1910.06827).

A block sums four streams of one to four light 3 x 3 convolutions, each weighted by one shared gate, so that a feature
sees several scales. Names of layers, and so the keys of weights, are those of torchreid
(github.com/KaiyangZhou/deep-person-reid, commit f8cd150), whose two files name the streams differently. The pooled
features are those behind `fc`: 512 at every width, never negative. Published weights are not downloaded: their host
has no stable addresses, so give torchreid's files with --weights.
"""

from typing import NamedTuple

import torch
from torch import nn

from architectures import _network
from utilities.errors import UserError

FEATURES = 512  # behind `fc`, at every width
WIDTHS = (64, 256, 384, 512)  # of stem and stages, times the multiplier
REDUCTION = 4  # a block's streams have a quarter of its channels
GATE_REDUCTION = 16
STREAMS = 4
MULTIPLIERS = {"x1_0": 1.0, "x0_75": 0.75, "x0_5": 0.5, "x0_25": 0.25}
# of `osnet_ain_*`: whether each block has an instance norm inside its branch
AIN_BLOCKS = ((True, True), (False, True), (True, False))


class Variant(NamedTuple):
    """What a name stands for: the multiplier of the widths, and `""`, `"ibn"` or `"ain"`."""

    multiplier: float
    norm: str


VARIANTS = {
    **{f"osnet_{width}": Variant(multiplier, "") for width, multiplier in MULTIPLIERS.items()},
    "osnet_ibn_x1_0": Variant(1.0, "ibn"),
    **{f"osnet_ain_{width}": Variant(multiplier, "ain") for width, multiplier in MULTIPLIERS.items()},
}


def names() -> tuple[str, ...]:
    """The names of all variants."""
    return tuple(VARIANTS)


class ConvNorm(nn.Module):
    """Convolution without bias, norm, ReLU; the last two can be left out."""

    def __init__(self, channels: int, width: int, side: int = 1, stride: int = 1, *, norm=nn.BatchNorm2d, relu=True):
        super().__init__()
        self.conv = nn.Conv2d(channels, width, side, stride, side // 2, bias=False)
        self.bn = None
        if norm is nn.InstanceNorm2d:
            self.bn = norm(width, affine=True)
        elif norm is not None:
            self.bn = norm(width)
        self.relu = relu

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps `(B, width, h, w)`."""
        maps = self.conv(maps)
        if self.bn is not None:
            maps = self.bn(maps)
        return maps.relu() if self.relu else maps


class LightConv(nn.Module):
    """A 1 x 1 convolution, a 3 x 3 convolution of each channel alone, BatchNorm, ReLU."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False, groups=channels)
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps of the same shape."""
        return self.bn(self.conv2(self.conv1(maps))).relu()


class Stream(nn.Module):
    """Light convolutions in a row, under the name that `osnet_ain_*` gives them."""

    def __init__(self, channels: int, depth: int):
        super().__init__()
        self.layers = nn.Sequential(*(LightConv(channels) for _ in range(depth)))

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps of the same shape."""
        return self.layers(maps)


class Gate(nn.Module):
    """A weight in (0, 1) for each channel, from its mean over the map."""

    def __init__(self, channels: int):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, channels // GATE_REDUCTION, 1)
        self.fc2 = nn.Conv2d(channels // GATE_REDUCTION, channels, 1)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Weighted maps of the same shape."""
        means = maps.mean((2, 3), keepdim=True)
        return maps * self.fc2(self.fc1(means).relu()).sigmoid()


class Block(nn.Module):
    """Four gated streams between 1 x 1 convolutions, and the identity.

    Args:
        inner_norm: an instance norm in place of the BatchNorm at the end of the branch (`osnet_ain_*`).
        outer_norm: one behind the sum with the identity (`osnet_ibn_*`).
        numbered: streams are a list `conv2.0` …, else attributes `conv2a` …
    """

    def __init__(self, channels: int, width: int, *, inner_norm: bool, outer_norm: bool, numbered: bool):
        super().__init__()
        middle = width // REDUCTION
        self.conv1 = ConvNorm(channels, middle)
        if numbered:
            self.conv2 = nn.ModuleList(Stream(middle, depth) for depth in range(1, STREAMS + 1))
        else:
            self.conv2a = LightConv(middle)
            for depth, letter in enumerate("bcd", start=2):
                layers = nn.Sequential(*(LightConv(middle) for _ in range(depth)))
                self.add_module(f"conv2{letter}", layers)
        self.numbered = numbered
        self.gate = Gate(middle)
        branch_norm = None if inner_norm else nn.BatchNorm2d
        self.conv3 = ConvNorm(middle, width, norm=branch_norm, relu=False)
        self.downsample = None
        if channels != width:
            self.downsample = ConvNorm(channels, width, relu=False)
        self.IN = None
        if inner_norm or outer_norm:
            self.IN = nn.InstanceNorm2d(width, affine=True)
        self.outer_norm = outer_norm

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps `(B, width, h, w)`."""
        reduced = self.conv1(maps)
        branch = self.conv3(sum(self.gate(stream(reduced)) for stream in self._streams()))
        if self.IN is not None and not self.outer_norm:
            branch = self.IN(branch)
        identity = maps if self.downsample is None else self.downsample(maps)
        joined = branch + identity
        if self.outer_norm:
            joined = self.IN(joined)
        return joined.relu()

    def _streams(self):
        return self.conv2 if self.numbered else (self.conv2a, self.conv2b, self.conv2c, self.conv2d)


class OSNet(nn.Module):
    """Prepared images -> features `(B, 512)`; `maps` gives the last map, `(B, C, H / 16, W / 16)`."""

    def __init__(self, variant: Variant):
        super().__init__()
        widths = [int(width * variant.multiplier) for width in WIDTHS]
        is_ain = variant.norm == "ain"
        stem_norm = nn.InstanceNorm2d if variant.norm else nn.BatchNorm2d
        self.conv1 = ConvNorm(3, widths[0], 7, 2, norm=stem_norm)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for stage in range(3):
            channels, width = widths[stage : stage + 2]
            norms = {"outer_norm": variant.norm == "ibn" and stage == 0, "numbered": is_ain}
            inner_norms = AIN_BLOCKS[stage] if is_ain else (False, False)
            blocks = [
                Block(channels, width, inner_norm=inner_norms[0], **norms),
                Block(width, width, inner_norm=inner_norms[1], **norms),
            ]
            transition = nn.Sequential(ConvNorm(width, width), nn.AvgPool2d(2))
            if stage < 2 and not is_ain:
                blocks.append(transition)
            self.add_module(f"conv{stage + 2}", nn.Sequential(*blocks))
            if stage < 2 and is_ain:
                self.add_module(f"pool{stage + 2}", transition)
        self.conv5 = ConvNorm(widths[-1], widths[-1])
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(nn.Linear(widths[-1], FEATURES), nn.BatchNorm1d(FEATURES), nn.ReLU())
        self._start()

    def _start(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
            if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def maps(self, images: torch.Tensor) -> torch.Tensor:
        """The map before the last pooling."""
        maps = images
        for name, module in self.named_children():
            if name == "avgpool":
                break
            maps = module(maps)
        return maps

    def pooled(self, maps: torch.Tensor) -> torch.Tensor:
        """The features `(B, 512)` of last maps."""
        return self.fc(self.avgpool(maps).flatten(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The features `(B, 512)` of prepared images."""
        return self.pooled(self.maps(images))


class Network(_network.Network):
    """512 features at every width; `spatial` is `(B, 512 x multiplier, H / 16, W / 16)`."""

    STAGES = {"conv2": "conv2.1", "conv3": "conv3.1", "conv5": "conv5"}

    def __init__(self, opt, name):
        backbone = OSNet(VARIANTS[name.constructor])
        super().__init__(opt, name, backbone, FEATURES, None, head="classifier", input_size=(256, 128))

    def blocks(self) -> list[torch.nn.Module]:
        """The six blocks in the order of their depth."""
        return [module for module in self.backbone.modules() if isinstance(module, Block)]

    def extract(self, images: torch.Tensor) -> dict:
        """`pooled` and `spatial` of prepared images."""
        spatial = self.backbone.maps(images)
        return {"pooled": self.pool(spatial), "spatial": spatial}

    def pool(self, spatial: torch.Tensor) -> torch.Tensor:
        """The pooled features `(B, 512)` of last maps `(B, C, h, w)`."""
        if self.backbone.fc[1].training and len(spatial) == 1:
            raise UserError(
                f"{self.name}: a batch, a chunk or a process's part of one image has no batch statistics: take another "
                "--bs or --chunk_size"
            )
        return self.backbone.pooled(spatial)
