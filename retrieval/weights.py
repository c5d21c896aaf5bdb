"""How `model.safetensors`, the weights alone, is loaded elsewhere: the code of the model card, and a check of it.

There are two forms. The package form is a constructor of torchvision or timm whose classifier is the embedding layer:
the weights have the names of the package, and this program is not needed. It fits where the backbone is the package's
own, without another pooling, stride or further layers. The program form, for all other networks, is
`architectures.select` with the flags of the network; the weights have this program's names. Networks with heads of
their trainer have neither.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import architectures
from architectures import _timm, _torchvision
from retrieval.exporting import described_input
from trainers._heads import Evaluated
from utilities.shapes import pair, side_or_pair

FILE = "model.safetensors"
# torchvision's constructors that add auxiliary classifiers and draw weights of their own
WITH_AUXILIARY_CLASSIFIERS = ("googlenet", "inception_v3")
# Flags of networks that do not change what is computed: where the weights came from and how they were trained. Low-rank
# updates are merged before an export.
OF_TRAINING = {
    *("weights", "weights_cache", "weights_prefix", "weights_grid", "not_pretrained", "head_init"),
    *("freeze_backbone", "freeze_blocks", "train_biases", "lora_rank", "lora_alpha", "layer_decay"),
    *("feature_cache", "grad_checkpointing"),
}

# in the data config of a network of the hub: of the place, not of the weights
OF_PLACE = ("architecture", "revision")
# trait of a name -> the network's attribute that tells it; with _layernorm the package form is not taken
TRAITS = {"frozen": "frozen", "normalize": "normalizes"}


class Form(NamedTuple):
    """One way to load the weights: the card's lines, the weights under the names that these lines expect, and the same
    in this process: a function that makes the network, and one that embeds images `(B, 3, H, W)` with it.

    config: content of the config.json by which timm and this program load the folder by its name; None without one.
    """

    code: str
    state: dict
    build: Callable[[], torch.nn.Module]
    embed: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]
    config: dict | None = None

    def loaded(self, file: Path) -> Callable[[np.ndarray], np.ndarray]:
        """A new network with the weights of the file, as a function: images uint8 -> embeddings."""
        network = self.build()
        read_into(file, network)
        network.eval()

        @torch.no_grad()
        def embed(images: np.ndarray) -> np.ndarray:
            return self.embed(network, torch.from_numpy(images)).numpy()

        return embed


def write(path: Path, state: dict, arch: str, grid: tuple[int, int] | None = None) -> None:
    """Write a state dict as safetensors; grid: rows and columns of its position embeddings."""
    from safetensors.torch import save

    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    # safetensors' own save_file would give the file to its owner alone
    metadata = {"format": "pt", "arch": str(arch)}
    if grid is not None:
        metadata["grid"] = " ".join(map(str, grid))
    path.write_bytes(save(tensors, metadata=metadata))


def read_into(path: Path, network: torch.nn.Module) -> None:
    """Load the file's weights into a network."""
    from safetensors.torch import load_file

    network.load_state_dict(load_file(path))


def forms(embedder) -> list[Form]:
    """The forms that may fit a run's network, the package form first; none for a network with heads."""
    if isinstance(embedder.network, Evaluated):
        return []
    package = package_form(embedder)
    program = program_form(embedder)
    return [program] if package is None else [package, program]


