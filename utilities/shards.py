"""Class vectors in shards: each process of a run holds those of consecutive classes, and a step may draw some of them.

The distributed softmax of An et al. (Partial FC, CVPR 2022, arXiv 2203.15565). A parameter that holds such vectors has
the attribute `shard`; everything that treats it otherwise than another parameter stands here: which vectors a step
draws, its gradient, the optimiser's step and state, checkpoints.
"""

import contextlib

import torch

from utilities.console import say
from utilities.errors import UserError


class Shard:
    """Which of `n_classes` classes, with `per_class` vectors each, this process of `ranks` holds, and which of them a
    step draws.

    Args:
        share: of the held classes, in (0, 1]: each step takes the batch's classes and draws others, together this
        share.

    Attributes:
        start, size: the first class here, and their number. rows: slice of the rows of all vectors that are here.
        drawn: rows of the vectors that were drawn since the optimiser's last step, one tensor a draw.

    Raises UserError for fewer classes than processes.
    """

    def __init__(self, ranks, n_classes: int, per_class: int = 1, share: float = 1.0):
        if n_classes < ranks.size:
            raise UserError(
                f"--shard_classes: {n_classes} classes are fewer than the {ranks.size} processes: leave it out"
            )
        parts = ranks.portions(n_classes)
        self.ranks = ranks
        self.per_class = per_class
        self.share = share
        self.start, self.size = parts[ranks.rank].start, parts[ranks.rank].stop - parts[ranks.rank].start
        self.parts = [slice(part.start * per_class, part.stop * per_class) for part in parts]
        self.rows = self.parts[ranks.rank]
        self.drawn = []
        self.said = False

    @property
    def divided(self) -> bool:
        """Whether other processes hold the vectors of other classes."""
        return self.ranks.size > 1

    def draw(self, labels: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        """The classes of a step, and where the batch's own are among them.

        The batch's classes and, uniformly, others: `share` of the classes here, at least 1. Where the batch has more,
        those alone, which is said once. All processes take one seed from torch's generator, so that it stays the same
        on all.

        Args:
            labels: `(B,)`, of all processes' classes.

        Returns the classes `(n,)` in order, counted from `start`, None for all of them; and the place `(B,)` among them
        of each sample's class, n where another process holds it.
        """
        local = labels - self.start
        here = (local >= 0) & (local < self.size)
        if self.share == 1:
            return None, torch.where(here, local, self.size)
        seed = int(torch.randint(2**62, ()))
        generator = torch.Generator(labels.device).manual_seed(seed + self.ranks.rank)
        scores = torch.rand(self.size + 1, generator=generator, device=labels.device)  # the last one is of no class
        scores = scores.index_fill(0, torch.where(here, local, self.size), 2.0)[: self.size]
        n = max(int(self.share * self.size), 1)
        if (
            n < min(len(labels), self.size) and (own := int((scores == 2).sum())) > n
        ):  # read from the device only where it can happen
            if not self.said:
                say(
                    f"--sample_classes {self.share:g}: {n} of {self.size} classes are fewer than the {own} of a batch: "
                    "these alone are used"
                )
            self.said = True
            n = own
        classes = scores.topk(n).indices.sort().values
        if torch.is_grad_enabled():
            self.drawn.append(
                (classes[:, None] * self.per_class + torch.arange(self.per_class, device=classes.device)).flatten()
            )
        return classes, torch.where(here, torch.searchsorted(classes, local), n)

    def own(self, vectors: torch.Tensor) -> torch.Tensor:
        """The held vectors as a loss uses them: what reaches them of a gradient is N times that of the loss, see
        `total`; of N processes.
        """
        return _Exchanged.apply(vectors, torch.Tensor.detach, 1 / self.ranks.size) if self.divided else vectors

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over the processes, whose backward is that of the sum over the processes of the loss, which all
        compute from it.

        So all that is equal in every process, such as embeddings, gets N times its part by the vectors here: the mean
        over N processes is its whole gradient, as for the part of a loss that every process computes
        (`engine.ranks.Ranks`).
        """
        return _Exchanged.apply(tensor, self.ranks.total, self.ranks.size) if self.divided else tensor

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """On the first process the rows of all, in class order, in main memory; elsewhere the rows here. All processes
        call it.
        """
        return self.ranks.collect(tensor.detach(), self.parts) if self.divided else tensor

    def part(self, tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Of a tensor of all rows those here, whose shape is `shape`; any other tensor as it is."""
        return (
            tensor[self.rows].clone() if self.divided and tensor.shape == (self.parts[-1].stop, *shape[1:]) else tensor
        )


class _Exchanged(torch.autograd.Function):
    """`exchange(tensor)`, of the same shape; the gradient is multiplied by `factor`."""

    @staticmethod
    def forward(ctx, tensor, exchange, factor):
        ctx.factor = factor
        return exchange(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.factor * gradient, None, None


def divided(parameter: torch.Tensor) -> bool:
    """Whether the processes hold different rows of the parameter: its gradient is never averaged."""
    return hasattr(parameter, "shard") and parameter.shard.divided


def norms(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    """The norm of each parameter's gradient, device scalars; of one that is divided that of all processes' rows."""
    found = torch._foreach_norm([parameter.grad for parameter in parameters])
    return [
        p.shard.ranks.total(norm.square()).sqrt() if divided(p) else norm
        for p, norm in zip(parameters, found, strict=True)
    ]


def share_overflow(parameters: list[torch.Tensor]) -> None:
    """Make a gradient that is not finite in one process so in all: a scaler of half precision then skips the step
    everywhere.
    """
    for parameter in filter(divided, parameters):
        parameter.grad.add_(parameter.shard.ranks.total(0 * parameter.grad.sum()))


def _state(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> dict:
    """Name -> tensor of the optimiser's state that has a row for each row of the parameter."""
    return {
        name: value
        for name, value in optimizer.state[parameter].items()
        if torch.is_tensor(value) and value.shape == parameter.shape
    }


@contextlib.contextmanager
def undrawn_at_rest(optimizer: torch.optim.Optimizer):
    """Inside, an optimiser's step sees only the vectors that were drawn since the last one, with their part of its
    state.

    No momentum, moment or decay moves the others. Adam's count of steps, by which it corrects young moments, is one for
    all vectors.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    resting = []
    for parameter in (p for p in parameters if hasattr(p, "shard") and p.shard.drawn):
        drawn = parameter.shard.drawn
        parameter.shard.drawn = []
        if parameter.grad is None:
            continue
        rows = drawn[0] if len(drawn) == 1 else torch.cat(drawn).unique()
        whole = parameter.data
        gradient = parameter.grad
        state = _state(optimizer, parameter)
        parameter.grad = None
        parameter.data = whole.index_select(0, rows)
        parameter.grad = gradient.index_select(0, rows)
        optimizer.state[parameter].update({name: value.index_select(0, rows) for name, value in state.items()})
        resting.append((parameter, rows, whole, gradient, state))
    yield
    for parameter, rows, whole, gradient, state in resting:
        for name, value in _state(optimizer, parameter).items():
            kept = state[name] if name in state else torch.zeros_like(whole)
            optimizer.state[parameter][name] = kept.index_copy_(0, rows, value)
        parameter.grad = None
        parameter.data = whole.index_copy_(0, rows, parameter.data)
        parameter.grad = gradient


def save_whole(optimizer: torch.optim.Optimizer) -> None:
    """From here on the optimiser's `state_dict` has all rows, in class order, on the first process, and
    `load_state_dict` takes those here.
    """

    def changed(state_dict: dict, change) -> dict:
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        state = dict(state_dict["state"])
        for number, parameter in zip(
            numbers, parameters, strict=False
        ):  # another optimiser's state is refused by torch
            if divided(parameter) and number in state:
                state[number] = {
                    name: change(parameter, value) if torch.is_tensor(value) else value
                    for name, value in state[number].items()
                }
        return {**state_dict, "state": state}

    def join(parameter, value):
        return parameter.shard.whole(value) if value.shape == parameter.shape else value

    if any(divided(parameter) for group in optimizer.param_groups for parameter in group["params"]):
        optimizer.register_state_dict_post_hook(lambda _, state_dict: changed(state_dict, join))
        optimizer.register_load_state_dict_pre_hook(
            lambda _, state_dict: changed(state_dict, lambda p, value: p.shard.part(value, p.shape))
        )
