"""Settings (flags, data, versions, hardware) that runs and groups share apart from their method, and where they
differ.
"""

from collections import Counter

from results import columns, roles
from results.recorded import RecordedRun
from results.texts import brief, brief_pair

UNUSED = "not used"  # a flag that the run's --dataset or --split_scheme does not read
UNSET = ("None", "False", "", UNUSED)  # not worth printing where all share it
UNKNOWN = "unknown"
TRANSFORMS = "transforms, "  # how the names of the settings begin that hold a whole transform each


def shown(value) -> str:
    """A flag's value as text."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(shown, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def of_run(run: RecordedRun, defaults: dict | None = None) -> dict[str, str]:
    """All settings of a run, as text.

    Args:
        defaults: flag -> default, for flags that the run was recorded without.
    """
    flags = {**(defaults or {}), **run.flags} if run.flags else {}
    found = {name: shown(value) for name, value in roles.settings(flags).items()}
    found |= {name: UNUSED for name in roles.without_effect(flags) & set(found)}
    found |= {"dataset": run.dataset} if "dataset" in found else {}
    if (
        found.get("weights") == "None"
    ):  # the flag was left unset: which weights were loaded is in the environment, or not known
        del found["weights"]
    return found | {"selection": columns.rule(run)} | run.environment


def together(found: list[dict[str, str]]) -> dict[str, str]:
    """The settings of several runs merged: where they differ (versions, hardware), all values."""
    names = {name: None for one in found for name in one}
    return {name: " | ".join(sorted({one.get(name, UNKNOWN) for one in found})) for name in names}


def differing_flags(runs: list[RecordedRun], defaults: dict) -> list[str]:
    """The compared flags in which runs differ, with values and runs; a flag that was not recorded with a run has its
    default.
    """
    found = []
    for flag in sorted(roles.compared({flag: None for run in runs for flag in run.flags})):
        holders = {}
        for run in runs:
            holders.setdefault(shown(run.flags.get(flag, defaults.get(flag))), []).append(run.name)
        if len(holders) > 1 and not all(flag in run.derived for run in runs):
            found.append(f"{flag}: " + ", ".join(f"{value} ({_few(names)})" for value, names in holders.items()))
    return found


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def shared(found: list[dict[str, str]]) -> dict[str, str]:
    """The most frequent value of each setting over several groups, in the order of printing."""
    names = list({name: None for one in found for name in one})
    order = {name: i for i, name in enumerate(name for names in roles.PRINTED.values() for name in names)}
    names.sort(key=lambda name: (order.get(name, len(order)), name))
    return {name: Counter(one[name] for one in found if name in one).most_common(1)[0][0] for name in names}


def value_of(one: dict[str, str], name: str, common: str) -> str:
    """A group's value of a setting; if unrecorded `unknown`, or None where the others have None (a missing flag means
    None too).
    """
    return one.get(name, "None" if common == "None" else UNKNOWN)


def usually_derived(members: list[tuple[dict[str, str], set[str]]], common: dict[str, str]) -> set[str]:
    """The flags that most groups with the most frequent value have derived from other flags.

    Args:
        members: of each group its settings and its derived flags.
        common: the most frequent settings.
    """
    found = set()
    for name, value in common.items():
        holders = [name in derived for settings_of, derived in members if settings_of.get(name) == value]
        if 2 * sum(holders) > len(holders):
            found.add(name)
    return found


def differences(one: dict[str, str], common: dict[str, str], derived: set[str] = frozenset()) -> list[str]:
    """Where a group differs from the most frequent values, in words; flags that its data set or split scheme does not
    read are left out.

    Args:
        derived: flags that are left out, since the flag from which their value follows is named.
    """
    found = []
    has_other_transforms = False
    for name, most in common.items():
        value = value_of(one, name, most)
        if value in (most, UNUSED) or name in derived:
            continue
        if name.startswith(TRANSFORMS):
            has_other_transforms = True
            continue
        value, most = brief_pair(value, most)
        found.append(f"{name} {value} (others: {most})")
    return found + ["transforms (see the table of settings)"] * has_other_transforms


def printed(found: list[dict[str, str]]) -> str:
    """The settings that groups share, in one sentence for a table."""
    common = shared(found)
    parts = []
    for title, names in roles.PRINTED.items():
        there = [
            name
            for name in names
            if common.get(name, "") not in UNSET or (name, common.get(name)) == ("use_tv_split", "False")
        ]
        parts += [f"{title}: {', '.join(f'{name} {brief(common[name])}' for name in there)}"] if there else []
    return "; ".join(parts)


def left_alone(found: list[dict[str, str]], defaults: dict) -> set[str]:
    """The flags that no group set: in every group at the default, or not read."""
    return {
        name
        for name, default in defaults.items()
        if default != UNKNOWN
        and any(name in one for one in found)
        and {one.get(name, shown(default)) for one in found} <= {shown(default), UNUSED}
    }


def varied(
    found: list[dict], settings_of: list[dict[str, str]], common: dict[str, str], derived: list[set[str]]
) -> list[str]:
    """One text per group, what sets it apart: flags of its method that vary among the groups of that method, and
    settings unlike most.

    Args:
        found: the flags of each group.
        settings_of: the settings of each group.
        common: the most frequent settings.
        derived: of each group the flags that are left out, see `differences`.
    """
    methods = [{name: shown(value) for name, value in roles.method(flags).items()} for flags in found]
    texts = []
    for flags, method, own, left_out in zip(found, methods, settings_of, derived, strict=True):
        loss, miner = (f"{kind}_{flags.get(flag)}_" for kind, flag in (("loss", "loss"), ("miner", "batch_mining")))
        varying = [name for name in method if len({other[name] for other in methods if name in other}) > 1]
        named = [name for name in varying if name not in ("loss", "batch_mining") and method[name] != "False"]
        parts = [
            f"{name.removeprefix(loss).removeprefix(miner)} {method[name]}" for name in named if name not in left_out
        ]
        of_flags = [name for name in roles.settings(flags) if name in common and name in own and name != "dataset"]
        unread = roles.without_effect(flags) | left_out
        parts += [f"{name} {brief(own[name])}" for name in of_flags if own[name] != common[name] and name not in unread]
        texts.append(", ".join(parts))
    return texts
