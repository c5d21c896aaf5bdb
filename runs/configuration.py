"""The flags of a run on disk: what is saved of them, what was changed while the run was interrupted, and what repeats it.

With the first change a run folder gets configs/: `parameters.yaml`, the flags it began with, and for each change
`resume_training_config_diffs_<epochs done>/parameters.yaml`, those that changed (in the folder of a cross-validation the epochs done in
each fold, joined by `_`). The run's own parameters.yaml always holds what it goes by now. A reproduction with changes to come keeps
them in configs/reproduction.yaml, so that it goes on like any other run.
"""

import math
import re
import shutil
from argparse import Namespace
from pathlib import Path

import yaml

from runs import checkpoint
from utilities.errors import UserError
from utilities.files import replacing

# Flags that are no part of what a run is: never written to parameters.yaml.
NEVER_SAVED = {
    "wandb_key",
    "comet_api_key",
    "config",
    "print_config",
    "list",
    "dry_run",
    "resume",
    "resume_from",
    "resume_allow_changes",
    "reproduce_results",
    "evaluate",
    "evaluate_ensemble",
    "aggregate_only",
    "folds",
}
# Flags that may differ between a run and its continuation without counting as a change.
NEVER_A_CHANGE = NEVER_SAVED | {
    "source_path", "save_path", "gpu", "kernels", "eval_kernels", "log_online", "online_backend", "download", "plot_every", "log_every",
    "evaluate_on_gpu", "final_test", "dump_embeddings", "eval_size_of_tsne",
}  # fmt: skip
# Nor does where the split file lies: its content is fixed, of which a run has a copy.
NEVER_RECORDED = NEVER_A_CHANGE | {"split_file"}
# Flags that decide what --evaluate measures of a finished run: there they may differ from those of its training.
EVALUATION_FLAGS = {
    "evaluation_metrics", "evaltypes", "splits_to_eval", "no_train_metrics", "eval_reference_set", "tester", "label_hierarchy_level",
    "eval_pca", "eval_no_normalize", "eval_use_trunk_output", "eval_bs", "eval_kmeans_starts",
}  # fmt: skip

# Flags that no continuation may change: what has trained must neither validate nor test. Of the others the first names the epoch's metric.
FIXED = {
    "dataset", "split_scheme", "split_test_size", "split_test_start", "split_partitions", "split_sets", "use_tv_split", "tv_split_by_samples",
    "tv_split_perc",
}  # fmt: skip
FIRST_IS_FIXED = {"storage_metrics", "evaltypes"}
SPLIT_FILE = "split_file.json"  # the run's copy of --split_file


def is_fixed(name: str, before, now) -> bool:
    """Whether no continuation may change this flag's value `before` to `now`, permitted or not."""
    return before != now and (name in FIXED or (name in FIRST_IS_FIXED and before[:1] != now[:1]))


def saved_flags(opt) -> dict:
    """Flag -> resolved value, as parameters.yaml holds them: every flag, nothing else, no key."""
    return {name: value for name, value in sorted(vars(opt).items()) if name in opt.flags and name not in NEVER_SAVED}


def run_folder(opt) -> Path:
    """Where a run of these flags lies, before a number is added for an existing folder; a fold's in that of its cross-validation."""
    folder = Path(opt.resume_from) if opt.resume_from else Path(opt.save_path) / opt.dataset / opt.savename
    fold = getattr(opt, "fold", None)
    return folder if fold is None else folder / f"fold_{fold}"


def read_parameters(folder: Path | str) -> dict:
    """The flags that a run was started with. Raises UserError where the folder holds none, or they are damaged."""
    path = Path(folder) / "parameters.yaml"
    try:
        flags = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"no run in {folder}: {path.name} is missing") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged, no YAML: {' '.join(str(error).split())[:160]}") from error
    if not isinstance(flags, dict):
        raise UserError(f"{path} is damaged: it holds no flags")
    return flags


def describe(folder: Path, opt) -> None:
    """Write the flags into the folder: parameters.yaml, and Parameter_Info.txt for readers; and once the content of --split_file."""
    if getattr(opt, "all_stages", None) and getattr(opt, "fold", None) is None:
        (folder / CHANGES).mkdir(exist_ok=True)
        with replacing(folder / CHANGES / PLAN) as file:
            yaml.safe_dump([{"until": stage.until, "flags": saved_flags(stage)} for stage in opt.all_stages], file)
    copy = folder / SPLIT_FILE
    if opt.split_file is not None and getattr(opt, "fold", None) is None and not copy.exists():
        content = Path(opt.split_file).expanduser().read_bytes()
        with replacing(copy, "wb") as file:
            file.write(content)
    flags = saved_flags(opt)
    with replacing(folder / "parameters.yaml") as file:
        yaml.safe_dump(flags, file, sort_keys=True)
    with replacing(folder / "Parameter_Info.txt") as file:
        file.writelines(f"{name}: {value}\n" for name, value in flags.items())


def check_split_file(folder: Path, opt) -> None:
    """Raise UserError where --split_file is no longer what it was when the run in the folder began."""
    if not _is_unchanged(folder, opt.split_file):
        raise UserError(
            f"--split_file {opt.split_file} is gone, or no longer what {folder} began with. The run has a copy: --split_file {folder / SPLIT_FILE}"
        )


