"""A run that goes on or is measured: where it is, what may differ from it, and its flags in the options.

    opt = located(opt)                  --resume, --resume_from and --savename say which run
    run = find_run(opt, layers)         its folder and flags; None: a new run begins
    opt = with_saved_flags(opt, run, explicit, layers)

Each function returns options and changes none.
"""

import dataclasses
from collections.abc import Collection
from pathlib import Path

import datasets
from options import checks
from options.derived import derived, savename
from options.options import Options
from runs.folder import COPIES, PARAMETERS, RunFolder, changed_split_file, fold_of, run_folder, with_split_copies
from utilities.errors import UserError
from utilities.registry import did_you_mean

# a run that is found by these flags may have been moved since it began
OF_PLACE = {"save_path", "savename"}
# what a measurement writes is said anew
DUMPS = {"dump_embeddings", "dump_query_results", "query_results_format", "query_results_depth"}


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """A run on disk: its folder, and flag -> value, which may lack flags that are younger than the run."""

    folder: Path
    flags: dict


def located(opt: Options) -> Options:
    """The options with the place of the run that goes on or is measured; unchanged where a new run begins."""
    if opt.resume is None and opt.resume_from is None and opt.job == "train":
        return opt
    opt = opt.but(resume=opt.resume or "latest")
    if opt.resume_from is None:
        return opt.but(savename=savename(opt))
    of_fold = fold_of(Path(opt.resume_from))
    if of_fold is None:
        return opt
    # A fold's folder: its cross-validation, this fold alone.
    folder, folds = of_fold
    return opt.but(resume_from=str(folder), folds=folds)


def find_run(opt: Options, layers) -> SavedRun | None:
    """The run of `located` options; None where a new one begins. Raises UserError where it is missing."""
    if opt.resume is None:
        return None
    folder = run_folder(opt)
    if (folder / PARAMETERS).exists():
        flags = layers.saved(folder, RunFolder(folder).flags)
        # A run may be older than a flag that no continuation changes: it had the default.
        fixed = {flag: layers.defaults[flag] for flag in opt.roles.having(fixed="always")}
        return SavedRun(folder, {**fixed, **flags})
    if opt.resume_from is not None:
        raise UserError(f"--resume_from {folder}: no run there (parameters.yaml is missing)")
    if opt.job != "train":
        raise UserError(f"--{opt.job} {folder}: no run there (parameters.yaml is missing)")
    refuse_missing(folder, opt)
    return None


def with_saved_flags(opt: Options, run: SavedRun, explicit: dict, layers) -> Options:
    """The options with the flags of the run, over which those of the command line, `explicit`, win.

    Raises UserError where they differ in what may not change, and for a file that is gone, of which the run has a copy.
    """
    explicit = with_weights(explicit, run.flags, opt.roles)
    opt = opt.but(repeats=True, loss_weights=explicit.get("loss_weights", opt.loss_weights))
    if opt.job == "evaluate":
        opt = opt.but(other_data=datasets.changed_flags(run.flags, opt.but(**{**run.flags, **explicit})))
    refuse_changes(opt, run, explicit)
    opt = opt.but(overruled=_overruled(opt, run, explicit, layers), **_taken(opt, run, explicit, layers))
    if opt.other_data:
        opt = opt.but(**_fit_for_other_data(opt, explicit, layers.defaults))
    else:
        _refuse_changed_split_files(opt, run)
    return opt


def _refuse_changed_split_files(opt: Options, run: SavedRun) -> None:
    """Raise UserError for a split file that is gone, or holds something else than when the run began."""
    changed = changed_split_file(run.folder, vars(opt))
    if changed is None:
        return
    flag = next((name for name in COPIES if changed == getattr(opt, name)), "split_groups")
    copies = with_split_copies(run.folder, vars(opt))
    raise UserError(
        f"--{flag} {changed} is gone, or no longer what {run.folder} began with. The run has a copy: --{flag} "
        f"{checks.text_of(copies[flag])}"
    )


