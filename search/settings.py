"""The flags and ranges that a search was started with, kept in its folder; which of them a later start may change."""

from search.files import undamaged
from utilities.errors import UserError
from utilities.files import write_yaml
from utilities.reading import read_yaml

FILE = "search.yaml"


def settle(plan, trials: int) -> None:
    """Compare with the search in the folder, if there is one, and record the present settings.

    Changes are kept in configs/. `trials`: how many there are already. Raises UserError as `changes`.
    """
    changed = changes(plan)
    if changed:
        diffs = plan.folder / "configs" / f"resume_training_config_diffs_{trials}"
        diffs.mkdir(parents=True, exist_ok=True)
        write_yaml(diffs / FILE, {name: {"before": before, "now": after} for name, (before, after) in changed.items()})
    write_yaml(plan.folder / FILE, {"ranges": _written(plan.ranges), "flags": plan.fixed})


def changes(plan) -> dict:
    """Flag -> [before, now] of the flags and ranges that differ from the search in the folder; writes nothing.

    Raises UserError where search.yaml is damaged, a range was narrowed or is of another kind, or a flag differs without
    --resume_allow_changes.
    """
    folder = plan.folder
    path = folder / FILE
    if not path.exists():
        return {}
    new_ranges = _written(plan.ranges)
    with undamaged(
        path, "put a copy back, or move it away and the search goes on with the flags and ranges that are given now"
    ):
        content = dict(read_yaml(path))
        old_ranges = content["ranges"]
        old_flags = content["flags"]
        different = sorted(set(old_ranges) ^ set(new_ranges))
        shared = [flag for flag in old_ranges if flag in new_ranges]
        narrowed = [flag for flag in shared if not _is_within(old_ranges[flag], new_ranges[flag])]
        recorded = sorted(set(plan.fixed) & set(old_flags))
    if different:
        raise UserError(f"{folder} searches other flags ({', '.join(different)}): choose another --group")
    for flag in narrowed:
        kind, *values = old_ranges[flag]
        is_wider_kind = kind == new_ranges[flag][0] != "CHOICE"
        rule = "bounds may only be widened" if is_wider_kind else "it must stay what it is"
        raise UserError(
            f"{plan.ranges[flag].text}: {folder} has {flag}~{kind}~ {values}, and {rule}; or choose another --group"
        )
    changed = {}
    for name in recorded:
        if _is_compared(plan.opt.roles, name) and old_flags[name] != plan.fixed[name]:
            changed[name] = [old_flags[name], plan.fixed[name]]
    _refuse_changes(plan, changed)
    for flag, new_range in new_ranges.items():
        if old_ranges[flag] != new_range:
            changed[flag] = [old_ranges[flag], new_range]
    return changed


def _is_compared(roles, name: str) -> bool:
    return roles[name].change and name != "savename"


def _refuse_changes(plan, changed: dict) -> None:
    """Raise UserError for changed flags, name -> [before, now], that are never allowed, or not in this command."""
    texts = []
    forbidden = []
    for name, (before, after) in changed.items():
        text = f"--{name} {after} (before: {before})"
        texts.append(text)
        if plan.opt.roles[name].forbids(before, after):
            forbidden.append(text)
    if forbidden:
        raise UserError(
            f"{'; '.join(forbidden)}: the trials of {plan.folder} would be measured in different ways. Choose another "
            "--group"
        )
    if changed and not plan.opt.resume_allow_changes:
        way_out = "Leave them out, choose another --group, or add --resume_allow_changes"
        raise UserError(f"flags differ from those of {plan.folder}: {'; '.join(texts)}. {way_out}")


def _written(ranges: dict) -> dict:
    """The ranges as search.yaml has them: flag -> [kind, low, high] or [kind, *choices]."""
    return {flag: [searched.kind, *searched.values] for flag, searched in ranges.items()}


def _is_within(old: list, new: list) -> bool:
    """Whether a range, as `_written` made it, lies in another of its kind; choices must be the same."""
    kind, low, high, *_ = old
    if "CHOICE" in (kind, new[0]):
        return old == new
    return kind == new[0] and new[1] <= low and high <= new[2]
