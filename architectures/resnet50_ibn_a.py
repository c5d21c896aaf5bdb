"""ResNet-50 with instance norms on half the channels (IBN-a, Pan et al., arXiv 1807.09441), as in re-identification."""

import torch

from architectures import _network, _torchvision
from architectures._weights import Pretrained

STAGES = ("layer1", "layer2", "layer3")
WEIGHTS = Pretrained(
    "IBN-Net v1.0",
    "https://github.com/XingangPan/IBN-Net/releases/download/v1.0/resnet50_ibn_a-d9d0bb7b.pth",
    hashed=True,
)


class InstanceBatchNorm(torch.nn.Module):
    """InstanceNorm on the first half of the channels, BatchNorm on the others."""

    def __init__(self, channels: int):
        super().__init__()
        self.half = channels // 2
        self.IN = torch.nn.InstanceNorm2d(self.half, affine=True)
        self.BN = torch.nn.BatchNorm2d(channels - self.half)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps of the same shape `(B, channels, h, w)`."""
        return torch.cat([self.IN(maps[:, : self.half]), self.BN(maps[:, self.half :])], 1)


class Network(_torchvision.Network):
    """2048 features; `spatial` is `(B, 2048, H / 32, W / 32)`. Names of layers are those of IBN-Net and torchreid."""

    def __init__(self, opt, name):
        import torchvision

        backbone = torchvision.models.resnet50(weights=None)
        for stage in STAGES:
            for block in getattr(backbone, stage):
                block.bn1 = InstanceBatchNorm(block.bn1.num_features)
        backbone.fc = torch.nn.Identity()
        _network.Network.__init__(self, opt, name, backbone, 2048, WEIGHTS)
        self.fixed_size = False
        self.STAGES = {stage: stage for stage in _torchvision.STAGES["ResNet"]}
