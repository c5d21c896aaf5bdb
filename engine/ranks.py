"""The processes of one run under torchrun.

Which images each takes, how rows are gathered, how gradients become those of one process.

With one process nothing happens. gloo connects CPUs, NCCL GPUs; everything but the tensors of a step goes through gloo.
"""

import contextlib
import datetime
import functools
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

from engine.random_state import random_states, set_random_states
from utilities.errors import UserError, one_line_errors
from utilities.processes import SingleProcess

TIMEOUT = datetime.timedelta(days=7)  # the others wait while one process measures and draws, however long that takes
BUCKET_SIZE = 2**24  # numbers of gradients that are joined into one message
FIRST_ERROR = "dml/first_error"  # key of torchrun's store: how many processes have asked to print an error
GRACE_SECONDS = 3.0  # in which the process that failed prints its error, before those that lost it print theirs


class Lost(UserError):
    """Another process of the run is gone."""


def _raising_lost(call):
    """Wrap a collective `call`: its RuntimeError becomes `Lost`.

    Unless memory ran out, such an error can only mean that another process is gone.
    """

    @functools.wraps(call)
    def wrapped(*arguments, **named):
        try:
            return call(*arguments, **named)
        except RuntimeError as error:
            if "out of memory" in str(error):
                raise
            raise Lost(
                "another process of this run was killed or ended with an error: --resume goes on from the "
                "last complete epoch, with any number of processes"
            ) from error

    return wrapped


