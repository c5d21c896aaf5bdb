"""Batches larger than memory: cached gradients (Gao et al., Scaling Deep Contrastive Learning Batch Size, arXiv 2101.06983).

First the trainer's `outputs` runs over all chunks without a graph, and `losses` gives the gradient of all outputs. Then each chunk runs
again with the same random draws, and its part of that gradient is backpropagated. Memory grows with the chunk, not with the batch.
"""

import contextlib

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from utilities.errors import UserError

DROPOUTS = (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d)
IN_PLACE = (torch.Tensor.bernoulli_, torch.Tensor.uniform_, torch.Tensor.normal_)
BY_SIZE = (torch.rand, torch.randn)
ALIKE = (torch.rand_like, torch.randn_like, torch.bernoulli)


def draw_state(device: torch.device) -> tuple:
    """The states of torch's generators, of the CPU and of `device`."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def set_draw_state(state: tuple, device: torch.device) -> None:
    """Restore what `draw_state` gave."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)


class DrawsOfBatch(TorchFunctionMode):
    """Inside, random numbers for the images `start` to `stop` of a batch are drawn for all `total` images, and the rows of those are taken.

    Dropout and stochastic depth thus treat an image as in the uncut batch. Draws that do not have one row per image stay as they are.
    """

    active = None  # the instance whose context is open; at most one is

    def __init__(self, start: int, stop: int, total: int):
        super().__init__()
        self.rows, self.size, self.total = slice(start, stop), stop - start, total

    def __enter__(self):
        DrawsOfBatch.active = self
        return super().__enter__()

    def __exit__(self, *error):
        DrawsOfBatch.active = None
        return super().__exit__(*error)

    def _whole(self, part: torch.Tensor, value: float = 1.0) -> torch.Tensor:
        """A tensor like `part` with the rows of the whole batch, in the same memory format: torch draws in memory order."""
        whole = part.detach().new_full((self.total, *part.shape[1:]), value)
        if part.ndim == 4 and part.is_contiguous(memory_format=torch.channels_last) and not part.is_contiguous():
            whole = whole.contiguous(memory_format=torch.channels_last)
        return whole

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Draw for the whole batch where `func` draws one row per image."""
        kwargs = kwargs or {}
        first = args[0] if args else kwargs.get("input")
        if func in BY_SIZE and args:
            size = first if isinstance(first, tuple | list) else args
            return func(self.total, *size[1:], **kwargs)[self.rows] if size and size[0] == self.size else func(*args, **kwargs)
        if not torch.is_tensor(first) or first.ndim == 0 or len(first) != self.size:
            return func(*args, **kwargs)
        if func in DROPOUTS:
            return self._dropout(func, *args, **kwargs)
        if func in IN_PLACE:
            return first.copy_(func(self._whole(first), *args[1:], **kwargs)[self.rows])
        if func in ALIKE:
            whole = self._whole(first)
            if func is torch.bernoulli:
                whole[self.rows] = first
            return func(whole, *args[1:], **kwargs)[self.rows]
        return func(*args, **kwargs)

    def _dropout(self, func, input, p=0.5, training=True, inplace=False):  # noqa: A002  named as torch's
        if not training or p == 0:
            return func(input, p, training, inplace)
        mask = func(self._whole(input), p, True)[self.rows]
        return input.mul_(mask) if inplace else input * mask


def drawn_alike():
    """A factory of contexts that draw as the one open now does, for computations that are repeated in the backward pass."""
    mode = DrawsOfBatch.active
    if mode is None:
        return contextlib.nullcontext
    start, stop, total = mode.rows.start, mode.rows.stop, mode.total
    return lambda: DrawsOfBatch(start, stop, total) if DrawsOfBatch.active is None else contextlib.nullcontext()


class Once:
    """`once(make)` calls `make` in a chunk's first run and returns the kept value in its second, such as a momentum encoder's outputs."""

    def __init__(self, device: torch.device):
        self.device, self.made, self.taken = device, [], None

    def __call__(self, make):
        """The value of `make()` in the first run; the second run goes on with the random states that the call left in the first."""
        if self.taken is None:
            self.made.append((make(), draw_state(self.device)))
            return self.made[-1][0]
        value, state = next(self.taken)
        set_draw_state(state, self.device)
        return value

    def again(self) -> None:
        """Begin the second run."""
        self.taken, self.made = iter(self.made), []


@contextlib.contextmanager
def resting_statistics(module: torch.nn.Module):
    """Inside, BatchNorm layers in training mode update copies of their running statistics; the originals stay."""
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm) and layer.training]
    kept = [dict(layer._buffers) for layer in layers]
    for layer, buffers in zip(layers, kept, strict=True):
        layer._buffers.update({name: None if buffer is None else buffer.clone() for name, buffer in buffers.items()})
    try:
        yield
    finally:
        for layer, buffers in zip(layers, kept, strict=True):
            layer._buffers.update(buffers)


def uses_batch_statistics(module: torch.nn.Module) -> bool:
    """Whether a BatchNorm layer of `module` normalises by batch statistics (training mode)."""
    return any(isinstance(layer, _BatchNorm) and layer.training for layer in module.modules())


def running_statistics(module: torch.nn.Module, like: torch.nn.Module | None = None) -> list[torch.Tensor]:
    """Running means and variances of the BatchNorm layers in training mode. The modes are those of `like`, if `module` is a copy of it."""
    pairs = zip(module.modules(), module.modules() if like is None else like.modules(), strict=True)
    layers = [layer for layer, its in pairs if isinstance(layer, _BatchNorm) and its.training]
    return [value for layer in layers for value in (layer.running_mean, layer.running_var) if value is not None]


class Chunks:
    """Computes the trainer's outputs of a batch in chunks of `size` images, and backpropagates their gradient.

    Views of an image count as images. BatchNorm's running statistics are updated in the first run alone.
    """

    def __init__(self, trainer, runtime, size: int):
        self.trainer, self.runtime, self.size = trainer, runtime, size

    def _run(self, number: int, state: tuple, once: Once) -> dict:
        """The outputs of one chunk: path of names, as `flat` gives them -> tensor or other value."""
        start = number * self.size
        images = self.images[start : start + self.size]
        start += self.first
        set_draw_state(state, self.runtime.device)
        self.trainer.once_a_chunk = once
        draws = contextlib.nullcontext() if self.runtime.compiles else DrawsOfBatch(start, start + len(images), self.total)
        try:
            with self.runtime.autocast(), draws:
                outputs = self.trainer.outputs(self.runtime.to_device(images))
        finally:
            self.trainer.once_a_chunk = None
        outputs = dict(flat(self.runtime.full(outputs)))
        for name, value in outputs.items():
            if torch.is_tensor(value) and (value.ndim == 0 or len(value) != len(images)):
                raise UserError(
                    f"--chunk_size: the trainer's {name[-1]} is {tuple(value.shape)} of {len(images)} images: expected a row each"
                )
        return outputs

    def outputs(self, images: torch.Tensor, first: int = 0, total: int | None = None) -> dict:
        """The trainer's outputs of all `images`, as leaves of the graph where they require a gradient.

        `first`, `total`: where `images` are a part of a batch, the place of the first in it, and how many it has.
        """
        self.images, device = images, self.runtime.device
        self.first, self.total = first, len(images) if total is None else total
        self.runs, parts, state = [], [], draw_state(device)
        for number in range(-(-len(images) // self.size)):
            once = Once(device)
            self.runs.append((state, once))
            with torch.set_grad_enabled(number == 0):  # the first shows which outputs require one; its graph is freed at once
                part = self._run(number, state, once)
            if number == 0:
                wanted = [name for name, value in part.items() if torch.is_tensor(value) and value.requires_grad]
            parts.append({name: value.detach() if torch.is_tensor(value) else value for name, value in part.items()})
            if self.runtime.compiles:
                state = draw_state(device)  # compiled code draws for its chunk alone
        joined = {name: torch.cat([part[name] for part in parts]) if torch.is_tensor(value) else value for name, value in parts[0].items()}
        self.leaves = {name: joined[name].requires_grad_() for name in wanted}
        return nested(joined)

    def backward(self) -> None:
        """Run each chunk again and backpropagate the gradient of its leaves; where no leaf has one, nothing runs."""
        device = self.runtime.device
        state, gradients = draw_state(device), {name: leaf.grad for name, leaf in self.leaves.items() if leaf.grad is not None}
        with resting_statistics(self.trainer):
            for number, (before, once) in enumerate(self.runs if gradients else ()):
                once.again()
                outputs = self._run(number, before, once)
                rows = slice(number * self.size, (number + 1) * self.size)
                torch.autograd.backward([outputs[name] for name in gradients], [gradient[rows] for gradient in gradients.values()])
                del outputs
        set_draw_state(state, device)  # as the losses left it
        self.images, self.runs, self.leaves = None, [], {}


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
