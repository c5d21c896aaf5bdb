"""One training step: a trainer's outputs and losses, their weighted sum, the optimiser, the sampler's memory."""

import math
from typing import NamedTuple

import torch

from utilities.errors import UserError


class Done(NamedTuple):
    """What a step leaves behind, all on the device: the minimised sum `loss`, its parts by name, the gradient's norm; and how many images."""

    loss: torch.Tensor
    losses: dict
    gradient_norm: torch.Tensor
    images: int


def parse_weights(words: list[str]) -> dict[str, float]:
    """`["metric_loss=1", "classifier_loss=.5"]` -> name -> weight. Raises UserError for a word that says no weight."""
    weights = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            weights[name] = float(text)
        except ValueError:
            weights[name] = math.nan
        if not name or not math.isfinite(weights[name]):
            raise UserError(f"--loss_weights {word}: expected NAME=W, such as metric_loss=0.5")
    return weights


class Step:
    """`step(batch)`: one optimiser step on a batch.

    Args:
        trainer: what happens in a step; see `trainers`.
        optimizer: of all its networks and its criterion.
        runtime: where and how.
        sampler: is handed the batch's embeddings.
        weights: name -> weight of a loss in the sum, as `--loss_weights` asks; else the trainer's own, else 1.

    Raises UserError for a weight of a loss that the trainer says it does not have.
    """

    def __init__(self, trainer, optimizer, runtime, sampler, weights: dict[str, float]):
        self.trainer, self.optimizer, self.runtime, self.sampler = trainer, optimizer, runtime, sampler
        self.asked, self.weights = set(weights), {**trainer.WEIGHTS, **weights}
        if trainer.LOSSES is not None:
            self._refuse_unknown(trainer.LOSSES)

    def _refuse_unknown(self, names) -> None:
        unknown = sorted(self.asked - {*names, *self.trainer.WEIGHTS})
        if unknown:
            raise UserError(f"--loss_weights {unknown[0]}: the trainer has no such loss; it has {', '.join(names)}")

    def start_epoch(self, epoch: int) -> None:
        """Begin an epoch, counted from 1: training mode, the trainer's phase, the sampler's batches."""
        self.trainer.train()
        self.runtime.start_epoch(epoch)
        self.trainer.start_epoch(epoch)
        self.sampler.precompute_indices()
        trained = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        lost = next((name for name, p in self.trainer.named_parameters() if p.requires_grad and id(p) not in trained), None)
        if lost is not None:
            raise UserError(f"the trainer's parameter {lost} requires a gradient and is in no optimiser group: return it from param_groups")

    def __call__(self, batch) -> Done:
        """Forward, losses, backward, update."""
        outputs, losses, loss = self.forward(batch)
        gradient_norm = self.runtime.step(loss, self.optimizer)
        self.sampler.replace_storage_entries(outputs["embeddings"].detach(), batch.indices)
        self.trainer.after_step()
        return Done(loss.detach(), {name: part.detach() for name, part in losses.items()}, gradient_norm, len(batch.images))

    def forward(self, batch) -> tuple[dict, dict, torch.Tensor]:
        """The outputs in full precision, the losses by name, and their weighted sum.

        Raises UserError for a weight of a loss that the trainer does not have.
        """
        batch = batch._replace(labels=self.runtime.to_device(batch.labels))
        with self.runtime.autocast():
            outputs = self.trainer.outputs(self.runtime.to_device(batch.images))
        outputs = self.runtime.full(outputs)
        losses = self.trainer.losses(outputs, batch)
        if self.trainer.LOSSES is None:
            self._refuse_unknown(losses)
        if taken := {"loss", "gradient_norm"} & set(losses):
            raise UserError(f"a trainer's loss cannot be called {min(taken)!r}: the records have that name already")
        counted = {name: part for name, part in losses.items() if self.weights.get(name, 1) != 0}  # 0 times infinity is no number
        if not counted:
            raise UserError(f"--loss_weights: all of {', '.join(losses)} weigh 0, so that nothing is trained. Give one a weight")
        return outputs, losses, sum(self.weights[name] * part if name in self.weights else part for name, part in counted.items())