class Ranks(SingleProcess):
    """The rank of this process among those of the run, and what they exchange.

    A step has the gradients of one process. Each of N processes computes the same loss L(o, w) of all rows o of the
    outputs. So each has the whole gradient g = dL/dw of the parameters w that the loss uses directly (class
    vectors, a last layer), and the same gradient d = dL/do of the rows. `sum_of` adds d over the processes: N d.
    Process p backpropagates its own rows of that through its part of the batch, with Jacobian J_p: its parameters'
    gradient is g + N J_p^T d_p. `mean_` takes the mean over the processes: 1/N sum_p (g + N J_p^T d_p) = g + J^T d,
    the gradient of one process. Where rounding makes the losses of the processes differ (a GPU's sums), it is the
    gradient of their mean.

    Attributes:
        rank, size: this process's number, from 0, and how many there are.
    """

    def __init__(self):
        self.rank = 0
        self.size = 1
        if dist.is_available() and dist.is_initialized():
            self.rank = dist.get_rank()
            self.size = dist.get_world_size()

    @property
    def gpu(self) -> str:
        """This process's GPU: under torchrun one of its own, if there are enough."""
        rank = local_rank()
        if rank is None:
            return "cuda"
        return f"cuda:{rank % max(torch.cuda.device_count(), 1)}"

    @_raising_lost
    def gather(self, rows: dict, total: int) -> dict:
        """Gather rows of all processes into tensors `(total, …)` on every process, without gradient.

        rows: name -> this process's rows of a tensor.

        One message carries all tensors. Each process must have the same names, types and widths.
        """
        sizes = [(rank + 1) * total // self.size - rank * total // self.size for rank in range(self.size)]
        mine = sizes[self.rank]
        parts = list(map(_as_bytes, rows.values()))
        sent = torch.cat(parts, 1)
        if mine < max(sizes):
            sent = torch.cat([sent, sent.new_zeros(max(sizes) - mine, sent.shape[1])])
        received = [torch.empty_like(sent) for _ in sizes]
        dist.all_gather(received, sent)
        all_rows = torch.cat([part[:size] for part, size in zip(received, sizes, strict=True)])
        columns = all_rows.split([part.shape[1] for part in parts], 1)
        gathered = {}
        for (name, value), column in zip(rows.items(), columns, strict=True):
            gathered[name] = column.contiguous().view(value.dtype).view(total, *value.shape[1:])
        return gathered

    @_raising_lost
    def sum_of(self, rows: torch.Tensor) -> torch.Tensor:
        """Sum `rows` `(total, …)` over the processes, in place, and return this process's part.

        It is the backward pass of `gather`.
        """
        rows = rows.contiguous()
        dist.all_reduce(rows)
        return rows[self.part(len(rows))]

    @_raising_lost
    def mean_(self, tensors: list[torch.Tensor]) -> None:
        """Replace each of `tensors` by its mean over the processes."""
        if self.size == 1:
            return
        for bucket in _buckets(tensors):
            if len(bucket) > 1:
                joined = torch.cat([tensor.reshape(-1) for tensor in bucket])
            else:
                joined = bucket[0].reshape(-1).clone()
            dist.all_reduce(joined.div_(self.size))
            for tensor, part in zip(bucket, joined.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(part.view_as(tensor))

    @_raising_lost
    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of `tensor` over the processes, on all."""
        return self._reduced(tensor, dist.ReduceOp.SUM)

    @_raising_lost
    def largest(self, tensor: torch.Tensor) -> torch.Tensor:
        """The largest entries of `tensor` over the processes, on all."""
        return self._reduced(tensor, dist.ReduceOp.MAX)

    def _reduced(self, tensor: torch.Tensor, how) -> torch.Tensor:
        if self.size > 1:
            tensor = tensor.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(tensor, how)
        return tensor

    @_raising_lost
    def collect(self, rows: torch.Tensor, parts: list[slice]) -> torch.Tensor:
        """On the first process `(N, …)` in main memory, where process r has the rows `parts[r]`.

        On the others their own `rows`.
        """
        rows = rows.cpu().contiguous()
        if not self.writes:
            dist.send(rows, 0)
            return rows
        all_rows = rows.new_empty(parts[-1].stop, *rows.shape[1:])
        all_rows[parts[0]] = rows
        for rank, part in enumerate(parts[1:], 1):
            dist.recv(all_rows[part], rank)
        return all_rows

    @_raising_lost
    def share(self, value=None):
        """The first process's `value`, on all."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]

    @_raising_lost
    def everyone(self, value) -> list:
        """The `value` of every process, in the order of their ranks, on all."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def first(self, make):
        """Call `make()` on the first process alone; return its value, or raise its UserError, on all."""
        if self.size == 1:
            return make()
        result = _tried(make) if self.writes else None
        value, error = self.share(result)
        if error is not None:
            raise error
        return value

    @_raising_lost
    def share_rows(self, array, rows: list[slice]) -> None:
        """Complete a NumPy array `(N, …)`, in place, on all processes; process r has the rows `rows[r]`."""
        if self.size == 1:
            return
        rows_of_all = torch.from_numpy(array)
        for rank, part in enumerate(rows):
            if part.stop > part.start:
                dist.broadcast(rows_of_all[part], src=rank)

    @_raising_lost
    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            self.share()
            dist.all_reduce(torch.zeros(1))

    def same_draws(self, device: torch.device) -> None:
        """Set all random generators to the first process's states, that of its GPU included."""
        if self.size == 1:
            return
        states = random_states()
        gpu_state = None
        if device.type == "cuda":
            gpu_state = torch.cuda.get_rng_state(device)
        states, gpu_state = self.share(({**states, "cuda": []}, gpu_state))
        set_random_states(states)
        if gpu_state is not None:
            torch.cuda.set_rng_state(gpu_state, device)


def _tried(make) -> tuple:
    """(What `make()` gives, None), or (None, the UserError that it raises)."""
    try:
        return make(), None
    except UserError as error:
        return None, error


def _as_bytes(rows: torch.Tensor) -> torch.Tensor:
    """`(n, bytes)` uint8: the bytes of each row."""
    return rows.detach().reshape(len(rows), -1).contiguous().view(torch.uint8)


def _buckets(tensors: list[torch.Tensor]):
    """The tensors, in lists of one dtype and device, each of at most `BUCKET_SIZE` numbers or of one tensor."""
    bucket = []
    size = 0
    kind = None
    for tensor in tensors:
        key = (tensor.dtype, tensor.device)
        if bucket and (key != kind or size + tensor.numel() > BUCKET_SIZE):
            yield bucket
            bucket = []
            size = 0
        bucket = [*bucket, tensor]
        size = size + tensor.numel()
        kind = key
    if bucket:
        yield bucket


def local_rank() -> int | None:
    """This process's number on its machine under torchrun; None without it."""
    if not _under_torchrun():
        return None
    return int(os.environ["LOCAL_RANK"])


def starter() -> list[str]:
    """The words before a program's name in a command that starts it as it runs: Python, or torchrun on one machine."""
    if not _under_torchrun():
        return ["python"]
    return ["torchrun", "--nproc_per_node", os.environ["LOCAL_WORLD_SIZE"]]


def _under_torchrun() -> bool:
    return (
        dist.is_available()
        and int(os.environ.get("WORLD_SIZE", 1)) > 1
        and {"RANK", "LOCAL_RANK", "MASTER_ADDR"} <= set(os.environ)
    )


@contextlib.contextmanager
def one_run(program: str = "main.py"):
    """Inside, a program is one run, in one process or under torchrun in several. Errors are printed in one line."""
    with one_line_errors(program), several_processes():
        yield


@contextlib.contextmanager
def several_processes():
    """Inside, the processes that torchrun started form one run; without torchrun nothing happens.

    All but the first are silent. An error is printed once, by one of the processes that have it.
    """
    if not _under_torchrun():
        yield
        return
    _join()
    _end_when_gone(os.getppid())
    out = sys.stdout
    err = sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as devnull:
        if dist.get_rank() > 0:
            sys.stdout = sys.stderr = devnull
        try:
            yield
            dist.destroy_process_group()
        except (Exception, KeyboardInterrupt) as error:
            sys.stdout = out
            sys.stderr = err
            if not _claims_error(error):
                with contextlib.suppress(Exception):
                    out.flush()
                status = 130 if isinstance(error, KeyboardInterrupt) else 2
                # a normal exit would wait in the group's threads for the lost peer
                os._exit(status)
            raise
        finally:
            sys.stdout = out
            sys.stderr = err


def _join() -> None:
    """Make the group of torchrun's processes: NCCL where each has a GPU of its own, else gloo."""
    gpus = torch.cuda.device_count()
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if gpus:
        torch.cuda.set_device(local_rank() % gpus)
    backend = "cpu:gloo,cuda:nccl" if gpus >= local_size else "gloo"
    dist.init_process_group(backend, timeout=TIMEOUT)


def _end_when_gone(torchrun: int) -> None:
    """End this process when torchrun's, of this number, is gone: nothing else ends the run if torchrun is killed."""

    def watch():
        while os.getppid() == torchrun:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _claims_error(error: BaseException) -> bool:
    """Whether this process prints the error: the first to ask does; one that merely lost another process asks late."""
    if isinstance(error, Lost):
        if threading.current_thread() is threading.main_thread():
            # torchrun is sending it to the remaining processes
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(GRACE_SECONDS)
    try:
        return dist.distributed_c10d._get_default_store().add(FIRST_ERROR, 1) == 1
    except Exception:
        # the store has gone with torchrun, or with the first process
        return not isinstance(error, Lost)