def _is_unchanged(folder: Path, split_file: str | None) -> bool:
    """Whether a run's split file is there and holds what it held when the run began; so it is where the run has none."""
    copy = folder / SPLIT_FILE
    if split_file is None or not copy.exists():
        return True
    try:
        return Path(split_file).expanduser().read_bytes() == copy.read_bytes()
    except OSError:
        return False


CHANGES, PLAN = "configs", "reproduction.yaml"
_CHANGE = re.compile(r"resume_training_config_diffs_(\d+(?:_\d+)*)")


def record_changes(folder: Path, epochs: list[int], opt) -> None:
    """Write what is no longer as it was to configs/, before `describe` replaces the flags of a run that goes on.

    A change made at these epochs is overtaken, as nothing was trained with it, and so is one that `--resume best` goes back behind; of a
    cross-validation, in any fold.

    Args:
        folder: of the run or cross-validation.
        epochs: trained so far, one number a fold.
        opt: the flags it goes on with.
    """
    if not (folder / "parameters.yaml").exists():
        return
    original, changes = history(folder)
    before = dict(original)
    for done, changed in changes:
        if done == epochs or any(then > now for then, now in zip(done, epochs, strict=False)):
            shutil.rmtree(_change_folder(folder, done))
        else:
            before.update(changed)
    now = {name: value for name, value in saved_flags(opt).items() if name in before and name not in NEVER_RECORDED}
    changed = {name: value for name, value in now.items() if value != before[name]}
    if changed:
        target = _change_folder(folder, epochs)
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make {target}: {error.strerror}. Nothing of the run is lost") from error
        for path, flags in ((folder / CHANGES / "parameters.yaml", original), (target / "parameters.yaml", changed)):
            with replacing(path) as file:
                yaml.safe_dump(flags, file, sort_keys=True)


def history(folder: Path) -> tuple[dict, list[tuple[list[int], dict]]]:
    """The flags a run began with, and its changes in their order: (epochs done, one number a fold; flag -> new value).

    Raises UserError where the folder holds no run.
    """
    began = folder / CHANGES
    original = read_parameters(began if (began / "parameters.yaml").exists() else folder)
    found = [
        ([int(number) for number in match[1].split("_")], path) for path in began.glob("*/") if (match := _CHANGE.fullmatch(path.name))
    ]
    ordered = sorted(found, key=lambda change: sum(change[0]))
    return original, [(done, read_parameters(path)) for done, path in ordered if (path / "parameters.yaml").exists()]


def _change_folder(folder: Path, epochs: list[int]) -> Path:
    return folder / CHANGES / f"resume_training_config_diffs_{'_'.join(map(str, epochs))}"


def stages(folder: Path) -> list[tuple[list[int] | None, dict]]:
    """What repeats a run: (epochs to train in each fold, None: to the end; flags), one stage more than there were changes.

    Flags that never count as a change are in all stages as they are now: where the data lies, whether it was measured on test at the end.
    """
    flags, changes = history(folder)
    flags = {**flags, **{name: value for name, value in read_parameters(folder).items() if name in NEVER_RECORDED}}
    if not _is_unchanged(folder, flags.get("split_file")):
        flags["split_file"] = str(folder / SPLIT_FILE)
    found = []
    for done, changed in changes:
        found.append((done, flags))
        flags = {**flags, **{name: value for name, value in changed.items() if name not in NEVER_RECORDED}}
    return [*found, (None, flags)]


def until(opt) -> float:
    """The epoch that ends this stage of a reproduction, in the fold the options are of; infinite where nothing was changed later."""
    epochs = getattr(opt, "until", None)
    return math.inf if epochs is None else epochs[getattr(opt, "fold", None) or 0]


def plan(opt) -> list[tuple[list[int] | None, dict]]:
    """On resume the stages, as of `stages`, of a reproduction that still has changes to come; else none.

    Raises UserError where the file that holds them is damaged.
    """
    path = run_folder(opt) / CHANGES / PLAN
    if opt.resume is None or opt.evaluate or opt.evaluate_ensemble or opt.aggregate_only or not path.exists():
        return []
    try:
        found = [(stage["until"], stage["flags"]) for stage in yaml.safe_load(path.read_text(encoding="utf-8"))]
    except (yaml.YAMLError, TypeError, KeyError) as error:
        raise UserError(f"{path} is damaged ({error}): start the reproduction anew") from error
    return found if any(not _is_over(opt, until) for until, _ in found[:-1]) else []


def stages_left(opt) -> list[Namespace]:
    """The options of each stage of a reproduction; on `--resume` from the one in which it was interrupted."""
    stages = [opt, *opt.later_stages]
    left = list(stages)
    while opt.resume is not None and len(left) > 1 and _is_over(left[0], left[0].until):
        left.pop(0)
    return [Namespace(**{**vars(stage), "later_stages": [], "all_stages": stages}) for stage in left]


def _is_over(opt, until: list[int]) -> bool:
    folder = run_folder(opt)
    folds = [None] if opt.split_scheme == "half" else opt.folds or range(len(until))
    for fold in folds:
        epochs, stopped = checkpoint.progress(folder if fold is None else folder / f"fold_{fold}", opt.patience)
        if not stopped and epochs < until[fold or 0]:
            return False
    return True


def continuing(stage: Namespace, earlier) -> Namespace:
    """A stage's options; after an earlier one, a `Run` or `CrossValidation`, as the continuation in that one's folder."""
    return stage if earlier is None else Namespace(**{**vars(stage), "resume": "latest", "resume_from": str(earlier.folder)})
