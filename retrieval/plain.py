"""A run's weights in other programs: at most ten lines of torch, torchvision, timm or pretrainedmodels that load its
safetensors file.

The first of two forms that fits is written. Named: the package's own network, with as many classes as the embedding has
dimensions, and weights under the package's names. Stacked: normalisation, backbone and all further layers in sequence,
for hidden layers, LayerNorm, networks that do not end in one linear layer, and conv4.
"""

import math
from typing import NamedTuple

import torch

from architectures import _adaptation, _pool, _pretrainedmodels, _timm, _torchvision, conv4
from trainers._heads import Evaluated

FILE = "model.safetensors"
PADDED = ("googlenet", "inception_v3")  # torchvision's constructors that add classifiers, and draw weights of their own


class Plain(NamedTuple):
    """Code that defines `embed(images)`, `(B, 3, H, W)` uint8 -> `(B, D)`, and the weights under the names by which it
    loads them.
    """

    code: str
    state: dict


class Backbone(NamedTuple):
    """How a package makes a backbone: imports, an expression, and statements that change it, in which `{}` stands for
    its variable.
    """

    imports: list[str]
    made: str
    changes: list[str]


def forms(embedder) -> list[Plain]:
    """The forms that may fit, the simpler first; none for a network that only this program can make."""
    network = embedder.network
    opt = embedder.opt
    if isinstance(network, Evaluated):
        return []
    size = "{}, 3, {}, {}".format("B", *embedder.preparation.size)
    images = f"  # uint8 ({size}), RGB, resized and cropped as preprocessing.json says"
    if isinstance(network, conv4.Network):
        return [_stacked(network, [], _conv4(), images)]
    bare = all(name == "last_linear" or not _layers(module) for name, module in network.behind.items())
    classes = network.last_linear.out_features if isinstance(network.last_linear, torch.nn.Linear) else 0
    for kind, backbone in BACKBONES.items():
        if isinstance(network, kind):
            named = (
                [_named(network, backbone(network, opt, classes), images)]
                if bare and not _adaptation.prompt_counts(network.backbone)
                else []
            )
            made = backbone(network, opt, 0)
            lines = [f"backbone = {made.made}", *(change.replace("{}", "backbone") for change in made.changes)]
            return [*named, _stacked(network, made.imports, lines, images)]
    return []


def _named(network, backbone: Backbone, about: str) -> Plain:
    """The named form: the package's own network."""
    state = {
        **_state_of(network.backbone),
        **{f"{network.head}.{name}": value for name, value in network.last_linear.state_dict().items()},
    }
    images = "images.flip(1)" if network.input_space == "BGR" else "images"
    images = f"{images} / 255" if network.input_range == 1 else images
    numbers = []
    if len({*network.mean}) == len({*network.std}) == 1:
        mean = network.mean[0]
        std = network.std[0]
    else:
        tensors = (f"torch.tensor({list(values)}).view(3, 1, 1)" for values in (network.mean, network.std))
        (mean, std), numbers = (
            ("mean", "std"),
            [f"{name} = {value}" for name, value in zip(("mean", "std"), tensors, strict=True)],
        )
    found = f"network(({images} - {mean}) / {std})"
    lines = [
        f"network = {backbone.made}",
        *(change.replace("{}", "network") for change in backbone.changes),
        f'network.eval().load_state_dict(load_file("{FILE}"))',
        *numbers,
    ]
    return Plain(_program(network, backbone.imports, lines, found, about), state)


def _stacked(network, imports: list[str], lines: list[str], about: str) -> Plain:
    """The stacked form: the layers in sequence."""
    behind = [layer for module in network.behind.values() for layer in _layers(module)]
    widths = [(layer.in_features, layer.out_features) for layer in behind if isinstance(layer, torch.nn.Linear)]
    if len(widths) > 1:  # the MLP of --embed_hidden
        lines = [*lines, f"layers = [part for pair in {widths} for part in (torch.nn.Linear(*pair), torch.nn.ReLU())]"]
        named = [
            *(_code(layer) for layer in behind if not isinstance(layer, torch.nn.Linear | torch.nn.ReLU)),
            "*layers[:-1]",
        ]
    else:
        named = [_code(layer) for layer in behind]
    state = _state_of(torch.nn.Sequential(_normalisation(network), network.backbone, *behind))
    found = f"network(images{'.flip(1)' if network.input_space == 'BGR' else ''}.float())"
    lines = [
        *lines,
        f"network = torch.nn.Sequential({', '.join(['torch.nn.BatchNorm2d(3)', 'backbone', *named])})",
        f'network.eval().load_state_dict(load_file("{FILE}"))  # the first layer scales and normalises the images',
    ]
    return Plain(_program(network, imports, lines, found, about), state)


