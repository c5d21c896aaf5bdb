"""The resolved command of a search, which its other parts read."""

import argparse
from pathlib import Path
from typing import NamedTuple

from runs.names import named
from search.space import Flags, Range

# from FULL trials on, --reproductions is 10 by default
FULL = 20
REPRODUCTIONS = 10


class Plan(NamedTuple):
    """A search's command line, resolved.

    Attributes:
        own: the search's own flags.
        ranges: flag -> its range.
        given: the other flags that have a value on the command line or in a file.
        flags: reads a trial's flags.
        opt: the flags of one trial.
        fixed: those that are the same in every trial.
        command: the command line as a shell takes it, its secrets masked; it also continues the search.
    """

    SETS = frozenset(
        {"savename", "group", "splits_to_eval"}
    )  # not a field: flags that the search itself sets for its runs

    INPUTS = frozenset({"source_path", "weights_cache"})  # likewise: paths without which a run cannot start

    own: argparse.Namespace
    ranges: dict[str, Range]
    given: set[str]
    flags: Flags
    opt: argparse.Namespace
    fixed: dict
    command: str = ""

    @property
    def trials(self) -> int:
        """How many trials are asked for."""
        return self.own.bayesian_optimization_n_iter

    @property
    def reproductions(self) -> int:
        """How many reproductions of the best trial are asked for."""
        return (
            (REPRODUCTIONS if self.trials >= FULL else 0) if self.own.reproductions is None else self.own.reproductions
        )

    @property
    def savename(self) -> str:
        """Name of the search folder as a run's name."""
        return f"{self.opt.group}_search"

    @property
    def folder(self) -> Path:
        """The folder of the search."""
        return Path(self.opt.save_path) / self.opt.dataset / self.savename

    @property
    def metric(self) -> str:
        """Name of the metric that selects trials, as in files."""
        return named(self.opt.evaltypes[0], self.opt.storage_metrics[0], self.opt.evaltypes)

    def read(self, values: dict, name: str, *more: str):
        """The flags of a run in the search's folder; it is evaluated on validation data alone, unless the command says
        otherwise.
        """
        splits = [] if "splits_to_eval" in self.given else ["--splits_to_eval", "val"]
        opt = self.flags.read(values, f"--savename={self.savename}/{name}", *more, *splits)
        opt.command = self.command
        return opt
