"""The settings of a data set's groups."""

from results import settings as of
from results.formats import Table
from results.groups import Group
from results.tables.notes import text


def settings(found: list[Group], defaults: dict | None = None) -> Table:
    """All settings: the value most groups share, and the groups that differ. What varies is first, what nobody set is folded.

    Args:
        defaults: flag -> default of main.py; without them nothing is folded.
    """
    dataset, those = found[0].dataset, [group.settings for group in found]
    table = Table(f"{dataset}_settings", f"{dataset}: settings", ["setting", "value", "groups that differ"])
    rows = []
    for name, value in of.shared(those).items():
        others = {}
        for group in found:
            others.setdefault(of.own(group.settings, name, value), []).append(group.name)
        others.pop(value, None)
        rows.append((name, value, "; ".join(f"{other}: {', '.join(names)}" for other, names in others.items())))
    unset = of.left_alone(those, defaults or {})
    rows.sort(key=lambda row: (not row[2], row[0] in unset))
    for name, value, differing in rows:
        table.add([text(name), text(value), text(differing or "none")])
    table.folded = [i for i, (name, _, differing) in enumerate(rows) if name in unset and not differing]
    table.folded_title = "Left at their defaults by all groups"
    table.notes = [f"Shared by {len(found)} group{'s' * (len(found) != 1)} but those named; what differs is first."]
    return table
