"""The code of the model card from a photograph to the network's exact input, with Pillow and NumPy alone.

Decoding and cropping are Pillow's. Its resize is not the run's: torch rounds the weights of its antialiased resize on
uint8 images to 16 bits, Pillow to 22, and values differ by one of 255 here and there, in narrow images by more. So the
card has a function of NumPy that rounds as torch does (ATen/native/cpu/UpSampleKernel.cpp): first along the rows, then
along the columns, each axis with as many bits as its greatest weight allows. So torchvision resizes on CPUs with AVX2
and on ARM; on older ones it computes in float32, and the run itself gives other last bits.
"""

import numpy as np

PHOTO = '"photo.jpg"'
OPEN = f'image = ImageOps.exif_transpose(Image.open({PHOTO})).convert("RGBA")'
ON_WHITE = 'image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")'
GREY = '.convert("L").convert("RGB")'
# interpolation -> its weight at the distance x >= 0, in pixels of the coarser grid
KERNELS = {
    "bilinear": "np.maximum(1 - x, 0)",
    "bicubic": "np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, ((2.5 - x / 2) * x - 4) * x + 2, 0))",
}
RESIZE = """

def resize(pixels, size):  # the first axis, bit for bit as torch: antialiased, with weights of 16 bits
    scale = len(pixels) / size
    x = abs(np.arange(len(pixels)) + 0.5 - scale * (np.arange(size)[:, None] + 0.5)) / max(scale, 1)
    weights = {kernel}
    weights = weights / weights.sum(1, keepdims=True)
    unit = 2.0 ** min(int(np.log2(32767.5 / weights.max())), 22)
    weights = np.trunc(weights * unit + np.copysign(0.5, weights))
    return np.floor(np.tensordot(weights, pixels, 1) / unit + 0.5).clip(0, 255)


"""
RESIZED = (
    "image = Image.fromarray(resize(resize(np.swapaxes(image, 0, 1), width).swapaxes(0, 1), height).astype(np.uint8))"
)
HALF = "round(room / 2)"
# torch pads an image that is smaller than the crop, and rounds the other way
HALF_WITH_BORDER = "round(room / 2) if room > 0 else int(room / 2)"


def code(preparation) -> str | None:
    """The lines for a run's `datasets.preparation`, which read `photo.jpg`; None where these steps have none.

    They give `images`, uint8 `(1, 3, H, W)`.
    """
    lines = [OPEN, ON_WHITE + (GREY if preparation.grey else "")]
    interpolations = set()
    if preparation.read.side:
        side = preparation.read.side
        interpolations.add("bilinear")
        size = f"max(round(side * {side} / max(*image.size, {side})), 1)"
        lines += [f"width, height = ({size} for side in image.size)", RESIZED]
    fits = False
    picture = "image"
    for step in preparation.steps:
        if type(step).__name__ == "Resize":
            interpolations.add(step.interpolation.value)
            lines += [_size(step), RESIZED]
            fits = step.size is not None
        else:
            height, width = _pair(step.size)
            half = HALF if fits else HALF_WITH_BORDER
            lines.append(f"left, top = ({half} for room in (image.width - {width}, image.height - {height}))")
            picture = f"image.crop((left, top, left + {width}, top + {height}))"
    if len(interpolations) > 1:
        return None
    lines.append(f"images = np.array({picture}).transpose(2, 0, 1)[None]")
    function = "\n"
    if interpolations:
        function = RESIZE.format(kernel=KERNELS[interpolations.pop()])
    return "import numpy as np\nfrom PIL import Image, ImageOps\n" + function + "\n".join(lines)


def _size(step) -> str:
    """The line with the size that a `v2.Resize` gives an image."""
    if step.size is None:
        return f"width, height = ({int(step.max_size)} * side // max(image.size) for side in image.size)"
    height, width = _pair(step.size)
    if isinstance(step.size, int) or len(step.size) == 1:
        return f"width, height = ({width} * side // min(image.size) for side in image.size)"
    return f"width, height = {width}, {height}"


def _pair(size) -> tuple[int, int]:
    """(height, width) of what a transform holds as its size."""
    sides = [size] if isinstance(size, int) else list(size)
    return int(sides[0]), int(sides[-1])


def greatest_difference(lines: str, files: list, prepared: np.ndarray) -> int:
    """The greatest difference, of 255, between what the lines give and the run's own input.

    Args:
        lines: of `code`. files: paths, or files opened to be read; one that Pillow cannot read differs by 255.
        prepared: uint8 `(N, 3, H, W)`, of the run.
    """
    program = compile(lines.replace(PHOTO, "file"), "<model card>", "exec")
    greatest = 0
    for file, expected in zip(files, prepared, strict=True):
        names = {"file": file}
        try:
            exec(program, names)
        except (OSError, ValueError):
            # a damaged image, of which another decoder has made something
            return 255
        greatest = max(greatest, int(np.abs(names["images"][0].astype(int) - expected).max()))
    return greatest
