"""The outputs of a batch that is split over the processes of a run, and their backward pass. The arithmetic: `training.ranks.Ranks`."""

import contextlib

import torch

from training.chunks import flat, nested
from training.random_state import draw_state, set_draw_state
from utilities.draws import DrawsOfBatch
from utilities.errors import UserError


class Parts:
    """Each process runs a trainer's `outputs` on its part of the batch, gathers the rows of all parts, and backpropagates through its own.

    Args:
        trainer: whose `outputs` runs.
        runtime: device, precision and processes.
        chunks: `training.chunks.Chunks`, which run a part that is larger than `chunks.size`.
    """

    def __init__(self, trainer, runtime, chunks):
        self.trainer, self.runtime, self.chunks = trainer, runtime, chunks

    def _run(self, images: torch.Tensor, rows: slice, total: int) -> tuple[dict, bool]:
        """The outputs of the part, and whether they were made in chunks."""
        runtime = self.runtime
        if 0 < self.chunks.size < len(images):
            return self.chunks.outputs(images, rows.start, total), True
        with runtime.autocast(), contextlib.nullcontext() if runtime.compiles else DrawsOfBatch(rows.start, rows.stop, total):
            outputs = self.trainer.outputs(runtime.to_device(images))
        return runtime.full(outputs), False

    def outputs(self, images: torch.Tensor, total: int) -> dict:
        """The trainer's outputs of all `total` images, of which `images` are this process's, as leaves of the graph where they require a gradient."""
        ranks = self.runtime.ranks
        rows = ranks.part(total)
        with _draws_of_its_own(self.runtime):
            outputs, self.chunked = self._run(images, rows, total)
        found = dict(flat(outputs))
        tensors = {name: value for name, value in found.items() if torch.is_tensor(value)}
        for name, value in tensors.items():
            if value.ndim == 0 or len(value) != len(images):
                raise UserError(f"torchrun: the trainer's {name[-1]} is {tuple(value.shape)} of {len(images)} images: expected a row each")
        whole = ranks.gather(tensors, total)
        self.pairs = [(value, whole[name].requires_grad_()) for name, value in tensors.items() if value.requires_grad]
        return nested({**found, **whole})

    def backward(self) -> None:
        """Backpropagate the gradient of all rows through this process's part."""
        pairs = [(value, self.runtime.ranks.sum_of(leaf.grad)) for value, leaf in self.pairs if leaf.grad is not None]
        if pairs:
            torch.autograd.backward(*zip(*pairs, strict=True))
        self.pairs = []
        if self.chunked:
            self.chunks.backward()


@contextlib.contextmanager
def _draws_of_its_own(runtime):
    """Compiled code draws for its part alone: inside, each process draws other numbers; afterwards all have equal random states again."""
    if not runtime.compiles:
        yield
        return
    seed = int(torch.randint(2**62, ()))
    state = draw_state(runtime.device)
    torch.manual_seed(seed + runtime.ranks.rank)
    yield
    set_draw_state(state, runtime.device)
