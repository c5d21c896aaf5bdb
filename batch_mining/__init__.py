"""Tuple miners: one file a miner, the file name is the value of `--batch_mining`.

A file is a docstring, constants where it differs from `CONSTANTS` below, its flags (`FLAGS`, see `options.flags`),
and a class `BatchMiner(opt)`; `miner(batch, labels)` gives `Triplets`, `Pairs` or sets.
"""

from collections.abc import Callable
from typing import Any

from utilities.registry import Registry
from utilities.tuples import Pairs, Triplets

__all__ = ["REGISTRY", "Pairs", "Triplets", "select"]

CONSTANTS = {  # of a file that leaves them out
    "YIELDS": "triplets",  # or "pairs", or "sets"
    "NEEDS_TRIPLETS": False,  # it needs a sampler whose batches are consecutive triplets
}
REGISTRY = Registry("batch_mining", "miner", constants=CONSTANTS)


def select(name: str, opt: Any = None, **flags: Any) -> Callable:
    """The miner `name`: `miner(batch (B, D), labels (B,)) -> Triplets | Pairs | sets`. See `criteria.select` for `opt`,
    `flags`.
    """
    return REGISTRY.module(name).BatchMiner(REGISTRY.options(opt, name, **flags))
