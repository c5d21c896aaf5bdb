"""Tuple miners: one file a miner, the file name is the value of `--batch_mining`.

A module's class is `BatchMiner(opt)`; `miner(batch, labels)` gives `Triplets`, `Pairs` or sets, as its constant
`YIELDS` says ("triplets", "pairs" or "sets"; a module without it yields triplets).
"""

from utilities.registry import Registry
from utilities.tuples import Pairs, Triplets

__all__ = ["REGISTRY", "Pairs", "Triplets", "select"]

REGISTRY = Registry("batch_mining", "miner")


def select(name: str, opt=None, **flags):
    """The miner `name`: `miner(batch (B, D), labels (B,)) -> Triplets | Pairs | sets`. See `criteria.select` for `opt`,
    `flags`.
    """
    return REGISTRY.module(name).BatchMiner(REGISTRY.options(opt, name, **flags))
