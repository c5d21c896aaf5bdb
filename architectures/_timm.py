"""Any network of timm, by its name there, tag included: `timm:vit_small_patch16_224.dino`.

Input size, mean, deviation and interpolation are those of timm's data config. Weights come from the hub or from timm's
URL, or from a file of another program, whose names and position embeddings are converted (`Network.published_state`).
timm is imported only for such a name, as its import takes seconds.
"""

import difflib
import functools
import re
import sys

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from architectures import _adaptation, _blocks, _grid, _input, _network, _pool
from architectures._sources import data_config, is_place, origin, package, source
from utilities.console import say
from utilities.errors import UnknownName, UserError
from utilities.shapes import flag_words, in_words, nearest_multiples, pair, side_or_pair

# calls of `_sources` that others take from this module, and its own `names`
__all__ = ["data_config", "is_place", "names", "package", "source"]

FIND = "python -c \"import timm; print(*timm.list_models('vit*', pretrained=True))\""
# what environment.yaml records of the data config
RECORDED = ("input_size", "mean", "std", "interpolation", "crop_pct", "crop_mode", "license")
# attributes of timm's networks that hold blocks, or stages of blocks
ROOTS = ("blocks", "stages", "layers")
REGNET_BLOCK = re.compile(r"b\d+")
# Layer names of efficientnet-pytorch and efficientnet-lite-pytorch -> those of timm. Their blocks are numbered across
# stages.
FOREIGN_BLOCK = re.compile(r"_blocks\.(\d+)\.(.+)")
FOREIGN_STEM = {
    "_conv_stem.": "conv_stem.",
    "_bn0.": "bn1.",
    "_conv_head.": "conv_head.",
    "_bn1.": "bn2.",
    "_fc.": "classifier.",
}
FOREIGN_EXPANDING = {
    "_expand_conv.": "conv_pw.",
    "_bn0.": "bn1.",
    "_depthwise_conv.": "conv_dw.",
    "_bn1.": "bn2.",
    "_project_conv.": "conv_pwl.",
    "_bn2.": "bn3.",
    "_se_reduce.": "se.conv_reduce.",
    "_se_expand.": "se.conv_expand.",
}
FOREIGN_PLAIN = {
    "_depthwise_conv.": "conv_dw.",
    "_bn1.": "bn1.",
    "_project_conv.": "conv_pw.",
    "_bn2.": "bn2.",
    "_se_reduce.": "se.conv_reduce.",
    "_se_expand.": "se.conv_expand.",
}


@functools.cache
def names() -> frozenset[str]:
    """timm's names, with and without the tags of their weights."""
    timm = package()
    return frozenset([*timm.list_models(), *timm.list_pretrained()])


def unknown(name: str, constructor: str) -> UnknownName:
    """The error for a name that timm does not have: the nearest one, its tags, how to find others."""
    model, dot, _ = constructor.partition(".")
    tags = sorted(full_name for full_name in names() if full_name.startswith(f"{model}."))
    if dot and tags:
        return UnknownName(f"unknown architecture {name!r}: timm's weights of {model} are {', '.join(tags)}")
    nearest = difflib.get_close_matches(constructor.lower(), names(), n=1)
    hint = f" Did you mean 'timm:{nearest[0]}'?" if nearest else ""
    return UnknownName(f"unknown architecture {name!r}.{hint} Names: {FIND}")


def weights_of(constructor: str) -> str | None:
    """The name of the published weights; None without any."""
    weights = origin(constructor).published
    return weights and weights.name


