"""Small pictures for pages: data addresses of JPEGs, and sheets of many of them within a bound of bytes."""

import base64
import io
import math

import numpy as np
import torch

SHEET = 16  # thumbnails a side of a sheet: browsers show any number of pictures of 16 x 64 pixels a side
SIDES = ((8_000, 64), (16_000, 48), (40_000, 32), (math.inf, 24))  # up to how many images, pixels a side
QUALITIES = (80, 65, 50, 35, 20)
# of all sheets together; base64 makes them a third larger
MOST_BYTES = 15_000_000


def small(image: torch.Tensor, side: int):
    """The Pillow image of `image` uint8 `(3, H, W)`, whole, its longer side at most `side` pixels."""
    import PIL.Image

    picture = PIL.Image.fromarray(image.permute(1, 2, 0).numpy())
    picture.thumbnail((side, side))
    return picture


def address(picture, quality: int = 85) -> str:
    """The Pillow image as a data address of a JPEG."""
    return _data(jpeg(picture, quality))


def _data(jpeg: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()


def jpeg(picture, quality: int = 85) -> bytes:
    """The Pillow image as the bytes of a JPEG file."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return file.getvalue()


class Sheets:
    """Thumbnails of `count` images: `put(place, image)`, then `addresses()`.

    Attributes:
        side: pixels of a thumbnail's side. across: thumbnails a side of a sheet;
        image i is on sheet i // across², row by row.
    """

    def __init__(self, count: int):
        self.side = next(side for limit, side in SIDES if count <= limit)
        self.across = SHEET
        sheets = -(-count // self.across**2)
        self.pixels = np.full((sheets, self.across * self.side, self.across * self.side, 3), 245, dtype=np.uint8)

    def put(self, place: int, image: torch.Tensor) -> None:
        """Draw an image uint8 `(3, H, W)`, whole and in the middle of its square."""
        picture = np.asarray(small(image, self.side))
        sheet, position = divmod(place, self.across**2)
        row, column = divmod(position, self.across)
        top = row * self.side + (self.side - picture.shape[0]) // 2
        column_start = column * self.side + (self.side - picture.shape[1]) // 2
        self.pixels[sheet, top : top + picture.shape[0], column_start : column_start + picture.shape[1]] = picture

    def addresses(self, limit: int = MOST_BYTES) -> list[str]:
        """Data addresses of the sheets, of the best quality within `limit` bytes; else halved until one fits."""
        import PIL.Image

        pictures = [PIL.Image.fromarray(sheet) for sheet in self.pixels]
        while True:
            for quality in QUALITIES:
                if sum(len(jpeg(picture, quality)) for picture in pictures[:: max(len(pictures) // 8, 1)]) > 2 * limit:
                    # a sample of the sheets is too large already
                    continue
                files = [jpeg(picture, quality) for picture in pictures]
                if sum(map(len, files)) <= limit:
                    return [_data(file) for file in files]
            self.side //= 2
            if not self.side:
                return []
            pictures = [picture.reduce(2) for picture in pictures]
