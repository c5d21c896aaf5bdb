"""One training step: a trainer's outputs and losses, their weighted sum, the optimiser, the sampler's memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import torch

from engine import collapse
from engine.chunks import Chunks
from engine.erasing import Erased, pixel_of
from engine.gradients import GradientEntries
from engine.optimisers import StepFactor, build_step_factor
from engine.parts import Parts
from trainers import METRIC_LOSS, evaluated_embeddings
from utilities.batchnorm import running_statistics, uses_batch_statistics
from utilities.errors import UserError
from utilities.spans import span
from utilities.words import parse_weights

# Names of the records, which no loss of a trainer can have.
TAKEN_NAMES = {"loss", "gradient_norm", "gradient_rms", "gradient_max", "epoch_seconds"}


class StepResult(NamedTuple):
    """The result of a step, on the device: the minimised sum `loss`, its parts by name, the gradient's norm.

    images: their number. gradients: what `engine.gradients.GradientEntries` measured; empty: nothing. statistics: of
    the embeddings, see `engine.collapse.statistics`.
    """

    loss: torch.Tensor
    losses: dict
    gradient_norm: torch.Tensor
    images: int
    gradients: Mapping = MappingProxyType({})
    statistics: Mapping = MappingProxyType({})


class RestingBackbone:
    """Freezes the network's `backbone` in the first `steps` steps.

    It gets no gradients, and its BatchNorm and dropout are in evaluation mode.

    Args:
        batches: steps per epoch.
        flag: the flag that requests it, for messages.
        heads: parameters of a trainer's layers that train meanwhile.

    Raises UserError if the network has no backbone, or nothing else to train.
    """

    def __init__(self, network: torch.nn.Module, steps: int = 0, batches: int = 0, flag: str = "", heads=frozenset()):
        self.backbone = getattr(network, "backbone", None)
        self.steps = steps
        self.batches = batches
        self.steps_left = 0
        self.resting = []
        if steps and self.backbone is None:
            raise UserError(f"{flag}: the network does not declare its backbone (attribute `backbone`)")
        if steps and not heads and not set(network.parameters()) - set(self.backbone.parameters()):
            raise UserError(f"{flag}: --embed_dim 0 leaves no layers behind the backbone that could train")

    def end(self) -> None:
        """Unfreeze what `begin` froze."""
        for parameter in self.resting:
            parameter.requires_grad_(True)
        self.resting = []

    def begin(self, epoch: int) -> None:
        """Freeze the backbone if the first step of `epoch`, counted from 1, is one of the first."""
        self.steps_left = self.steps - (epoch - 1) * self.batches
        if self.steps_left > 0:
            self.resting = [parameter for parameter in self.backbone.parameters() if parameter.requires_grad]
            for parameter in self.resting:
                parameter.requires_grad_(False)
            self.backbone.eval()

    def wakes(self) -> bool:
        """Count a step; whether the backbone trains again from this one on."""
        self.steps_left -= 1
        return bool(self.resting) and self.steps_left < 0


@dataclass(frozen=True)
class StepSettings:
    """What the flags change in a step.

    weights: name -> weight of a loss in the sum; without one the trainer's own weight, else 1.
    chunk_size: images that go through the network at once, see `engine.chunks`; 0: the whole batch.
    rates: the factor of the learning rates in each step.
    resting: the backbone that is frozen in the first steps; None: none.
    average: the moving average of the network's weights, a `trainers._averaging.MovingAverage`; None: none.
    pixel: what erased rectangles are filled with, `engine.erasing.pixel_of`; None where no image has any.
    """

    weights: dict = field(default_factory=dict)
    chunk_size: int = 0
    rates: StepFactor = field(default_factory=StepFactor)
    resting: RestingBackbone | None = None
    average: torch.nn.Module | None = None
    pixel: torch.Tensor | None = None


def build_step(opt, trainer, optimizer, runtime, sampler, average=None) -> "Step":
    """The step that the flags ask for. `average`: the moving average of the network's weights, under `--ema_decay`."""
    if average is not None:
        runtime.place(average.network)
    batches = opt.iterations_per_epoch or len(sampler)
    chunk_size = opt.chunk_size if opt.chunk_size < opt.bs * trainer.VIEWS else 0
    pixel = None
    if opt.random_erasing:
        pixel = pixel_of(trainer.network, opt.random_erasing_value or [0.0])
    settings = StepSettings(
        weights=parse_weights(opt.loss_weights),
        chunk_size=chunk_size,
        rates=build_step_factor(opt, batches),
        resting=_resting_backbone(opt, trainer, batches),
        average=average,
        pixel=pixel,
    )
    return Step(trainer, optimizer, runtime, sampler, settings)


