"""What all trainers share: the network's outputs, the criterion's call, optimiser groups of further networks."""

import functools

import torch

from trainers import _heads
from trainers._heads import MAIN_EMBEDDING
from trainers._memory import Memory
from trainers._regularizers import EmbedRegularizer, WeightRegularizer
from utilities.numbers import whole
from utilities.step import METRIC_LOSS

HEADS = "evaluated_heads"  # a trainer's attribute, and the prefix of their state in a checkpoint


def add_arguments(group) -> None:
    """Declare the flag that all trainers read."""
    group.add_argument(
        "--loss_weights", nargs="*", default=[], metavar="NAME=W",
        help="weights of the trainer's losses in their sum, such as metric_loss=1 classifier_loss=.5 (default: 1 each)",
    )  # fmt: skip
    group.add_argument(
        "--views", type=whole(1, 100), default=None, metavar="V",
        help="augmentations of each image in a batch, which then holds --bs images and V times as many embeddings (unset: 2 for unsupervised and diva, else 1)",
    )  # fmt: skip


def further_losses(opt, network, criterion) -> torch.nn.ModuleList:
    """What flags add to the criterion's loss, each a `trainers._further.Further`."""
    kinds = {"memory_size": Memory, "embed_regularizer": EmbedRegularizer, "weight_regularizer": WeightRegularizer}
    return torch.nn.ModuleList(kind(opt, network, criterion) for flag, kind in kinds.items() if getattr(opt, flag, None))


def width(network: torch.nn.Module, opt) -> int:
    """Dimensions of the embedding that a trainer trains: by a network's `embed_dims` (name -> dimensions), else its `embed_dim`."""
    widths = getattr(network, "embed_dims", None)
    return _heads.main_of(widths, [*getattr(opt, "evaltypes", []), MAIN_EMBEDDING]) if widths else network.embed_dim