def package_form(embedder) -> Form | None:
    """The network of torchvision or timm; None where it computes something else than the run's."""
    network = embedder.network
    if not isinstance(network, _torchvision.Network | _timm.Network):
        return None
    opt = architectures.REGISTRY.options(embedder.opt)
    further_layers = [layer for name, layer in network.embedding_layers.items() if name != "last_linear"]
    is_changed = opt.pool is not None or opt.last_stride == 1 or opt.stem_pool != "padded"
    has_own_parts = is_changed or opt.patch_stride is not None or not all(map(does_nothing, further_layers))
    if has_own_parts or does_nothing(network.last_linear):
        return None
    package, function, constructor, arguments = _constructor(network)

    def build() -> torch.nn.Module:
        if package == "timm":
            return _timm.package().create_model(constructor, **arguments)
        import torchvision

        return torchvision.models.get_model(network.constructor, **arguments)

    mean = torch.tensor(network.mean).view(3, 1, 1)
    std = torch.tensor(network.std).view(3, 1, 1)

    def embed(built: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
        embeddings = built((images / 255 - mean) / std)
        if network.normalizes:
            embeddings = torch.nn.functional.normalize(embeddings)
        return embeddings

    state = network.backbone.state_dict()
    for name, value in network.last_linear.state_dict().items():
        state[f"{network.head}.{name}"] = value
    words = ", ".join([repr(constructor), *(f"{name}={value!r}" for name, value in arguments.items())])
    _, kind = described_input(embedder.preparation.size)
    lines = [
        "import torch",
        f"import {package}",
        "from safetensors.torch import load_file",
        "",
        f"network = {function}({words})",
        f'network.load_state_dict(load_file("{FILE}"))',
        "network.eval()",
        f"mean = torch.tensor({list(network.mean)}).view(3, 1, 1)",
        f"std = torch.tensor({list(network.std)}).view(3, 1, 1)",
        f"embeddings = network((images / 255 - mean) / std)  # images: torch {kind}",
    ]
    if network.normalizes:
        lines.append("embeddings = torch.nn.functional.normalize(embeddings)")
    config = _config(network, arguments) if package == "timm" else None
    return Form("\n".join(lines), state, build, embed, config)


def _config(network, arguments: dict) -> dict:
    """The config.json of an export: timm's own keys, and what brings the embedding back by `timm:local-dir:PATH`."""
    height, width = pair(network.input_size)
    fields = {
        **{name: value for name, value in network.data_config.items() if name not in OF_PLACE},
        "input_size": [3, height, width],
        "fixed_input_size": network.fixed_size,
        "classifier": network.head,
        "num_classes": network.embed_dim,
        "mean": list(network.mean),
        "std": list(network.std),
    }
    traits = [trait for trait, attribute in TRAITS.items() if getattr(network, attribute)]
    return {
        "architecture": network.architecture,
        "num_classes": network.embed_dim,
        "num_features": network.feature_dim,
        "model_args": {name: value for name, value in arguments.items() if name != "num_classes"},
        "pretrained_cfg": fields,
        "pipeline": {"traits": traits, "head": network.head, "grid": network.grid and list(network.grid)},
    }


def program_form(embedder) -> Form:
    """`architectures.select` with the flags of the run's network."""
    network = embedder.network
    flags = {"not_pretrained": True, "embed_dim": embedder.opt.embed_dim, **flags_of_network(embedder.opt)}
    if getattr(network, "fixed_size", False):
        flags["crop_size"] = side_or_pair(network.input_size)
    name, kind = described_input(embedder.preparation.size)
    words = ", ".join([repr(embedder.opt.arch), *(f"{name}={value!r}" for name, value in flags.items())])
    lines = [
        "import architectures  # in the folder of the training program",
        "from safetensors.torch import load_file",
        "",
        f"network = architectures.select({words})",
        f'network.load_state_dict(load_file("{FILE}"))',
        "network.eval()",
        f"embeddings, _ = network({name})  # {name}: torch {kind}",
    ]

    def build() -> torch.nn.Module:
        return architectures.select(embedder.opt.arch, **flags)

    def embed(built: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
        embeddings, _ = built(images)
        return embeddings

    return Form("\n".join(lines), network.state_dict(), build, embed)


def _constructor(network) -> tuple[str, str, str, dict]:
    """The package, its function that makes networks, the name of the network there, and further arguments."""
    arguments = {"num_classes": network.last_linear.out_features}
    if isinstance(network, _timm.Network):
        arguments = {**network.arguments, **arguments}
        if network.fixed_size:
            arguments["img_size"] = network.input_size
        return "timm", "timm.create_model", network.architecture, arguments
    if network.constructor in WITH_AUXILIARY_CLASSIFIERS:
        arguments |= {"aux_logits": False, "init_weights": False}
    if network.constructor.startswith("vit_"):
        arguments["image_size"] = network.input_size
    return "torchvision", "torchvision.models.get_model", network.constructor, arguments


def flags_of_network(opt) -> dict:
    """The flags of the network that are not at their defaults, by name."""
    defaults = vars(architectures.REGISTRY.options())
    values = vars(architectures.REGISTRY.options(opt))
    names = sorted(architectures.REGISTRY.flags() - OF_TRAINING)
    return {name: values[name] for name in names if values[name] != defaults[name]}


def does_nothing(layer: torch.nn.Module) -> bool:
    """Whether a module behind the backbone is left out: an identity, or an empty sequence."""
    return isinstance(layer, torch.nn.Identity) or (isinstance(layer, torch.nn.Sequential) and not len(layer))