def refuse_changes(opt: Options, run: SavedRun, explicit: dict) -> None:
    """Raise UserError where the command line differs from the saved flags, unless the change is allowed, harmless, or
    only adds epochs.
    """
    measures = opt.job != "train"
    typed = {flag: value for flag, value in explicit.items() if flag in run.flags and flag not in _free(opt)}
    # So that `--savename group_plus_seed` equals its resolved value.
    resolved = derived(opt.but(**{**run.flags, **typed}))
    differing = {}
    fixed = []
    for flag in sorted(typed):
        before = run.flags[flag]
        requested = getattr(resolved, flag)
        adds_epochs = flag == "n_epochs" and not measures and typed[flag] > before
        if adds_epochs or not opt.roles[flag].changes(before, requested):
            continue
        differing[flag] = f"--{flag} {checks.text_of(requested)} (saved: {checks.text_of(before)})"
        if opt.roles[flag].forbids(before, requested):
            fixed.append(differing[flag])
    job = opt.job if measures else "resume"
    if fixed:
        raise UserError(
            f"--{job}: {'; '.join(fixed)}: the images that train, validate and test, and the metric that chooses the "
            f"epoch, stay those of {run.folder}. Start a new run"
        )
    if differing and (measures or not opt.resume_allow_changes):
        way_out = "Leave them out" if measures else "Leave them out, or add --resume_allow_changes"
        raise UserError(f"--{job}: flags differ from those of {run.folder}: {'; '.join(differing.values())}. {way_out}")


def _free(opt: Options) -> Collection[str]:
    """The flags that may have any value when a run goes on or is measured."""
    measures = opt.job != "train"
    free = {flag for flag, role in opt.roles.items() if not role.change or (measures and role.measured)}
    if opt.other_data:
        # Other data have a split of their own; the folds are the run's.
        free |= {"dataset", *datasets.REGISTRY.flags()} - {"split_scheme", "split_sets", "split_partitions"}
    return free


def _overruled(opt: Options, run: SavedRun, explicit: dict, layers) -> dict[str, str]:
    """Flag -> the --config file that gives it another value than the run, whose value stands."""
    of_files = {
        flag: layers.files[flag]
        for flag in layers.file_of
        if flag in run.flags and flag not in explicit and flag not in OF_PLACE
    }
    resolved = derived(opt.but(**{**run.flags, **of_files}))
    return {flag: layers.file_of[flag] for flag in of_files if getattr(resolved, flag) != run.flags[flag]}


def _taken(opt: Options, run: SavedRun, explicit: dict, layers) -> dict:
    """Flag -> value, of the flags that the options take from the run."""
    left_out = set(explicit)
    if opt.resume_from is None:
        left_out |= OF_PLACE
    if opt.job != "train":
        left_out |= DUMPS
    return {flag: value for flag, value in layers.underived(run.flags).items() if flag not in left_out}


def _fit_for_other_data(opt: Options, explicit: dict, defaults: dict) -> dict:
    """Flag -> value, of the run's flags that other data than its own have no use for."""
    flags = {}
    places = {"dataset", *datasets.REGISTRY.flags(opt.dataset)}
    if "dataset_fixes" not in explicit and not places.isdisjoint(opt.other_data):
        # the rows of --dataset_fixes name the run's images
        flags["dataset_fixes"] = defaults["dataset_fixes"]
    if "dataset" in opt.other_data and "evaluation_metrics" not in explicit:
        published = datasets.evaluation_metrics(opt)
        if published:
            # the run's metrics may not be defined on the other data
            flags["evaluation_metrics"] = list(published)
    # The run's flags for cropping and caching do not apply to images that are shown whole.
    for flag in set(datasets.unfit(opt)) - set(explicit):
        flags[flag] = defaults[flag]
    return flags


def refuse_missing(folder: Path, opt: Options) -> None:
    """Raise UserError where --resume names a run that does not exist.

    An empty folder is a run that was killed before it wrote anything.
    """
    if folder.is_dir() or opt.resume_or_start:
        return
    runs = [path.parent.name for path in folder.parent.glob(f"*/{PARAMETERS}")]
    raise UserError(
        f"--resume: there is no run {folder}.{did_you_mean(folder.name, runs)} --resume_or_start begins a new run "
        "if it is missing"
    )


def refuse_for_ensemble(opt: Options, explicit: dict) -> None:
    """Raise UserError for flags that `--evaluate_ensemble` decides itself."""
    if opt.job != "evaluate_ensemble":
        return
    reasons = {
        "folds": "joins all folds",
        "splits_to_eval": "measures test alone: the folds validate on different data",
    }
    for flag, reason in reasons.items():
        if flag in explicit and explicit[flag] != ["test"]:
            raise UserError(f"--evaluate_ensemble {reason}: leave out --{flag}")


def with_weights(explicit: dict, below: dict, roles) -> dict:
    """The command line, whose flags of single weights also win over `--loss_weights` of the layers `below`."""
    single = {}
    for flag, role in roles.items():
        if role.weighs and explicit.get(flag) is not None:
            single[role.weighs] = explicit[flag]
    if not single or "loss_weights" in explicit:
        return explicit
    words = [word for word in below.get("loss_weights", []) if word.partition("=")[0] not in single]
    words += [f"{name}={weight:g}" for name, weight in single.items() if weight != 1]
    return {**explicit, "loss_weights": words}