class Trainer(torch.nn.Module):
    """What happens in a step, in two halves, so that a step may be cut into chunks and over processes.

    Further networks (heads, a generator, a moving average) are submodules: they are moved, checkpointed and counted like the network.

    Args:
        opt: the resolved flags.
        network: `network(images) -> (embeddings, features)`; embeddings `(B, D)`, or a dict of several.
        criterion: `criterion(batch, labels, **kwargs) -> scalar`.

    Attributes:
        VIEWS: augmented views of every image that a batch holds; `--views` wins.
        LABELS: whether training looks at labels; False: samplers draw each image as a class of its own.
        WEIGHTS: name -> weight of a loss in the step's sum where it is not 1; `--loss_weights` wins.
        LOSSES: the names that `losses` may give in any phase; None: not told before they come.
    """

    VIEWS = 1
    LABELS = True
    WEIGHTS = {}
    LOSSES = None
    once_a_chunk = None  # `utilities.chunks.Once` while a batch is run in chunks

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        super().__init__()
        self.network, self.criterion = network, criterion
        self.evaltypes = [*getattr(opt, "evaltypes", []), MAIN_EMBEDDING]
        self.further = further_losses(opt, network, criterion)
        self.evaluated_heads = self.build_heads(opt, network)
        self.VIEWS = getattr(opt, "views", None) or self.VIEWS

    @classmethod
    def build_heads(cls, opt, network: torch.nn.Module) -> "_heads.Heads | None":
        """Layers behind the network whose outputs `--evaltypes` may name, made from flags, `opt.n_classes` and the network; None: none.

        A trainer finds them as `evaluated_heads`; a saved run, which has neither criterion nor data, calls this to have them again.
        """
        return None

    def evaluated(self, network: torch.nn.Module | None = None) -> torch.nn.Module:
        """What evaluation embeds with, `images -> (embeddings, features)`: `network` (default: the trained one), with the heads where `--evaltypes` need them."""
        return _heads.evaluated(self.network if network is None else network, getattr(self, HEADS, None), getattr(self, "evaltypes", []))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The embeddings `(B, D)` that the step goes by, as samplers with a memory store them."""
        return self.outputs(images)["embeddings"]

    def outputs(self, images: torch.Tensor) -> dict:
        """The half of each image, in the chosen precision: entry i of every tensor depends on image i alone.

        Args:
            images: uint8 `(B, 3, H, W)`.

        Returns:
            "embeddings" `(B, D)`, where the network has them "pooled" `(B, F)`; of a network that gives several embeddings each by its
            name too, "embeddings" being the first of `--evaltypes` that it gives, else its first.
        """
        return {**self.named(*self.network(images)), **self.further_outputs(images)}

    def further_outputs(self, images: torch.Tensor) -> dict:
        """What memory and regularisers need of each image beside the trainer's own outputs; a trainer that calls its network itself adds it."""
        made = [self.once(functools.partial(further.outputs, images, self.trained)) for further in self.further]
        return {name: value for outputs in made for name, value in outputs.items()}

    def once(self, make):
        """`make()`, for what `outputs` makes without a gradient and may not make again: under `--chunk_size` a chunk's outputs run twice.

        Momentum encoders and whatever has a state of its own go through here; BatchNorm's running statistics need no such care.
        """
        return make() if self.once_a_chunk is None else self.once_a_chunk(make)

    def trained(self, embeddings):
        """Of a network's embeddings, `(B, D)` or a dict of several, the one that the step goes by."""
        return _heads.main_of(embeddings, self.evaltypes) if isinstance(embeddings, dict) else embeddings

    def named(self, embeddings, features: dict) -> dict:
        """What a network gave, as `outputs` has it."""
        outputs = {"pooled": features["pooled"]} if "pooled" in features else {}
        if isinstance(embeddings, dict):
            outputs = embeddings | outputs
        return {**outputs, "embeddings": self.trained(embeddings)}

    def losses(self, outputs: dict, batch) -> dict:
        """The half of the batch, in float32: name -> scalar over the whole batch. The step minimises their weighted sum.

        Args:
            outputs: what `outputs` gave, of all images.
            batch: `utilities.loading.Batch(labels, images, indices)`.
        """
        raise NotImplementedError

    def metric_loss(self, outputs: dict, batch, **reference) -> torch.Tensor:
        """The criterion on the embeddings, against another `reference` than the batch where one is given."""
        return self.criterion(
            batch=outputs["embeddings"], labels=batch.labels, f_embed=getattr(self.network, "last_linear", None),
            batch_features=outputs.get("pooled"), **reference,
        )  # fmt: skip

    def metric_losses(self, outputs: dict, batch) -> dict:
        """`metric_loss` and what flags add to it: what a trainer that trains the criterion on the embeddings puts among its losses."""
        losses = {METRIC_LOSS: self.metric_loss(outputs, batch)}
        for further in self.further:
            value = further.loss(self, outputs, batch)
            if value is not None:
                losses[further.NAME] = value
        return losses

    def own_parameters(self) -> list[torch.nn.Parameter]:
        """The trainable parameters of further networks: neither the network's nor the criterion's."""
        theirs = {id(p) for module in (self.network, self.criterion) for p in module.parameters()}
        return [p for p in self.parameters() if p.requires_grad and id(p) not in theirs]

    def param_groups(self, opt) -> list[dict]:
        """Optimiser groups of the further networks, every parameter in exactly one; by default one group at `--lr` and `--decay`."""
        return [{"params": self.own_parameters(), "name": "trainer"}]

    def start_epoch(self, epoch: int) -> None:
        """Called before each epoch, counted from 1: phases."""

    def after_step(self) -> None:
        """Called after each optimiser step: moving averages, queues."""


class OwnState:
    """The state of a trainer beside its network and its criterion, which checkpoints hold under names of their own."""

    _OTHERS = ("network.", "criterion.")

    def __init__(self, trainer: torch.nn.Module):
        self.trainer = trainer

    @classmethod
    def part(cls, trainer) -> dict:
        """`{"trainer": …}` for a checkpoint; empty where the trainer has no state of its own."""
        own = cls(trainer)
        return {"trainer": own} if own.state_dict() else {}

    def state_dict(self) -> dict:
        """Name -> tensor of the further networks and buffers."""
        return {name: value for name, value in self.trainer.state_dict().items() if not name.startswith(self._OTHERS)}

    def load_state_dict(self, state: dict) -> None:
        """Restore what `state_dict` gave. Raises RuntimeError where it does not fit."""
        theirs = {name: value for name, value in self.trainer.state_dict().items() if name.startswith(self._OTHERS)}
        self.trainer.load_state_dict({**theirs, **state})
