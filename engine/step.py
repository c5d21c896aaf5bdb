"""One training step: a trainer's outputs and losses, their weighted sum, the optimiser, the sampler's memory."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch

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

    images: their number. gradients: what `engine.gradients.GradientEntries` measured; empty: nothing.
    """

    loss: torch.Tensor
    losses: dict
    gradient_norm: torch.Tensor
    images: int
    gradients: Mapping = MappingProxyType({})


class RestingBackbone:
    """Freezes the network's `backbone` in the first `steps` steps: no gradients, and evaluation mode for BatchNorm and
    dropout.

    Args:
        batches: steps of an epoch.
        flag: the flag that asks for it, for messages.

    Raises UserError where there is no backbone, or nothing else to train.
    """

    def __init__(self, network: torch.nn.Module, steps: int = 0, batches: int = 0, flag: str = ""):
        self.backbone = getattr(network, "backbone", None)
        self.steps = steps
        self.batches = batches
        self.left = 0
        self.resting = []
        if steps and self.backbone is None:
            raise UserError(f"{flag}: the network does not declare its backbone (attribute `backbone`)")
        if steps and not set(network.parameters()) - set(self.backbone.parameters()):
            raise UserError(f"{flag}: --embed_dim 0 leaves no layers behind the backbone that could train")

    def end(self) -> None:
        """Unfreeze what `begin` froze."""
        for parameter in self.resting:
            parameter.requires_grad_(True)
        self.resting = []

    def begin(self, epoch: int) -> None:
        """Freeze the backbone if the first step of `epoch`, counted from 1, is one of the first."""
        self.left = self.steps - (epoch - 1) * self.batches
        if self.left > 0:
            self.resting = [parameter for parameter in self.backbone.parameters() if parameter.requires_grad]
            for parameter in self.resting:
                parameter.requires_grad_(False)
            self.backbone.eval()

    def wakes(self) -> bool:
        """Count a step; whether the backbone trains again from this one on."""
        self.left -= 1
        return bool(self.resting) and self.left < 0


def build_step(opt, trainer, optimizer, runtime, sampler, average=None) -> "Step":
    """The step that the flags ask for. `average`: the moving average of the network's weights, under `--ema_decay`."""
    if average is not None:
        runtime.place(average.network)
    batches = opt.iterations_per_epoch or len(sampler)
    flag = (
        f"--freeze_backbone_steps {opt.freeze_backbone_steps}"
        if opt.freeze_backbone_steps
        else f"--warmup_head_epochs {opt.warmup_head_epochs}"
    )
    return Step(
        trainer,
        optimizer,
        runtime,
        sampler,
        parse_weights(opt.loss_weights),
        opt.chunk_size if opt.chunk_size < opt.bs * trainer.VIEWS else 0,
        rates=build_step_factor(opt, batches),
        average=average,
        pixel=pixel_of(trainer.network, opt.random_erasing_value or [0.0]) if opt.random_erasing else None,
        resting=RestingBackbone(
            trainer.network, opt.freeze_backbone_steps or opt.warmup_head_epochs * batches, batches, flag
        ),
    )


