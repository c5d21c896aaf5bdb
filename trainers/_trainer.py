"""Base of the trainers: the network's outputs, the criterion's call, optimiser groups of further networks."""

import functools
import inspect
import re

import torch

from trainers import _heads
from trainers._heads import MAIN_EMBEDDING
from trainers._language import Language
from trainers._memory import Memory
from trainers._metrix import MAPS, Metrix
from trainers._regularizers import EmbedRegularizer, WeightRegularizer
from utilities.numbers import whole
from utilities.registry import Registry

METRIC_LOSS = "metric_loss"  # a trainer's loss to which memory and regularisers are added
HEADS = "evaluated_heads"  # a trainer's attribute, and the prefix of their state in a checkpoint


def add_arguments(group) -> None:
    """Declare the flag that all trainers read."""
    group.add_argument(
        "--loss_weights",
        nargs="*",
        default=[],
        metavar="NAME=W",
        help=(
            "weights of the trainer's losses in their sum, such as metric_loss=1 classifier_loss=.5 (default: 1, "
            "where the trainer has none of its own: docs/training_methods.md)"
        ),
    )
    group.add_argument(
        "--views",
        type=whole(1, 100),
        default=None,
        metavar="V",
        help=(
            "augmentations of each image in a batch, which then holds --bs images and V times as many embeddings "
            "(unset: 2 for unsupervised and diva, else 1)"
        ),
    )


def derived(opt) -> dict:
    """Views of an image, as many as the trainer takes by itself."""
    return {"views": views(opt.trainer)}


def views(name: str) -> int:
    """Number of augmented views of each image that a method takes unless `--views` is given."""
    trainer = Registry("trainers", "trainer").module(name).Trainer
    return getattr(trainer, "VIEWS", Trainer.VIEWS)


ADDED = {
    "memory_size": Memory,
    "embed_regularizer": EmbedRegularizer,
    "weight_regularizer": WeightRegularizer,
    "language_vectors": Language,
    "metrix": Metrix,
}  # flag -> the loss that it adds


def build_added_losses(opt, network, criterion) -> torch.nn.ModuleList:
    """The losses that flags add to the criterion's, each a `trainers._added_losses.AddedLoss`."""
    return torch.nn.ModuleList(
        kind(opt, network, criterion) for flag, kind in ADDED.items() if getattr(opt, flag, None)
    )


def evaluated_embeddings(outputs: dict) -> torch.Tensor:
    """The evaluated embeddings `(B, D)` among a trainer's outputs; a user's trainer may give "embeddings" alone."""
    return outputs.get("evaluated", outputs["embeddings"])


def features_for(criterion, outputs: dict) -> dict:
    """`batch_features`, the pooled features `(B, F)`. Under torchrun reading them gathers them: there for a criterion
    whose `forward` names them.
    """
    wanted = "pooled" in outputs or any(
        "batch_features" in inspect.signature(part.forward).parameters for part in criterion.modules()
    )
    try:
        return {"batch_features": outputs["pooled"] if wanted else None}
    except KeyError:  # a network that gives none
        return {"batch_features": None}


def width(network: torch.nn.Module, opt) -> int:
    """Dimensions of the embedding that a trainer trains, from a network's `embed_dims` (name -> dimensions), else its
    `embed_dim`.
    """
    widths = getattr(network, "embed_dims", None)
    return _heads.main_of(widths, [*getattr(opt, "evaltypes", []), MAIN_EMBEDDING]) if widths else network.embed_dim


