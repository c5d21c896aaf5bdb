"""A run's weights in other programs: the lines of torch, torchvision or timm that load its safetensors file."""

import torch

from architectures import _timm, _torchvision, conv4
from trainers._heads import Evaluated

FILE = "model.safetensors"
PADDED = ("googlenet", "inception_v3")  # torchvision's constructors that would change the input, or add classifiers


def code(embedder) -> str | None:
    """Lines that define `embed(images)`, `(B, 3, H, W)` uint8 -> `(B, D)`; None for a network that only this program has."""
    network = embedder.network
    backbone = None if isinstance(network, Evaluated) else _backbone(network, embedder.opt)
    if backbone is None:
        return None
    packages, lines = backbone
    parts, then = ['"backbone": backbone'], []
    if not isinstance(network.layernorm, torch.nn.Identity):
        then.append("features = torch.nn.functional.layer_norm(features, features.shape[1:])")
    if len(network.hidden):
        parts.append(f'"hidden": torch.nn.Sequential({", ".join(map(_layer, network.hidden))})')
        then.append('features = network["hidden"](features)')
    last = "features"
    if isinstance(network.last_linear, torch.nn.Linear):
        parts.append(f'"last_linear": {_layer(network.last_linear)}')
        last = 'network["last_linear"](features)'
    height, width = embedder.preparation.size
    return "\n".join([
        *packages, "from safetensors.torch import load_file", "",
        *lines,
        f"network = torch.nn.ModuleDict({{{', '.join(parts)}}}).eval()",
        f'network.load_state_dict(load_file("{FILE}"))',
        "", "",
        f"def embed(images):  # uint8 (B, 3, {height}, {width}), RGB, resized and cropped as preprocessing.json says",
        f"    mean, std = torch.tensor({list(network.mean)}).view(3, 1, 1), torch.tensor({list(network.std)}).view(3, 1, 1)",
        '    features = network["backbone"]((images / 255 - mean) / std).flatten(1)',
        *(f"    {line}" for line in then),
        f"    return torch.nn.functional.normalize({last})" if network.normalizes else f"    return {last}",
    ])  # fmt: skip


def _layer(layer: torch.nn.Module) -> str:
    return f"torch.nn.Linear({layer.in_features}, {layer.out_features})" if isinstance(layer, torch.nn.Linear) else "torch.nn.ReLU()"


def _backbone(network, opt) -> tuple[list[str], list[str]] | None:
    """What is imported, and the lines that make the backbone."""
    if (network.input_space, network.input_range) != ("RGB", 1):
        return None
    if isinstance(network, conv4.Network):
        return ["import torch"], [
            "layers = []",
            f"for channels in {(3, *[conv4.WIDTH] * (conv4.BLOCKS - 1))}:",
            f"    layers += [torch.nn.Conv2d(channels, {conv4.WIDTH}, 3, padding=1), torch.nn.BatchNorm2d({conv4.WIDTH}), torch.nn.MaxPool2d(2), torch.nn.ReLU()]",
            f"backbone = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d({conv4.GRID}))",
        ]
    if isinstance(network, _torchvision.Network):
        arguments = ["weights=None"]
        if network.constructor in PADDED:
            arguments += ["aux_logits=False", "transform_input=False", "init_weights=False"]
        if network.constructor.startswith("vit_"):
            arguments.append(f"image_size={network.input_size}")
        return ["import torch", "import torchvision"], [
            f"backbone = torchvision.models.get_model({network.constructor!r}, {', '.join(arguments)})",
            f"backbone.set_submodule({network.head!r}, torch.nn.Identity())",
        ]
    if isinstance(network, _timm.Network) and opt.pool != "gem":
        arguments = ["num_classes=0", *([f"img_size={network.input_size}"] if network.fixed_size else [])]
        lines = [f"backbone = timm.create_model({network.constructor!r}, {', '.join(arguments)})"]
        return ["import timm", "import torch"], lines + ([f"backbone.reset_classifier(0, {opt.pool!r})"] if opt.pool else [])
    return None


def defined(code: str, folder) -> object:
    """The function `embed` that the lines define, its file read from `folder`."""
    names = {}
    exec(compile(code.replace(f'"{FILE}"', repr(str(folder / FILE))), FILE, "exec"), names)  # noqa: S102  our own lines, as the card shows them
    return lambda images: names["embed"](torch.as_tensor(images)).detach().numpy()