class Step:
    """`step(batch)`: one optimiser step on a batch.

    Args:
        optimizer: of all the trainer's networks and its criterion.
        sampler: gets the batch's embeddings after each step.
        weights: name -> weight of a loss in the sum, as `--loss_weights` asks; else the trainer's own, else 1.
        chunk_size: images that go through the network at once, see `engine.chunks`; 0: the whole batch.
        average: the moving average of the network's weights, a `trainers._averaging.MovingAverage`.
        pixel: of erased rectangles, `engine.erasing.pixel_of` the network; for batches that have some.

    Attributes:
        evaluated: the network that is evaluated: the average where there is one.
        parts: name -> object whose state checkpoints hold. `model`: the evaluated network; with an average, `trained`:
        the trained one.

    Raises UserError for a weight of a loss that the trainer does not declare.
    """

    def __init__(
        self,
        trainer,
        optimizer,
        runtime,
        sampler,
        weights: dict,
        chunk_size=0,
        *,
        rates=None,
        resting=None,
        average=None,
        pixel=None,
    ):
        self.trainer = trainer
        self.optimizer = optimizer
        self.runtime = runtime
        self.sampler = sampler
        self.chunks = Chunks(trainer, runtime, chunk_size)
        self.backward_calls = ()
        self.pixel = pixel
        self.parts_of_batch = Parts(trainer, runtime, self.chunks)
        self.rates = rates or StepFactor()
        self.resting = resting or RestingBackbone(trainer.network)
        self.average = average
        self.evaluated, trained = (
            (trainer.network, {}) if average is None else (average.network, {"trained": trainer.network})
        )
        self.parts = {
            "model": self.evaluated,
            "criterion": trainer.criterion,
            "optimizer": optimizer,
            "scaler": runtime.scaler,
            "sampler": sampler,
            **trained,
        }
        self.gradients = GradientEntries(trainer.network)
        self.added_losses = {added.NAME: added for added in trainer.added_losses}
        self.asked = set(weights)
        self.weights = {**trainer.WEIGHTS, **weights}
        if trainer.LOSSES is not None:
            self._refuse_unknown([*trainer.LOSSES, *self.added_losses])

    def _refuse_unknown(self, names) -> None:
        unknown = sorted(self.asked - {*names, *self.trainer.WEIGHTS})
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
        if self.chunks.size and uses_batch_statistics(self.trainer):
            self.runtime.say_once(
                f"--chunk_size {self.chunks.size}: BatchNorm takes its batch statistics from each chunk, not from "
                "the batch, and its running ones move once a chunk"
            )
        if self.runtime.ranks.size > 1 and not self.runtime.sync_bn and uses_batch_statistics(self.trainer):
            self.runtime.say_once(
                f"torchrun, {self.runtime.ranks.size} processes: BatchNorm takes its batch statistics from each "
                "process's part of the batch, "
                "not from the batch: numbers differ from those of one process (on GPUs --sync_bn takes them from the "
                "batch; _frozen networks "
                "take none)"
            )
        trained = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        lost = next(
            (name for name, p in self.trainer.named_parameters() if p.requires_grad and id(p) not in trained), None
        )
        if lost is not None:
            raise UserError(
                f"the trainer's parameter {lost} requires a gradient and is in no optimiser group: return it from "
                "param_groups"
            )

    def end_epoch(self) -> None:
        """End an epoch: raise NonFiniteLoss where a loss or gradient was not finite, and give all processes the same
        running statistics.
        """
        self.runtime.check_finite()
        averaged = [] if self.average is None else running_statistics(self.average.network, like=self.trainer.network)
        self.runtime.ranks.mean_(running_statistics(self.trainer) + averaged)

    def __call__(self, batch) -> StepResult:
        """Forward, losses, backward, update."""
        if self.resting.wakes():
            self.resting.end()
            self.trainer.network.train(self.trainer.network.training)  # not where the trainer lets all of it rest
        batch = self.seen(batch)
        if self.trainer.subset is not None:  # chooses the part of the batch that is trained on
            batch = self.trainer.subset(self.trainer, batch, self.runtime)
        outputs, losses, loss = self.forward(batch)
        loss = (
            loss + (evaluated_embeddings(outputs).detach() * 0).sum()
        )  # of NaN no tuple may be mined: the run must stop all the same
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
        return StepResult(loss.detach(), parts, gradient_norm, len(batch.indices), self.gradients.values)

    def seen(self, batch):
        """The batch; images that lose rectangles know now with which pixel."""
        if isinstance(batch.images, Erased):
            batch.images.pixel = self.pixel
        return batch

    def _outputs(self, images: "torch.Tensor | Erased", total: int) -> dict:
        """The trainer's outputs in full precision. `images`: all `total` of the batch, or this process's part of them.

        Sets `backward_calls`, the functions that backpropagate through the network after the loss's own backward pass.
        """
        ranks = self.runtime.ranks
        if ranks.cuts(total):
            self.backward_calls = (self.parts_of_batch.backward,)
            return self.parts_of_batch.outputs(images[ranks.part(total)] if len(images) == total else images, total)
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
        if len(batch.labels) < total:
            batch = batch._replace(**self.runtime.ranks.gather({"labels": batch.labels}, total))
        with span("network"):
            outputs = self._outputs(batch.images, total)
        with span("loss"), self.runtime.exact_products():
            losses = self.trainer.losses(outputs, batch)
        if self.trainer.LOSSES is None:
            self._refuse_unknown([*losses, *self.added_losses])  # a memory's begins later
        later = METRIC_LOSS in (self.trainer.LOSSES or ()) and METRIC_LOSS not in losses  # it comes in another phase
        if idle := next((added.FLAG for added in self.added_losses.values() if not (added.used or later)), None):
            raise UserError(
                f"{idle} has no effect with this --trainer, whose losses do not call the base's: leave it out"
            )
        if taken := TAKEN_NAMES & set(losses):
            raise UserError(f"a trainer's loss cannot be called {min(taken)!r}: the records have that name already")
        counted = {
            name: part for name, part in losses.items() if self.weights.get(name, 1) != 0
        }  # 0 times infinity is no number
        if not counted:
            raise UserError(
                f"--loss_weights: all of {', '.join(losses)} weigh 0, so that nothing is trained. Give one a weight"
            )
        return (
            outputs,
            losses,
            sum(self.weights[name] * part if name in self.weights else part for name, part in counted.items()),
        )
