"""Networks before training, as --check_untrained_accuracy measures them: rows of their own in the tables."""

from dataclasses import dataclass

import numpy as np

from results import inference
from results.columns import Column
from results.groups import Group, counted_runs
from results.recorded import RecordedRun
from results.settings import flag_text, flag_texts
from results.texts import brief

# epochs of --check_untrained_accuracy
UNTRAINED = {-1: "untrained backbone", 0: "untrained network"}
# flags that make the network: its backbone, and all of it
OF_BACKBONE = ("arch", "weights", "not_pretrained", "last_stride", "stem_pool")
OF_HEAD = ("embed_dim", "embed_hidden", "pool", "neck", "lora_rank", "prompts")
OF_NETWORK = {-1: OF_BACKBONE, 0: OF_BACKBONE + OF_HEAD}


@dataclass
class Untrained:
    """The networks of some groups before training, at one epoch of `UNTRAINED`."""

    title: str
    epoch: int
    runs: list[RecordedRun]

    def estimate(self, column: Column, ddof: int = 1) -> inference.Estimate:
        """Mean and deviation over the seeds; a seed that several groups share counts once, with the mean over its runs.

        Empty for a column with a selection rule of its own: before training there is no epoch to select.
        """
        seeds = {}
        if column.how is None:
            for run in self.runs:
                values = run.series.get(column.split, column.metric)
                for value in values[run.series.epochs == self.epoch][:1]:
                    if np.isfinite(value):
                        seeds.setdefault(run.seed, []).append(value * column.scale)
        return inference.estimate([np.mean(values) for values in seeds.values()], ddof)


def of_groups(dataset_groups: list[Group]) -> list[Untrained]:
    """Measurements of --check_untrained_accuracy in the runs that count.

    One entry per epoch and per network, data and way to measure.
    """
    # epoch -> what was measured, as pairs (flag, value) -> runs
    members = {epoch: {} for epoch in UNTRAINED}
    for run in counted_runs(dataset_groups):
        for epoch, of_epoch in members.items():
            if (run.series.epochs == epoch).any():
                of_epoch.setdefault(_untrained_key(run, epoch), []).append(run)
    states = []
    for epoch, of_epoch in members.items():
        for key, runs in sorted(of_epoch.items()):
            states.append(Untrained(_untrained_title(epoch, key, list(of_epoch)), epoch, runs))
    return states


def _untrained_key(run: RecordedRun, epoch: int) -> tuple[tuple[str, str], ...]:
    """(flag, value) of an untrained network, its data and how it was measured."""
    flags = {name: flag_text(run.flags.get(name)) for name in OF_NETWORK[epoch]}
    flags |= flag_texts({**run.roles.of_data(run.flags), **run.roles.of_evaluation(run.flags, {})})
    return tuple(sorted(flags.items()))


def _untrained_title(epoch: int, key: tuple, keys: list[tuple]) -> str:
    """A title that names what distinguishes an untrained network from the others of its epoch."""
    title = UNTRAINED[epoch]
    flags = dict(key)
    if len(keys) > 1:
        title += f", {flags['arch']}"
        if epoch == 0:
            title += f", {flags.get('embed_dim')} dimensions"
    shared_pairs = set.intersection(*map(set, keys))
    for name, value in key:
        if (name, value) not in shared_pairs and name not in ("arch", "embed_dim"):
            title += f", {name} {brief(value)}"
    return title