def build(name, place, size, opt) -> torch.nn.Module:
    """The backbone without its classifier, with random weights.

    Args:
        place: of its architecture (`_sources.origin`).
        size: side, or (height, width), of the images, for networks of a fixed input size; else None.

    Raises UserError for a network that timm cannot build at this size, or that cannot take images of many shapes where
    --eval_long_side or --eval_scales need it.
    """
    arguments = dict(place.arguments)
    at_size = ""
    if size is not None:
        arguments["img_size"] = size
        at_size = f" at --crop_size {flag_words(size)}: take {flag_words(place.config.input_size[-2:])}"
    try:
        if size is not None and _input.keeps_shapes(opt):
            _refuse_one_shape(name, place, arguments, opt)
            arguments["dynamic_img_size"] = True
        backbone = package().create_model(place.architecture, pretrained=False, num_classes=0, **arguments)
        if size is not None:
            _check_patches(name, size, _grid.patch_of(backbone))
        if isinstance(side_or_pair(size), tuple):
            _check_rectangle(backbone, size)
    except (ArithmeticError, AssertionError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{name.full} cannot be built{at_size} ({reason[:120]})") from None
    if opt.patch_stride is not None:
        _set_patch_stride(name, backbone, size is not None, opt)
    return backbone


def _refuse_one_shape(name, place, arguments: dict, opt) -> None:
    """Raise UserError where a network of a fixed input size cannot take images of other shapes."""
    models = package().models
    with torch.device("meta"):
        backbone = package().create_model(place.architecture, pretrained=False, num_classes=0, **arguments)
    is_known = isinstance(backbone, models.VisionTransformer | models.Eva)
    if not is_known or not isinstance(backbone.patch_embed, package().layers.PatchEmbed):
        raise _input.one_shape(name.full, opt)


def _check_rectangle(backbone: torch.nn.Module, size: tuple[int, int]) -> None:
    """Embed a blank image: some networks are built for images that are not square, and then fail."""
    device = next(backbone.parameters()).device
    backbone.eval()
    with torch.no_grad():
        backbone(torch.zeros(1, 3, *size, device=device))
    backbone.train()


def _set_patch_stride(name, backbone: torch.nn.Module, has_fixed_size: bool, opt) -> None:
    """Let patches overlap. Raises UserError where they cannot."""
    stride = opt.patch_stride
    timm = package()
    is_transformer = isinstance(backbone, timm.models.VisionTransformer)
    is_cut_plainly = is_transformer and isinstance(backbone.patch_embed, timm.layers.PatchEmbed)
    if not is_cut_plainly or not has_fixed_size or _grid.positions_of(backbone) is None:
        raise UserError(
            f"--patch_stride {stride}: {name.full} is no VisionTransformer of timm with positions of a fixed size: "
            "leave it out"
        )
    if _input.keeps_shapes(opt):
        raise UserError(
            f"--patch_stride {stride} needs images of one shape: take --eval_long_side 0 and --eval_scales 1, or leave "
            "it out"
        )
    patch = min(_grid.patch_of(backbone))
    if stride >= patch:
        raise UserError(f"--patch_stride {stride}: the patches of {name.full} are {patch} wide: take less")
    _grid.set_stride(backbone, stride)


def set_pool(backbone: torch.nn.Module, name: str, pool: str) -> None:
    """Replace the pooling by `pool`. Raises UserError if the network does not allow it."""
    remedy = "avg" if pool.startswith("token") else "token or avg"
    refused = UserError(f"--pool {pool}: {name} does not pool so: leave it out, or take {remedy}")
    if pool.startswith("gem"):
        modules = backbone.named_modules()
        layers = [(path, layer) for path, layer in modules if type(layer).__name__ == "SelectAdaptivePool2d"]
        if not layers:
            raise refused
        over = (1, 2) if getattr(backbone, "output_fmt", "NCHW") == "NHWC" else (2, 3)
        for path, layer in layers:
            parent, _, child = path.rpartition(".")
            keepdim = layer(torch.ones(1, 1, 1, 1)).ndim == 4
            setattr(backbone.get_submodule(parent), child, _pool.GeneralisedMean(pool == "gem_learned", over, keepdim))
        return
    if pool.startswith("token") and not getattr(backbone, "num_prefix_tokens", 0):
        raise refused
    timm_pool = "token" if pool == "token_avg" else pool
    try:
        backbone.reset_classifier(0, timm_pool)
    except (AssertionError, AttributeError, TypeError, ValueError):
        raise refused from None


class Network(_network.Network):
    """A network of timm without its classifier; `pooled` is the result of `forward_head(…, pre_logits=True)`.

    Attributes: `data_config` (name -> value, for the records).
    """

    def __init__(self, opt, name):
        place = origin(name.constructor, opt.weights_cache)
        for remark in place.remarks:
            say(remark)
        if "normalize" in (place.pipeline.get("traits") or ()) and "normalize" not in name.traits:
            say(f"{name.full}: its embeddings have unit length, as exported")
            name = name._replace(traits=name.traits | {"normalize"})
        config = place.config
        size = _input_size(config, opt.crop_size)
        self.fixed_size = config.fixed_input_size
        fixed_size = size if self.fixed_size else None
        backbone = build(name, place, fixed_size, opt)
        self.native_shapes = not self.fixed_size or _input.keeps_shapes(opt)
        models = package().models
        if self.fixed_size or isinstance(backbone, models.VisionTransformer | models.Eva | models.NaFlexVit):
            self.patch = _grid.patch_of(backbone)
            _check_patches(name, opt.crop_size or size, self.patch)
        self.overlaps_patches = opt.patch_stride is not None
        self.grid = _grid.grid_of(backbone)
        self.has_positions = _grid.positions_of(backbone) is not None
        self.joins_tokens = opt.pool == "token_avg"
        self.maps_are_channels_last = getattr(backbone, "output_fmt", "NCHW") == "NHWC"
        self.prefix_tokens = getattr(backbone, "num_prefix_tokens", 0)
        self.published_size = config.input_size[-2:]
        self.architecture = place.architecture
        self.arguments = place.arguments
        self.data_config = dict(place.record)
        for key in RECORDED:
            value = getattr(config, key)
            if value is not None:
                self.data_config[key] = list(value) if isinstance(value, tuple) else value
        heads = config.classifier if isinstance(config.classifier, tuple) else (config.classifier,)
        self.takes_prompts = isinstance(backbone, models.VisionTransformer)
        width = getattr(backbone, "head_hidden_size", None) or backbone.num_features
        super().__init__(
            opt,
            name,
            backbone,
            width * (1 + self.joins_tokens),
            place.published,
            input_size=size,
            mean=config.mean,
            std=config.std,
            head=heads[0] or "head",
            interpolation=config.interpolation,
        )
        if not opt.weights and self.weights_name != "random":
            self.weights_file = place.weights_file
        if self.frozen and not any(isinstance(module, _BatchNorm) for module in self.backbone.modules()):
            raise UserError(f"--arch {name.full}: _frozen freezes BatchNorm, and this backbone has none: leave it out")
        modules = dict(self.backbone.named_modules())
        stages = [stage["module"] for stage in getattr(self.backbone, "feature_info", None) or []]
        self.STAGES = {stage: stage for stage in stages if stage in modules}

    def set_pool(self, backbone: torch.nn.Module, kind: str | None) -> None:
        """Give the backbone the pooling of --pool: one of timm's own if it has it."""
        if kind is not None:
            set_pool(backbone, self.name, kind)

    def published_state(self, state: dict, grid: tuple[int, int] | None = None) -> dict:
        """A state dict in the backbone's names and shapes, its position embeddings on the backbone's grid.

        timm's own function converts names of other programs and position embeddings of other sizes. grid: of the
        state's positions; None: it is that of the published weights, else a square. Raises UserError if neither fits.
        """
        prompts = f".{_adaptation.PROMPTS}"
        expected = {key: value for key, value in self.backbone.state_dict().items() if not key.endswith(prompts)}
        state = self._without_pooling(state)
        published_grid = None
        if self.grid is not None:
            sides = zip(self.published_size, self.patch, strict=True)
            published_grid = tuple(side // patch for side, patch in sides)
        grid = _grid.source_grid(state, self.backbone, published_grid, grid)
        is_moved = None not in (grid, self.grid) and grid != self.grid
        if not is_moved and all(key in state and state[key].shape == value.shape for key, value in expected.items()):
            return state
        if "_conv_stem.weight" in state:
            return renamed_efficientnet(state, self.backbone)
        if is_moved:
            state = _grid.moved(state, self.backbone, grid)
        convert = getattr(sys.modules[type(self.backbone).__module__], "checkpoint_filter_fn", None)
        if convert is not None:
            with _grid.from_grid(state, self.backbone, grid):
                state = convert(dict(state), self.backbone)
        # The conversion may have given the names of timm to the weights of a replaced pooling.
        return self._without_pooling(state)

    def _without_pooling(self, state: dict) -> dict:
        """The state without the weights of a pooling that --pool has replaced."""
        is_replaced = getattr(self.backbone, "attn_pool", self) is None
        if not is_replaced:
            return dict(state)
        return {key: value for key, value in state.items() if not key.startswith("attn_pool.")}

    def blocks(self) -> list[torch.nn.Module]:
        """The backbone's blocks in the order of their depth; empty if it has none.

        Those that torchvision's networks have, else those in `blocks`,
        `stages` or `layers`, else in a RegNet's s1 to s4.
        """
        blocks = _blocks.of_backbone(self.backbone)
        if blocks:
            return blocks
        for root in ROOTS:
            module = getattr(self.backbone, root, None)
            if isinstance(module, torch.nn.Sequential | torch.nn.ModuleList):
                return list(_leaves(module))
        stages = [getattr(self.backbone, f"s{number}", None) for number in range(1, 5)]
        if not all(stages):
            return []
        return [block for stage in stages for block in _leaves(stage)]

    def mean_of(self, activations: torch.Tensor) -> torch.Tensor:
        """The mean `(B, C)` of maps, or of the tokens but class and register tokens."""
        if activations.ndim == 4 and self.maps_are_channels_last:
            return activations.mean((1, 2))
        if activations.ndim == 3:
            activations = activations[:, self.prefix_tokens :]
        return super().mean_of(activations)

    def extract(self, images: torch.Tensor) -> dict:
        """`pooled`, and `spatial` where the features are maps."""
        if not self.native_shapes and images.shape[2:] != pair(self.input_size):
            raise self.wrong_size(images)
        if any(side % patch for side, patch in zip(images.shape[2:], self.patch, strict=True)):
            raise _input.uncut(self, images)
        activations = self.backbone.forward_features(images)
        features = {"pooled": self.backbone.forward_head(activations, pre_logits=True)}
        if self.joins_tokens:
            # EVA-02 and BEiT normalise the pooled tokens
            norm = getattr(self.backbone, "fc_norm", torch.nn.Identity())
            features["pooled"] = torch.cat([features["pooled"], norm(self.mean_of(activations))], 1)
        if isinstance(activations, torch.Tensor) and activations.ndim == 4:
            features["spatial"] = activations
            if self.maps_are_channels_last:
                features["spatial"] = activations.permute(0, 3, 1, 2)
        return features

    def pool(self, spatial: torch.Tensor) -> torch.Tensor:
        """The pooled features `(B, feature_dim)` of last maps `(B, C, h, w)`."""
        if self.maps_are_channels_last:
            spatial = spatial.permute(0, 2, 3, 1)
        return self.backbone.forward_head(spatial, pre_logits=True)


def _input_size(config, crop_size):
    """Side, or (height, width), of the images: --crop_size if the input size is fixed, else that of the weights."""
    size = config.input_size[-2:]
    if config.fixed_input_size and crop_size:
        size = crop_size
    return side_or_pair(size)


def _check_patches(name, size, patch: tuple[int, int]) -> None:
    """Raise UserError if images of this size cannot be cut into the backbone's patches."""
    nearest = nearest_multiples(size, patch)
    if nearest == pair(size):
        return
    multiples = "a multiple"
    if isinstance(side_or_pair(size), tuple):
        multiples = "multiples"
    raise UserError(
        f"--crop_size {flag_words(size)}: {name.full} cuts images into patches of {in_words(patch)}: take {multiples}, "
        f"{flag_words(nearest)}"
    )


def _leaves(module: torch.nn.Module):
    """The blocks in nested stages."""
    children = dict(module.named_children())
    if isinstance(module, torch.nn.Sequential | torch.nn.ModuleList) or (
        children and all(map(REGNET_BLOCK.fullmatch, children))
    ):
        for child in children.values():
            yield from _leaves(child)
    elif isinstance(children.get("blocks"), torch.nn.Sequential | torch.nn.ModuleList):
        yield from _leaves(children["blocks"])
    else:
        yield module


def renamed_efficientnet(state: dict, backbone: torch.nn.Module) -> dict:
    """A state dict of efficientnet-pytorch or efficientnet-lite-pytorch with the names of timm's EfficientNets."""
    places = []
    for stage, blocks in enumerate(backbone.blocks):
        for number, block in enumerate(blocks):
            places.append((f"blocks.{stage}.{number}.", hasattr(block, "conv_pwl")))
    renamed = {}
    for key, value in state.items():
        block = FOREIGN_BLOCK.fullmatch(key)
        if block is None:
            path = ""
            name = key
            layers = FOREIGN_STEM
        else:
            path, expands = places[int(block[1])]
            name = block[2]
            layers = FOREIGN_EXPANDING if expands else FOREIGN_PLAIN
        foreign = next(layer for layer in layers if name.startswith(layer))
        renamed[path + layers[foreign] + name.removeprefix(foreign)] = value
    return renamed
