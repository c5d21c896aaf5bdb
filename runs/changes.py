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
from runs.folder import (
    PARAMETERS,
    RunFolder,
    changed_split_file,
    read_parameters,
    read_yaml,
    run_folder,
    with_split_copies,
)
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
        is_later = any(change_epoch > epoch for change_epoch, epoch in zip(done, epochs, strict=False))
        if done == epochs or is_later:
            shutil.rmtree(_change_folder(folder, done))
        else:
            before.update(changed)
    changed = {}
    for name, value in opt.saved().items():
        if name not in before or not opt.roles[name].changes(before[name], value):
            continue
        is_derived_since = before[name] is None and opt.set_by.get(name, "").startswith("derived")
        if not is_derived_since:
            changed[name] = value
    if changed:
        target = _change_folder(folder, epochs)
        _make(target)
        write_yaml(folder / CONFIGS / PARAMETERS, original)
        write_yaml(target / PARAMETERS, changed)


def changes_of_data(folder: Path, record: dict, opt) -> list[str]:
    """What changed in a run's data since it began, by environment.yaml.

    record: that of the present data, `datasets.record`. Raises UserError for changes without `--resume_allow_changes`.
    """
    try:
        before = read_yaml(folder / ENVIRONMENT, {"data": {}})["data"]
    except (FileNotFoundError, UserError):
        # a damaged environment.yaml is written anew
        return []
    if "fingerprint" not in before or "fingerprint" not in record:
        return []
    differences = datasets.differences(before, record)
    if differences and not opt.resume_allow_changes:
        raise UserError(
            f"the data of {folder} are not those that it began with; {'; '.join(differences)}. Restore them, or go on "
            "with --resume_allow_changes: tables then mark the run"
        )
    if differences:
        say(f"the data changed since the run began; {'; '.join(differences)} (--resume_allow_changes)")
        return differences
    times = before["fingerprint"].get("times")
    if not record["fingerprint"]["by_content"] and times not in (None, record["fingerprint"]["times"]):
        say(
            "the data's files have other times of change than when the run began; so large a set is not compared by "
            "content"
        )
    return differences


def refuse_changed_code(folder: Path, environment: dict, opt) -> None:
    """Raise UserError where a file of code is not what the run began with, unless --resume_allow_changes."""
    try:
        before = read_yaml(folder / ENVIRONMENT).get("code_files") or {}
    except (FileNotFoundError, UserError):
        # a damaged environment.yaml is written anew
        return
    for flag, sha256 in environment.get("code_files", {}).items():
        if before.get(flag, sha256) != sha256 and not opt.resume_allow_changes:
            raise UserError(
                f"--{flag} {getattr(opt, flag)} is not the file that {folder} began with (its hash differs): put that "
                "one back, or go on with --resume_allow_changes"
            )


def record_changes_of_data(folder: Path, changes: list[str], epoch: int, data: dict) -> None:
    """Replace the data in environment.yaml, and add what changed after an epoch."""
    content = read_yaml(folder / ENVIRONMENT)
    content["data"] = {**content["data"], **data}
    content.setdefault("data_changes", {})[f"after epoch {epoch}"] = "; ".join(changes)
    write_yaml(folder / ENVIRONMENT, content, sort_keys=False)


def record_changes_of_environment(folder: Path, environment: dict, epoch: int) -> None:
    """Add to environment.yaml which code, packages and hardware go on after an epoch, if they are not those of before.

    What was added at this epoch or a later one is dropped: nothing was trained with it, or `--resume best` undoes it.
    """
    try:
        content = read_yaml(folder / ENVIRONMENT)
    except UserError:
        # nothing can be added to a damaged file
        return
    recorded = content.get("environment_changes") or {}
    changes = {time: text for time, text in recorded.items() if int(time.removeprefix("after epoch ")) < epoch}
    differences = _environment_differences(content, environment)
    if differences:
        changes[f"after epoch {epoch}"] = "; ".join(differences)
        say(f"not what the run began with: {'; '.join(differences)}")
    elif changes and list(changes.values())[-1] != AS_BEGUN:
        changes[f"after epoch {epoch}"] = AS_BEGUN
    if changes != recorded:
        write_yaml(folder / ENVIRONMENT, {**content, "environment_changes": changes}, sort_keys=False)


