"""Any network of timm, by its name there, tag included: `timm:vit_small_patch16_224.dino`.

Input size, mean, deviation and interpolation are those of timm's data config. Weights come from the hub or from timm's
URL, or from a file of another program, whose names and position embeddings are converted (`Network.published_state`).
timm is imported only for such a name, as its import takes seconds.
"""

import contextlib
import difflib
import functools
import re
import sys
import urllib.error
import urllib.request

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from architectures import _adaptation, _blocks, _checkpoints, _network, _pool, _weights
from architectures._weights import Pretrained
from utilities.errors import UnknownName, UserError
from utilities.extras import way_out

FIND = "python -c \"import timm; print(*timm.list_models('vit*', pretrained=True))\""
# what environment.yaml records of the data config
RECORDED = ("input_size", "mean", "std", "interpolation", "crop_pct", "crop_mode", "license")
ROOTS = ("blocks", "stages", "layers")  # attributes of timm's networks that hold blocks, or stages of blocks
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


def package():
    """timm. Raises UserError if it is not installed."""
    try:
        import timm
    except ImportError as error:
        raise UserError(f"--arch timm:… needs a package that is not there ({error}): {way_out('timm')}") from None
    return timm


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


def data_config(constructor: str):
    """timm's record of a network and the weights of its tag, else the default ones (`PretrainedCfg`).

    None if timm has none.
    """
    return package().get_pretrained_cfg(constructor, allow_unregistered=True)


def published(config) -> Pretrained | None:
    """Source of the weights; None without any."""
    name = config.architecture
    if config.tag:
        name += f".{config.tag}"
    if config.hf_hub_id:
        return Pretrained(name, f"hf-hub:{config.hf_hub_id}", hashed=False, fetch=functools.partial(fetch, config))
    if config.url and not config.url.endswith(".npz"):
        return Pretrained(name, config.url, hashed=False)
    return None


def weights_of(constructor: str) -> str | None:
    """The name of the published weights; None without any."""
    config = data_config(constructor)
    weights = config and published(config)
    return weights and weights.name


def fetch(config, cache: str | None) -> dict:
    """The state dict on the hub, from the cache or the network. Raises OSError if neither has it."""
    import huggingface_hub
    from timm.models import load_state_dict_from_hf

    repository, _, revision = config.hf_hub_id.partition("@")
    for file in _files(config.hf_hub_filename):
        path = huggingface_hub.try_to_load_from_cache(repository, file, cache_dir=cache, revision=revision or None)
        if isinstance(path, str):
            return _checkpoints.content_of(path)
    arguments = {"cache_dir": cache, "weights_only": True}
    if config.hf_hub_filename:
        arguments["filename"] = config.hf_hub_filename
    if not huggingface_hub.constants.HF_HUB_OFFLINE:
        _reach(huggingface_hub.constants.ENDPOINT)
    try:
        return load_state_dict_from_hf(config.hf_hub_id, **arguments)
    except Exception as error:  # the hub's client and its transport raise many kinds, which change with its versions
        raise OSError(str(error).strip() or type(error).__name__) from error


def _files(named: str | None) -> list[str]:
    """Possible file names of a network's weights on the hub."""
    if not named:
        return ["model.safetensors", "pytorch_model.bin"]
    return [named.replace("pytorch_model", "model").rpartition(".")[0] + _checkpoints.SAFE, named]


def _reach(host: str) -> None:
    """Raise OSError if the host does not answer: the hub's client would retry for most of a minute."""
    with contextlib.suppress(urllib.error.HTTPError):  # is an answer too
        urllib.request.urlopen(urllib.request.Request(host, method="HEAD"), timeout=_weights.TIMEOUT).close()


