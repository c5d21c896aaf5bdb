"""Random numbers of a part of a batch, drawn as for the whole batch."""

import contextlib

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

DROPOUTS = (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d)
IN_PLACE = (torch.Tensor.bernoulli_, torch.Tensor.uniform_, torch.Tensor.normal_)
BY_SIZE = (torch.rand, torch.randn)
ALIKE = (torch.rand_like, torch.randn_like, torch.bernoulli)


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
