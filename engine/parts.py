"""The outputs of a batch that is split over the processes of a run, and their backward pass.

The arithmetic: `engine.ranks.Ranks`.
"""

import contextlib

import torch

from engine.chunks import flat, nested
from engine.random_state import draw_state, same_state
from utilities.errors import UserError

# the outputs that few losses read, and the widest
POOLED = "pooled"


class Gathered(dict):
    """A trainer's outputs of the whole batch.

    `late(name)` gives the outputs that are gathered when they are first read, which all processes do at the same place.
    """

    def __init__(self, outputs: dict, late):
        super().__init__(outputs)
        self.late = late

    def __missing__(self, name: str) -> torch.Tensor:
        self[name] = value = self.late(name)
        return value


class Parts:
    """Runs a trainer's `outputs` on this process's part of the batch and gathers the rows of all parts.

    The backward pass goes through the process's own part.

    Args:
        trainer: whose `outputs` runs.
        runtime: device, precision and processes.
        chunks: `engine.chunks.Chunks`, which run a part that is larger than `chunks.size`.
    """

    def __init__(self, trainer, runtime, chunks):
        self.trainer = trainer
        self.runtime = runtime
        self.chunks = chunks

    def _run(self, images: torch.Tensor) -> tuple[dict, bool]:
        """The outputs of the part, and whether they were made in chunks."""
        runtime = self.runtime
        if 0 < self.chunks.size < len(images):
            return self.chunks.outputs(images), True
        with runtime.autocast():
            outputs = self.trainer.outputs(runtime.to_device(images))
        return runtime.full(outputs), False

    def outputs(self, images: torch.Tensor, total: int) -> dict:
        """The trainer's outputs of all `total` images, of which `images` are this process's.

        Those that require a gradient are leaves of the graph.
        """
        with self._own_draws():
            outputs, self.chunked = self._run(images)
        entries = dict(flat(outputs))
        tensors = {name: value for name, value in entries.items() if torch.is_tensor(value)}
        for name, value in tensors.items():
            if value.ndim == 0 or len(value) != len(images):
                raise UserError(
                    f"torchrun: the trainer's {name[-1]} is {tuple(value.shape)} of {len(images)} images: "
                    "expected a row each"
                )
        self.pairs = []
        late = {}
        if (POOLED,) in tensors:
            late[POOLED] = tensors.pop((POOLED,))
        early = {name: value for name, value in entries.items() if name[0] not in late}
        early |= self._gathered(tensors, total)
        return Gathered(nested(early), lambda name: self._gathered({name: late[name]}, total)[name])

    def _gathered(self, tensors: dict, total: int) -> dict:
        """The rows of all parts by name; a tensor with several names, as embeddings mostly have, travels once."""
        distinct = {id(value): value for value in tensors.values()}
        gathered = self.runtime.ranks.gather(distinct, total)
        for key, value in distinct.items():
            if value.requires_grad:
                self.pairs.append((value, gathered[key].requires_grad_()))
        return {name: gathered[id(value)] for name, value in tensors.items()}

    @contextlib.contextmanager
    def _own_draws(self):
        """Inside, each process draws other random numbers in each step; afterwards the random states are restored."""
        runtime = self.runtime
        ranks = runtime.ranks
        gpus = [runtime.device] if runtime.device.type == "cuda" else []
        with torch.random.fork_rng(gpus):
            # The seed is equal on all processes, and in all steps in which the losses draw nothing.
            seed = int(torch.randint(2**62, ()))
            torch.manual_seed(seed + runtime.steps * ranks.size + ranks.rank)
            before = draw_state(runtime.device)
            yield
            if not same_state(before, draw_state(runtime.device)):
                runtime.say_once(
                    f"torchrun, {ranks.size} processes: dropout and stochastic depth draw for each process's part of "
                    "the batch: numbers differ from those of one process"
                )

    def backward(self) -> None:
        """Backpropagate the gradient of all rows through this process's part."""
        tensors = []
        gradients = []
        for value, leaf in self.pairs:
            if leaf.grad is not None:
                tensors.append(value)
                gradients.append(self.runtime.ranks.sum_of(leaf.grad))
        if tensors:
            torch.autograd.backward(tensors, gradients)
        self.pairs = []
        if self.chunked:
            self.chunks.backward()
