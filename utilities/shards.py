"""Class vectors in shards: each process of a run holds those of consecutive classes, and a step may draw some of them.

The distributed softmax of An et al. (Partial FC, CVPR 2022, arXiv 2203.15565). A parameter that holds such vectors has
the attribute `shard`; everything that treats it otherwise than another parameter stands here: which vectors a step
draws, its gradient, the optimiser's step and state, checkpoints.
"""

import contextlib
import functools

import torch

from utilities.console import say
from utilities.errors import UserError


class Shard:
    """Which of `n_classes` classes, with `per_class` vectors each, this process of `ranks` holds,
    and which of them a step draws.

    Args:
        share: of the held classes, in
        (0, 1]: each step takes the batch's classes and draws others, together this share.

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
        classes = parts[ranks.rank]
        self.start = classes.start
        self.size = classes.stop - classes.start
        self.parts = [slice(part.start * per_class, part.stop * per_class) for part in parts]
        self.rows = self.parts[ranks.rank]
        self.drawn = []
        # whether a batch with more classes than the share was warned of
        self.has_warned = False

    @property
    def divided(self) -> bool:
        """Whether other processes hold the vectors of other classes."""
        return self.ranks.size > 1

    def draw(self, labels: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        """The classes of a step, and where the batch's own are among them.

        The batch's classes and, uniformly, others: `share` of the classes here, at least 1. Where the batch has
        more, those alone, which is said once. All processes take one seed from torch's generator, so that it stays
        the same on all.

        Args:
            labels: `(B,)`, of all processes' classes.

        Returns the classes `(n,)` in order, counted from `start`, None for all of them; and the place `(B,)` among them
        of each sample's class, n where another process holds it.
        """
        local = labels - self.start
        is_held = (local >= 0) & (local < self.size)
        if self.share == 1:
            return None, torch.where(is_held, local, self.size)
        seed = int(torch.randint(2**62, ()))
        generator = torch.Generator(labels.device).manual_seed(seed + self.ranks.rank)
        # the last one belongs to no class
        scores = torch.rand(self.size + 1, generator=generator, device=labels.device)
        scores = scores.index_fill(0, torch.where(is_held, local, self.size), 2.0)[: self.size]
        n = max(int(self.share * self.size), 1)
        # The batch's classes are counted, which reads from the device, only where they may be more than n.
        if n < min(len(labels), self.size):
            n_batch_classes = int((scores == 2).sum())
            if n_batch_classes > n:
                self._warn_of_few(n, n_batch_classes)
                n = n_batch_classes
        classes = scores.topk(n).indices.sort().values
        if torch.is_grad_enabled():
            places = torch.arange(self.per_class, device=classes.device)
            self.drawn.append((classes[:, None] * self.per_class + places).flatten())
        return classes, torch.where(is_held, torch.searchsorted(classes, local), n)

    def _warn_of_few(self, n: int, n_batch_classes: int) -> None:
        """Say once that the share of the classes is less than what a batch has."""
        if not self.has_warned:
            say(
                f"--sample_classes {self.share:g}: {n} of {self.size} classes are fewer than the {n_batch_classes} of "
                "a batch: these alone are used"
            )
        self.has_warned = True

    def own(self, vectors: torch.Tensor) -> torch.Tensor:
        """The held vectors as a loss uses them: what reaches them of a gradient is N times that of the loss, see
        `total`; of N processes.
        """
        return _Exchanged.apply(vectors, torch.Tensor.detach, 1 / self.ranks.size) if self.divided else vectors

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over the processes, whose backward is that of the sum over the processes of the loss, which all
        compute from it.

        So all that is equal in every process, such as embeddings, gets N times its part by the vectors
        here: the mean over N processes is its whole gradient, as for the part of a loss that every
        process computes (`engine.ranks.Ranks`).
        """
        return _Exchanged.apply(tensor, self.ranks.total, self.ranks.size) if self.divided else tensor

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """On the first process the rows of all, in class order, in main memory;
        elsewhere the rows here. All processes call it.
        """
        return self.ranks.collect(tensor.detach(), self.parts) if self.divided else tensor

    def part(self, tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Of a tensor of all rows those here, whose shape is `shape`; any other tensor as it is."""
        shape_of_all_rows = (self.parts[-1].stop, *shape[1:])
        if self.divided and tensor.shape == shape_of_all_rows:
            return tensor[self.rows].clone()
        return tensor


class _Exchanged(torch.autograd.Function):
    """`exchange(tensor)`, of the same shape; the gradient is multiplied by `factor`."""

    @staticmethod
    def forward(ctx, tensor, exchange, factor):
        """`exchange(tensor)`."""
        ctx.factor = factor
        return exchange(tensor)

    @staticmethod
    def backward(ctx, gradient):
        """The gradient times `factor`; none for the other arguments."""
        return ctx.factor * gradient, None, None


def divided(parameter: torch.Tensor) -> bool:
    """Whether the processes hold different rows of the parameter: its gradient is never averaged."""
    return hasattr(parameter, "shard") and parameter.shard.divided


def norms(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    """The norm of each parameter's gradient, device scalars; of one that is divided that of all processes' rows."""
    norms_of_all = list(torch._foreach_norm([parameter.grad for parameter in parameters]))
    for number, parameter in enumerate(parameters):
        if divided(parameter):
            norm_here = norms_of_all[number]
            norms_of_all[number] = parameter.shard.ranks.total(norm_here.square()).sqrt()
    return norms_of_all


def share_overflow(parameters: list[torch.Tensor]) -> None:
    """Make a gradient that is not finite in one process so in all:
    a scaler of half precision then skips the step everywhere.
    """
    for parameter in filter(divided, parameters):
        parameter.grad.add_(parameter.shard.ranks.total(0 * parameter.grad.sum()))


def _state(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> dict:
    """Name -> tensor of the optimiser's state that has a row for each row of the parameter."""
    tensors = {}
    for name, value in optimizer.state[parameter].items():
        if torch.is_tensor(value) and value.shape == parameter.shape:
            tensors[name] = value
    return tensors


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The parameters of all groups of an optimiser."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@contextlib.contextmanager
def undrawn_at_rest(optimizer: torch.optim.Optimizer):
    """Inside, an optimiser's step sees only the vectors that were drawn since the last one,
    with their part of its state.

    No momentum, moment or decay moves the others. Adam's count of steps,
    by which it corrects young moments, is one for all vectors.
    """
    resting = []
    for parameter in _parameters(optimizer):
        if not hasattr(parameter, "shard") or not parameter.shard.drawn:
            continue
        draws = parameter.shard.drawn
        parameter.shard.drawn = []
        if parameter.grad is None:
            continue
        rows = draws[0]
        if len(draws) > 1:
            rows = torch.cat(draws).unique()
        all_vectors = parameter.data
        gradient = parameter.grad
        state = _state(optimizer, parameter)
        parameter.grad = None
        parameter.data = all_vectors.index_select(0, rows)
        parameter.grad = gradient.index_select(0, rows)
        optimizer.state[parameter].update({name: value.index_select(0, rows) for name, value in state.items()})
        resting.append((parameter, rows, all_vectors, gradient, state))
    yield
    for parameter, rows, all_vectors, gradient, state in resting:
        for name, value in _state(optimizer, parameter).items():
            if name not in state:
                state[name] = torch.zeros_like(all_vectors)
            optimizer.state[parameter][name] = state[name].index_copy_(0, rows, value)
        parameter.grad = None
        parameter.data = all_vectors.index_copy_(0, rows, parameter.data)
        parameter.grad = gradient


def save_whole(optimizer: torch.optim.Optimizer) -> None:
    """From here on the optimiser's `state_dict` has all rows, in class order, on the first process, and
    `load_state_dict` takes those here.
    """

    if any(map(divided, _parameters(optimizer))):
        optimizer.register_state_dict_post_hook(functools.partial(_changed, change=_join))
        optimizer.register_load_state_dict_pre_hook(functools.partial(_changed, change=_part))


def _changed(optimizer: torch.optim.Optimizer, state_dict: dict, change) -> dict:
    """The state dict with `change(parameter, tensor)` in place of each tensor of a divided parameter."""
    numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
    state = dict(state_dict["state"])
    # torch itself refuses another optimiser's state
    for number, parameter in zip(numbers, _parameters(optimizer), strict=False):
        if not divided(parameter) or number not in state:
            continue
        state[number] = dict(state[number])
        for name, value in state[number].items():
            if torch.is_tensor(value):
                state[number][name] = change(parameter, value)
    return {**state_dict, "state": state}


def _join(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return parameter.shard.whole(value) if value.shape == parameter.shape else value


def _part(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return parameter.shard.part(value, parameter.shape)
