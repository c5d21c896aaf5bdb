"""The trained part of a backbone: all, all but the first blocks, or only LoRA, prompts and biases.

`add_prompts` and `adapt` change a network as its flags say; `adapt` returns what does not train, a `Resting`. Low-rank
updates are parametrizations of the attention weights, so that `merge` turns them into plain weights again.
"""

import math
from typing import NamedTuple

import torch
from torch.nn.utils import parametrize

from architectures import _blocks
from utilities.errors import UserError

STEMS = ("patch_embed", "conv_proj")  # the patch embedding in timm and in torchvision
ATTENTION = ("attention", "attn")  # parts of the class names of attention layers
PROJECTIONS = ("qkv", "q", "k", "v", "kv", "q_proj", "k_proj", "v_proj", "proj", "out_proj")
# names of the projections' weights in torch.nn.MultiheadAttention
PACKED = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
MARK = ".parametrizations."
ORIGINAL = ".original"
# the name of a block's prompts; the part of a name that makes a parameter a bias
PROMPTS = "prompts"
BIAS = "bias"


class Resting(NamedTuple):
    """The untrained part of a backbone: names of its parameters, and of modules that stay in evaluation mode.

    The module "" is the backbone.
    """

    parameters: frozenset = frozenset()
    modules: tuple = ()


class LowRank(torch.nn.Module):
    """W + alpha / r · up · down, a weight with an update of rank r (Hu et al., LoRA, arXiv 2106.09685).

    `down` is `(r, in)`, `up` is `(out, r)` and starts at 0. `scale` = alpha / r is stored too, so that a state dict can
    be merged without the flags.
    """

    def __init__(self, weight: torch.Tensor, rank: int, alpha: float):
        super().__init__()
        self.down = torch.nn.Parameter(weight.new_empty(rank, weight.shape[1]))
        self.up = torch.nn.Parameter(weight.new_zeros(weight.shape[0], rank))
        self.register_buffer("scale", weight.new_tensor(alpha / rank))
        torch.nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """The updated weight, `(out, in)` like `weight`."""
        return updated(weight, self.up, self.down, self.scale)


def updated(weight, up, down, scale) -> torch.Tensor:
    """weight + scale · up · down."""
    return weight + (scale * up) @ down


def tuned(opt) -> list[str]:
    """The flags that let the backbone rest but for what they train: LoRA, prompts, biases. They can be combined."""
    values = {
        f"--lora_rank {opt.lora_rank}": opt.lora_rank,
        f"--prompts {opt.prompts}": opt.prompts,
        "--train_biases": opt.train_biases,
    }
    return [flag for flag, value in values.items() if value]


def adapt(network, opt) -> Resting:
    """Add the low-rank updates of --lora_rank to the backbone.

    Returns the part that the flags leave untrained: --lora_rank, --prompts, --train_biases, --freeze_blocks,
    --freeze_backbone. Raises UserError if two of them exclude each other, or the backbone has no such parts.
    """
    frozen = []
    if opt.freeze_backbone:
        frozen.append("--freeze_backbone")
    if opt.freeze_blocks is not None:
        frozen.append(f"--freeze_blocks {opt.freeze_blocks}")
    trained = tuned(opt)
    if frozen and len([*frozen, *trained]) > 1:
        first, second = [*frozen, *trained][:2]
        raise UserError(f"{first} and {second} both determine which parts of the backbone are frozen: leave one out")
    if opt.freeze_blocks is not None:
        return first_blocks(network, opt.freeze_blocks)
    if not frozen and not trained:
        return Resting()
    names = frozenset(name for name, _ in network.backbone.named_parameters())
    if opt.freeze_backbone:
        return Resting(names, ("",))
    if opt.lora_rank:
        add_low_rank(network, opt.lora_rank, opt.lora_alpha)
    if opt.train_biases and not any(BIAS in name for name in names):
        raise UserError(f"--train_biases: the backbone of --arch {network.name} has no biases: leave it out")

    def trains(name):
        is_low_rank = name.endswith((".down", ".up")) and name not in names
        return is_low_rank or name.endswith(f".{PROMPTS}") or (opt.train_biases and BIAS in name)

    untrained = frozenset(name for name, _ in network.backbone.named_parameters() if not trains(name))
    return Resting(untrained, ("",))


def add_prompts(network, opt) -> None:
    """Put --prompts N learned tokens before the sequence of each of the first --prompt_depth blocks.

    They leave the sequence after the block: VPT-deep (Jia et al., arXiv 2203.12119) in the form of Ren et al., arXiv
    2402.02340. Block b has N - b step tokens, as parameter `prompts` `(1, n, E)`, without position and dropout, drawn
    as Xavier's normal of `(1, N, E)`. Raises UserError for other networks than timm's ViTs.
    """
    if not opt.prompts:
        return
    if not network.takes_prompts:
        raise UserError(
            f"--prompts {opt.prompts}: --arch {network.name} has no prompts; timm's VisionTransformers have (not "
            "DINOv3), such as timm:vit_small_patch16_224: leave it out"
        )
    blocks = network.blocks()
    if (opt.prompt_depth or 0) > len(blocks):
        raise UserError(
            f"--prompt_depth {opt.prompt_depth}: --arch {network.name} has {len(blocks)} blocks: give at most as many"
        )
    for number, block in enumerate(blocks[: opt.prompt_depth]):
        if (count := opt.prompts - number * opt.prompt_step) <= 0:
            break
        start = torch.nn.init.xavier_normal_(torch.empty(1, opt.prompts, network.backbone.embed_dim))
        block.register_parameter(PROMPTS, torch.nn.Parameter(start[:, :count].clone()))
        block.register_forward_pre_hook(_with_prompts)
        block.register_forward_hook(_without_prompts)


