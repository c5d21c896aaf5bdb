"""Base of the networks: input preparation, embedding layer, traits, stages, optimiser groups."""

import contextlib
import functools

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from architectures import _adaptation, _blocks, _pool, _weights
from utilities.errors import UserError
from utilities.numbers import WIDEST, number, whole
from utilities.parameter_groups import embedding_rates
from utilities.roles import PLACE
from utilities.tensors import normalize, raise_half

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def add_arguments(group) -> None:
    """Declare the flags that every network reads."""
    help_weights = (
        "start from the weights in this file (.pth, .ckpt, .safetensors, .npz): of the backbone, wherever its keys "
        "lie in it (classifier keys are ignored), or of a whole network of this program; takes precedence over "
        "--not_pretrained (unset: the package's ImageNet weights)"
    )
    help_hidden = "widths of hidden layers, ReLU after each, between backbone and embedding layer"
    group.add_argument("--not_pretrained", action="store_true", help="start from random weights")
    group.add_argument("--weights", default=None, metavar="FILE", help=help_weights)
    group.add_argument(
        "--weights_prefix",
        default=None,
        metavar="PREFIX",
        help=(
            "where in --weights the backbone's keys lie, such as teacher.backbone or module.encoder_q (unset: where "
            "exactly they lie)"
        ),
    )
    group.add_argument(
        "--weights_cache",
        "--pytorch_home",
        default=None,
        metavar="DIR",
        help="folder for downloaded weights (unset: torch hub's cache)",
    ).role = PLACE
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
        help="with --freeze_backbone and --augmentation none: compute the pooled features of every image once a run, "
        "and train and evaluate what stands behind the backbone on them; memory: features x 4 bytes an image",
    ).role = PLACE
    _partial_training(group)
    group.add_argument("--embed_hidden", type=whole(1, WIDEST), nargs="*", default=[], help=help_hidden)
    group.add_argument(
        "--layer_decay",
        type=number(above=0, most=1),
        default=1.0,
        metavar="D",
        help="the backbone's rate falls with depth: --lr times D^k in the k-th block from the end, and once more "
        "before the first; ViTs, ResNets and other networks of blocks",
    )
    group.add_argument(
        "--grad_checkpointing",
        action="store_true",
        help=(
            "keep no activations inside the backbone's blocks, compute them again in the backward pass: less memory, "
            "a third more time, the same numbers"
        ),
    ).role = PLACE


def _partial_training(group) -> None:
    """Declare the flags of partial training, pooling and the embedding layer's start."""
    group.add_argument(
        "--freeze_blocks",
        type=whole(0, 1000),
        default=None,
        metavar="N",
        help="the patch embedding (of other networks what lies before the first block) and the first N blocks rest, "
        "in evaluation mode; 0: the patch embedding alone (unset: all trains)",
    )
    group.add_argument(
        "--lora_rank",
        type=whole(0, WIDEST),
        default=0,
        metavar="R",
        help="the backbone rests but for updates of rank R of its attention's query, key, value and projection "
        "weights (LoRA); a fused weight is one; 0: none",
    )
    group.add_argument(
        "--lora_alpha",
        type=number(above=0),
        default=8.0,
        metavar="A",
        help="the updates of --lora_rank are multiplied by A / R",
    )
    group.add_argument(
        "--prompts",
        type=whole(0, WIDEST),
        default=0,
        metavar="N",
        help=(
            "the backbone rests but for N learned tokens before each block's sequence, which leave it after the block "
            "(VPT-deep); timm's ViTs; 0: none"
        ),
    )
    group.add_argument(
        "--prompt_depth",
        type=whole(1, 1000),
        default=None,
        metavar="D",
        help="--prompts in the first D blocks (unset: in all)",
    )
    group.add_argument(
        "--prompt_step",
        type=whole(0, WIDEST),
        default=0,
        metavar="S",
        help="block b, counted from 0, has S b fewer --prompts",
    )
    group.add_argument(
        "--train_biases",
        action="store_true",
        help="the backbone rests but for its parameters with 'bias' in their name (BitFit), those of norms and patch "
        "embedding too; also with --prompts and --lora_rank",
    )
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
        help="behind the embedding layer: BatchNorm whose bias stays 0 (Luo et al., arXiv 1903.07071), or LayerNorm "
        "without weights; evaluation and classifiers see what leaves it",
    )
    group.add_argument(
        "--neck_feature", choices=["before", "after"], default="after", help="what the metric loss sees of --neck"
    )