def build(name, config, size: int | None) -> torch.nn.Module:
    """The backbone without its classifier, with random weights.

    `size`: side of the images, for networks of a fixed input size.
    """
    arguments = {}
    at_size = ""
    if size is not None:
        arguments["img_size"] = size
        at_size = f" at --crop_size {size}: take {config.input_size[-1]}"
    try:
        return package().create_model(name.constructor, pretrained=False, num_classes=0, **arguments)
    except (ArithmeticError, AssertionError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{name.full} cannot be built{at_size} ({reason[:120]})") from None


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
        config = data_config(name.constructor)
        size = _input_size(name, config, opt.crop_size)
        fixed_size = size if config.fixed_input_size else None
        backbone = build(name, config, fixed_size)
        if config.fixed_input_size:
            _check_patches(name, size, backbone)
        self.joins_tokens = opt.pool == "token_avg"
        self.maps_are_channels_last = getattr(backbone, "output_fmt", "NCHW") == "NHWC"
        self.prefix_tokens = getattr(backbone, "num_prefix_tokens", 0)
        self.fixed_size = config.fixed_input_size
        self.data_config = {}
        for key in RECORDED:
            value = getattr(config, key)
            if value is not None:
                self.data_config[key] = list(value) if isinstance(value, tuple) else value
        heads = config.classifier if isinstance(config.classifier, tuple) else (config.classifier,)
        self.takes_prompts = isinstance(backbone, package().models.VisionTransformer)
        width = getattr(backbone, "head_hidden_size", None) or backbone.num_features
        super().__init__(
            opt,
            name,
            backbone,
            width * (1 + self.joins_tokens),
            published(config),
            input_size=size,
            mean=config.mean,
            std=config.std,
            head=heads[0] or "head",
            interpolation=config.interpolation,
        )
        if self.frozen and not any(isinstance(module, _BatchNorm) for module in self.backbone.modules()):
            raise UserError(f"--arch {name.full}: _frozen freezes BatchNorm, and this backbone has none: leave it out")
        modules = dict(self.backbone.named_modules())
        stages = [stage["module"] for stage in getattr(self.backbone, "feature_info", None) or []]
        self.STAGES = {stage: stage for stage in stages if stage in modules}

    def set_pool(self, backbone: torch.nn.Module, kind: str | None) -> None:
        """Give the backbone the pooling of --pool: one of timm's own if it has it."""
        if kind is not None:
            set_pool(backbone, self.name, kind)

    def published_state(self, state: dict) -> dict:
        """A state dict in the backbone's names and shapes.

        timm's own function converts names of other programs and position embeddings of other sizes.
        """
        prompts = f".{_adaptation.PROMPTS}"
        expected = {key: value for key, value in self.backbone.state_dict().items() if not key.endswith(prompts)}
        state = self._without_pooling(state)
        if all(key in state and state[key].shape == value.shape for key, value in expected.items()):
            return state
        if "_conv_stem.weight" in state:
            return renamed_efficientnet(state, self.backbone)
        convert = getattr(sys.modules[type(self.backbone).__module__], "checkpoint_filter_fn", None)
        if convert is not None:
            state = convert(dict(state), self.backbone)
        return self._without_pooling(state)  # to which the conversion may have given its names

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
        if self.fixed_size and images.shape[2:] != (self.input_size, self.input_size):
            raise self.wrong_size(images)
        activations = self.backbone.forward_features(images)
        features = {"pooled": self.backbone.forward_head(activations, pre_logits=True)}
        if self.joins_tokens:
            norm = getattr(self.backbone, "fc_norm", torch.nn.Identity())  # EVA-02 and BEiT normalise the pooled tokens
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


def _input_size(name, config, crop_size) -> int:
    """The side of the images: --crop_size if the network has a fixed input size, else that of its weights.

    Raises UserError if the network needs square images.
    """
    if not config.fixed_input_size:
        return config.input_size[-1]
    if isinstance(crop_size, list):
        if len(set(crop_size)) > 1:
            raise UserError(
                f"--crop_size {' '.join(map(str, crop_size))}: {name.full} is made for square images: take one "
                "number, or a convolutional network"
            )
        crop_size = crop_size[0]
    return crop_size or config.input_size[-1]


def _check_patches(name, size: int, backbone: torch.nn.Module) -> None:
    """Raise UserError if images of this side cannot be cut into the backbone's patches."""
    patch = getattr(getattr(backbone, "patch_embed", None), "patch_size", None) or 1
    if isinstance(patch, tuple | list):
        patch = max(patch)
    if size % patch:
        nearest = max(round(size / patch), 1) * patch
        raise UserError(
            f"--crop_size {size}: {name.full} cuts images into patches of {patch} x {patch}: take a multiple, {nearest}"
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
