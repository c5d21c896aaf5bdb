"""Base of the trainers: the network's outputs, the criterion's call, optimiser groups of further networks.

`Trainer` is the class that training methods extend, `PlainTrainer` what a user's trainer gets that is a plain module,
`TrainerState` what a checkpoint holds of a trainer beside network and criterion.
"""

import functools
import inspect
import re

import torch

from options.flags import Flag
from trainers import _heads
from trainers._distill import Distill
from trainers._guide import ARGUMENT, GuidedNegatives, guided
from trainers._heads import MAIN_EMBEDDING
from trainers._language import Language
from trainers._memory import Memory
from trainers._metrix import MAPS, Metrix
from trainers._regularizers import EmbedRegularizer, WeightRegularizer
from utilities.numbers import whole
from utilities.registry import Registry

METRIC_LOSS = "metric_loss"  # a trainer's loss to which memory and regularisers are added
HEADS = "evaluated_heads"  # a trainer's attribute, and the prefix of their state in a checkpoint

FLAGS = {
    "--loss_weights": Flag(
        str,
        [],
        "weights of the trainer's losses in their sum, such as metric_loss=1 classifier_loss=.5 (default: 1, "
        "where the trainer has none of its own: docs/training_methods.md)",
        nargs="*",
        metavar="NAME=W",
    ),
    "--views": Flag(
        whole(1, 100),
        None,
        "augmentations of each image in a batch, which then holds --bs images and V times as many embeddings "
        "(unset: 2 for unsupervised and diva, else 1)",
        metavar="V",
    ),
}


def derived(opt) -> dict:
    """Views of an image, as many as the trainer takes by itself."""
    return {"views": views(opt.trainer)}


def views(name: str) -> int:
    """Number of augmented views of each image that a method takes unless `--views` is given."""
    trainer = Registry("trainers", "trainer").module(name).Trainer
    return getattr(trainer, "VIEWS", Trainer.VIEWS)


# flag -> the loss that it adds
ADDED = {
    "memory_size": Memory,
    "embed_regularizer": EmbedRegularizer,
    "weight_regularizer": WeightRegularizer,
    "language_vectors": Language,
    "metrix": Metrix,
    "teacher": Distill,
    "guide": GuidedNegatives,
}


def build_added_losses(opt, network, criterion) -> torch.nn.ModuleList:
    """The losses that flags add to the criterion's, each a `trainers._added_losses.AddedLoss`."""
    kinds = [kind for flag, kind in ADDED.items() if getattr(opt, flag)]
    return torch.nn.ModuleList(kind(opt, network, criterion) for kind in kinds)


def groups_of(trainer, opt) -> list[dict]:
    """The optimiser groups of a trainer's further networks, with the layers of added losses that it does not name."""
    groups = [{**group, "params": list(group["params"])} for group in trainer.param_groups(opt)]
    grouped = {id(parameter) for group in groups for parameter in group["params"]}
    layers = [p for p in trainer.added_losses.parameters() if p.requires_grad and id(p) not in grouped]
    if layers:
        groups.append({"params": layers, "name": "added_losses"})
    return groups


def evaluated_embeddings(outputs: dict) -> torch.Tensor:
    """The evaluated embeddings `(B, D)` among a trainer's outputs; a user's trainer may give "embeddings" alone."""
    return outputs.get("evaluated", outputs["embeddings"])


def features_for(criterion, outputs: dict) -> dict:
    """The argument `batch_features` of a criterion: the pooled features `(B, F)`, None where the network gives none.

    Under torchrun reading them gathers them, which is done only for a criterion whose `forward` names them.
    """
    if "pooled" not in outputs and not _reads_features(criterion):
        return {"batch_features": None}
    try:
        return {"batch_features": outputs["pooled"]}
    except KeyError:
        return {"batch_features": None}


