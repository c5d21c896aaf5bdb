"""Where and how a step runs: device, precision, gradient clipping, seeds.

`Runtime` owns them. The step hands it the loss; it backpropagates, averages the gradients over the processes, limits
them and calls the optimiser. On one CPU in float32 its methods do next to nothing.
"""

import argparse
import contextlib
import functools

import torch

from engine import memory
from engine.compiling import Compiler
from engine.cropping import Cut
from engine.erasing import Erased
from engine.random_state import seed_everything
from engine.ranks import Ranks, local_rank
from utilities import shards
from utilities.console import say
from utilities.errors import NotFinite, UserError
from utilities.spans import span
from utilities.tensors import Products, multiply_at, raise_half

# steps between checks of the loss on a GPU, where each check waits for the device
CHECK_EVERY = 25
# Flags of training, which programs that only embed images leave out.
OF_TRAINING = {
    "bs": None,
    "clip_grad_each": None,
    "clip_grad_value": None,
    "channels_last": False,
    "compile": False,
    "tf32": False,
    "sync_bn": False,
}


class NonFiniteLoss(NotFinite):
    """The loss, or the norm of its gradient, became NaN or infinite; the message gives epoch, step and value."""


class Runtime:
    """Owns device, precision, clipping and the optimiser step. Making one changes nothing outside it; `begin` does.

    Reads `gpu`, `precision`, `clip_grad_norm`, `clip_grad_each`, `clip_grad_value`, `seed`, `channels_last`, `compile`,
    `tf32`, `sync_bn` of `opt`. `ranks`: which of the run's processes this is, under torchrun. Raises UserError for what
    several processes cannot do.
    """

    def __init__(self, opt):
        opt = argparse.Namespace(**{**OF_TRAINING, **vars(opt)})
        self.seed = opt.seed
        self.ranks = Ranks()
        self.device = self._device(opt.gpu)
        self.sync_bn = self._syncs(opt)
        self.clip_grad_norm = opt.clip_grad_norm
        self.clip_grad_each = opt.clip_grad_each
        self.clip_grad_value = opt.clip_grad_value
        dtype = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}[opt.precision]
        # autocast(): context of the forward pass in the chosen precision
        self.autocast = contextlib.nullcontext
        self.is_half = dtype is not None
        if self.is_half:
            self.autocast = functools.partial(torch.autocast, self.device.type, dtype=dtype)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=dtype == torch.float16)
        self.channels_last = opt.channels_last
        self.compiles = opt.compile
        self.tf32 = opt.tf32 and self.device.type == "cuda"
        self.compiler = Compiler(self.device) if self.compiles else None
        self._check_every = 1
        if self.device.type == "cuda":
            self._check_every = CHECK_EVERY
        # Called in each step when the gradients are those of the whole batch, before they are limited, with the norm of
        # each parameter's gradient.
        self.on_gradients = lambda norm_of: None
        self._said = set()
        self.start_epoch(0)

    def begin(self) -> "Runtime":
        """Prepare this process for a run: seeds, deterministic cuDNN, on a CPU freed memory is kept. Returns itself."""
        # until all have read their flags: the first process is about to write the folder that holds them
        self.ranks.wait()
        seed_everything(self.seed)
        torch.backends.cudnn.deterministic = True
        if self.device.type == "cuda":
            precision = "high" if self.tf32 else "highest"
            multiply_at(precision)
        if self.device.type == "cpu":
            memory.keep_freed()
        return self

    def say_once(self, line: str) -> None:
        """Print a line, once a run."""
        if line not in self._said:
            self._said.add(line)
            say(line)

    def _syncs(self, opt) -> bool:
        """Whether BatchNorm takes its statistics from all processes."""
        if opt.bs is not None and self.ranks.size > opt.bs:
            raise UserError(
                f"--bs {opt.bs} is less than torchrun's {self.ranks.size} processes, each of which takes a part "
                "of the batch"
            )
        if not opt.sync_bn:
            return False
        if self.device.type != "cuda":
            raise UserError(
                "--sync_bn needs GPUs, and there is no CUDA device here: leave it out, or take a _frozen network"
            )
        return self.ranks.size > 1

    @staticmethod
    def _device(gpus: list[int]) -> torch.device:
        if not torch.cuda.is_available():
            return torch.device("cpu")
        # under torchrun each process has its own
        if local_rank() is not None:
            return torch.device("cuda", local_rank() % torch.cuda.device_count())
        if gpus[0] >= torch.cuda.device_count():
            raise UserError(f"--gpu {gpus[0]}: this machine has GPUs 0 to {torch.cuda.device_count() - 1}")
        return torch.device("cuda", gpus[0])

    @property
    def description(self) -> str:
        """Description of the device, for the start-up summary."""
        if self.device.type == "cuda":
            device = f"{self.device} ({torch.cuda.get_device_name(self.device)})"
            if self.channels_last:
                device += ", channels last in memory"
        else:
            device = f"cpu ({torch.get_num_threads()} threads; no CUDA device here)"
        if self.ranks.size == 1:
            return device
        return f"{device}, the first of {self.ranks.size} processes, each of which takes a part of every batch"

    def place(self, network: torch.nn.Module) -> torch.nn.Module:
        """Put the network on this device, with `--sync_bn`, `--channels_last`, `--compile`. Returns it.

        Its state dict keeps its names. Where `gains_from_channels_last`, channels are last without the flag.
        """
        if self.sync_bn:
            network = torch.nn.SyncBatchNorm.convert_sync_batchnorm(network)
        network.to(self.device)
        if gains_from_channels_last(network, self.device.type, self.is_half):
            self.channels_last = True
        if self.channels_last:
            network.to(memory_format=torch.channels_last)
        if self.compiles:
            self.compiler.compile(network)
        return network

    def exact_products(self):
        """Context of mining and loss: under `--tf32` their matrix products are full float32.

        Those of the backward pass are not.
        """
        if not self.tf32:
            return contextlib.nullcontext()
        return Products("highest")

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, or `Erased` or `Cut` images, on this runtime's device, without waiting if memory is pinned.

        Images get the network's memory format.
        """
        if isinstance(tensor, Erased):
            return tensor.on(self.to_device)
        layout = torch.preserve_format
        if self.channels_last and tensor.ndim == 4:
            layout = torch.channels_last
        with span("copy"):
            if isinstance(tensor, Cut):
                tensor = tensor.on(self.device)
            return tensor.to(self.device, non_blocking=True, memory_format=layout)

    def full(self, output, raised: dict | None = None):
        """Outputs as mining and loss take them: half precision raised to float32, in a dict each entry.

        A tensor with several names stays one.
        """
        if raised is None:
            # id -> float32
            raised = {}
        if isinstance(output, dict):
            return {name: self.full(value, raised) for name, value in output.items()}
        if torch.is_tensor(output) and id(output) not in raised:
            raised[id(output)] = raise_half(output)
        return raised.get(id(output), output)

    def start_epoch(self, epoch: int) -> None:
        """Forget the previous epoch's count of steps."""
        if self.compiles:
            self.compiler.start_epoch(epoch)
        self._epoch = epoch
        self.steps = 0
        self._bad_step = torch.full((), -1, device=self.device)
        self._bad_value = torch.zeros((), device=self.device)
        # whether the bad value is the gradient's norm
        self._bad_norm = torch.zeros((), dtype=torch.bool, device=self.device)

    def step(self, loss: torch.Tensor, optimizer: torch.optim.Optimizer, *backward_calls) -> torch.Tensor:
        """Backward pass and optimiser step. Returns the gradient's norm, a device scalar.

        `backward_calls` are called after the loss's backward pass,
        to backpropagate through the parts that it did not reach.

        Raises NonFiniteLoss with the step at which it began: for the norm one step late, on a GPU up to `CHECK_EVERY`.
        """
        self.steps += 1
        self._watch(loss.detach())
        if self.steps % self._check_every == 0:
            self.check_finite()
        optimizer.zero_grad(set_to_none=True)
        with span("backward"):
            self.scaler.scale(loss).backward()
            for backward in backward_calls:
                backward()
        with span("optimiser"):
            norm = self._update(optimizer)
        # a scaler leaves steps with an infinite gradient out
        if not self.scaler.is_enabled():
            watched_norm = norm
            # infinite entries are limited too
            if self.clip_grad_value is not None:
                watched_norm = torch.where(norm.isinf(), 0, norm)
            self._watch(watched_norm, is_norm=True)
        return norm

    def _watch(self, value: torch.Tensor, is_norm: bool = False) -> None:
        """Keep the first loss or gradient norm that is not finite, and its step, without a host synchronisation."""
        first = ~torch.isfinite(value) & (self._bad_step < 0)
        self._bad_step = torch.where(first, self.steps, self._bad_step)
        self._bad_value = torch.where(first, value, self._bad_value)
        self._bad_norm = torch.where(first, is_norm, self._bad_norm)

    def _update(self, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        """The optimiser's step by the gradients of all processes, limited by the flags. Returns the gradient's norm."""
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.ranks.mean_([p.grad for p in parameters if not shards.divided(p)])
        if self.scaler.is_enabled():
            shards.share_overflow(parameters)
        self.scaler.unscale_(optimizer)
        norms = shards.norms(parameters)
        self.on_gradients(dict(zip(parameters, norms, strict=True)))
        norm = torch.nn.utils.get_total_norm(norms)
        if self.clip_grad_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.clip_grad_norm, norm)
        if self.clip_grad_each is not None:
            clip_each_(parameters, self.clip_grad_each)
        if self.clip_grad_value is not None:
            torch.nn.utils.clip_grad_value_(parameters, self.clip_grad_value)
        with shards.undrawn_at_rest(optimizer):
            self.scaler.step(optimizer)
        self.scaler.update()
        return norm

    def check_finite(self) -> None:
        """Raise NonFiniteLoss if the loss or the norm of its gradient was not finite at any step of this epoch."""
        if self._bad_step >= 0:
            quantity = "norm of the gradient" if self._bad_norm else "loss"
            raise NonFiniteLoss(
                f"the {quantity} is {self._bad_value.item()} at epoch {self._epoch}, step {int(self._bad_step)}: the "
                "run stops, its last checkpoint is from before. Try a smaller --lr, --clip_grad_norm 1 or --precision "
                "float32, then --resume"
            )


def gains_from_channels_last(network: torch.nn.Module, device: str, is_half: bool) -> bool:
    """Whether steps are faster with the channels last in memory: convolutions in half precision on a GPU.

    A single convolution, as it cuts a vision transformer's patches, gains nothing. Measured in docs/scale.md.
    """
    n_convolutions = sum(isinstance(module, torch.nn.Conv2d) for module in network.modules())
    return device == "cuda" and is_half and n_convolutions > 1


def clip_each_(parameters: list[torch.nn.Parameter], limit: float) -> None:
    """Scale each gradient whose own norm exceeds `most` down to it, without a host synchronisation."""
    factors = [(limit / (norm + 1e-6)).clamp(max=1.0) for norm in shards.norms(parameters)]
    torch._foreach_mul_([p.grad for p in parameters], factors)
