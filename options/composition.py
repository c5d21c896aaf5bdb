"""The options of a run from defaults, --config files, a saved run and the command line, later ones winning.

`Layers` holds these sources and makes options of them: with the run that goes on (options/resume.py), with a value for
flags that are unset (options/derived.py), and checked (options/flags/rules.py, options/checks.py). A run may consist of
stages with different flags (options/reproduction.py). A mistake raises UserError.
"""

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path

import criteria
import datasets
import trainers
from options import checks, files, reproduction, resume
from options.derived import defaults_of, derived, followers, left_out
from options.flags import configs, roles, rules
from options.options import Options
from runs import idle
from runs.folder import PARAMETERS, run_folder
from utilities.errors import UserError

# Flags that only a run's parameters.yaml names together: it names every flag.
OF_SAVED_RUN = {"savename", "fc_lr", "lr", "eval_kernels", "kernels"}


def compose(
    parser,
    argv: list[str] | None,
    searched: Collection[str] = (),
    config_files: Sequence[tuple[Path, dict]] = (),
    is_checked: bool = True,
) -> Options:
    """The options of a run; for a reproduction those of its first stage, with those of the other stages in `later`.

    Args:
        searched, config_files: see `parameters.resolve`.
        is_checked: options that cannot work are refused.
    """
    layers = Layers(parser, argv, frozenset(searched), is_checked)
    opt = argparse.Namespace(**{**layers.defaults, **layers.explicit})
    for path, lines in config_files:
        layers.add_file(path, lines)
    for path in map(configs.find, opt.config):
        layers.add_file(path, configs.nodes(path))
    if opt.reproduce_results is None:
        return reproduction.continued(layers)
    return reproduction.begun(layers, Path(opt.reproduce_results))


