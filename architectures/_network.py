"""Base of the networks: backbone, pooling and embedding layer, and what of them trains.

A network embeds in three steps: `prepare` scales and normalises the images as the backbone's weights expect them,
`extract` runs the backbone up to the pooled features, `embed` the layers behind it (`Network.embedding_layers`). A file
of this folder makes the backbone and hands it to `Network.__init__`, which adds the layers, the first weights
(`_weights.py`), the trained parts (`_adaptation.py`) and the maps that trainers read (`_stages.py`).
"""

import contextlib
import itertools

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from architectures import _adaptation, _blocks, _input, _pool, _stages, _weights
from architectures._input import InputFormat
from architectures._neck import NECKS
from utilities.errors import UserError
from utilities.parameter_groups import embedding_rates
from utilities.shapes import pair, side_or_pair
from utilities.tensors import normalize, raise_half


class Pooled(dict):
    """The activations of a network that got pooled features as its input: `{"pooled": (B, F)}` only."""

    def __missing__(self, key):
        raise UserError(f"only the pooled features are there, and {key!r} is needed")


class Network(torch.nn.Module):
    """Base of the networks here: backbone without its classifier, then `last_linear`, the embedding layer.

    Images are scaled, reordered in colour and normalised here, on their device;
    the buffers for this are not in the state dict.

    Args:
        opt: the shared namespace.
        name: the parsed `--arch`.
        backbone: prepared images -> pooled features `(B, feature_dim)`.
        feature_dim: number of pooled features.
        pretrained: source of its ImageNet weights; None if there are none.
        head: prefix of the classifier's keys in the backbone's published state dict.
        input_format: fields of `InputFormat`, such as `input_size=48`.

    Attributes: `feature_dim`, `head` and the fields of `InputFormat` as given, `name` (with the traits), `constructor`,
    `embed_dim` (width of the embeddings), `frozen` and `normalizes` (traits), `backbone_rests` (--freeze_backbone),
    `weights_name`, `weights_file` (of --weights), `resting` (the part of the backbone that does not train).

    STAGES: name -> module of the backbone whose output (with `STAGES_ARE_INPUTS`: input) is that stage's map, in the
    order in which they run; empty if no stages are known.
    """

    STAGES = {}
    STAGES_ARE_INPUTS = False
    pools = True  # whether it reads --pool
    leaves_out_embedding = False  # see `leave_out_embedding`
    takes_prompts = False  # its blocks take and give tokens `(B, N, E)`, for --prompts
    native_shapes = True  # takes images of many shapes, for --eval_long_side and --eval_scales
    overlaps_patches = False  # heeds --patch_stride
    patch = (1, 1)  # sides of images are multiples of these
    has_positions = False  # has position embeddings of a grid of patches
    grid = None  # rows and columns of its patches at its input size, where it fixes them

    def __init__(
        self,
        opt,
        name,
        backbone: torch.nn.Module,
        feature_dim: int,
        pretrained: "_weights.Pretrained | None",
        *,
        head: str = "fc",
        **input_format,
    ):
        super().__init__()
        _check_widths(opt)
        _input.check(self, name.full, opt)
        self.name = name.full
        self.constructor = name.constructor
        self.frozen = "frozen" in name.traits
        self.normalizes = "normalize" in name.traits
        self.backbone_rests = opt.freeze_backbone
        self.feature_dim = feature_dim
        self.embed_dim = opt.embed_dim or feature_dim
        self.head = head
        self._set_input(InputFormat(**input_format))

        self.set_pool(backbone, opt.pool)
        if opt.last_stride == 1:
            _pool.keep_last_map(backbone, self.name)
        self.stem_pool = opt.stem_pool
        if opt.stem_pool == "ceil":
            _pool.pad_no_stem(backbone, self.name)
        self.backbone = backbone
        self._stages = None
        self._build_embedding_layers(opt, has_layernorm="layernorm" in name.traits)
        _adaptation.add_prompts(self, opt)
        self.weights_name = _weights.fill(self, opt, pretrained)
        self.weights_file = opt.weights
        self.resting = _adaptation.adapt(self, opt)
        self._stop_gradients()
        if opt.grad_checkpointing:
            self.keep_no_activations()
        self.train()

    def _set_input(self, images: InputFormat) -> None:
        """Set the attributes of the input, and the factors of `prepare`, buffers that no state dict holds."""
        self.input_size = side_or_pair(images.input_size)
        self.input_space = images.input_space
        self.input_range = images.input_range
        self.mean = tuple(images.mean)
        self.std = tuple(images.std)
        self.interpolation = images.interpolation
        mean, std = (torch.tensor(values, dtype=torch.float64).view(1, 3, 1, 1) for values in (self.mean, self.std))
        dtype = torch.get_default_dtype()
        self.register_buffer("scale", (images.input_range / std).to(dtype), persistent=False)  # (1, 3, 1, 1)
        self.register_buffer("shift", (-mean / std).to(dtype), persistent=False)  # (1, 3, 1, 1)

    def _build_embedding_layers(self, opt, has_layernorm: bool) -> None:
        """Build the layers behind the backbone, in the order in which they draw their weights."""
        widths = [self.feature_dim, *opt.embed_hidden]
        hidden = []
        for width, next_width in zip(widths, widths[1:], strict=False):
            hidden += [torch.nn.Linear(width, next_width), torch.nn.ReLU()]
        self.layernorm = torch.nn.Identity()
        if has_layernorm:
            self.layernorm = torch.nn.LayerNorm(self.feature_dim, elementwise_affine=False)
        self.hidden = torch.nn.Sequential(*hidden)
        self.last_linear = torch.nn.Linear(widths[-1], opt.embed_dim) if opt.embed_dim else torch.nn.Identity()
        self.neck_name = opt.neck
        self.neck = NECKS[opt.neck](self.embed_dim)
        if opt.head_init == "orthogonal":
            self._start_orthogonal()

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, dict]:
        """Embed `images` `(B, 3, H, W)`, RGB, uint8 or float in [0, 1].

        Under --freeze_backbone `images` may also be pooled features `(B, feature_dim)`.

        Returns:
            embeddings `(B, embed_dim)`, and the earlier activations: `pooled` `(B, feature_dim)`, the bare backbone's
            output; `spatial` `(B, C, h, w)`, the map before pooling, where the backbone is known to have one; `stages`
            after `give_stages`; `before_neck` `(B, embed_dim)` with a neck.

        Raises ValueError for images of another shape, UserError for a size that the backbone cannot take.
        """
        if self.backbone_rests and images.ndim == 2:
            features = Pooled(pooled=images.to(self.scale.dtype))
        else:
            context = torch.no_grad() if self.backbone_rests else contextlib.nullcontext()
            with context:
                features = self.extract(self.prepare(images))
        if features["pooled"].shape[1] != self.feature_dim:
            raise self.wrong_size(images)
        if self._stages is not None:
            features["stages"] = self._stages.take()
        return self.embed(features["pooled"], features), features

    def embed(self, pooled: torch.Tensor, features: dict | None = None) -> torch.Tensor:
        """The embeddings `(B, embed_dim)` of pooled features `(B, feature_dim)`.

        The traits of the name add a LayerNorm before and unit length after.

        Args:
            features: gets `before_neck` `(B, embed_dim)`, the embeddings that --neck sees.
        """
        embeddings = pooled
        for name, module in self.embedding_layers.items():
            if name == "neck" and not isinstance(module, torch.nn.Identity):
                self._refuse_single_image(module, embeddings)
                if features is not None:
                    features["before_neck"] = self._at_length(embeddings)
            embeddings = module(embeddings)
        return self._at_length(embeddings)

    def _refuse_single_image(self, neck: torch.nn.Module, embeddings: torch.Tensor) -> None:
        if self.training and len(embeddings) == 1 and isinstance(neck, _BatchNorm):
            raise UserError(
                f"--neck {self.neck_name}: a batch, a chunk or a process's part of one image has no batch statistics: "
                "take another --bs or --chunk_size"
            )

    def _at_length(self, embeddings: torch.Tensor) -> torch.Tensor:
        return normalize(raise_half(embeddings)) if self.normalizes else embeddings

    def set_pool(self, backbone: torch.nn.Module, kind: str | None) -> None:
        """Give the backbone the pooling of --pool (None: its own). Raises UserError if it cannot have it."""
        if kind is not None:
            _pool.replace(backbone, self.name, kind)

    @property
    def gem_power(self) -> float | None:
        """The power of --pool gem or gem_learned; None of other poolings."""
        for module in self.backbone.modules():
            if isinstance(module, _pool.GeneralisedMean):
                return float(module.power)
        return None

    @property
    def embedding_layers(self) -> dict[str, torch.nn.Module]:
        """Name -> module of each layer behind the backbone, in the order in which they run.

        `embed`, the optimiser groups, the loading of weights and exports read it: a further module is added here, and
        one that rescales embeddings in `options.flags.shared.rescaling_layer`.
        """
        return {"layernorm": self.layernorm, "hidden": self.hidden, "last_linear": self.last_linear, "neck": self.neck}

    def give_stages(self, names: list[str]) -> list[int]:
        """Add `stages` to the features of `forward`: the mean `(B, C)` over the map of each of these stages.

        A name is one of STAGES, or a module of the backbone. Returns the widths C, found by embedding one blank image.
        Raises UserError for a name that the backbone does not have.
        """
        if self._stages is None:
            self._stages = _stages.Stages(self)
        self._stages.choose(names)
        was_training = self.training
        image = torch.zeros(1, 3, *pair(self.input_size), dtype=torch.uint8, device=self.scale.device)
        with torch.no_grad():
            self.eval()
            _, features = self(image)
        self.train(was_training)
        return [stage.shape[1] for stage in features["stages"]]

    def mean_of(self, activations: torch.Tensor) -> torch.Tensor:
        """The mean `(B, C)` of maps `(B, C, h, w)`, or of tokens `(B, N, C)`."""
        return activations.mean((2, 3)) if activations.ndim == 4 else activations.mean(1)

    def extract(self, images: torch.Tensor) -> dict:
        """Activations of prepared `images`; at least `pooled`.

        A network that also gives `spatial` has a method `pool`, which makes `pooled` of it.
        """
        return {"pooled": self.backbone(images).flatten(1)}

    def blocks(self) -> list[torch.nn.Module]:
        """The backbone's blocks in the order of their depth; empty if it has none."""
        return _blocks.of_backbone(self.backbone)

    def keep_no_activations(self) -> None:
        """Recompute activations inside the blocks in the backward pass from now on.

        Raises UserError if the backbone has no blocks.
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

    def published_state(self, state: dict, grid: tuple[int, int] | None = None) -> dict:
        """A state dict with keys from `published_key`, in the names and shapes of the backbone's modules.

        grid: rows and columns of the state's position embeddings, None if they are not named.
        """
        return state

    def merge(self) -> "Network":
        """Merge the low-rank updates of --lora_rank into the weights.

        The weights' names are then those without LoRA, and all of them train.
        """
        _adaptation.merge(self.backbone)
        self.resting = _adaptation.Resting()
        return self.requires_grad_(True)

    def prepare(self, images: torch.Tensor) -> torch.Tensor:
        """`images` in the colour order, range and normalisation of the weights, in the network's float type."""
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"images are {tuple(images.shape)}: expected (B, 3, H, W)")
        if self.input_space == "BGR":
            images = images.flip(1)
        scale = self.scale if images.is_floating_point() else self.scale / 255
        return torch.addcmul(self.shift, images.to(scale.dtype), scale)

    def wrong_size(self, images: torch.Tensor) -> UserError:
        """The error for images of a size that the backbone cannot take."""
        return _input.wrong_size(self, images)

    def train(self, mode: bool = True) -> "Network":
        """As in torch, but what does not train stays in eval mode.

        This is the untrained part of the backbone and, in a `_frozen` network, its BatchNorm layers, whose affine
        weights do train, as in the ICML 2020 code.
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
        self._stop_gradients()
        return self

    def _stop_gradients(self) -> None:
        for parameter in [*self.resting_parameters(), *self._fixed_parameters()]:
            parameter.requires_grad_(False)

    def resting_parameters(self) -> list[torch.nn.Parameter]:
        """The backbone's parameters that never train."""
        return [parameter for name, parameter in self.backbone.named_parameters() if name in self.resting.parameters]

    def leave_out_embedding(self) -> None:
        """From now on the layers behind the backbone are not trained: a trainer takes its embeddings elsewhere."""
        self.leaves_out_embedding = True
        self._stop_gradients()

    def _fixed_parameters(self) -> list[torch.nn.Parameter]:
        """The parameters behind the backbone that do not train: a BatchNorm neck's bias, which stays 0, or all."""
        if self.leaves_out_embedding:
            parameters = (module.parameters() for module in self.embedding_layers.values())
            return list(itertools.chain.from_iterable(parameters))
        return [self.neck.bias] if isinstance(self.neck, _BatchNorm) and self.neck.affine else []

    def _start_orthogonal(self) -> None:
        if not isinstance(self.last_linear, torch.nn.Linear):
            raise UserError(
                "--head_init orthogonal is a start of the embedding layer, which --embed_dim 0 leaves out: give a "
                "dimension"
            )
        torch.nn.init.orthogonal_(self.last_linear.weight)
        torch.nn.init.zeros_(self.last_linear.bias)

    def param_groups(self, opt) -> list[dict]:
        """Optimiser groups, with every trained parameter in exactly one.

        The layers behind the backbone have --fc_lr and --fc_decay; if these are not given (--fc_lr at most 0,
        --fc_decay None), the backbone's rates hold for all.
        """
        fixed = set(self._fixed_parameters())
        trained = []
        for module in self.embedding_layers.values():
            trained += [parameter for parameter in module.parameters() if parameter not in fixed]
        groups = [{**group, "weight_decay": opt.decay} for group in self._backbone_groups(opt)]
        groups.append({"name": "last_linear", "params": trained, **embedding_rates(opt)})
        return [group for group in groups if group["params"]]

    def _backbone_groups(self, opt) -> list[dict]:
        """One group, or under --layer_decay one for each depth, named by it; without untrained parameters."""
        untrained = set(self.resting_parameters())

        def group_of(name: str, parameters, rate: float) -> dict:
            trained = [parameter for parameter in parameters if parameter not in untrained]
            return {"name": name, "params": trained, "lr": rate}

        if self.backbone_rests or opt.layer_decay == 1:
            return [group_of("backbone", self.backbone.parameters(), opt.lr)]
        blocks = self.blocks()
        if not blocks:
            raise UserError(
                f"--layer_decay {opt.layer_decay:g}: --arch {self.name} has no blocks; ViTs and ResNets have: leave "
                "it out"
            )
        groups = []
        for depth, parameters in _blocks.by_depth(self.backbone, blocks).items():
            groups.append(group_of(f"backbone_{depth}", parameters, opt.lr * opt.layer_decay**depth))
        return groups


def _check_widths(opt) -> None:
    """Raise UserError for widths of the layers behind the backbone that are impossible."""
    if opt.embed_dim < 0 or min(opt.embed_hidden, default=1) < 1:
        flags = f"--embed_dim {opt.embed_dim} --embed_hidden {' '.join(map(str, opt.embed_hidden))}"
        raise UserError(f"{flags}: a width is at least 1 (--embed_dim 0: no embedding layer)")
    if opt.embed_hidden and not opt.embed_dim:
        raise UserError(
            "--embed_hidden puts layers before the embedding layer, which --embed_dim 0 leaves out: give a dimension"
        )
