"""The flags and ranges that a search was started with, kept in its folder; which of them a later start may change."""

from search.files import undamaged
from utilities.errors import UserError
from utilities.files import write_yaml
from utilities.reading import read_yaml

FILE = "search.yaml"


def settle(plan, trials: int) -> None:
    """Compare with the search in the folder, if there is one, and record the present settings; changes are kept in
    configs/.

    `trials`: how many there are already. Raises UserError as `changes`.
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
    ranges = plan.ranges
    fixed = plan.fixed
    path = folder / FILE
    if not path.exists():
        return {}
    now = _written(ranges)
    with undamaged(
        path, "put a copy back, or move it away and the search goes on with the flags and ranges that are given now"
    ):
        content = dict(read_yaml(path))
        before = content["ranges"]
        flags = content["flags"]
        others = sorted(set(before) ^ set(now))
        narrowed = [flag for flag in before if flag in now and not _is_within(before[flag], now[flag])]
        both = sorted(name for name in set(fixed) & set(flags) if plan.opt.roles[name].change and name != "savename")
    if others:
        raise UserError(f"{folder} searches other flags ({', '.join(others)}): choose another --group")
    for flag in narrowed:
        kind, *values = before[flag]
        rule = "bounds may only be widened" if kind == now[flag][0] != "CHOICE" else "it must stay what it is"
        raise UserError(
            f"{ranges[flag].text}: {folder} has {flag}~{kind}~ {values}, and {rule}; or choose another --group"
        )
    changed = {name: [flags[name], fixed[name]] for name in both if flags[name] != fixed[name]}
    told = {name: f"--{name} {after} (before: {before})" for name, (before, after) in changed.items()}
    never = [told[name] for name, (before, after) in changed.items() if plan.opt.roles[name].forbids(before, after)]
    if never:
        raise UserError(
            f"{'; '.join(never)}: the trials of {folder} would be measured in different ways. Choose another --group"
        )
    if changed and not plan.opt.resume_allow_changes:
        way_out = "Leave them out, choose another --group, or add --resume_allow_changes"
        raise UserError(f"flags differ from those of {folder}: {'; '.join(told.values())}. {way_out}")
    return changed | {flag: [before[flag], now[flag]] for flag in now if before[flag] != now[flag]}


def _written(ranges: dict) -> dict:
    return {flag: [found.kind, *found.values] for flag, found in ranges.items()}


def _is_within(before: list, now: list) -> bool:
    """Whether a range, as `_written` made it, lies in another of its kind; choices must be the same."""
    kind, low, high, *_ = before
    return before == now if "CHOICE" in (kind, now[0]) else kind == now[0] and now[1] <= low and high <= now[2]
