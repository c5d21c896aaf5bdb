"""The options of a run: one flat namespace of flags, and properties that depend on several flags."""

import copy
from argparse import Namespace

from options.flags.roles import Roles
from options.flags.shared import has_folds
from utilities import provenance
from utilities.files import expanded


class Options(Namespace):
    """Every flag with its resolved value, as `opt.<flag>`.

    Attributes:
        roles: flag -> `options.flags.roles.Role`, of every flag there is.
        fold: the number, from 0, of the fold that these options are for; None outside a cross-validation.
        until: the epochs, one number a fold, at which this stage of a reproduction ends; None: all of --n_epochs.
        later: the options of the stages after this one.
        typed: the flags that the command line sets.
        set_by: flag -> where a value that is not the default was set, as text.
        without_effect: flag -> why it has no effect, in a line, of the flags of the command line,
        of files and of a saved run.
        overruled: flag -> the --config file that asks for another value than the saved run, whose value stands.
        command: how the run is continued, as a shell takes it; None: by main.py with --resume_from.
        callbacks: objects whose `on_epoch_end(run, epoch, scores)` is called when an epoch is recorded.
        repeats: whether the flags are those of a saved run, which may be of an older version.
        other_data: flag -> value of the data that `--evaluate` measures in place of the run's own; empty where it
        measures the run's own.
    """

    # Not in `vars(opt)`, which are the flags.
    __slots__ = (
        *("roles", "fold", "until", "later", "set_by", "without_effect", "overruled", "other_data"),
        *("command", "typed", "repeats", "callbacks"),
    )

    def __init__(self, flags: dict, roles: Roles):
        super().__init__(**flags)
        self.roles = roles
        self.fold = None
        self.until = None
        self.later = []
        self.set_by = {}
        self.without_effect = {}
        self.overruled = {}
        self.other_data = {}
        self.command = None
        self.typed = frozenset()
        self.repeats = False
        self.callbacks = ()

    def but(self, **changes) -> "Options":
        """The same options with some flags, or attributes of the above, changed."""
        options = copy.copy(self)
        for name, value in changes.items():
            setattr(options, name, value)
        return options

    def of_fold(self, fold: int) -> "Options":
        """The options of one fold of a cross-validation."""
        return self.but(fold=fold)

    def saved(self) -> dict:
        """Flag -> resolved value, as parameters.yaml holds them: every flag of the run, nothing else, no API key."""
        flags = {}
        for name, value in sorted(vars(self).items()):
            if name in self.roles and self.roles[name].saved:
                flags[name] = value
        return flags

    def measured(self) -> dict:
        """Flag -> value, of the flags that decide what an evaluation measures; `<flag>_sha256` of files of code."""
        flags = {name: getattr(self, name) for name in sorted(self.roles.having(measured=True))}
        return flags | {f"{name}_sha256": value for name, value in self.code_files().items()}

    def code_files(self) -> dict[str, str | None]:
        """Flag -> SHA-256, of the files of code that flags name; None for a file that cannot be read."""
        files = {name: getattr(self, name) for name in sorted(self.roles.having(code=True))}
        return {name: provenance.sha256(expanded(file)) for name, file in files.items() if file is not None}

    @property
    def is_cross_validation(self) -> bool:
        """Whether the split scheme makes folds; `half` and `oodml` make none."""
        return has_folds(vars(self))

    @property
    def job(self) -> str:
        """The job: `train`, `evaluate_only`, or one on an existing run:
        `evaluate`, `evaluate_ensemble`, `aggregate_only`.
        """
        opt = self
        if opt.evaluate:
            return "evaluate"
        if opt.evaluate_only:
            return "evaluate_only"
        if opt.evaluate_ensemble:
            return "evaluate_ensemble"
        if opt.aggregate_only:
            return "aggregate_only"
        return "train"

    @property
    def last_epoch(self) -> float:
        """The epoch at which the run, or this stage of a reproduction, ends."""
        if self.until is None:
            return self.n_epochs
        return min(self.n_epochs, self.until[self.fold or 0])