def _program(network, imports: list[str], lines: list[str], found: str, about: str) -> str:
    """The program that makes the network by `lines` and embeds images by the expression `found`."""
    return "\n".join(
        [
            *sorted([*imports, "import torch"]),
            "from safetensors.torch import load_file",
            "",
            *lines,
            "",
            "",
            f"def embed(images):{about}",
            f"    return torch.nn.functional.normalize({found})" if network.normalizes else f"    return {found}",
        ]
    )


def _state_of(module: torch.nn.Module) -> dict:
    """A state dict without the learned powers of --pool, which the code holds as numbers."""
    return {key: value for key, value in module.state_dict().items() if not key.endswith(f".{_pool.POWER}")}


def _layers(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The layers of a module behind the backbone; without those that do nothing, and with LayerNorm's weights, which
    are 1 and 0.
    """
    layers = list(module) if isinstance(module, torch.nn.Sequential) else [module]
    layers = [layer for layer in layers if not isinstance(layer, torch.nn.Identity)]
    return [
        torch.nn.LayerNorm(layer.normalized_shape) if isinstance(layer, torch.nn.LayerNorm) else layer
        for layer in layers
    ]


def _code(layer: torch.nn.Module) -> str:
    """The code that makes a layer. Raises ValueError for one that is not known."""
    if isinstance(layer, torch.nn.Linear):
        return f"torch.nn.Linear({layer.in_features}, {layer.out_features})"
    if isinstance(layer, torch.nn.LayerNorm):
        return f"torch.nn.LayerNorm({layer.normalized_shape[0]})"
    if isinstance(layer, torch.nn.BatchNorm1d):
        return f"torch.nn.BatchNorm1d({layer.num_features})"
    raise ValueError(f"no code for {type(layer).__name__}")


def _normalisation(network) -> torch.nn.BatchNorm2d:
    """A network's scaling and normalisation of pixels from 0 to 255, as a layer in evaluation mode."""
    layer = torch.nn.BatchNorm2d(3)
    with torch.no_grad():
        layer.weight.copy_(network.scale.flatten() / 255 * math.sqrt(1 + layer.eps))  # its mean is 0, its variance 1
        layer.bias.copy_(network.shift.flatten())
    return layer


def _conv4() -> list[str]:
    width = conv4.WIDTH
    layers = f"Conv2d(inputs, {width}, 3, padding=1)", f"BatchNorm2d({width})", "MaxPool2d(2)", "ReLU()"
    blocks = [
        "*unit(3)",
        *["*unit()"] * (conv4.BLOCKS - 1),
        f"torch.nn.AdaptiveAvgPool2d({conv4.GRID})",
        "torch.nn.Flatten()",
    ]
    return [
        "",
        f"def unit(inputs={width}):",
        f"    return {', '.join(f'torch.nn.{layer}' for layer in layers)}",
        "",
        "",
        f"backbone = torch.nn.Sequential({', '.join(blocks)})",
    ]


def _pooled(network) -> list[str]:
    """The statements that pool as `architectures._pool` does, and keep the size of the last map."""
    changes = []
    for path, layer in network.backbone.named_modules():
        if isinstance(layer, _pool.GeneralisedMean):
            over = f"{layer.over}, keepdim=True" if layer.keepdim else f"{layer.over}"
            power = float(torch.as_tensor(layer.power).detach())
            changes.append(
                f"{{}}.{path}.forward = lambda maps: "
                f"maps.clamp(min={_pool.GEM_LEAST}).pow({power:.9g}).mean({over}).pow(1 / {power:.9g})"
            )
        elif isinstance(layer, _pool.MeanAndMaximum):
            changes.append(
                f"{{}}.{path}.forward = lambda maps: (maps.mean((2, 3), True) + maps.amax((2, 3), True)) / 2"
            )
        elif isinstance(layer, torch.nn.AdaptiveMaxPool2d) and path == _pool.place(network.backbone):
            changes.append(f"{{}}.{path} = torch.nn.AdaptiveMaxPool2d(1)")
    if strides := [path for path, made in network.kept_map.items() if not made]:
        changes.append(f"for path in {strides}: {{}}.get_submodule(path).stride = (1, 1)")
    changes += [f"{{}}.set_submodule({path!r}, {made})" for path, made in network.kept_map.items() if made]
    return changes


def _of_torchvision(network, opt, classes: int) -> Backbone:
    arguments = [repr(network.constructor), *([f"num_classes={classes}"] if classes else [])]
    if network.constructor in PADDED:
        arguments += ["aux_logits=False", "init_weights=False"]
    if network.constructor.startswith("vit_"):
        arguments.append(f"image_size={network.input_size}")
    headless = [] if classes else [f"{{}}.set_submodule({network.head!r}, torch.nn.Identity())"]
    return Backbone(
        ["import torchvision"], f"torchvision.models.get_model({', '.join(arguments)})", [*headless, *_pooled(network)]
    )


def _of_timm(network, opt, classes: int) -> Backbone:
    arguments = [
        repr(network.constructor),
        f"num_classes={classes}",
        *([f"img_size={network.input_size}"] if network.fixed_size else []),
    ]
    by_timm = opt.pool not in (None, "gem", "gem_learned", "token_avg")
    changes = [f"{{}}.reset_classifier({classes}, {opt.pool!r})"] if by_timm else []
    changes += _pooled(network)
    if counts := _adaptation.prompt_counts(network.backbone):
        numbers = (
            f"range({counts[0]}, {counts[-1] - opt.prompt_step}, -{opt.prompt_step})"
            if opt.prompt_step
            else f"[{counts[0]}] * {len(counts)}"
        )
        prompts = f"torch.nn.Parameter(torch.zeros(1, n, {network.backbone.embed_dim}))"
        changes.append(f"for b, n in zip({{}}.blocks, {numbers}): b.prompts = {prompts}")
        with_prompts = "f(torch.cat([p.repeat(len(x), 1, 1), x], 1))[:, p.shape[1]:]"
        changes.append(
            f"for b in {{}}.blocks[:{len(counts)}]: b.forward = lambda x, f=b.forward, p=b.prompts: {with_prompts}"
        )
    return Backbone(["import timm"], f"timm.create_model({', '.join(arguments)})", changes)


def _of_pretrainedmodels(network, opt, classes: int) -> Backbone:
    backbone = network.backbone
    given = {}
    for child in _pretrainedmodels.POOLS:
        if isinstance(getattr(backbone, child, None), torch.nn.AdaptiveAvgPool2d):
            given[child] = "torch.nn.AdaptiveAvgPool2d(1)"
    given |= {
        name: value for name, value in (("test_time_pool", "False"), ("AuxLogits", "None")) if hasattr(backbone, name)
    }
    given |= {} if classes else {network.head: "torch.nn.Identity()"}
    changes = [f"{', '.join(f'{{}}.{name}' for name in given)} = {', '.join(given.values())}"] if given else []
    made = f"pretrainedmodels.{network.constructor}(num_classes={classes or _torchvision.CLASSES}, pretrained=None)"
    return Backbone(["import pretrainedmodels"], made, changes + _pooled(network))


BACKBONES = {
    _torchvision.Network: _of_torchvision,
    _timm.Network: _of_timm,
    _pretrainedmodels.Network: _of_pretrainedmodels,
}


def defined(code: str, folder) -> object:
    """The function `embed` that the code defines, its file read from `folder`."""
    names = {}
    exec(compile(code.replace(f'"{FILE}"', repr(str(folder / FILE))), FILE, "exec"), names)  # noqa: S102  our own lines, as the card shows them
    return lambda images: names["embed"](torch.as_tensor(images)).detach().numpy()
