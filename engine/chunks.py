"""Batches larger than memory: cached gradients (Gao et al., arXiv 2101.06983).

First the trainer's `outputs` runs over all chunks without a graph, and `losses` gives the gradient of all outputs. Then
each chunk runs again with the same random draws, and its part of that gradient is backpropagated. Memory grows with the
chunk, not with the batch.
"""

import torch

from engine.random_state import draw_state, same_state, set_draw_state
from utilities.batchnorm import resting_statistics
from utilities.errors import UserError


class StoredCalls:
    """`calls(make)` calls `make` in a chunk's first run and returns the stored value in its second.

    For parts of `outputs` with a state of their own, such as a momentum encoder.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.stored = []
        self.replayed = None

    def __call__(self, make):
        """The value of `make()` in the first run; the second goes on with the random states that this call left."""
        if self.replayed is None:
            self.stored.append((make(), draw_state(self.device)))
            return self.stored[-1][0]
        value, state = next(self.replayed)
        set_draw_state(state, self.device)
        return value

    def begin_second_run(self) -> None:
        """Return the stored values from here on."""
        self.replayed = iter(self.stored)
        self.stored = []


class Chunks:
    """Computes the trainer's outputs of a batch in chunks of `size` images, and backpropagates their gradient.

    Views of an image count as images. Each chunk draws its own random numbers, the same in both of its runs.
    BatchNorm's running statistics are updated in the first run alone.
    """

    def __init__(self, trainer, runtime, size: int):
        self.trainer = trainer
        self.runtime = runtime
        self.size = size

    def _run(self, number: int, state: tuple, calls: StoredCalls) -> dict:
        """The outputs of one chunk: path of names, as `flat` gives them -> tensor or other value."""
        start = number * self.size
        images = self.images[start : start + self.size]
        set_draw_state(state, self.runtime.device)
        self.trainer.stored_calls = calls
        try:
            with self.runtime.autocast():
                outputs = self.trainer.outputs(self.runtime.to_device(images))
        finally:
            self.trainer.stored_calls = None
        outputs = dict(flat(self.runtime.full(outputs)))
        for name, value in outputs.items():
            if torch.is_tensor(value) and (value.ndim == 0 or len(value) != len(images)):
                raise UserError(
                    f"--chunk_size: the trainer's {name[-1]} is {tuple(value.shape)} of {len(images)} images: "
                    "expected a row each"
                )
        return outputs

    def outputs(self, images: torch.Tensor) -> dict:
        """The trainer's outputs of all `images`, as leaves of the graph where they require a gradient."""
        self.images = images
        device = self.runtime.device
        self.runs = []
        parts = []
        state = before = draw_state(device)
        for number in range(-(-len(images) // self.size)):
            calls = StoredCalls(device)
            self.runs.append((state, calls))
            # The first run shows which outputs require a gradient; its graph is freed at once.
            with torch.set_grad_enabled(number == 0):
                part = self._run(number, state, calls)
            if number == 0:
                # id of a value -> the first of its names: embeddings mostly have two
                first_names = {}
                names = {name: first_names.setdefault(id(value), name) for name, value in part.items()}
                trained_names = [name for name in first_names.values() if _requires_gradient(part[name])]
            parts.append({name: _detached(part[name]) for name in dict.fromkeys(names.values())})
            state = draw_state(device)
        if not same_state(before, state):
            self.runtime.say_once(
                f"--chunk_size {self.size}: dropout and stochastic depth draw for each chunk: numbers differ from "
                "those of the plain step"
            )
        whole_batch = {}
        for name, value in parts[0].items():
            whole_batch[name] = value
            if torch.is_tensor(value):
                whole_batch[name] = torch.cat([part[name] for part in parts])
        self.leaves = {name: whole_batch[name].requires_grad_() for name in trained_names}
        return nested({name: whole_batch[first_name] for name, first_name in names.items()})

    def backward(self) -> None:
        """Run each chunk again and backpropagate the gradient of its leaves; where no leaf has one, nothing runs."""
        device = self.runtime.device
        state = draw_state(device)
        gradients = {name: leaf.grad for name, leaf in self.leaves.items() if leaf.grad is not None}
        if not gradients:
            self.runs = []
        with resting_statistics(self.trainer):
            for number, (before, calls) in enumerate(self.runs):
                calls.begin_second_run()
                outputs = self._run(number, before, calls)
                rows = slice(number * self.size, (number + 1) * self.size)
                torch.autograd.backward(
                    [outputs[name] for name in gradients], [gradient[rows] for gradient in gradients.values()]
                )
                del outputs
        # The random state is again as the losses left it.
        set_draw_state(state, device)
        self.images = None
        self.runs = []
        self.leaves = {}


def _requires_gradient(value) -> bool:
    return torch.is_tensor(value) and value.requires_grad


def _detached(value):
    return value.detach() if torch.is_tensor(value) else value


def flat(outputs: dict, path: tuple = ()):
    """(Path of names, value) of each entry of nested dicts."""
    for name, value in outputs.items():
        if isinstance(value, dict):
            yield from flat(value, (*path, name))
        else:
            yield (*path, name), value


def nested(flat: dict) -> dict:
    """The nested dicts of which `flat` gave the entries: its inverse."""
    outputs = {}
    for path, value in flat.items():
        inner = outputs
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
    return outputs
