"""What a search was started with, kept in its folder: what a later start may change, and what it may not."""

from pathlib import Path

import yaml

from runs._names import NEVER_A_CHANGE, is_fixed
from search.files import read_mapping
from utilities.errors import UserError
from utilities.files import replacing

FILE = "search.yaml"


def settle(folder: Path, ranges: dict, fixed: dict, allow_changes: bool, trials: int) -> None:
    """Compare with the search in the folder, if there is one, and write down what it is now.

    Args:
        folder: the search's.
        ranges: flag -> `Range`.
        fixed: the flags that are the same in every trial.
        allow_changes: of `fixed`; they are written to configs/, as wider ranges are.
        trials: how many there are already.

    Raises:
        UserError: search.yaml is damaged, a range was narrowed or is of another kind, or a flag differs without `allow_changes`.
    """
    now = _written(ranges)
    changed = changes(folder, ranges, fixed, allow_changes)
    if changed:
        diffs = folder / "configs" / f"resume_training_config_diffs_{trials}"
        diffs.mkdir(parents=True, exist_ok=True)
        with replacing(diffs / FILE) as file:
            yaml.safe_dump({name: {"before": before, "now": after} for name, (before, after) in changed.items()}, file)
    with replacing(folder / FILE) as file:
        yaml.safe_dump({"ranges": now, "flags": fixed}, file, sort_keys=True)


def changes(folder: Path, ranges: dict, fixed: dict, allow_changes: bool) -> dict:
    """Flag -> [before, now] of what differs from the search in the folder, arguments and errors as `settle`; writes nothing."""
    path = folder / FILE
    if not path.exists():
        return {}
    way_out = "put a copy back, or move it away and the search goes on with the flags and ranges that are given now"
    saved, now = read_mapping(path, {"ranges": dict, "flags": dict}, way_out), _written(ranges)
    broken = [flag for flag, found in saved["ranges"].items() if not _is_range(found)]
    if broken:
        raise UserError(f"{path} is damaged (no range of {', '.join(map(str, broken))} in it): {way_out}")
    _check_ranges(folder, saved["ranges"], ranges)
    free = NEVER_A_CHANGE | {"savename"}
    both = sorted((set(fixed) & set(saved["flags"])) - free)
    changed = {name: [saved["flags"][name], fixed[name]] for name in both if saved["flags"][name] != fixed[name]}
    never = [f"--{name} {after} (before: {before})" for name, (before, after) in changed.items() if is_fixed(name, before, after)]
    if never:
        raise UserError(f"{'; '.join(never)}: the trials of {folder} would be measured in different ways. Choose another --group")
    if changed and not allow_changes:
        listed = "; ".join(f"--{name} {after} (before: {before})" for name, (before, after) in changed.items())
        raise UserError(
            f"flags differ from those of {folder}: {listed}. Leave them out, choose another --group, or add --resume_allow_changes"
        )
    return changed | {flag: [saved["ranges"][flag], now[flag]] for flag in now if saved["ranges"][flag] != now[flag]}


def _written(ranges: dict) -> dict:
    return {flag: [found.kind, *found.values] for flag, found in ranges.items()}


def _is_range(found) -> bool:
    """Whether it is what `_written` makes of a range."""
    if not isinstance(found, list) or len(found) < 3:
        return False
    return found[0] == "CHOICE" or len(found) == 3 and all(isinstance(bound, int | float) for bound in found[1:])


def _check_ranges(folder: Path, saved: dict, ranges: dict) -> None:
    different = sorted(set(saved) ^ set(ranges))
    if different:
        raise UserError(f"{folder} searches other flags ({', '.join(different)}): choose another --group")
    for flag, (kind, *values) in saved.items():
        found = ranges[flag]
        if kind == "CHOICE":
            same = found.kind == kind and list(found.values) == values
        else:
            same = found.kind == kind and found.values[0] <= values[0] and found.values[1] >= values[1]
        if not same:
            rule = "bounds may only be widened" if kind == found.kind != "CHOICE" else "it must stay what it is"
            raise UserError(f"{found.text}: {folder} has {flag}~{kind}~ {values}, and {rule}; or choose another --group")
