"""The grid of a transformer's patches, and position embeddings of another grid.

A position embedding is a row of one vector per patch; how many rows and columns the patches had is not told by its
length: 100 positions may be 10 x 10 or 20 x 5. Loaded as they are into another grid of as many patches they would be
scrambled without a word. So the source grid is determined first: named by the file or the user, else that of the
published weights, else a square. Then timm's own functions resample (bicubic, antialiased, in float32; class and
register tokens stay), or weights that they would not convert are refused.
"""

import contextlib
import math

import torch

from utilities.errors import UserError
from utilities.shapes import in_words, pair

# names of the positions of all patches, (1, tokens, C), in timm's networks
POSITIONS = ("pos_embed", "patch_pos")
# … and in files of other programs; the image network's first, as a text network's may lie beside them
FOREIGN_POSITIONS = (
    *("visual.trunk.pos_embed", "visual.positional_embedding", "visual.pos_embed"),
    *("vision_encoder.pos_embed", "outer_pos", "positional_embedding"),
)
# a token that only DINOv2's own files hold, beside a position of the class token
MASK_TOKEN = ("mask_token", "vision_encoder.mask_token")
TABLE = "relative_position_bias_table"
PATCHES = ("patch_embed.proj.weight", "conv1.weight")  # ends of the names of the kernel that embeds patches
EMBEDDINGS = ("patch_embed", "stem", "pixel_embed")  # names of the layers that cut patches


def patch_of(backbone: torch.nn.Module) -> tuple[int, int]:
    """(height, width) of the patches that images are cut into; (1, 1) if a backbone cuts none."""
    embedding = getattr(backbone, "embeds", None) or getattr(backbone, "patch_embed", None)
    return pair(getattr(embedding, "patch_size", None) or 1)


def grid_of(backbone: torch.nn.Module) -> tuple[int, int] | None:
    """(rows, columns) of a backbone's patches at its input size; None if it does not fix them."""
    embedding = getattr(backbone, "embeds", None)
    # NaFlexVit: positions of one grid, resampled for every image
    if embedding is not None:
        positions = getattr(embedding, "pos_embed", None)
        return None if positions is None or positions.ndim != 4 else tuple(positions.shape[1:3])
    for name in EMBEDDINGS:
        grid = getattr(getattr(backbone, name, None), "grid_size", None)
        if grid:
            return tuple(grid)
    # name of the grid in Hiera
    shape = getattr(backbone, "tokens_spatial_shape", None)
    return shape and tuple(shape)


def positions_of(backbone: torch.nn.Module) -> str | None:
    """The name of a backbone's position embedding of its grid, `(1, tokens, C)`; None without one."""
    if grid_of(backbone) is None:
        return None
    for name in POSITIONS:
        positions = getattr(backbone, name, None)
        if isinstance(positions, torch.Tensor) and positions.ndim == 3:
            return name
    return None


def prefix_of(backbone: torch.nn.Module) -> int:
    """How many positions stand before those of the patches."""
    grid = grid_of(backbone)
    positions = positions_of(backbone)
    return getattr(backbone, positions).shape[1] - math.prod(grid)


def source_grid(state: dict, backbone, published: tuple[int, int] | None, named: tuple[int, int] | None):
    """(rows, columns) of the positions in a file's state; None if it has none, or the backbone takes none.

    Args:
        published: grid of the published weights. named: by the file or --weights_grid.

    Raises UserError if nothing tells the grid, or `named` has another number of patches.
    """
    if positions_of(backbone) is None:
        return named
    names = (*POSITIONS, *FOREIGN_POSITIONS)
    positions = next((state[name] for name in names if getattr(state.get(name), "ndim", 0) in (2, 3)), None)
    if positions is None:
        return named
    prefix = 1 if any(name in state for name in MASK_TOKEN) else prefix_of(backbone)
    count = positions.shape[-2] - prefix
    side = math.isqrt(max(count, 0))
    if named is not None:
        if math.prod(named) != count:
            raise UserError(f"positions of {count} tokens, not of a grid of {named[0]} x {named[1]}")
        return named
    if published is not None and math.prod(published) == count:
        return published
    if side * side == count:
        return side, side
    rows, columns = _likely(count, grid_of(backbone))
    raise UserError(f"positions of {count} tokens: add --weights_grid {rows} {columns}")