class Trainer(torch.nn.Module):
    """A training step in two halves, so that it can be divided into chunks and over processes.

    Further networks (heads, a generator, a moving average) are submodules: they are moved, checkpointed and counted
    like the network.

    Args:
        opt: the resolved flags.
        network: `network(images) -> (embeddings, features)`; embeddings `(B, D)`, or a dict of several.
        criterion: `criterion(batch, labels, **kwargs) -> scalar`.

    Attributes:
        VIEWS: number of augmented views of every image in a batch; `--views` wins.
        LABELS: whether training uses labels; False: samplers treat each image as a class of its own.
        WEIGHTS: name -> weight of a loss in the step's sum where it is not 1; `--loss_weights` wins.
        LOSSES: the names that `losses` may return in any phase; None: not known beforehand.
    """

    VIEWS = 1
    LABELS = True
    WEIGHTS = {}
    LOSSES = None
    subset = None  # `_subset.MaximumLoss` under `--subset_mining`
    once_a_chunk = None  # `engine.chunks.Once` while a batch is run in chunks

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        super().__init__()
        self.network = network
        self.criterion = criterion
        self.evaltypes = [*getattr(opt, "evaltypes", []), MAIN_EMBEDDING]
        self.compares_before_neck = getattr(opt, "neck_feature", "after") == "before"
        self.keeps_maps = bool(getattr(opt, "metrix", 0)) and opt.metrix_level == "feature"
        self.added_losses = build_added_losses(opt, network, criterion)
        self.evaluated_heads = self.build_heads(opt, network)
        self.VIEWS = getattr(opt, "views", None) or self.VIEWS

    @classmethod
    def build_heads(cls, opt, network: torch.nn.Module) -> "_heads.Heads | None":
        """Layers behind the network whose outputs `--evaltypes` may name, made from flags, `opt.n_classes` and the
        network; None: none.

        A trainer holds them as `evaluated_heads`; a saved run, which has neither criterion nor data, builds them again
        by this.
        """
        return None

    def evaluated(self, network: torch.nn.Module | None = None) -> torch.nn.Module:
        """The network for evaluation, `images -> (embeddings, features)`: `network`, with the heads where `--evaltypes`
        need them.

        Default: the trained network.
        """
        return _heads.evaluated(
            self.network if network is None else network, getattr(self, HEADS, None), getattr(self, "evaltypes", [])
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The evaluated embeddings `(B, D)`, as samplers with a memory store them."""
        return evaluated_embeddings(self.outputs(images))

    def outputs(self, images: torch.Tensor) -> dict:
        """The half per image, in the chosen precision: entry i of every tensor depends on image i only.

        Args:
            images: uint8 `(B, 3, H, W)`.

        Returns:
            What `named` gives, and what memory and regularisers need.
        """
        return {**self.named(*self.network(images)), **self.added_outputs(images)}

    def added_outputs(self, images: torch.Tensor) -> dict:
        """Outputs per image that memory and regularisers need; a trainer that calls its network itself has to add
        them.
        """
        made = [self.once(functools.partial(added.outputs, images, self.named)) for added in self.added_losses]
        return {name: value for outputs in made for name, value in outputs.items()}

    def once(self, make):
        """`make()`, called only once per chunk: under `--chunk_size` a chunk's `outputs` run twice.

        For the parts of `outputs` without a gradient that must not run again, such as momentum encoders and anything
        else with a state of its own. BatchNorm's running statistics need no such care.
        """
        return make() if self.once_a_chunk is None else self.once_a_chunk(make)

    def named(self, embeddings, features: dict) -> dict:
        """What a network gives, in the form of `outputs`: the one place that decides what losses see and what is
        evaluated.

        Args:
            embeddings: `(B, D)`, or a dict of several.
            features: the network's earlier activations.

        Returns:
            "embeddings" `(B, D)`, which the losses compare; "evaluated" `(B, D)`, the main embedding of evaluation: the
            same, but under `--neck_feature before`, where losses see what the neck sees; "pooled" `(B, F)` where the
            network has pooled features, under `--metrix_level feature` "spatial" `(B, C, h, w)` where it has maps.
            Several embeddings are added by their names; the main one is the first of `--evaltypes` that is among them,
            else their first.
        """
        kept = ("pooled", MAPS) if self.keeps_maps else ("pooled",)
        outputs = {name: features[name] for name in kept if name in features}
        if isinstance(embeddings, dict):
            outputs = embeddings | outputs
            embeddings = _heads.main_of(embeddings, self.evaltypes)
        compared = features["before_neck"] if self.compares_before_neck else embeddings
        return {**outputs, "embeddings": compared, "evaluated": embeddings}

    def losses(self, outputs: dict, batch) -> dict:
        """The half per batch, in float32: name -> scalar over the whole batch. The step minimises their weighted sum.

        Here the criterion on the embeddings, and what flags add to it.

        Args:
            outputs: the result of `outputs` for all images.
            batch: `engine.loading.Batch(labels, images, indices)`.
        """
        losses = {METRIC_LOSS: self.metric_loss(outputs, batch)}
        for added in self.added_losses:
            added.used = True
            value = added.loss(self, outputs, batch)
            if value is not None:
                losses[added.NAME] = value
        return losses

    def metric_losses(self, outputs: dict, batch) -> dict:
        """`losses` of this base, by the name that trainers of earlier versions call."""
        return Trainer.losses(self, outputs, batch)

    def metric_loss(self, outputs: dict, batch, **reference) -> torch.Tensor:
        """The criterion on the embeddings, against another `reference` than the batch where one is given."""
        return self.criterion(
            batch=outputs["embeddings"],
            labels=batch.labels,
            f_embed=getattr(self.network, "last_linear", None),
            **features_for(self.criterion, outputs),
            **reference,
        )

    def own_parameters(self) -> list[torch.nn.Parameter]:
        """The trainable parameters of further networks: neither the network's nor the criterion's."""
        theirs = {id(p) for module in (self.network, self.criterion) for p in module.parameters()}
        return [p for p in self.parameters() if p.requires_grad and id(p) not in theirs]

    def param_groups(self, opt) -> list[dict]:
        """Optimiser groups of the further networks, every parameter in exactly one; by default one group at `--lr` and
        `--decay`.
        """
        return [{"params": self.own_parameters(), "name": "trainer"}]

    def start_epoch(self, epoch: int) -> None:
        """Called before each epoch, counted from 1, for methods with phases."""

    def after_step(self) -> None:
        """Called after each optimiser step, for moving averages and queues."""


class TrainerState:
    """The state of a trainer beside its network and its criterion, which checkpoints hold under names of their own."""

    _OTHERS = ("network.", "criterion.")

    def __init__(self, trainer: torch.nn.Module):
        self.trainer = trainer

    @classmethod
    def part(cls, trainer) -> dict:
        """`{"trainer": …}` for a checkpoint; empty where the trainer has no state of its own."""
        state = cls(trainer)
        return {"trainer": state} if state.state_dict() else {}

    def state_dict(self) -> dict:
        """Name -> tensor of the further networks and buffers."""
        return {name: value for name, value in self.trainer.state_dict().items() if not name.startswith(self._OTHERS)}

    def load_state_dict(self, state: dict) -> None:
        """Restore the state from `state_dict`. Raises RuntimeError where it does not fit."""
        state = {
            re.sub(r"^further\.", "added_losses.", name): value for name, value in state.items()
        }  # their name until version 0.2.1
        missing, unexpected = self.trainer.load_state_dict(state, strict=False)
        if wrong := [name for name in missing if not name.startswith(self._OTHERS)] + unexpected:
            raise RuntimeError(f"missing or unknown: {', '.join(wrong)}")
