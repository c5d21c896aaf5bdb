"""Names of values in the ICML 2020 pipeline, which the online service and the files of groups keep: written and read.

A name is `<section>: <group>: <label>`, such as `Test: discriminative_e_recall: e_recall@1`, or `<section>: <group>`
where the label equals the group, such as `Train: loss`. A section is a split or `Model Grad`. The group of a metric is
`<evaltype>_<its name before the @>`, that of a domain or protocol `<evaltype>_<domain>_…`, without the evaltype where
the run has one alone. No two values of a run share a name.
"""

import functools
import re
from typing import NamedTuple

import metrics
from runs.names import split_name
from utilities.errors import UserError

SPLIT_TITLES = {"train": "Train", "val": "Val", "test": "Test"}
MODEL_GRADIENT = "Model Grad"
# name in files -> group, label
GRADIENT_NAMES = {"gradient_rms": ("L2", "Grad L2"), "gradient_max": ("Max", "Grad Max")}
# values of training that are named `<group>/<label>`
TRAINING_GROUPS = ("criterion", "miner", "rate")
SECTIONS = (*SPLIT_TITLES.values(), MODEL_GRADIENT)
_SPLITS = {title: split for split, title in SPLIT_TITLES.items()}
_KEY = re.compile(rf"({'|'.join(SECTIONS)}): (?:(.+): )?(.+)$")


class IcmlName(NamedTuple):
    """The name of a value in the ICML 2020 pipeline."""

    section: str
    group: str
    label: str

    @property
    def key(self) -> str:
        """The name at the online service."""
        beginning = f"{self.section}: {self.group}"
        return beginning if self.group == self.label else f"{beginning}: {self.label}"


@functools.cache
def is_metric(name: str) -> bool:
    """Whether the last part of a name is a metric of an embedding space, such as `e_recall@1`."""
    try:
        metrics.check(split_name(name)[1])
    except UserError:
        return False
    return True


def is_of_training(split: str, name: str, evaltypes: list[str]) -> bool:
    """Whether a value is of training steps (loss, rate, statistics), recorded beside the metrics of `train`."""
    if split != "train":
        return False
    first = name.partition("/")[0]
    of_group = "/" in name and first in TRAINING_GROUPS and first not in evaltypes
    return of_group or not is_metric(name)


def training_group(name: str) -> str:
    """The group of a value of training: the part before the slash, `rate`; `loss` of every loss."""
    group, slash, _ = name.partition("/")
    return "loss" if name.endswith("_loss") and not slash else group


def metric_group(name: str, evaltypes: list[str]) -> str:
    """The group of an evaluated metric, `discriminative_e_recall`."""
    return _of_metric(name, evaltypes)[0]


def icml_name(split: str, name: str, evaltypes: list[str]) -> IcmlName:
    """The ICML pipeline's name of the value `name` (as in metrics.csv) on a split of a run with these evaltypes."""
    if not is_of_training(split, name, evaltypes):
        return IcmlName(SPLIT_TITLES[split], *_of_metric(name, evaltypes))
    if name in GRADIENT_NAMES:
        return IcmlName(MODEL_GRADIENT, *GRADIENT_NAMES[name])
    group = training_group(name)
    label = name.removeprefix(f"{group}/") if group in TRAINING_GROUPS else name
    return IcmlName(SPLIT_TITLES[split], group, label)


def value_name(key: str, evaltypes: list[str]) -> tuple[str, str] | None:
    """(split, name as in metrics.csv) of a key at the online service: the reverse of `IcmlName.key`.

    None of other keys.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    section = match[1]
    group = match[2] or ""
    label = match[3]
    if section == MODEL_GRADIENT:
        for name, gradient in GRADIENT_NAMES.items():
            if gradient == (group, label):
                return "train", name
        return None
    split = _SPLITS[section]
    if group in TRAINING_GROUPS:
        return split, f"{group}/{label}"
    above, metric = split_name(label)
    evaltype, domain = _parts(group, metric, evaltypes)
    if is_misnamed(key):
        domain = group
    parts = [above or domain, metric]
    if len(evaltypes) > 1:
        parts = [evaltype, *parts]
    return split, "/".join(filter(None, parts))


def is_misnamed(key: str) -> bool:
    """Whether a version of November 2026 logged this metric of `train`: its group was an evaltype or a domain alone."""
    match = _KEY.fullmatch(key)
    if match is None or match[1] != SPLIT_TITLES["train"] or not match[2]:
        return False
    group = match[2]
    label = match[3]
    family = label.partition("@")[0]
    return group not in (*TRAINING_GROUPS, label) and not group.endswith(f"_{family}") and is_metric(label)


def _of_metric(name: str, evaltypes: list[str]) -> tuple[str, str]:
    """Group and label of a metric.

    Evaltypes and domains may hold underscores. Where the group would be read as that of another evaltype or domain (`a`
    with the domain `b_c` beside an evaltype `a_b`), the domain goes into the label, which then holds a slash.
    """
    above, metric = split_name(name)
    if len(evaltypes) == 1 or not above:
        evaltype = evaltypes[0]
        domain = above
    else:
        evaltype, _, domain = above.partition("/")
    family = metric.partition("@")[0]
    joined = (above or evaltype).replace("/", "_") + f"_{family}"
    if _parts(joined, metric, evaltypes) == (evaltype, domain):
        return joined, metric
    label = f"{domain}/{metric}" if domain else metric
    return f"{evaltype}_{family}", label


def _parts(group: str, metric: str, evaltypes: list[str]) -> tuple[str, str]:
    """(evaltype, domain) of a group, of the longest evaltype that it may begin with. Both empty if it is of neither."""
    head = group.removesuffix(f"_{metric.partition('@')[0]}")
    if head == group:
        return "", ""
    if head in evaltypes:
        return head, ""
    if len(evaltypes) == 1:
        return evaltypes[0], head
    for evaltype in sorted(evaltypes, key=len, reverse=True):
        if head.startswith(f"{evaltype}_"):
            return evaltype, head.removeprefix(f"{evaltype}_")
    return "", ""
