"""Runs of several stages: a reproduction trains each with the flags that the saved run had in these epochs.

The options of the first stage hold those of the stages after it in `later`.
"""

from pathlib import Path

import datasets
from options import checks, resume
from options.options import Options
from runs import changes
from runs.folder import PARAMETERS, RunFolder, fold_of, run_folder
from utilities.errors import UserError

OTHER_JOBS = ("resume_from", "evaluate", "evaluate_only", "evaluate_ensemble", "aggregate_only", "list")


def begun(layers, source: Path) -> Options:
    """The options of `--reproduce_results source`, of the first stage to train. Raises UserError."""
    for flag in OTHER_JOBS:
        if layers.explicit.get(flag):
            raise UserError(f"--reproduce_results makes a new run: leave out --{flag}")
    if layers.files:
        raise UserError(
            "--reproduce_results uses the run's own flags and cannot be combined with --config: leave out --config, "
            "and override single flags on the command line"
        )
    of_fold = fold_of(source)
    if of_fold is not None:
        source, layers.explicit["folds"] = of_fold
    if not (source / PARAMETERS).exists():
        raise UserError(
            f"--reproduce_results: no run in {source} (parameters.yaml is missing); published runs of "
            "powerful-benchmarker are lines of experiments/MLRC_Runs.sh, for python -m launch"
        )
    checkpoint = layers.explicit.pop("resume", None)
    first = _staged(layers, source, changes.stages(source, layers.roles), layers.explicit)
    folder = run_folder(first)
    if checkpoint is None:
        return first
    if not (folder / PARAMETERS).exists():
        resume.refuse_missing(folder, first)
        first.resume = checkpoint
        return first
    if folder.resolve() == source.resolve():
        raise UserError(
            f"--resume: {folder} is what is to be reproduced. Name its reproduction by --resume_from or --savename"
        )
    del layers.explicit["reproduce_results"]
    layers.explicit |= {"resume": checkpoint, "resume_from": str(folder)}
    return continued(layers)


def continued(layers) -> Options:
    """The options of a run; of a reproduction with stages still to train those of the first of them."""
    opt = layers.resolved()
    if opt.list is not None or opt.find is not None:
        return opt
    stages = changes.stages_left(opt)
    if not stages:
        return opt
    folder = run_folder(opt)
    _refuse_changes(opt, layers, folder)
    layers.files = {}
    free = layers.roles.having(change=False) - {"resume", "resume_from"}
    explicit = {flag: value for flag, value in layers.explicit.items() if flag in free}
    first = _staged(layers, folder, stages, explicit)
    for stage in (first, *first.later):
        stage.resume = opt.resume
        stage.resume_from = str(folder)
        stage.savename = opt.savename
    return first


def _refuse_changes(opt: Options, layers, folder: Path) -> None:
    """Raise UserError where a reproduction that has stages left is to go on otherwise than it began."""
    saved = layers.saved(folder, RunFolder(folder).flags)
    typed = sorted(set(layers.explicit) - layers.roles.having(change=False))
    changed = [f"--{flag}" for flag in typed if flag in saved and getattr(opt, flag) != saved[flag]]
    if opt.resume == "best" and not changed:
        changed = ["--resume best"]
    if changed:
        raise UserError(
            f"{folder} is a reproduction with changes still to come: continue it without {', '.join(changed)}, or let "
            "it end first"
        )


def _staged(layers, folder: Path, stages: list, explicit: dict) -> Options:
    """The options of the first of `stages`, as `runs.changes` gives them, with those of the others in `later`."""
    staged = []
    for last_epochs, flags in stages:
        opt = layers.resolved(layers.underived(layers.saved(folder, flags)), explicit)
        if last_epochs is not None and len(last_epochs) != datasets.n_folds(opt):
            raise UserError(
                f"the saved run was changed at the epochs {checks.text_of(last_epochs)} of its folds, and these flags "
                f"make {datasets.n_folds(opt)}: leave the flags of the split as they were"
            )
        staged.append(opt.but(until=last_epochs))
    first, *later = staged
    return first.but(later=later)