def _with_prompts(block: torch.nn.Module, inputs: tuple) -> torch.Tensor:
    # shape[0], not len: an export would take the number of images for fixed
    return torch.cat([block.prompts.expand(inputs[0].shape[0], -1, -1), inputs[0]], 1)


def _without_prompts(block: torch.nn.Module, inputs: tuple, tokens: torch.Tensor) -> torch.Tensor:
    return tokens[:, block.prompts.shape[1] :]


def first_blocks(network, count: int) -> Resting:
    """The parts that --freeze_blocks leaves untrained: patch embedding, first `count` blocks, the layers after each.

    In backbones without a patch embedding these are also all layers before the first block.
    """
    backbone = network.backbone
    blocks = network.blocks()
    if not blocks:
        raise UserError(
            f"--freeze_blocks {count}: --arch {network.name} has no blocks; ViTs and ResNets have: leave it out"
        )
    if count > len(blocks):
        raise UserError(
            f"--freeze_blocks {count}: --arch {network.name} has {len(blocks)} blocks: give at most as many"
        )
    stem = _stem(backbone)
    names = {id(parameter): name for name, parameter in backbone.named_parameters()}
    resting = set()
    for depth, parameters in _blocks.by_depth(backbone, blocks).items():
        depth_names = {names[id(parameter)] for parameter in parameters}
        if depth > len(blocks):
            resting |= {name for name in depth_names if name.startswith(stem)}
        elif depth > len(blocks) - count:
            resting |= depth_names
    return Resting(frozenset(resting), _modules_of(backbone, resting))


def _stem(backbone: torch.nn.Module) -> str:
    """The prefix of the parameters of a patch embedding; empty if the backbone has none."""
    for name in STEMS:
        if hasattr(backbone, name):
            return f"{name}."
    return ""


def _modules_of(backbone: torch.nn.Module, resting: set) -> tuple:
    """The outermost modules all of whose parameters are in `resting`."""
    paths = []
    for path, module in backbone.named_modules():
        if any(path == outer or path.startswith(f"{outer}.") for outer in paths):
            continue
        names = {name for name, _ in module.named_parameters(prefix=path)}
        if names and names <= resting:
            paths.append(path)
    return tuple(paths)


def attention_weights(backbone: torch.nn.Module) -> list[tuple[torch.nn.Module, str]]:
    """Module and name of each query, key, value and projection weight; a fused weight counts as one."""
    weights = []
    for module in backbone.modules():
        if isinstance(module, torch.nn.MultiheadAttention):
            weights += [(module, name) for name in PACKED if getattr(module, name, None) is not None]
            weights.append((module.out_proj, "weight"))
        elif any(word in type(module).__name__.lower() for word in ATTENTION):
            layers = dict(module.named_children())
            for name in PROJECTIONS:
                if isinstance(layers.get(name), torch.nn.Linear):
                    weights.append((layers[name], "weight"))
    return weights


def add_low_rank(network, rank: int, alpha: float) -> None:
    """Add an update of this rank to every attention weight.

    Raises UserError if there is none, or one is smaller than the rank.
    """
    weights = attention_weights(network.backbone)
    if not weights:
        raise UserError(
            f"--lora_rank {rank}: --arch {network.name} has no attention layers that could be updated; ViTs have: "
            "leave it out"
        )
    least = min(min(getattr(module, name).shape) for module, name in weights)
    if rank > least:
        raise UserError(
            f"--lora_rank {rank}: the smallest attention weight of --arch {network.name} has the rank {least}: give "
            "at most that"
        )
    for module, name in weights:
        parametrize.register_parametrization(module, name, LowRank(getattr(module, name).detach(), rank, alpha))


def merge(backbone: torch.nn.Module) -> None:
    """Merge the low-rank updates into plain weights, in place."""
    for module in list(backbone.modules()):
        for name in list(getattr(module, "parametrizations", {})):
            if any(isinstance(part, LowRank) for part in module.parametrizations[name]):
                parametrize.remove_parametrizations(module, name, leave_parametrized=True)


def merged(state: dict) -> dict:
    """A state dict with its low-rank updates merged into the weights; the same object if it has none."""
    bases = [key.removesuffix(ORIGINAL) for key in state if MARK in key and key.endswith(ORIGINAL)]
    if not bases:
        return state
    plain = {key: value for key, value in state.items() if MARK not in key}
    for base in bases:
        path, _, name = base.rpartition(MARK)
        up, down, scale = (state[f"{base}.0.{part}"] for part in ("up", "down", "scale"))
        plain[f"{path}.{name}"] = updated(state[base + ORIGINAL], up, down, scale)
    return plain
