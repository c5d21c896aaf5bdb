"""The changes that were made to a run's flags when it was resumed, and the stages that reproduce it.

With the first change a run folder gets configs/: `parameters.yaml`, the flags it began with, and for each change
`resume_training_config_diffs_<epochs done>/parameters.yaml`, the flags that changed (in the folder of a
cross-validation the epochs done in each fold, joined by `_`). The run's own parameters.yaml always holds the present
flags. A reproduction with changes to come keeps its stages in configs/reproduction.yaml, so that it can be resumed like
any other run.
"""

import re
import shutil
from pathlib import Path

import datasets
from runs.damage import damaged, lacks
from runs.folder import PARAMETERS, SPLIT_FILE, RunFolder, has_its_split_file, read_parameters, read_yaml, run_folder
from runs.records.damaged import as_folder
from utilities.console import say
from utilities.errors import UserError
from utilities.files import write_yaml

CONFIGS = "configs"
PLAN = "reproduction.yaml"
ENVIRONMENT = "environment.yaml"
AS_BEGUN = "as the run began"
_CHANGE = re.compile(r"resume_training_config_diffs_([0-9]{1,15}(?:_[0-9]{1,15})*)")


def record_changes(folder: Path, epochs: list[int], opt) -> None:
    """Write to configs/ the flags that differ from the run's saved ones, before `describe` overwrites these.

    An earlier change made at the same epochs is dropped, as nothing was trained with it. So is one made at later epochs
    (of any fold), which `--resume best` undoes. `epochs`: trained so far, one number a fold.
    """
    if not (folder / PARAMETERS).exists():
        return
    original, changes = history(folder)
    before = dict(original)
    for done, changed in changes:
        if done == epochs or any(change_epoch > epoch for change_epoch, epoch in zip(done, epochs, strict=False)):
            shutil.rmtree(_change_folder(folder, done))
        else:
            before.update(changed)
    changed = {
        name: value
        for name, value in opt.saved().items()
        if name in before
        and opt.roles[name].changes(before[name], value)
        and not (
            before[name] is None and opt.set_by.get(name, "").startswith("derived")
        )  # nobody changed it: its default is derived since
    }
    if changed:
        target = _change_folder(folder, epochs)
        _make(target)
        for path, flags in ((folder / CONFIGS / PARAMETERS, original), (target / PARAMETERS, changed)):
            write_yaml(path, flags)


def changes_of_data(folder: Path, record: dict, opt) -> list[str]:
    """What changed in a run's data since it began, by environment.yaml; `now`: `datasets.record`. UserError unless
    `--resume_allow_changes`.
    """
    try:
        before = read_yaml(folder / ENVIRONMENT, {"data": {}})["data"]
    except (FileNotFoundError, UserError):  # a damaged one is written anew
        return []
    if "fingerprint" not in before or "fingerprint" not in record:
        return []
    differences = datasets.differences(before, record)
    if differences and not opt.resume_allow_changes:
        raise UserError(
            f"the data of {folder} are not those that it began with; {'; '.join(differences)}. Restore them, or go on with "
            "--resume_allow_changes: "
            "tables then mark the run"
        )
    if differences:
        say(f"the data changed since the run began; {'; '.join(differences)} (--resume_allow_changes)")
    elif not record["fingerprint"]["by_content"] and before["fingerprint"].get("times") not in (
        None,
        record["fingerprint"]["times"],
    ):
        say(
            "the data's files have other times of change than when the run began; so large a set is not compared by "
            "content"
        )
    return differences


def refuse_changed_code(folder: Path, environment: dict, opt) -> None:
    """Raise UserError where a file of code is not what the run began with, unless --resume_allow_changes."""
    try:
        before = read_yaml(folder / ENVIRONMENT).get("code_files") or {}
    except (FileNotFoundError, UserError):  # a damaged one is written anew
        return
    for flag, sha256 in environment.get("code_files", {}).items():
        if before.get(flag, sha256) != sha256 and not opt.resume_allow_changes:
            raise UserError(
                f"--{flag} {getattr(opt, flag)} is not the file that {folder} began with (its hash differs): put that "
                "one "
                "back, or go on with --resume_allow_changes"
            )


def record_changes_of_data(folder: Path, changes: list[str], epoch: int, data: dict) -> None:
    """Replace the data in environment.yaml, and add what changed after an epoch."""
    content = read_yaml(folder / ENVIRONMENT)
    content["data"] = {**content["data"], **data}
    content.setdefault("data_changes", {})[f"after epoch {epoch}"] = "; ".join(changes)
    write_yaml(folder / ENVIRONMENT, content, sort_keys=False)