def _resting_backbone(opt, trainer, batches: int) -> RestingBackbone:
    """The backbone that `--freeze_backbone_steps` or `--warmup_head_epochs` freezes at the start."""
    network = trainer.network
    heads = set(trainer.parameters()) - set(network.parameters()) - set(trainer.criterion.parameters())
    if opt.freeze_backbone_steps:
        flag = f"--freeze_backbone_steps {opt.freeze_backbone_steps}"
        return RestingBackbone(network, opt.freeze_backbone_steps, batches, flag, heads)
    flag = f"--warmup_head_epochs {opt.warmup_head_epochs}"
    return RestingBackbone(network, opt.warmup_head_epochs * batches, batches, flag, heads)


class Step:
    """`step(batch)`: one optimiser step on a batch.

    Args:
        optimizer: of all the trainer's networks and its criterion.
        sampler: gets the batch's embeddings after each step.
        settings: what the flags change.

    Attributes:
        evaluated: the network that is evaluated: the average if there is one.
        parts: name -> object whose state checkpoints hold. `model`: the evaluated network; with an average, `trained`:
        the trained one.

    Raises UserError for a weight of a loss that the trainer does not declare.
    """

    def __init__(self, trainer, optimizer, runtime, sampler, settings: StepSettings | None = None):
        settings = settings or StepSettings()
        self.trainer = trainer
        self.optimizer = optimizer
        self.runtime = runtime
        self.sampler = sampler
        self.chunks = Chunks(trainer, runtime, settings.chunk_size)
        self.parts_of_batch = Parts(trainer, runtime, self.chunks)
        self.backward_calls = ()
        self.statistics = {}
        self.rates = settings.rates
        self.resting = settings.resting or RestingBackbone(trainer.network)
        self.pixel = settings.pixel
        self.average = settings.average
        self.evaluated = trainer.network if self.average is None else self.average.network
        self.parts = {
            "model": self.evaluated,
            "criterion": trainer.criterion,
            "optimizer": optimizer,
            "scaler": runtime.scaler,
            "sampler": sampler,
        }
        if self.average is not None:
            self.parts["trained"] = trainer.network
        self.gradients = GradientEntries(trainer.network)
        self.added_losses = {added.NAME: added for added in trainer.added_losses}
        self.weighted_by_flag = set(settings.weights)
        self.weights = {**trainer.WEIGHTS, **settings.weights}
        if trainer.LOSSES is not None:
            self._refuse_unknown([*trainer.LOSSES, *self.added_losses])

    def _refuse_unknown(self, names) -> None:
        unknown = sorted(self.weighted_by_flag - {*names, *self.trainer.WEIGHTS})
        if unknown:
            raise UserError(f"--loss_weights {unknown[0]}: the trainer has no such loss; it has {', '.join(names)}")

    def start_epoch(self, epoch: int) -> None:
        """Begin an epoch, counted from 1: training mode, the trainer's phase, the sampler's batches."""
        self.resting.end()
        self.trainer.train()
        self.runtime.ranks.same_draws(self.runtime.device)
        self.runtime.start_epoch(epoch)
        self.trainer.start_epoch(epoch)
        self.resting.begin(epoch)
        self.rates.start_epoch(epoch)
        self.sampler.precompute_indices()
        self._report_batch_statistics()
        self._refuse_untrained_parameters()

    def _report_batch_statistics(self) -> None:
        """Print where BatchNorm sees less than the batch: in chunks, and in several processes."""
        if not uses_batch_statistics(self.trainer):
            return
        ranks = self.runtime.ranks
        if self.chunks.size:
            self.runtime.say_once(
                f"--chunk_size {self.chunks.size}: BatchNorm takes its batch statistics from each chunk, not from "
                "the batch, and its running ones move once a chunk"
            )
        if ranks.size > 1 and not self.runtime.sync_bn:
            self.runtime.say_once(
                f"torchrun, {ranks.size} processes: BatchNorm takes its batch statistics from each process's part of "
                "the batch, not from the batch: numbers differ from those of one process (on GPUs --sync_bn takes "
                "them from the batch; _frozen networks take none)"
            )

    def _refuse_untrained_parameters(self) -> None:
        """Raise UserError for a parameter of the trainer that requires a gradient and that the optimiser lacks."""
        trained = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        for name, parameter in self.trainer.named_parameters():
            if parameter.requires_grad and id(parameter) not in trained:
                raise UserError(
                    f"the trainer's parameter {name} requires a gradient and is in no optimiser group: return it "
                    "from param_groups"
                )

    def end_epoch(self) -> None:
        """End an epoch: give all processes the same running statistics.

        Raises NonFiniteLoss where a loss or gradient of the epoch was not finite.
        """
        self.runtime.check_finite()
        statistics = running_statistics(self.trainer)
        if self.average is not None:
            statistics += running_statistics(self.average.network, like=self.trainer.network)
        self.runtime.ranks.mean_(statistics)

    def __call__(self, batch) -> StepResult:
        """Forward, losses, backward, update."""
        if self.resting.wakes():
            self.resting.end()
            # The backbone takes the mode of the network, which is not training where the trainer lets all of it rest.
            self.trainer.network.train(self.trainer.network.training)
        batch = self.seen(batch)
        # chooses the part of the batch that is trained on
        if self.trainer.subset is not None:
            batch = self.trainer.subset(self.trainer, batch, self.runtime)
        outputs, losses, loss = self.forward(batch)
        # If embeddings are NaN no tuple may be mined and the loss is 0: the run must stop all the same.
        loss = loss + (evaluated_embeddings(outputs).detach() * 0).sum()
        with self.rates.step(self.optimizer):
            self.runtime.on_gradients = self.gradients.measure
            gradient_norm = self.runtime.step(loss, self.optimizer, *self.backward_calls)
        self.sampler.replace_storage_entries(evaluated_embeddings(outputs).detach(), batch.indices)
        self.trainer.after_step()
        for added in self.added_losses.values():
            added.after_step(self.trainer.network)
        if self.average is not None:
            self.average.update(self.trainer.network)
        parts = {name: part.detach() for name, part in losses.items()}
        return StepResult(
            loss.detach(), parts, gradient_norm, len(batch.indices), self.gradients.values, self.statistics
        )

    def seen(self, batch):
        """The batch; images with erased rectangles get the pixel that fills them."""
        if isinstance(batch.images, Erased):
            batch.images.pixel = self.pixel
        return batch

    def _outputs(self, images: "torch.Tensor | Erased", total: int) -> dict:
        """The trainer's outputs in full precision. `images`: all `total` of the batch, or this process's part of them.

        Sets `backward_calls`, the functions that backpropagate through the network after the loss's own backward pass.
        """
        ranks = self.runtime.ranks
        if ranks.cuts(total):
            if len(images) == total:
                images = images[ranks.part(total)]
            self.backward_calls = (self.parts_of_batch.backward,)
            return self.parts_of_batch.outputs(images, total)
        if 0 < self.chunks.size < len(images):
            self.backward_calls = (self.chunks.backward,)
            return self.chunks.outputs(images)
        self.backward_calls = ()
        with self.runtime.autocast():
            outputs = self.trainer.outputs(self.runtime.to_device(images))
        return self.runtime.full(outputs)

    def forward(self, batch) -> tuple[dict, dict, torch.Tensor]:
        """The outputs in full precision, the losses by name, their weighted sum.

        Raises UserError for the weight of an unknown loss, for a loss with a name that the records use, where every
        weight is 0, and for an addition to the metric loss that the trainer never uses.
        """
        total = len(batch.indices)
        batch = self.seen(batch)._replace(labels=self.runtime.to_device(batch.labels))
        if batch.relevance is not None:
            batch = batch._replace(relevance=self.runtime.to_device(batch.relevance))
        if len(batch.labels) < total:
            batch = batch._replace(**self.runtime.ranks.gather({"labels": batch.labels}, total))
        with span("network"):
            outputs = self._outputs(batch.images, total)
        with span("loss"), self.runtime.exact_products():
            losses = self.trainer.losses(outputs, batch)
            self.statistics = collapse.statistics(outputs["embeddings"], batch.labels, batch.indices, batch.relevance)
        self._check_losses(losses)
        return outputs, losses, self._weighted_sum(losses)

    def _check_losses(self, losses: dict) -> None:
        """Raise UserError for a reserved name, and for flags that the trainer's losses leave without effect."""
        if self.trainer.LOSSES is None:
            # All names are passed, as the loss of a memory begins later.
            self._refuse_unknown([*losses, *self.added_losses])
        in_later_phase = METRIC_LOSS in (self.trainer.LOSSES or ()) and METRIC_LOSS not in losses
        for added in self.added_losses.values():
            if not (added.used or in_later_phase):
                raise UserError(
                    f"{added.FLAG} has no effect with this --trainer, whose losses do not call the base's: leave it out"
                )
        reserved = TAKEN_NAMES & set(losses)
        if reserved:
            raise UserError(f"a trainer's loss cannot be called {min(reserved)!r}: the records have that name already")

    def _weighted_sum(self, losses: dict) -> torch.Tensor:
        """The sum that the step minimises. Raises UserError where every weight is 0."""
        weighted = []
        for name, value in losses.items():
            weight = self.weights.get(name)
            if weight is None:
                weighted.append(value)
            elif weight != 0:
                # A weight of 0 leaves the loss out, as 0 times infinity is no number.
                weighted.append(weight * value)
        if not weighted:
            raise UserError(
                f"--loss_weights: the weights of {', '.join(losses)} are all 0, so nothing is trained. Give one a "
                "weight"
            )
        return sum(weighted)
