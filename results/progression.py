"""Out-of-distribution progressions (Milbich et al., arXiv 2107.09562): a metric on ever harder splits.

The difficulty of a split is its FID.
"""

import os
import re
from dataclasses import dataclass

import numpy as np

from results.columns import SELECTED, Column
from results.groups import Group
from results.recorded import progression_of
from results.settings import flag_texts

# the flag in which the runs of one method differ from split to split
SPLIT_FLAG = "oodml_id"


@dataclass
class Method:
    """The groups of one method, split -> group, and the FID of each split."""

    name: str
    groups: dict[str, Group]
    fids: dict[str, float]


def find(all_groups: list[Group]) -> dict[str, list[Method]]:
    """Progression -> its methods with two splits or more.

    Groups belong to one method if their flags differ in the split's number alone.
    """
    members = {}  # (progression, all flags but the split's number) -> (group, FID)
    for group in all_groups:
        name = progression_of(group.flags, group.dataset)
        fid = _fid(group)
        if name and fid is not None and group.counted:
            flags = flag_texts(group.roles.compared(group.flags))
            flags.pop(SPLIT_FLAG, None)
            members.setdefault((name, *sorted(flags.items())), []).append((group, fid))
    progressions = {}
    for (name, *_), pairs in members.items():
        pairs.sort(key=lambda pair: pair[1])
        groups = {}
        fids = {}
        for group, fid in pairs:
            split = str(group.flags.get(SPLIT_FLAG))
            groups[split] = group
            fids[split] = fid
        if len(groups) > 1:
            method_name = _common_name([group.label for group, _ in pairs])
            progressions.setdefault(name, []).append(Method(method_name, groups, fids))
    return progressions


def _fid(group: Group) -> float | None:
    """The mean over the runs that recorded it: it depends on split and backbone alone, which these runs share."""
    # NaN where a run recorded none
    fids = np.array([run.fid for run in group.counted], dtype=np.float64)
    fids = fids[np.isfinite(fids)]
    if not len(fids):
        return None
    return float(np.mean(fids))


def _common_name(names: list[str]) -> str:
    """The common beginning of the names of a method's groups: `Margin_ood_1`, `Margin_ood_2` give `Margin_ood`."""
    if len(set(names)) == 1:
        return names[0]
    # the common beginning of splits 10 and 11 ends in a 1, which is no part of the name
    return re.sub(r"\d+$", "", os.path.commonprefix(names)).rstrip("_-. ") or names[0]


def shared_splits(methods: list[Method]) -> list[str]:
    """The splits that all methods have, by rising FID of the first.

    That of other backbones may order them otherwise.
    """
    common = set.intersection(*(set(method.groups) for method in methods))
    return sorted(common, key=lambda split: methods[0].fids[split])


def areas(method: Method, splits: list[str], c: Column) -> np.ndarray:
    """Areas `(n,)`, one per seed common to all splits, in the metric's printed unit.

    An area is the mean height of the curve over the FIDs (trapezoids).

    Empty for fewer than two splits; NaN if all have one FID.
    """
    if len(splits) < 2:
        return np.empty(0)
    splits = sorted(splits, key=method.fids.get)
    fids = np.array([method.fids[split] for split in splits])
    values_by_split = []
    for split in splits:
        group = method.groups[split]
        values_by_split.append(dict(zip(group.seeds, group.values(c, SELECTED), strict=True)))
    seeds = sorted(set.intersection(*map(set, values_by_split)), key=str)
    heights = np.empty((len(seeds), len(splits)))
    for row, seed in enumerate(seeds):
        heights[row] = [values[seed] for values in values_by_split]
    if fids[-1] == fids[0]:
        return np.full(len(seeds), np.nan)
    return np.trapezoid(heights, fids, axis=1) / (fids[-1] - fids[0])
