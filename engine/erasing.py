"""Rectangles erased from normalised images, on their device (Random Erasing, Zhong et al., arXiv 1708.04896).

`datasets._transforms.Erasing` draws them, from the seed of the batch and the place in it; here they are erased from
whatever part of a batch reaches the device.
"""

import torch


def pixel_of(network: torch.nn.Module, value) -> torch.Tensor:
    """The pixel `(1, 3, 1, 1)`, RGB in [0, 1], that the network's normalisation turns into `value`.

    value: one or three numbers (RGB).
    """
    mean = torch.tensor(network.mean, dtype=torch.float64)
    std = torch.tensor(network.std, dtype=torch.float64)
    if getattr(network, "input_space", "RGB") == "BGR":
        mean = mean.flip(0)
        std = std.flip(0)
    pixel = (mean + torch.tensor(value, dtype=torch.float64) * std) / getattr(network, "input_range", 1)
    return pixel.view(1, 3, 1, 1).to(torch.get_default_dtype())


class Erased:
    """Images of a batch, or of a part of it, that lose their rectangles on the way to the device.

    The network normalises, so that images stay in the range from 0 to 1 here and a rectangle gets the pixel that
    becomes the wanted value.

    Args:
        images: uint8 `(B, 3, H, W)`, or an `engine.cropping.Cut` of them. boxes: int64 `(B, 4)`, top, left, height,
        width; of height 0 where nothing is erased.
        pixel: `pixel_of` the network; the step, which has the network, sets it.
    """

    def __init__(self, images: torch.Tensor, boxes: torch.Tensor, pixel: torch.Tensor | None = None):
        self.images = images
        self.boxes = boxes
        self.pixel = pixel
        self.device = images.device

    def __len__(self):
        return len(self.images)

    def __getitem__(self, rows) -> "Erased":
        return Erased(self.images[rows], self.boxes[rows], self.pixel)

    def pin_memory(self) -> "Erased":
        """See torch's `DataLoader`."""
        return Erased(self.images.pin_memory(), self.boxes.pin_memory(), self.pixel)

    def on(self, place) -> torch.Tensor:
        """The erased images, float `(B, 3, H, W)`. `place` puts a tensor on the device, in its memory format."""
        images = place(self.images).to(self.pixel.dtype) / 255
        pixel = place(self.pixel)
        first_row, first_column, height, width = place(self.boxes)[:, :, None, None, None].unbind(1)  # (B, 1, 1, 1)
        rows = torch.arange(images.shape[2], device=images.device)[:, None]
        columns = torch.arange(images.shape[3], device=images.device)
        in_rows = (rows >= first_row) & (rows < first_row + height)
        in_columns = (columns >= first_column) & (columns < first_column + width)
        return place(torch.where(in_rows & in_columns, pixel, images))