def _environment_differences(before: dict, environment: dict) -> list[str]:
    """What of code, packages and hardware is not as `before`; each difference in a few words."""
    differences = []
    for name in ("python", "cuda", "gpu", "processes", "git_commit"):
        is_recorded = name in before or name == "processes"
        if is_recorded and environment.get(name) != before.get(name):
            differences.append(f"{name} {str(environment.get(name))[:12]}")
    for name in ("changed_files", "untracked_files", "code_files", "plug_in_files"):
        if (environment.get(name) or {}) != (before.get(name) or {}):
            differences.append(f"other {name}")
    packages = before.get("packages") or {}
    for name, version in environment["packages"].items():
        if packages.get(name, version) != version:
            differences.append(f"{name} {version}")
    return differences


def _make(folder: Path) -> None:
    """Make configs/ or a folder in it; a file in place of configs/ is set aside."""
    try:
        configs = folder if folder.name == CONFIGS else folder.parent
        as_folder(configs)
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}. Nothing of the run is lost") from error


def history(folder: Path) -> tuple[dict, list[tuple[list[int], dict]]]:
    """The flags a run began with, and its changes in order: (epochs done, one per fold; flag -> new value).

    Raises UserError without a run.
    """
    configs = folder / CONFIGS
    flags_folder = configs if (configs / PARAMETERS).exists() else folder
    original = read_parameters(flags_folder)
    folders = []
    for path in configs.glob("*/"):
        match = _CHANGE.fullmatch(path.name)
        if match:
            folders.append(([int(number) for number in match[1].split("_")], path))
    folders.sort(key=lambda done_and_path: sum(done_and_path[0]))
    changes = [(done, read_parameters(path, ())) for done, path in folders if (path / PARAMETERS).exists()]
    return original, changes


def _change_folder(folder: Path, epochs: list[int]) -> Path:
    return folder / CONFIGS / f"resume_training_config_diffs_{'_'.join(map(str, epochs))}"


# -----------------------------------------------------------------------------------------------------------
# reproduction
def stages(folder: Path, roles) -> list[tuple[list[int] | None, dict]]:
    """The stages that reproduce a run, one more than it had changes: (epochs at which a stage ends, flags).

    The epochs are one number per fold, None for the last stage. Flags that never count as a change, such as paths, have
    their present values in all stages.
    """

    def is_change(name: str) -> bool:
        return roles[name].change and not roles[name].moves

    flags, changes = history(folder)
    flags = flags | {name: value for name, value in read_parameters(folder).items() if not is_change(name)}
    if changed_split_file(folder, flags) is not None:
        flags = with_split_copies(folder, flags)
    planned = []
    for done, changed in changes:
        planned.append((done, flags))
        flags = flags | {name: value for name, value in changed.items() if is_change(name)}
    return [*planned, (None, flags)]


def write_plan(folder: Path, opt) -> None:
    """Keep the stages of a reproduction that begins in this folder, so that it can be resumed.

    A single stage needs no plan.
    """
    path = folder / CONFIGS / PLAN
    if not opt.later or path.exists():
        return
    _make(path.parent)
    write_yaml(path, [{"until": stage.until, "flags": stage.saved()} for stage in (opt, *opt.later)])


def stages_left(opt) -> list[tuple[list[int] | None, dict]]:
    """On resume, the `stages` that a reproduction still has to train; none for other runs.

    Raises UserError for a damaged plan.
    """
    path = run_folder(opt) / CONFIGS / PLAN
    if opt.resume is None or opt.job != "train" or not path.exists():
        return []
    plan = read_yaml(path)
    if not _is_plan(plan):
        raise damaged(path, "it holds no stages", "Start the reproduction anew")
    planned = [(stage["until"], stage["flags"]) for stage in plan]
    for number, (ends, _) in enumerate(planned[:-1]):
        if not _is_over(opt, ends):
            return planned[number:]
    return []


def _is_plan(content) -> bool:
    """Whether the content of a file is a list of stages, of which only the last one has no end."""
    if not isinstance(content, list) or not content:
        return False
    if any(lacks(stage, {"until": None, "flags": {}}) is not None for stage in content):
        return False
    has_end = [stage["until"] is not None for stage in content]
    return all(has_end[:-1]) and not has_end[-1]


def _is_over(opt, ends: list[int]) -> bool:
    """Whether every fold is trained up to its number of epochs, or was stopped before."""
    run = RunFolder(run_folder(opt), opt)
    if not opt.is_cross_validation:
        return _is_trained(run, ends[0])
    folds = opt.folds or range(len(ends))
    # A plan for another number of folds is refused when its options are made.
    return all(_is_trained(run.fold(fold), ends[fold]) for fold in folds if fold < len(ends))


def _is_trained(run: RunFolder, end: int) -> bool:
    epochs, stopped = run.progress
    return stopped or epochs >= end