NECKS = {
    "none": lambda width: torch.nn.Identity(),
    "bn": torch.nn.BatchNorm1d,
    "layernorm": functools.partial(torch.nn.LayerNorm, elementwise_affine=False),
}


class Pooled(dict):
    """The activations of a network that got pooled features as its input: `{"pooled": (B, F)}` only."""

    def __missing__(self, key):
        raise UserError(f"--feature_cache keeps only the pooled features, and {key!r} is needed: leave it out")


class Network(torch.nn.Module):
    """Base of the networks here: backbone without its classifier, then `last_linear`, the embedding layer.

    Images are scaled, reordered in colour and normalised here, on their device; the buffers for this are not in the
    state dict.

    Args:
        opt: the shared namespace; read are embed_dim, embed_hidden, head_init, neck, neck_feature, pool, last_stride,
            freeze_backbone, freeze_blocks, lora_rank, lora_alpha, prompts, prompt_depth, prompt_step, train_biases,
            not_pretrained, weights, weights_cache.
        name: the parsed `--arch`.
        backbone: prepared images -> pooled features `(B, feature_dim)`.
        feature_dim: number of pooled features.
        pretrained: source of its ImageNet weights; None where there are none.
        input_size: side in pixels of the images its weights were trained on.
        mean, std: three numbers each, in the backbone's colour order and range.
        input_space: "RGB" or "BGR". input_range: the value of white, 1 or 255.
        head: prefix of the classifier's keys in the backbone's published state dict.
        interpolation: how images are resized for it, "bilinear" or "bicubic".

    Attributes: the arguments, `name` (the whole), `constructor`, `embed_dim` (width of the embeddings), `frozen`,
    `normalizes`, `backbone_rests`, `weights_name`, `weights_file` (of --weights), `resting` (the untrained part of the
    backbone).

    STAGES: name -> module of the backbone whose output (with `STAGES_ARE_INPUTS`: input) is that stage's map, in the
    order in which they run; empty where no stages are known.
    """

    STAGES = {}
    STAGES_ARE_INPUTS = False
    pools = True  # --pool acts
    leaves_out_embedding = False  # see `leave_out_embedding`
    takes_prompts = False  # its blocks take and give tokens `(B, N, E)`, for --prompts

    def __init__(
        self,
        opt,
        name,
        backbone: torch.nn.Module,
        feature_dim: int,
        pretrained: "_weights.Pretrained | None",
        *,
        input_size: int = 224,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        input_space: str = "RGB",
        input_range: float = 1,
        head: str = "fc",
        interpolation: str = "bilinear",
    ):
        super().__init__()
        if opt.embed_dim < 0 or min(opt.embed_hidden, default=1) < 1:
            given = f"--embed_dim {opt.embed_dim} --embed_hidden {' '.join(map(str, opt.embed_hidden))}"
            raise UserError(f"{given}: a width is at least 1 (--embed_dim 0: no embedding layer)")
        if opt.embed_hidden and not opt.embed_dim:
            raise UserError(
                "--embed_hidden puts layers before the embedding layer, which --embed_dim 0 leaves out: give a "
                "dimension"
            )
        self.name = name.full
        self.constructor = name.constructor
        self.frozen = "frozen" in name.traits
        self.normalizes = "normalize" in name.traits
        self.backbone_rests = opt.freeze_backbone
        self.feature_dim = feature_dim
        self.embed_dim = opt.embed_dim or feature_dim
        self.input_size = int(input_size)
        self.input_space = input_space
        self.input_range = input_range
        self.mean = tuple(mean)
        self.std = tuple(std)
        self.head = head
        self.interpolation = interpolation
        mean, std = (torch.tensor(values, dtype=torch.float64).view(1, 3, 1, 1) for values in (self.mean, self.std))
        self.register_buffer(
            "scale", (input_range / std).to(torch.get_default_dtype()), persistent=False
        )  # (1, 3, 1, 1)
        self.register_buffer("shift", (-mean / std).to(torch.get_default_dtype()), persistent=False)  # (1, 3, 1, 1)

        self.set_pool(backbone, opt.pool)
        self.kept_map = _pool.keep_last_map(backbone, self.name) if opt.last_stride == 1 else {}
        self.backbone = backbone
        self._stages = None
        self._stage_names = []
        self._watched = set()
        widths = [feature_dim, *opt.embed_hidden]
        layers = [[torch.nn.Linear(*pair), torch.nn.ReLU()] for pair in zip(widths, widths[1:], strict=False)]
        self.layernorm = (
            torch.nn.LayerNorm(feature_dim, elementwise_affine=False)
            if "layernorm" in name.traits
            else torch.nn.Identity()
        )
        self.hidden = torch.nn.Sequential(*(layer for pair in layers for layer in pair))
        self.last_linear = torch.nn.Linear(widths[-1], opt.embed_dim) if opt.embed_dim else torch.nn.Identity()
        self.neck = NECKS[opt.neck](self.embed_dim)
        if opt.head_init == "orthogonal":
            self._start_orthogonal()
        _adaptation.add_prompts(self, opt)
        self.weights_name = _weights.fill(self, opt, pretrained)
        self.weights_file = opt.weights
        self.resting = _adaptation.adapt(self, opt)
        self._let_rest()
        if opt.grad_checkpointing:
            self.keep_no_activations()
        self.train()

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, dict]:
        """Embed `images` `(B, 3, H, W)`, RGB, uint8 or float in [0, 1]; under --freeze_backbone also pooled features
        `(B, feature_dim)`.

        Returns:
            embeddings `(B, embed_dim)`, and the earlier activations: `pooled` `(B, feature_dim)`, the bare backbone's
            output; `spatial` `(B, C, h, w)`, the map before pooling, where the backbone is known to have one; `stages`
            after `give_stages`; `before_neck` `(B, embed_dim)` with a neck.

        Raises ValueError for images of another shape, UserError for a size that the backbone cannot take.
        """
        if self.backbone_rests and images.ndim == 2:
            features = Pooled(pooled=images.to(self.scale.dtype))
        else:
            with torch.no_grad() if self.backbone_rests else contextlib.nullcontext():
                features = self.extract(self.prepare(images))
        if features["pooled"].shape[1] != self.feature_dim:
            raise self.wrong_size(images)
        if self._stages is not None:
            features["stages"], self._stages = [self._stages[name] for name in self._stage_names], {}
        return self.embed(features["pooled"], features), features

    def embed(self, pooled: torch.Tensor, features: dict | None = None) -> torch.Tensor:
        """The embeddings `(B, embed_dim)` of pooled features `(B, feature_dim)`; LayerNorm before and unit length after
        by the traits.

        Args:
            features: gets `before_neck` `(B, embed_dim)`, the embeddings that --neck sees.
        """
        embeddings = pooled
        for name, module in self.behind.items():
            if name == "neck" and not isinstance(module, torch.nn.Identity):
                if self.training and len(embeddings) == 1 and isinstance(module, _BatchNorm):
                    raise UserError(
                        "--neck bn: a batch, a chunk or a process's part of one image has no batch statistics: take "
                        "another --bs or --chunk_size"
                    )
                if features is not None:
                    features["before_neck"] = self._at_length(embeddings)
            embeddings = module(embeddings)
        return self._at_length(embeddings)

    def _at_length(self, embeddings: torch.Tensor) -> torch.Tensor:
        return normalize(raise_half(embeddings)) if self.normalizes else embeddings

    def set_pool(self, backbone: torch.nn.Module, kind: str | None) -> None:
        """Give the backbone the pooling of --pool (None: its own). Raises UserError where it cannot have it."""
        if kind is not None:
            _pool.replace(backbone, self.name, kind)

    @property
    def gem_power(self) -> float | None:
        """The power of --pool gem or gem_learned; None of other poolings."""
        return next(
            (float(module.power) for module in self.backbone.modules() if isinstance(module, _pool.GeneralisedMean)),
            None,
        )

    @property
    def behind(self) -> dict[str, torch.nn.Module]:
        """Name -> module of what stands behind the backbone, in the order in which it runs.

        `embed`, the optimiser groups, the loading of weights and exports read it: a further module is added here.
        """
        return {"layernorm": self.layernorm, "hidden": self.hidden, "last_linear": self.last_linear, "neck": self.neck}

    def give_stages(self, names: list[str]) -> list[int]:
        """Add `stages` to the features of `forward`: a list of the means `(B, C)` over the maps of these stages of
        STAGES, or any modules.

        Returns their widths C, found by embedding one blank image. Raises UserError for a name that the backbone does
        not have.
        """
        modules = dict(self.backbone.named_modules())
        self._stages = {}
        self._stage_names = list(names)
        for name in self._stage_names:
            if name not in self.STAGES and name not in modules:
                there = ", ".join(self.STAGES) or "it names none, but any of its modules may be given"
                raise UserError(f"{self.name} has no stage {name!r}: {there}")
            self._watch(name, modules[self.STAGES.get(name, name)])
        was_training = self.training
        device = self.scale.device
        with torch.no_grad():
            self.eval()
            features = self(torch.zeros(1, 3, self.input_size, self.input_size, dtype=torch.uint8, device=device))[1]
        self.train(was_training)
        return [stage.shape[1] for stage in features["stages"]]

    def _watch(self, name: str, module: torch.nn.Module) -> None:
        if name in self._watched:
            return
        self._watched.add(name)
        if name in self.STAGES and self.STAGES_ARE_INPUTS:
            module.register_forward_pre_hook(functools.partial(self._keep_input, name))
        else:
            module.register_forward_hook(functools.partial(self._keep, name))

    def _keep(self, name: str, module: torch.nn.Module, inputs: tuple, output) -> None:
        if not isinstance(output, torch.Tensor) or output.ndim < 2:
            raise UserError(f"the stage {name!r} of {self.name} gives no features of each image: choose another")
        if output.ndim == 2:
            self._stages[name] = output
        else:
            self._stages[name] = self.mean_of(output)

    def mean_of(self, activations: torch.Tensor) -> torch.Tensor:
        """The mean `(B, C)` of maps `(B, C, h, w)`, or of tokens `(B, N, C)`."""
        return activations.mean((2, 3)) if activations.ndim == 4 else activations.mean(1)

    def _keep_input(self, name: str, module: torch.nn.Module, inputs: tuple) -> None:
        self._keep(name, module, (), inputs[0])

    def extract(self, images: torch.Tensor) -> dict:
        """Activations of prepared `images`; at least `pooled`. A network that gives `spatial` has `pool`, which makes
        `pooled` of it.
        """
        return {"pooled": self.backbone(images).flatten(1)}

    def blocks(self) -> list[torch.nn.Module]:
        """The backbone's blocks in the order of their depth; empty where it has none."""
        return _blocks.of_backbone(self.backbone)

    def keep_no_activations(self) -> None:
        """Recompute activations inside the blocks in the backward pass from now on. Raises UserError where there are no
        blocks.
        """
        blocks = self.blocks()
        if not blocks:
            raise UserError(
                f"--grad_checkpointing: --arch {self.name} has no blocks whose activations could be computed again: "
                "leave it out"
            )
        for block in blocks:
            block.forward = _blocks.Recomputing(block)

    def published_key(self, key: str) -> str:
        """The backbone's name for a key of its published state dict."""
        return key

    def published_state(self, state: dict) -> dict:
        """A state dict of the backbone, converted to the names and shapes of its modules; its keys come from
        `published_key`.
        """
        return state

    def merge(self) -> "Network":
        """Merge the low-rank updates of --lora_rank into the weights. Their names are then those without LoRA, and all
        of them train.
        """
        _adaptation.merge(self.backbone)
        self.resting = _adaptation.Resting()
        return self.requires_grad_(True)

    def prepare(self, images: torch.Tensor) -> torch.Tensor:
        """`images` in the colour order, range and normalisation of the backbone's weights, in the network's float type."""
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"images are {tuple(images.shape)}: expected (B, 3, H, W)")
        if self.input_space == "BGR":
            images = images.flip(1)
        scale = self.scale if images.is_floating_point() else self.scale / 255
        return torch.addcmul(self.shift, images.to(scale.dtype), scale)

    def wrong_size(self, images: torch.Tensor) -> UserError:
        """The error for images of a size that the backbone cannot take."""
        height, width = images.shape[2:]
        size = self.input_size
        return UserError(
            f"{self.name} takes images of {size} x {size} pixels, not {height} x {width}: --crop_size {size}"
        )

    def train(self, mode: bool = True) -> "Network":
        """As in torch, but BatchNorm layers of a `_frozen` network's backbone and the untrained part of any stay in
        eval mode.

        The affine weights of these BatchNorm layers train, as in the ICML 2020 code.
        """
        super().train(mode)
        if self.frozen:
            for module in self.backbone.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        for path in self.resting.modules:
            self.backbone.get_submodule(path).eval()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> "Network":
        """As in torch, but the untrained part of the backbone never gets a gradient, in any phase of a trainer."""
        super().requires_grad_(requires_grad)
        self._let_rest()
        return self

    def _let_rest(self) -> None:
        for parameter in [*self.at_rest(), *self._fixed()]:
            parameter.requires_grad_(False)

    def at_rest(self) -> list[torch.nn.Parameter]:
        """The backbone's parameters that never train."""
        return [parameter for name, parameter in self.backbone.named_parameters() if name in self.resting.parameters]

    def leave_out_embedding(self) -> None:
        """From now on the layers behind the backbone are not trained: a trainer takes its embeddings elsewhere."""
        self.leaves_out_embedding = True
        self._let_rest()

    def _fixed(self) -> list[torch.nn.Parameter]:
        """Parameters behind the backbone that do not train: the bias of a BatchNorm neck, which stays 0, or all of
        them.
        """
        if self.leaves_out_embedding:
            return [parameter for module in self.behind.values() for parameter in module.parameters()]
        return [self.neck.bias] if isinstance(self.neck, _BatchNorm) else []

    def _start_orthogonal(self) -> None:
        if not isinstance(self.last_linear, torch.nn.Linear):
            raise UserError(
                "--head_init orthogonal is a start of the embedding layer, which --embed_dim 0 leaves out: give a "
                "dimension"
            )
        torch.nn.init.orthogonal_(self.last_linear.weight)
        torch.nn.init.zeros_(self.last_linear.bias)

    def param_groups(self, opt) -> list[dict]:
        """Optimiser groups, every trained parameter in exactly one: the backbone, and the layers behind it at --fc_lr
        and --fc_decay.

        Where these are not given (--fc_lr at most 0, --fc_decay None), the backbone's rates hold for all.
        """
        fixed = {id(parameter) for parameter in self._fixed()}
        last = [p for module in self.behind.values() for p in module.parameters() if id(p) not in fixed]
        groups = [
            *({**group, "weight_decay": opt.decay} for group in self._backbone_groups(opt)),
            {"name": "last_linear", "params": last, **embedding_rates(opt)},
        ]
        return [group for group in groups if group["params"]]

    def _backbone_groups(self, opt) -> list[dict]:
        """One group, or under --layer_decay one for each depth, named by it; without untrained parameters."""
        rests = {id(parameter) for parameter in self.at_rest()}
        if self.backbone_rests or getattr(opt, "layer_decay", 1.0) == 1:
            return [
                {
                    "name": "backbone",
                    "params": [p for p in self.backbone.parameters() if id(p) not in rests],
                    "lr": opt.lr,
                }
            ]
        blocks = self.blocks()
        if not blocks:
            raise UserError(
                f"--layer_decay {opt.layer_decay:g}: --arch {self.name} has no blocks; ViTs and ResNets have: leave "
                "it out"
            )
        depths = _blocks.by_depth(self.backbone, blocks)
        return [
            {
                "name": f"backbone_{depth}",
                "params": [p for p in found if id(p) not in rests],
                "lr": opt.lr * opt.layer_decay**depth,
            }
            for depth, found in depths.items()
        ]
