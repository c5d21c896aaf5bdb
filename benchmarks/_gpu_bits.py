"""Two equal runs on a GPU, without and with `--deterministic`: how far they end apart, and the time of a step."""

import functools
import itertools
import os

from benchmarks._common import medians
from engine.determinism import WORKSPACE, WORKSPACES, same_bits

HEADS = ("network", "loss", "steps", "flag", "the same bits", "largest difference", "ms per step")
LOSSES = ("multisimilarity", "triplet", "proxyanchor")


def rows(networks: tuple[str, ...], bs: int, n_steps: int, with_batch) -> list[tuple]:
    """A row of `HEADS` for each network, loss and way; `with_batch`: that of benchmarks/gpu.py.

    The difference is the largest of a parameter, as a share of its tensor's largest value.
    """
    # cuBLAS reads it once, so that all ways have the same workspace
    os.environ.setdefault(WORKSPACE, WORKSPACES[0])
    table = []
    for arch, loss, flag in itertools.product(networks, LOSSES, ("", "--deterministic")):
        states = []
        for _ in range(2):
            step, trainer, _, opt, batch = with_batch(arch, bs, *f"--loss {loss} {flag}".split())
            with same_bits(opt):
                seconds = medians({"step": functools.partial(step, batch)}, 0, n_steps)["step"]
            states.append({name: value.detach().cpu() for name, value in trainer.named_parameters()})
        differences = [
            float((states[0][name] - value).abs().max() / value.abs().max().clamp(min=1e-12))
            for name, value in states[1].items()
        ]
        largest = max(differences)
        table.append((arch, loss, n_steps, flag, largest == 0, largest, 1000 * seconds))
    return table