class Layers:
    """The sources of the options.

    Attributes:
        parser: the program's, with all flags.
        roles: flag -> its role.
        defaults, files, explicit: flag -> value, as declared, in the --config files, on the command line.
        file_of: flag -> the --config file that sets it, as text.
        searched, is_checked: see `compose`.
    """

    def __init__(self, parser, argv: list[str] | None, searched: frozenset[str] = frozenset(), is_checked: bool = True):
        self.parser = parser
        self.searched = searched
        self.is_checked = is_checked
        self.roles = roles.declared(parser)
        self.defaults = vars(parser.parse_args([]))
        without_values = dict.fromkeys(self.defaults, argparse.SUPPRESS)
        typed = vars(parser.parse_args(argv, argparse.Namespace(**without_values)))
        self.explicit = {flag: value for flag, value in typed.items() if value is not argparse.SUPPRESS}
        if self.explicit.get("resume_or_start"):
            self.explicit.setdefault("resume", "latest")
        self.files = {}
        self.file_of = {}

    def add_file(self, path: Path, lines: dict) -> None:
        """Add the flags of a --config file, `configs.nodes`; they win over those of earlier files."""
        flags = files.read(self.parser, path, lines)
        if flags.keys() >= OF_SAVED_RUN:
            flags = self.underived({**files.before_they_existed(self.parser, flags), **flags})
        self.files |= flags
        set_flags = [flag for flag, value in flags.items() if value is not None]
        self.file_of |= dict.fromkeys(set_flags, f"--config {path}")

    def resolved(self, saved: dict | None = None, explicit: dict | None = None) -> Options:
        """The options of all layers, checked. `saved`: a run's flags, which win over the files; `explicit`: replaces
        the command line's.
        """
        explicit = self.explicit if explicit is None else explicit
        below = {**self.files, **(saved or {})}
        if _is_derived(below, explicit):
            # another seed or group makes another name, and a new run another number
            del below["savename"]
        flags = {**self.defaults, **below, **resume.with_weights(explicit, below, self.roles)}
        opt = Options(flags, self.roles)
        if opt.list is not None or opt.find is not None:
            return opt
        if "batch_mining" not in below and "batch_mining" not in explicit:
            opt = opt.but(batch_mining=criteria.only_miner(opt) or opt.batch_mining)
        if "arch" not in below and "arch" not in explicit and datasets.width(opt) is not None:
            opt = opt.but(arch="features_normalize")
        opt = opt.but(repeats=saved is not None)
        usual = {**self.defaults, **(saved or {})}
        if not opt.evaluate_only:
            opt = resume.located(opt)
            resume.refuse_for_ensemble(opt, explicit)
            run = resume.find_run(opt, self)
            if run is not None:
                opt = resume.with_saved_flags(opt, run, explicit, self)
                usual |= run.flags
        _refuse_code(opt, self.explicit)
        if (opt.evaluate_all or datasets.is_test_only(opt)) and "splits_to_eval" not in explicit:
            opt = opt.but(splits_to_eval=["test"])
        requested_splits = opt.splits_to_eval
        opt = derived(opt)
        opt = opt.but(set_by=self._set_by(opt, explicit), typed=frozenset(explicit))
        opt = opt.but(without_effect={**self._without_effect(opt, usual), **left_out(requested_splits, opt)})
        if self.is_checked:
            checks.check(opt)
        return opt

    def _without_effect(self, opt: Options, usual: dict) -> dict[str, str]:
        """Flag -> why it has no effect, by the rules beside the flags. Raises UserError for what they refuse.

        Refused are the flags of the command line that differ from `usual`, the values of the run that goes on, else
        the defaults. A run that goes on may be older than the rules: then only flags that measure or concern records
        are refused.
        """
        actions = self.parser._actions
        if self.is_checked:
            self._refuse(opt, usual)
        unset = defaults_of(opt)
        set_flags = {flag for flag in opt.set_by if flag not in unset or getattr(opt, flag) != unset[flag]}
        lines = {}
        for action in actions:
            line = None
            if action.dest in opt.typed | set_flags:
                line = rules.without_effect(actions, action, opt)
            if line is not None:
                lines[action.dest] = line
        return lines

    def _refuse(self, opt: Options, usual: dict) -> None:
        """Raise UserError for flags of the command line that have no effect or exclude each other."""
        changed = {flag for flag in opt.typed if flag in usual and getattr(opt, flag) != usual[flag]}
        if opt.repeats:
            changed &= self.roles.having(measured=True) | self.roles.having(change=False)
        rules.refuse(self.parser._actions, opt, changed, self.searched)
        # A run of an older version may have such flags.
        if not opt.repeats and self.searched.isdisjoint({"trainer"}):
            for line in trainers.without_classifier(opt, changed):
                raise UserError(line)
        inner = {getattr(module, "INNER_LOSS", None) for module in self.parser.plug_ins.values()}
        if self.searched.isdisjoint({"loss", "trainer", "adversarial_losses", *inner}):
            for line in idle.of_class_vectors(opt, changed):
                raise UserError(line)

    def _set_by(self, opt: Options, explicit: dict) -> dict[str, str]:
        """Flag -> where its value was set, as text, of the flags that differ from their default."""
        elsewhere = "derived"
        if opt.resume is not None:
            elsewhere = f"derived, or the run {run_folder(opt)}"
        places = {**self.file_of, **dict.fromkeys(opt.overruled, elsewhere), **dict.fromkeys(explicit, "command line")}
        changed = [flag for flag, value in opt.saved().items() if value != self.defaults[flag]]
        return {flag: places.get(flag, elsewhere) for flag in changed}

    def underived(self, flags: dict) -> dict:
        """A run's flags, but unset where they equal what they are derived from: they then follow its new value."""
        following = followers(self.defaults, flags)
        return {**flags, **dict.fromkeys(following)}

    def saved(self, folder: Path, flags: dict) -> dict:
        """Flags of the run in `folder` as options, each passed through its flag's type.
        Raises UserError for a damaged value.
        """
        values = files.passed(self.parser, folder / PARAMETERS, flags)
        return {**files.before_they_existed(self.parser, values), **values}


def _is_derived(flags: dict, explicit: dict) -> bool:
    """Whether the saved name of a run is made of its group and seed. That of a numbered folder is kept to resume it."""
    plain = f"{flags.get('group')}_s{flags.get('seed')}"
    name = flags.get("savename") or ""
    if name == plain:
        return True
    resumes = explicit.get("resume") is not None and not {"group", "seed"} & explicit.keys()
    is_numbered = name.startswith(f"{plain}_") and name.removeprefix(f"{plain}_").isdecimal()
    return is_numbered and not resumes


def _refuse_code(opt: Options, typed: dict) -> None:
    """Raise UserError for a file of code that only a file or a saved run names; `typed`: the command line's flags."""
    for flag in sorted(opt.roles.having(code=True)):
        file = getattr(opt, flag)
        if file is not None and typed.get(flag) != file:
            raise UserError(
                f"--{flag} {file} is code, and a saved run or a --config file requests it: if you trust it, name it on "
                f"the command line, --{flag} {file}; --{flag} none measures without it"
            )