def record_changes_of_environment(folder: Path, environment: dict, epoch: int) -> None:
    """Add to environment.yaml which code, packages and hardware go on after an epoch, where they are not those that the
    run began with.

    What was added at this epoch or a later one is dropped: nothing was trained with it, or `--resume best` undoes it.
    """
    try:
        content = read_yaml(folder / ENVIRONMENT)
    except UserError:  # damaged
        return
    kinds = ("python", "cuda", "gpu", "processes", "git_commit")
    found = [
        f"{name} {str(environment.get(name))[:12]}"
        for name in kinds
        if environment.get(name) != content.get(name) and (name in content or name == "processes")
    ]
    hashes = ("changed_files", "untracked_files", "code_files")
    found += [f"other {name}" for name in hashes if (environment.get(name) or {}) != (content.get(name) or {})]
    before = content.get("packages") or {}
    found += [
        f"{name} {version}" for name, version in environment["packages"].items() if before.get(name, version) != version
    ]
    changes = {
        when: what
        for when, what in (content.get("environment_changes") or {}).items()
        if int(when.removeprefix("after epoch ")) < epoch
    }
    if found:
        changes[f"after epoch {epoch}"] = "; ".join(found)
        say(f"not what the run began with: {'; '.join(found)}")
    elif changes and list(changes.values())[-1] != AS_BEGUN:
        changes[f"after epoch {epoch}"] = AS_BEGUN
    if changes != (content.get("environment_changes") or {}):
        write_yaml(folder / ENVIRONMENT, {**content, "environment_changes": changes}, sort_keys=False)


def _make(folder: Path) -> None:
    """Make configs/ or a folder in it; a file in place of configs/ is set aside."""
    try:
        as_folder(folder if folder.name == CONFIGS else folder.parent)
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}. Nothing of the run is lost") from error


def history(folder: Path) -> tuple[dict, list[tuple[list[int], dict]]]:
    """The flags a run began with, and its changes in order: (epochs done, one a fold; flag -> new value). UserError
    without a run.
    """
    configs = folder / CONFIGS
    original = read_parameters(configs if (configs / PARAMETERS).exists() else folder)
    changes = [
        ([int(number) for number in match[1].split("_")], path)
        for path in configs.glob("*/")
        if (match := _CHANGE.fullmatch(path.name))
    ]
    ordered = sorted(changes, key=lambda change: sum(change[0]))
    return original, [(done, read_parameters(path, ())) for done, path in ordered if (path / PARAMETERS).exists()]


def _change_folder(folder: Path, epochs: list[int]) -> Path:
    return folder / CONFIGS / f"resume_training_config_diffs_{'_'.join(map(str, epochs))}"


# -----------------------------------------------------------------------------------------------------------
# reproduction
def stages(folder: Path, roles) -> list[tuple[list[int] | None, dict]]:
    """The stages that reproduce a run, one more than it had changes: (epochs at which a stage ends, one a fold, None:
    at the last; flags).

    Flags that never count as a change, such as paths, have their present values in all stages.
    """
    flags, changes = history(folder)
    flags = {
        **flags,
        **{
            name: value
            for name, value in read_parameters(folder).items()
            if not roles[name].change or roles[name].moves
        },
    }
    if not has_its_split_file(folder, flags.get("split_file")):
        flags["split_file"] = str(folder / SPLIT_FILE)
    planned = []
    for done, changed in changes:
        planned.append((done, flags))
        flags = {
            **flags,
            **{name: value for name, value in changed.items() if roles[name].change and not roles[name].moves},
        }
    return [*planned, (None, flags)]


def write_plan(folder: Path, opt) -> None:
    """Keep the stages of a reproduction that begins in this folder, so that it can be resumed. A single stage needs no
    plan.
    """
    path = folder / CONFIGS / PLAN
    if not opt.later or path.exists():
        return
    _make(path.parent)
    write_yaml(path, [{"until": stage.until, "flags": stage.saved()} for stage in (opt, *opt.later)])


def stages_left(opt) -> list[tuple[list[int] | None, dict]]:
    """On resume, the `stages` that a reproduction still has to train; none for other runs. Raises UserError for a
    damaged plan.
    """
    path = run_folder(opt) / CONFIGS / PLAN
    if opt.resume is None or opt.job != "train" or not path.exists():
        return []
    planned = read_yaml(path)
    stages_found = planned if isinstance(planned, list) else []
    whole = stages_found and all(lacks(stage, {"until": None, "flags": {}}) is None for stage in stages_found)
    if not whole or [number for number, stage in enumerate(planned) if stage["until"] is None] != [len(planned) - 1]:
        raise damaged(path, "it holds no stages", "Start the reproduction anew")
    planned = [(stage["until"], stage["flags"]) for stage in planned]
    done = next(
        (number for number, (until, _) in enumerate(planned[:-1]) if not _is_over(opt, until)), len(planned) - 1
    )
    return planned[done:] if done < len(planned) - 1 else []


def _is_over(opt, ends: list[int]) -> bool:
    """Whether every fold is trained up to its number of epochs, or was stopped before."""
    run = RunFolder(run_folder(opt), opt)
    folds = (opt.folds or range(len(ends))) if opt.is_cross_validation else [None]
    planned_folds = [
        fold for fold in folds if (fold or 0) < len(ends)
    ]  # a plan for another number of folds is refused when its options are made
    progress = [((run if fold is None else run.fold(fold)).progress, ends[fold or 0]) for fold in planned_folds]
    return all(stopped or epochs >= end for (epochs, stopped), end in progress)
