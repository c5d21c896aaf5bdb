"""The resolved command of a search, which its other parts read."""

import argparse
from pathlib import Path
from typing import NamedTuple

from runs.names import named
from search.space import Flags, Range

FULL = 20  # trials from which on there are reproductions by default
REPRODUCTIONS = 10  # that number


class Plan(NamedTuple):
    """A search's command line, resolved.

    Attributes:
        options: the flags of the search itself.
        ranges: flag -> its range.
        named: the other flags that have a value on the command line or in a file.
        flags: reads a trial's flags.
        opt: the flags of one trial.
        fixed: those that are the same in every trial.
        command: the command line as a shell takes it, its secrets masked; it also continues the search.
    """

    # no fields, as they have no type: flags that the search sets for its runs; paths without which a run cannot start
    SETS = frozenset({"savename", "group", "splits_to_eval"})
    INPUTS = frozenset({"source_path", "weights_cache"})

    options: argparse.Namespace
    ranges: dict[str, Range]
    named: set[str]
    flags: Flags
    opt: argparse.Namespace
    fixed: dict
    command: str = ""

    @property
    def trials(self) -> int:
        """The requested number of trials."""
        return self.options.bayesian_optimization_n_iter

    @property
    def reproductions(self) -> int:
        """The requested number of reproductions of the best trial."""
        if self.options.reproductions is not None:
            return self.options.reproductions
        return REPRODUCTIONS if self.trials >= FULL else 0

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

    def read(self, values: dict, name: str, *flags: str):
        """The flags of a run in the search's folder; evaluated on validation data alone by default."""
        splits = [] if "splits_to_eval" in self.named else ["--splits_to_eval", "val"]
        opt = self.flags.read(values, f"--savename={self.savename}/{name}", *flags, *splits)
        opt.command = self.command
        return opt
