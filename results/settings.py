"""Settings (flags, data, versions, hardware) that runs and groups share apart from their method.

The settings of a run or a group are texts by name: its compared flags without those of loss and miner, how its epoch
was selected, and what environment.yaml recorded. Those that most groups share are printed once below a table; a group
with another value is marked in its row.
"""

import itertools
from collections import Counter

from results import columns, roles
from results.recorded import RecordedRun
from results.texts import brief, brief_pair

UNUSED = "not used"  # a flag that the run's --dataset or --split_scheme does not read
UNSET = ("None", "False", "", UNUSED)  # not worth printing where all share it
UNKNOWN = "unknown"
# how the names of the settings begin that hold a whole transform each
TRANSFORMS = "transforms, "


def flag_text(value) -> str:
    """A flag's value as text."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(flag_text, value))
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value)


def flag_texts(flags: dict) -> dict[str, str]:
    """Flags with their values as text."""
    return {name: flag_text(value) for name, value in flags.items()}


def of_run(run: RecordedRun, defaults: dict | None = None) -> dict[str, str]:
    """All settings of a run, as text.

    Args:
        defaults: flag -> default, for flags that the run was recorded without.
    """
    flags = {}
    if run.flags:
        flags = {**(defaults or {}), **run.flags}
    settings = flag_texts(run.roles.settings(flags))
    for name in roles.without_effect(flags) & set(settings):
        settings[name] = UNUSED
    if "dataset" in settings:
        settings["dataset"] = run.dataset
    # An unset flag does not say which weights were loaded: environment.yaml does, or nothing does.
    if settings.get("weights") == "None":
        del settings["weights"]
    return settings | {"selection": columns.rule(run)} | run.environment


def together(settings_list: list[dict[str, str]]) -> dict[str, str]:
    """The settings of several runs merged: where they differ (versions, hardware), all values."""
    merged = {}
    for name in _names(settings_list):
        values = {settings.get(name, UNKNOWN) for settings in settings_list}
        merged[name] = " | ".join(sorted(values))
    return merged


def _names(settings_list: list[dict[str, str]]) -> list[str]:
    """The names of all settings, in the order of their first occurrence."""
    return list(dict.fromkeys(itertools.chain.from_iterable(settings_list)))


def differing_flags(runs: list[RecordedRun], defaults: dict) -> list[str]:
    """The compared flags in which runs differ, with values and runs.

    A flag that was not recorded with a run has its default.
    """
    compared = {}
    for run in runs:
        compared |= run.roles.compared(run.flags)
    differing = []
    for flag in sorted(compared):
        holders = {}
        for run in runs:
            value = flag_text(run.flags.get(flag, defaults.get(flag)))
            holders.setdefault(value, []).append(run.name)
        if len(holders) > 1 and not all(flag in run.derived for run in runs):
            values = ", ".join(f"{value} ({_first_names(names)})" for value, names in holders.items())
            differing.append(f"{flag}: {values}")
    return differing


def _first_names(names: list[str]) -> str:
    text = ", ".join(names[:3])
    if len(names) > 3:
        text += f" and {len(names) - 3} more"
    return text


def shared(settings_list: list[dict[str, str]]) -> dict[str, str]:
    """The most frequent value of each setting over several groups, in the order of printing."""
    printed_names = itertools.chain.from_iterable(roles.PRINTED.values())
    order = {name: i for i, name in enumerate(printed_names)}
    names = sorted(_names(settings_list), key=lambda name: (order.get(name, len(order)), name))
    common = {}
    for name in names:
        values = Counter(settings[name] for settings in settings_list if name in settings)
        common[name] = values.most_common(1)[0][0]
    return common


def value_of(settings: dict[str, str], name: str, common: str) -> str:
    """A group's value of a setting; `unknown` if unrecorded.

    None if the others have None: a missing flag means None too.
    """
    missing = "None" if common == "None" else UNKNOWN
    return settings.get(name, missing)


def usually_derived(members: list[tuple[dict[str, str], set[str]]], common: dict[str, str]) -> set[str]:
    """The flags that most groups with the most frequent value have derived from other flags.

    Args:
        members: of each group its settings and its derived flags.
        common: the most frequent settings.
    """
    usual = set()
    for name, value in common.items():
        holders = [name in derived for group_settings, derived in members if group_settings.get(name) == value]
        if 2 * sum(holders) > len(holders):
            usual.add(name)
    return usual


def differences(settings: dict[str, str], common: dict[str, str], derived: set[str] = frozenset()) -> list[str]:
    """Where a group differs from the most frequent values, as text.

    Flags that its data set or split scheme does not read are left out.

    Args:
        derived: flags that are left out, since the flag from which their value follows is named.
    """
    texts = []
    has_other_transforms = False
    for name, usual in common.items():
        value = value_of(settings, name, usual)
        if value in (usual, UNUSED) or name in derived:
            continue
        if name.startswith(TRANSFORMS):
            has_other_transforms = True
            continue
        value, usual = brief_pair(value, usual)
        texts.append(f"{name} {value} (others: {usual})")
    if has_other_transforms:
        texts.append("transforms (see the table of settings)")
    return texts


def printed(settings_list: list[dict[str, str]]) -> str:
    """The settings that groups share, in one sentence for a table."""
    common = shared(settings_list)
    parts = []
    for title, names in roles.PRINTED.items():
        values = [f"{name} {brief(common[name])}" for name in names if _is_printed(name, common.get(name, ""))]
        if values:
            parts.append(f"{title}: {', '.join(values)}")
    return "; ".join(parts)


def _is_printed(name: str, value: str) -> bool:
    if name == "split_groups":
        return value not in (*UNSET, "none")
    return value not in UNSET or (name, value) == ("use_tv_split", "False")


def left_alone(settings_list: list[dict[str, str]], defaults: dict) -> set[str]:
    """The flags that no group set: in every group at the default, or not read."""
    names = set()
    for name, default in defaults.items():
        if default == UNKNOWN or not any(name in settings for settings in settings_list):
            continue
        text = flag_text(default)
        if all(settings.get(name, text) in (text, UNUSED) for settings in settings_list):
            names.add(name)
    return names


def varied(dataset_groups: list, common: dict[str, str]) -> list[str]:
    """One text per group: the flags of its method that vary among groups, and settings unlike most.

    Args:
        dataset_groups: a `groups.Group` each.
        common: the most frequent settings.
    """
    methods = [flag_texts(group.roles.method(group.flags)) for group in dataset_groups]
    texts = []
    for group, method in zip(dataset_groups, methods, strict=True):
        parts = []
        prefixes = (f"loss_{group.flags.get('loss')}_", f"miner_{group.flags.get('batch_mining')}_")
        for name, value in method.items():
            values = {other_method[name] for other_method in methods if name in other_method}
            if len(values) > 1 and name not in ("loss", "batch_mining", *group.derived) and value != "False":
                parts.append(f"{name.removeprefix(prefixes[0]).removeprefix(prefixes[1])} {value}")
        unread = roles.without_effect(group.flags) | group.derived | {"dataset"}
        for name in group.roles.settings(group.flags):
            is_known = name in common and name in group.settings
            if is_known and group.settings[name] != common[name] and name not in unread:
                parts.append(f"{name} {brief(group.settings[name])}")
        texts.append(", ".join(parts))
    return texts
