"""The flags that every network reads: first weights, trained parts, pooling, embedding layer.

`_weights.py` reads the flags of the weights, `_adaptation.py` those of a backbone of which a part trains (frozen
blocks, LoRA, prompts, biases), `_pool.py` the pooling; `_network.py` builds the embedding layer and the neck.
"""

from architectures import _pool
from architectures._neck import NECKS
from options.flags import Flag
from options.flags.roles import PLACE
from utilities.numbers import WIDEST, number, whole

FLAGS = {
    # First weights
    "--not_pretrained": Flag(bool, False, "start from random weights"),
    "--weights": Flag(
        str,
        None,
        "start from the weights in this file (.pth, .ckpt, .safetensors, .npz): of the backbone, wherever its "
        "keys lie in it (classifier keys are ignored), or of a whole network of this program; takes precedence over "
        "--not_pretrained (unset: the package's ImageNet weights)",
        metavar="FILE",
    ),
    "--weights_prefix": Flag(
        str,
        None,
        "where in --weights the backbone's keys lie, such as teacher.backbone or module.encoder_q (unset: where "
        "exactly they lie)",
        metavar="PREFIX",
        rules={"needs": "weights"},
    ),
    "--weights_grid": Flag(
        whole(1, 10**4),
        None,
        "rows and columns of the position embeddings in --weights, where their number does not tell it: files of "
        "other programs, trained on images that are not square; 16 8 for 256 x 128 and patches of 16 (unset: named "
        "by the file, else that of the published weights, else a square)",
        nargs=2,
        metavar=("H", "W"),
        rules={"needs": "weights"},
    ),
    "--patch_stride": Flag(
        whole(1, 1000),
        None,
        "step in pixels from patch to patch, smaller than the patch: patches overlap and there are more of them, as "
        "in TransReID; timm's VisionTransformers (unset: the patch's side)",
        metavar="S",
    ),
    "--weights_cache": Flag(
        str,
        None,
        "folder for downloaded weights (unset: torch hub's cache)",
        metavar="DIR",
        aliases=("--pytorch_home",),
        role=PLACE,
    ),
    # Backbones that do not train
    "--freeze_backbone": Flag(
        bool,
        False,
        "train only the layers after the backbone: embedding layer, heads, criterion; the backbone is frozen, its "
        "layers in evaluation mode",
    ),
    "--feature_cache": Flag(
        bool,
        False,
        "with --freeze_backbone and --augmentation none: compute the pooled features of every image once per "
        "run, and train and evaluate the layers after the backbone on them; memory: features x 4 bytes per image",
        role=PLACE,
    ),
    # Backbones of which a part trains
    "--freeze_blocks": Flag(
        whole(0, 1000),
        None,
        "freeze the patch embedding (of other networks what lies before the first block) and the first N blocks, "
        "which are then in evaluation mode; 0: the patch embedding alone (unset: all train)",
        metavar="N",
    ),
    "--lora_rank": Flag(
        whole(0, WIDEST),
        0,
        "freeze the backbone but for updates of rank R of its attention's query, key, value and projection "
        "weights (LoRA); a fused weight is one; 0: none",
        metavar="R",
    ),
    "--lora_alpha": Flag(
        number(above=0),
        8.0,
        "the updates of --lora_rank are multiplied by A / R",
        metavar="A",
        rules={"needs": "lora_rank"},
    ),
    "--prompts": Flag(
        whole(0, WIDEST),
        0,
        "freeze the backbone but for N learned tokens before each block's sequence, which leave it after the "
        "block (VPT-deep); timm's ViTs; 0: none",
        metavar="N",
    ),
    "--prompt_depth": Flag(
        whole(1, 1000), None, "--prompts in the first D blocks (unset: in all)", metavar="D", rules={"needs": "prompts"}
    ),
    "--prompt_step": Flag(
        whole(0, WIDEST), 0, "block b, counted from 0, has S b fewer --prompts", metavar="S", rules={"needs": "prompts"}
    ),
    "--train_biases": Flag(
        bool,
        False,
        "freeze the backbone but for its parameters with 'bias' in their name (BitFit), those of norms and patch "
        "embedding too; also with --prompts and --lora_rank",
    ),
    # Pooling and embedding layer
    "--head_init": Flag(
        str,
        "default",
        "start of the embedding layer: torch's uniform one, or an orthogonal weight and no bias; --weights of a "
        "whole network take precedence",
        choices=["default", "orthogonal"],
    ),
    "--pool": Flag(
        str,
        None,
        "pooling: class token (ViTs of timm), class token and mean of the others side by side, mean, maximum, "
        "mean of both, generalised mean of power 3 or of one learned power (unset: the backbone's own)",
        choices=_pool.KINDS,
    ),
    "--last_stride": Flag(whole(1, 2), 2, "1: the last stage keeps the size of its map, as in re-identification"),
    "--stem_pool": Flag(
        str,
        "padded",
        "pooling of 3 x 3 behind the stem, of ResNets and others: padded by a pixel, or (ceil) not padded, with the "
        "incomplete windows at the end, as in FastReID, whose weights need it",
        choices=["padded", "ceil"],
    ),
    "--neck": Flag(
        str,
        "none",
        "layer after the embedding layer: BatchNorm whose bias stays 0 (Luo et al., arXiv 1903.07071), or "
        "LayerNorm without weights; evaluation and classifiers see its output",
        choices=list(NECKS),
    ),
    "--neck_feature": Flag(
        str,
        "after",
        "whether the metric loss sees the input (before) or the output (after) of --neck",
        choices=["before", "after"],
        rules={"needs": "neck"},
    ),
    "--embed_hidden": Flag(
        whole(1, WIDEST),
        [],
        "widths of hidden layers, ReLU after each, between backbone and embedding layer",
        nargs="*",
    ),
    "--layer_decay": Flag(
        number(above=0, most=1),
        1.0,
        "the backbone's rate falls with depth: --lr times D^k in the k-th block from the end, and once more "
        "before the first; ViTs, ResNets and other networks of blocks",
        metavar="D",
        rules={"idle_with": {"freeze_backbone": [True]}},
    ),
    "--grad_checkpointing": Flag(
        bool,
        False,
        "keep no activations inside the backbone's blocks, compute them again in the backward pass: less memory, "
        "a third more time, the same numbers",
        role=PLACE,
    ),
}
