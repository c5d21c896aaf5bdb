"""Four convolutional blocks of 64, the few-shot standard for small images (Vinyals et al., arXiv 1606.04080)."""

import torch

from architectures import _blocks, _network
from utilities.errors import UserError

BLOCKS = 4
WIDTH = 64
GRID = 3
# pixels: every block halves the side
SMALLEST = 2**BLOCKS


class Network(_network.Network):
    """Images of 48 x 48 leave the blocks as 3 x 3 maps, flattened to 576 features; other sizes are pooled to 3 x 3."""

    STAGES = {f"block{number}": str(4 * number - 1) for number in range(1, BLOCKS + 1)}  # the ReLU ends a block
    recomputes = False  # set by --grad_checkpointing

    def __init__(self, opt, name):
        layers = []
        channels = 3
        for _ in range(BLOCKS):
            # max-pooling and ReLU commute: pooling first leaves a quarter of the values to rectify
            layers += [torch.nn.Conv2d(channels, WIDTH, 3, padding=1), torch.nn.BatchNorm2d(WIDTH)]
            layers += [torch.nn.MaxPool2d(2), torch.nn.ReLU(inplace=True)]
            channels = WIDTH
        half = (0.5, 0.5, 0.5)
        super().__init__(
            opt, name, torch.nn.Sequential(*layers), WIDTH * GRID**2, None, input_size=48, mean=half, std=half
        )

    def blocks(self) -> list[torch.nn.Module]:
        """The blocks in order, each of convolution, BatchNorm, pooling and ReLU."""
        return [self.backbone[start : start + 4] for start in range(0, len(self.backbone), 4)]

    def keep_no_activations(self) -> None:
        """Recompute activations; here blocks are slices of one Sequential, so `extract` does it."""
        self.recomputes = True

    def extract(self, images: torch.Tensor) -> dict:
        """`spatial` `(B, 64, H / 16, W / 16)` and `pooled` `(B, 576)`."""
        height, width = images.shape[2:]
        if min(height, width) < SMALLEST:
            raise UserError(
                f"{self.name} needs images of at least {SMALLEST} x {SMALLEST} pixels, not {height} x {width}: "
                "--crop_size"
            )
        # channels_last is a third faster on a CPU
        spatial = images.contiguous(memory_format=torch.channels_last)
        if self.recomputes:
            for block in self.blocks():
                spatial = _blocks.recomputed(block, self.backbone, spatial)
        else:
            spatial = self.backbone(spatial)
        return {"pooled": self.pool(spatial), "spatial": spatial}

    def pool(self, spatial: torch.Tensor) -> torch.Tensor:
        """The pooled features `(B, feature_dim)` of last maps `(B, C, h, w)`."""
        # of maps of that size the pooling is the identity, whose gradient --deterministic does not refuse on a GPU
        if spatial.shape[2:] != (GRID, GRID):
            spatial = torch.nn.functional.adaptive_avg_pool2d(spatial, GRID)
        return spatial.flatten(1)