def _reads_features(criterion) -> bool:
    """Whether a criterion, or one inside it, has an argument `batch_features`."""
    return any("batch_features" in inspect.signature(part.forward).parameters for part in criterion.modules())


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
        GUIDES: whether all comparisons of samples are by `metric_loss`, in which `--guide` drops negatives.
        LOSSES: the names that `losses` may return in any phase; None: not known beforehand.
    """

    VIEWS = 1
    LABELS = True
    GUIDES = True
    WEIGHTS = {}
    LOSSES = None
    evaltypes = ()
    subset = None  # `_subset.MaximumLoss` under `--subset_mining`
    stored_calls = None  # `engine.chunks.StoredCalls` while a batch is run in chunks

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        super().__init__()
        self.network = network
        self.criterion = criterion
        self.evaltypes = [*opt.evaltypes, MAIN_EMBEDDING]
        self.compares_before_neck = opt.neck_feature == "before"
        self.keeps_maps = bool(opt.metrix) and opt.metrix_level == "feature"
        self.added_losses = build_added_losses(opt, network, criterion)
        self.evaluated_heads = self.build_heads(opt, network)
        self.VIEWS = opt.views or self.VIEWS

    @classmethod
    def build_heads(cls, opt, network: torch.nn.Module) -> "_heads.Heads | None":
        """Layers behind the network whose outputs `--evaltypes` may name; None: none.

        They are made from flags, `opt.n_classes` and the network. A trainer holds them as `evaluated_heads`; a saved
        run, which has neither criterion nor data, builds them again by this.
        """
        return None

    def evaluated(self, network: torch.nn.Module | None = None) -> torch.nn.Module:
        """The network for evaluation, `images -> (embeddings, features)`, with the heads if `--evaltypes` need them.

        network: None: the trained network.
        """
        if network is None:
            network = self.network
        return _heads.evaluated(network, getattr(self, HEADS, None), self.evaltypes)

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
        """Outputs per image that memory and regularisers need.

        A trainer that calls its network itself has to add them.
        """
        outputs = {}
        for added in self.added_losses:
            outputs |= self.once(functools.partial(added.outputs, images, self.named))
        return outputs

    def once(self, make):
        """`make()`, called only once per chunk: under `--chunk_size` a chunk's `outputs` run twice.

        For the parts of `outputs` without a gradient that must not run again, such as momentum encoders and anything
        else with a state of its own. BatchNorm's running statistics need no such care.
        """
        return make() if self.stored_calls is None else self.stored_calls(make)

    def named(self, embeddings, features: dict) -> dict:
        """What a network gives, in the form of `outputs`: decides what losses see and what is evaluated.

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
        names = ["pooled", MAPS] if self.keeps_maps else ["pooled"]
        outputs = {name: features[name] for name in names if name in features}
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
        for added in self.added_losses:
            outputs, batch = added.without_noise(outputs, batch)
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
        if ARGUMENT not in reference:
            reference |= guided(self, batch)
        if batch.relevance is not None:
            reference = {**reference, "relevance": batch.relevance}
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
        """Optimiser groups of the further networks, every parameter in exactly one.

        By default one group at `--lr` and `--decay`.
        """
        return [{"params": self.own_parameters(), "name": "trainer"}]

    def start_epoch(self, epoch: int) -> None:
        """Called before each epoch, counted from 1, for methods with phases."""

    def after_step(self) -> None:
        """Called after each optimiser step, for moving averages and queues."""


class PlainTrainer(Trainer):
    """What a user's trainer that is a plain module inherits behind its own class: the base but for its constructor."""

    def __init__(self):
        torch.nn.Module.__init__(self)


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
        # Until version 0.2.1 the added losses were called `further`.
        state = {re.sub(r"^further\.", "added_losses.", name): value for name, value in state.items()}
        missing, unexpected = self.trainer.load_state_dict(state, strict=False)
        misfits = [name for name in missing if not name.startswith(self._OTHERS)] + unexpected
        if misfits:
            raise RuntimeError(f"missing or unknown: {', '.join(misfits)}")
