"""The flags that every network reads: first weights, trained parts, pooling, embedding layer.

`_weights.py` reads the flags of the weights, `_adaptation.py` those of a backbone of which a part trains (frozen
blocks, LoRA, prompts, biases), `_pool.py` the pooling; `_network.py` builds the embedding layer and the neck.
"""

from architectures import _pool
from options.flags.roles import PLACE
from utilities.numbers import WIDEST, number, whole


def add_arguments(group) -> None:
    """Declare the flags that the networks share."""
    _weights(group)
    _frozen_backbone(group)
    _partial_training(group)
    _pooling_and_embedding(group)
    group.add_argument(
        "--embed_hidden",
        type=whole(1, WIDEST),
        nargs="*",
        default=[],
        help="widths of hidden layers, ReLU after each, between backbone and embedding layer",
    )
    group.add_argument(
        "--layer_decay",
        type=number(above=0, most=1),
        default=1.0,
        metavar="D",
        help="the backbone's rate falls with depth: --lr times D^k in the k-th block from the end, and once more "
        "before the first; ViTs, ResNets and other networks of blocks",
    ).idle_with = {"freeze_backbone": [True]}
    group.add_argument(
        "--grad_checkpointing",
        action="store_true",
        help=(
            "keep no activations inside the backbone's blocks, compute them again in the backward pass: less memory, "
            "a third more time, the same numbers"
        ),
    ).role = PLACE


def _weights(group) -> None:
    """Declare the flags of the first weights."""
    group.add_argument("--not_pretrained", action="store_true", help="start from random weights")
    group.add_argument(
        "--weights",
        default=None,
        metavar="FILE",
        help="start from the weights in this file (.pth, .ckpt, .safetensors, .npz): of the backbone, wherever its "
        "keys lie in it (classifier keys are ignored), or of a whole network of this program; takes precedence over "
        "--not_pretrained (unset: the package's ImageNet weights)",
    )
    group.add_argument(
        "--weights_prefix",
        default=None,
        metavar="PREFIX",
        help=(
            "where in --weights the backbone's keys lie, such as teacher.backbone or module.encoder_q (unset: where "
            "exactly they lie)"
        ),
    ).needs = "weights"
    group.add_argument(
        "--weights_cache",
        "--pytorch_home",
        default=None,
        metavar="DIR",
        help="folder for downloaded weights (unset: torch hub's cache)",
    ).role = PLACE


def _frozen_backbone(group) -> None:
    """Declare the flags of a backbone that does not train."""
    group.add_argument(
        "--freeze_backbone",
        action="store_true",
        help=(
            "train only the layers after the backbone: embedding layer, heads, criterion; the backbone is frozen, its "
            "layers in evaluation mode"
        ),
    )
    group.add_argument(
        "--feature_cache",
        action="store_true",
        help="with --freeze_backbone and --augmentation none: compute the pooled features of every image once per "
        "run, and train and evaluate the layers after the backbone on them; memory: features x 4 bytes per image",
    ).role = PLACE


def _partial_training(group) -> None:
    """Declare the flags of a backbone of which a part trains."""
    group.add_argument(
        "--freeze_blocks",
        type=whole(0, 1000),
        default=None,
        metavar="N",
        help="freeze the patch embedding (of other networks what lies before the first block) and the first N blocks, "
        "which are then in evaluation mode; 0: the patch embedding alone (unset: all train)",
    )
    group.add_argument(
        "--lora_rank",
        type=whole(0, WIDEST),
        default=0,
        metavar="R",
        help="freeze the backbone but for updates of rank R of its attention's query, key, value and projection "
        "weights (LoRA); a fused weight is one; 0: none",
    )
    group.add_argument(
        "--lora_alpha",
        type=number(above=0),
        default=8.0,
        metavar="A",
        help="the updates of --lora_rank are multiplied by A / R",
    ).needs = "lora_rank"
    group.add_argument(
        "--prompts",
        type=whole(0, WIDEST),
        default=0,
        metavar="N",
        help=(
            "freeze the backbone but for N learned tokens before each block's sequence, which leave it after the "
            "block (VPT-deep); timm's ViTs; 0: none"
        ),
    )
    group.add_argument(
        "--prompt_depth",
        type=whole(1, 1000),
        default=None,
        metavar="D",
        help="--prompts in the first D blocks (unset: in all)",
    ).needs = "prompts"
    group.add_argument(
        "--prompt_step",
        type=whole(0, WIDEST),
        default=0,
        metavar="S",
        help="block b, counted from 0, has S b fewer --prompts",
    ).needs = "prompts"
    group.add_argument(
        "--train_biases",
        action="store_true",
        help="freeze the backbone but for its parameters with 'bias' in their name (BitFit), those of norms and patch "
        "embedding too; also with --prompts and --lora_rank",
    )


def _pooling_and_embedding(group) -> None:
    """Declare the flags of the pooling and of the embedding layer."""
    group.add_argument(
        "--head_init",
        choices=["default", "orthogonal"],
        default="default",
        help=(
            "start of the embedding layer: torch's uniform one, or an orthogonal weight and no bias; --weights of a "
            "whole network take precedence"
        ),
    )
    group.add_argument(
        "--pool",
        choices=_pool.KINDS,
        default=None,
        help="pooling: class token (ViTs of timm), class token and mean of the others side by side, mean, maximum, "
        "mean of both, generalised mean of power 3 or of one learned power (unset: the backbone's own)",
    )
    group.add_argument(
        "--last_stride",
        type=whole(1, 2),
        default=2,
        help="1: the last stage keeps the size of its map, as in re-identification",
    )
    group.add_argument(
        "--neck",
        choices=["none", "bn", "layernorm"],
        default="none",
        help="layer after the embedding layer: BatchNorm whose bias stays 0 (Luo et al., arXiv 1903.07071), or "
        "LayerNorm without weights; evaluation and classifiers see its output",
    )
    group.add_argument(
        "--neck_feature",
        choices=["before", "after"],
        default="after",
        help="whether the metric loss sees the input (before) or the output (after) of --neck",
    ).needs = "neck"