def _likely(count: int, grid: tuple[int, int]) -> tuple[int, int]:
    """A grid of so many patches: that of the network if it fits, else the one nearest to a square, upright."""
    if math.prod(grid) == count:
        return grid
    columns = next(side for side in range(math.isqrt(count), 0, -1) if count % side == 0)
    return count // columns, columns


def moved(state: dict, backbone: torch.nn.Module, grid: tuple[int, int]) -> dict:
    """A state in timm's names whose positions are of another `grid`, for the backbone's own, by timm's functions.

    Those of VisionTransformer and Eva are left to timm's conversion, see `from_grid`. Raises UserError for a network
    whose positions timm does not resample.
    """
    import timm

    target = grid_of(backbone)
    if isinstance(backbone, (timm.models.VisionTransformer, timm.models.Eva)):
        return state
    name = positions_of(backbone)
    if not isinstance(backbone, (timm.models.Beit, timm.models.TNT)):
        is_bound = name is not None or isinstance(backbone, timm.models.MlpMixer)
        if is_bound or any(_is_of_rectangle(key, value) for key, value in state.items()):
            raise UserError(f"weights of {in_words(grid)} patches, which timm does not resample to {in_words(target)}")
        return state
    state = dict(state)
    if name in state:
        state[name] = timm.layers.resample_abs_pos_embed(
            state[name], new_size=target, old_size=grid, num_prefix_tokens=prefix_of(backbone)
        )
    shapes = {key: value.shape for key, value in backbone.state_dict().items() if key.endswith(TABLE)}
    for key in shapes.keys() & state.keys():
        state[key] = timm.layers.resize_rel_pos_bias_table(
            state[key], new_window_size=target, new_bias_shape=shapes[key], old_window_size=grid
        )
    return state


def _is_of_rectangle(key: str, value: torch.Tensor) -> bool:
    """Whether a value is the table of a window that is not square: its number of rows does not tell which one."""
    return key.endswith(TABLE) and value.ndim == 2 and math.isqrt(len(value)) ** 2 != len(value)


@contextlib.contextmanager
def from_grid(state: dict, backbone: torch.nn.Module, grid: tuple[int, int] | None):
    """Context in which timm's conversion of a state takes its positions for those of this grid; None: as timm does."""
    if grid is None:
        yield
        return
    kernels = [value.shape[-2:] for key, value in state.items() if key.endswith(PATCHES) and value.ndim == 4]
    kernel = kernels[0] if kernels else patch_of(backbone)
    before = backbone.pretrained_model_args
    # timm divides the size of the images by the side of the kernel
    size = tuple(rows * side for rows, side in zip(grid, kernel, strict=True))
    backbone.pretrained_model_args = {**before, "img_size": size}
    try:
        yield
    finally:
        backbone.pretrained_model_args = before


def set_stride(backbone: torch.nn.Module, stride: int) -> None:
    """Let the patches of a VisionTransformer overlap: a step of `stride` pixels, positions resampled (TransReID)."""
    import timm

    layer = backbone.patch_embed
    before = layer.grid_size
    prefix = prefix_of(backbone)
    sides = zip(layer.img_size, layer.patch_size, strict=True)
    layer.proj.stride = (stride, stride)
    layer.grid_size = tuple((side - patch) // stride + 1 for side, patch in sides)
    layer.num_patches = math.prod(layer.grid_size)
    positions = timm.layers.resample_abs_pos_embed(
        backbone.pos_embed.detach(), new_size=layer.grid_size, old_size=before, num_prefix_tokens=prefix
    )
    backbone.pos_embed = torch.nn.Parameter(positions)
