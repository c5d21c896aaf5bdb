"""What ways to compute a step gain on a GPU: the part `flags` of benchmarks/gpu.py, `compile` with --compile.

A way is measured by steps that follow each other without a wait, as a training does, the better of two rounds.
"""

import contextlib
import functools
import time
from typing import NamedTuple
from unittest import mock

import torch

ROUNDS = 2


class Way(NamedTuple):
    """A way to compute a step: flags of the program, and what the program does not do by itself.

    contiguous: channels are not last, though the program would choose so. tuned: `torch.backends.cudnn.benchmark`, and
    kernels need not be deterministic. fused: the optimiser's step in one kernel.
    """

    flags: tuple[str, ...] = ()
    contiguous: bool = False
    tuned: bool = False
    fused: bool = False


WAYS = {
    "channels first": Way(contiguous=True),
    "as it is": Way(),
    "cudnn.benchmark": Way(tuned=True),
    "fused optimiser": Way(fused=True),
}
COMPILED = {"as it is": Way(), "--compile": Way(("--compile",))}
HEADS = ("network", "batch", "way", "s to the end of the first step", "ms per step", "images per second", "GiB")


@contextlib.contextmanager
def computed(way: Way):
    """Inside, steps that are built are computed in this way."""
    with contextlib.ExitStack() as changes:
        if way.contiguous:
            changes.enter_context(mock.patch("engine.runtime.gains_from_channels_last", lambda *arguments: False))
        if way.fused:
            changes.enter_context(mock.patch("torch.optim.Adam", functools.partial(torch.optim.Adam, fused=True)))
        yield


def wait() -> None:
    """Until the device has done its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def row(arch: str, bs: int, name: str, way: Way, with_batch, repeats: int) -> tuple:
    """A row of the table. `with_batch(arch, bs, *flags)` builds a step and its batch."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with computed(way):
        step, *_, batch = with_batch(arch, bs, "--precision", "bfloat16", *way.flags)
    # a step that is built has set both
    torch.backends.cudnn.deterministic = not way.tuned
    torch.backends.cudnn.benchmark = way.tuned
    wait()
    began = time.perf_counter()
    step(batch)
    wait()
    first = time.perf_counter() - began
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(repeats):
            step(batch)
        wait()
        rounds.append((time.perf_counter() - began) / repeats)
    torch.backends.cudnn.benchmark = False
    seconds = min(rounds)
    memory = ""
    if torch.cuda.is_available():
        memory = torch.cuda.max_memory_allocated() / 2**30
    return arch, bs, name, first, 1e3 * seconds, bs / seconds, memory


def rows(ways: dict[str, Way], networks, with_batch, options) -> list[tuple]:
    """The table of some ways and `(network, batch)`; a way that fails is named with its error."""
    table = []
    for arch, bs in networks:
        for name, way in ways.items():
            try:
                table.append(row(arch, bs, name, way, with_batch, options.repeats))
            except Exception as error:
                table.append((arch, bs, name, f"{type(error).__name__}: {error}".splitlines()[0], "", "", ""))
            print(*table[-1], flush=True)
    return table
