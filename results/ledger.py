"""The ledger: the conditions of runs and of published figures, and which numbers share them.

docs/published/ledger.csv holds the published figures, each with its source. A figure is compared where no condition
that its source states differs; conditions that it does not state are named beside the comparison. Most published
figures are of plain evaluations: no re-ranking, tester, reference set, projection or other space; those of Hyp-ViT and
HIER rank by hyperbolic distance. How the network was trained (trainer, memory, averaging, augmentation, optimiser,
rates) is a condition where one of our run scripts repeats the figure: its flags state it. The number of seeds is no
condition: the test knows it.
"""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from results import columns, roles, settings
from results.columns import Column
from results.groups import Group
from results.recorded import RecordedRun
from utilities.flags import has_folds

FILE = Path(__file__).resolve().parent.parent / "docs" / "published" / "ledger.csv"
NOT_STATED = "not stated"
UNKNOWN = settings.UNKNOWN
CONDITIONS = {  # column of the ledger -> its title
    "dataset": "data set",
    "split": "split",
    "boxes": "boxes",
    "pretraining": "pretraining",
    "backbone": "backbone",
    "dimensions": "dimensions",
    "crop": "crop",
    "test_resize": "test resize",
    "batch": "batch",
    "sampler": "sampler",
    "epochs": "epochs",
    "selection": "epoch selected on",
    "seeds": "seeds",
    "evaluation": "evaluation",
}
TRAINING = "training"  # title of the flags of a training, where a source does not state them
IN_CONDITIONS = {  # flags that the conditions above tell
    "arch",
    "embed_dim",
    "not_pretrained",
    "bs",
    "data_sampler",
    "samples_per_class",
    "n_epochs",
    "iterations_per_epoch",
    "patience",
    "crop_size",
    "resize_size",
    "eval_resize_size",
}
# data that selected the epoch
TEST = "test"
BY_CLASSES = "validation by classes"
BY_SAMPLES = "validation by samples"
PLAIN = "plain"  # an evaluation by distances of all embeddings, each split in itself
LAST = "last"
UNTRAINED = "nothing, untrained"
OF_SAMPLES = ("closed_set", "index")  # split schemes whose validation images are of training classes
CROP, RESIZE = (re.compile(rf"{name}\(size=[\[(]?(\d+)(?:, (\d+))?") for name in ("CenterCrop", "Resize"))
LONG = re.compile(r"\bResize\(interpolation=\w+, max_size=(\d+)")


class Program(NamedTuple):
    """Functions on networks and data that the caller passes in, because the tables import no plug-ins.

    `weights`: --arch -> name of the pretrained weights that it loads by default, None where it has none. `backbone`:
    --arch -> --arch without its traits, such as `_frozen`. `sizes`: flags -> crop and resize of test images, None where
    unknown.
    """

    weights: Callable[[str], str | None]
    backbone: Callable[[str], str]
    sizes: Callable[[dict], tuple | None]


@dataclass(frozen=True)
class Figure:
    """One published number in printed units (percent where the metric is a share); its deviation has ddof 0.

    Args:
        conditions: as `CONDITIONS` names them, texts.
        group: group of the run in Revisit_Runs.sh or MLRC_Runs.sh that reproduces it; empty where there is none.
        preset: preset of configs/, run by Frontier_Runs.sh, that reproduces it; empty where there is none.
        text: the value with as many digits as its source gives.
    """

    source: str
    method: str
    group: str
    preset: str
    column: Column
    value: float
    deviation: float
    text: str
    note: str
    conditions: tuple[tuple[str, str], ...]

    @property
    def dataset(self) -> str:
        """The data set."""
        return self.condition("dataset")

    @property
    def configuration(self) -> str:
        """The group or the preset that reproduces it; empty where there is none."""
        return self.group or self.preset

    @property
    def seeds(self) -> int:
        """The number of seeds behind its mean; 1 where the source does not give it."""
        stated = self.condition("seeds")
        return int(stated) if stated.isdigit() else 1

    def condition(self, name: str) -> str:
        """One of its conditions."""
        return dict(self.conditions)[name]


def figures() -> list[Figure]:
    """All published figures, in the order of the file."""
    with open(FILE, encoding="utf-8", newline="") as file:
        return [_figure(row) for row in csv.DictReader(file)]


def _figure(row: dict) -> Figure:
    split, _, metric = row["metric"].rpartition("/")
    deviation = float(row["deviation"]) if row["deviation"] else float("nan")
    conditions = tuple((name, row[name]) for name in CONDITIONS)
    measured = columns.column(split or "test", metric)
    return Figure(
        row["source"],
        row["method"],
        row["group"],
        row["preset"],
        measured,
        float(row["value"]),
        deviation,
        row["value"],
        row["note"],
        conditions,
    )


def of_group(group: Group, program: Program, defaults: dict | None = None) -> dict[str, str]:
    """The conditions of a group's runs, worded as in the ledger; where its runs differ (in weights, say), all values.

    Args:
        defaults: flag -> default of main.py, for flags that the runs were recorded without.
    """
    each = [of_run(run, program, defaults) for run in group.counted or group.runs]
    return settings.together(each) | {"seeds": str(len(group.seeds))}


def of_run(run: RecordedRun, program: Program, defaults: dict | None = None) -> dict[str, str]:
    """The conditions of one run, without the number of its group's seeds."""
    flags = {**(defaults or {}), **run.flags}
    crop, resize = _sizes(run, flags, program)
    return {
        "dataset": run.dataset,
        "split": _split(flags, defaults or {}),
        "boxes": _boxes(flags),
        "pretraining": _pretraining(run, flags, program),
        "backbone": program.backbone(str(flags.get("arch", UNKNOWN)))
        .rpartition(":")[2]
        .partition(".")[0],  # a tag after the dot names the weights
        "dimensions": settings.shown(flags.get("embed_dim", UNKNOWN) or run.environment.get("dimensions", UNKNOWN)),
        "crop": crop,
        "test_resize": resize,
        "batch": settings.shown(flags.get("bs", UNKNOWN)),
        "sampler": f"{flags.get('data_sampler', UNKNOWN)}, {flags.get('samples_per_class', UNKNOWN)} a class",
        "epochs": _epochs(flags),
        "selection": _selection(run, flags),
        "evaluation": _evaluation(flags, defaults or {}),
        **training(flags),
    }


def training(flags: dict) -> dict[str, str]:
    """How a network is trained apart from the conditions above and from its loss and miner: `--flag` -> value as
    text.
    """
    found = roles.of_training(flags)
    return {f"--{name}": settings.shown(value) for name, value in sorted(found.items()) if name not in IN_CONDITIONS}


def _evaluation(flags: dict, defaults: dict) -> str:
    """`plain`, or the flags by which values are measured otherwise."""
    found = {name: value for name, value in roles.of_evaluation(flags, defaults).items() if name not in IN_CONDITIONS}
    return ", ".join(f"{name} {settings.shown(value)}" for name, value in sorted(found.items())) or PLAIN


def _split(flags: dict, defaults: dict) -> str:
    """The scheme (`half`: the field's own split) and every flag of the data that is not at its default, boxes aside."""
    unread = roles.without_effect(flags) | {"dataset", "dataset_name", "split_scheme", "use_tv_split"}
    names = sorted(name for name in roles.of_data(flags) if name not in unread and not name.endswith("_boxes"))
    always = {"tv_split_perc"}  # the share of validation is always named where there is one
    usual = {**defaults, "split_sets": flags.get("split_partitions")}  # unset, all parts validate
    set_flags = [
        f"{name} {settings.shown(flags[name])}"
        for name in names
        if name in always or settings.shown(flags[name]) not in (*settings.UNSET, settings.shown(usual.get(name)))
    ]
    return ", ".join([str(flags.get("split_scheme") or "half"), *set_flags])


def _boxes(flags: dict) -> str:
    """Whether images are cropped to bounding boxes; unknown for --dataset csv, whose file may have boxes."""
    if any(
        value for name, value in flags.items() if name.endswith("_boxes") and name not in roles.without_effect(flags)
    ):
        return "yes"
    return UNKNOWN if flags.get("dataset") == "csv" else "no"


def _pretraining(run: RecordedRun, flags: dict, program: Program) -> str:
    """The name of the weights as recorded, else from the flags: without --not_pretrained and --weights they are the
    published ones.
    """
    if recorded := run.environment.get("weights"):
        return recorded
    if flags.get("not_pretrained"):
        return "random"
    if flags.get("weights"):
        return str(flags["weights"])
    return program.weights(str(flags.get("arch"))) or UNKNOWN


def _sizes(run: RecordedRun, flags: dict, program: Program) -> tuple[str, str]:
    """Crop and resize of the test images: as recorded, else from the flags for networks with an input of 224 pixels."""
    if recorded := run.environment.get("transforms, testing"):
        found = [CROP.search(recorded), RESIZE.search(recorded) or LONG.search(recorded)]
        return tuple(_size(match) if match else "none" for match in found)
    crop, resize = program.sizes(flags) or (UNKNOWN, UNKNOWN)
    return tuple(
        " x ".join(map(str, size)) if isinstance(size, tuple) else str(size or "none") for size in (crop, resize)
    )


def _size(match: re.Match) -> str:
    if match.re is LONG:
        return f"long side {match[1]}"
    return match[1] if match.re is CROP and match[1] == match[2] else " x ".join(filter(None, match.groups()))


def _epochs(flags: dict) -> str:
    """`150`; `1000 of 100 batches, patience 9` where epochs have a length of their own and a run may stop early."""
    batches = flags.get("iterations_per_epoch")
    patience = flags.get("patience")
    text = f"{flags.get('n_epochs', UNKNOWN)}" + f" of {batches} batches" * (batches is not None)
    return text + f", patience {patience}" * (patience is not None)


def _selection(run: RecordedRun, flags: dict) -> str:
    if flags.get("n_epochs") == 0:
        return UNTRAINED
    if columns.selection_split(run) != "val":
        return TEST
    by_samples = flags.get("split_scheme") in OF_SAMPLES if has_folds(flags) else flags.get("tv_split_by_samples")
    return BY_SAMPLES if by_samples else BY_CLASSES


def differences(ours: dict[str, str], figure: Figure, trained: dict[str, str] | None = None) -> list[str]:
    """The conditions in which a group and a figure differ, in words; empty where they may be compared.

    Args:
        trained: the figure's `training`, where it is known.
    """
    ours = {"evaluation": PLAIN, **ours}
    theirs = {**dict(figure.conditions), **(trained or {})}
    if theirs["selection"] == LAST:
        theirs["selection"] = ours["selection"]  # every run has a last epoch
    titles = {name: CONDITIONS.get(name, name) for name in theirs if name != "seeds" and name in ours}
    return [
        f"{title} {theirs[n]} (ours: {ours[n]})"
        for n, title in titles.items()
        if theirs[n] not in (ours[n], NOT_STATED)
    ]


def silent(figure: Figure, trained: dict[str, str] | None = None) -> list[str]:
    """The titles of the conditions that a figure's source does not state; `trained` as in `differences`."""
    theirs = dict(figure.conditions)
    unstated = [title for name, title in CONDITIONS.items() if name != "seeds" and theirs[name] == NOT_STATED]
    return unstated if trained else [*unstated, TRAINING]


@dataclass
class Refused:
    """Published figures of one source, metric and set of conditions that must not be compared with some groups, and
    what differs.
    """

    groups: list[Group]
    figures: list[Figure]
    differences: list[str]


@dataclass
class Comparison:
    """The groups of a data set with the published figures they may be compared with, and the figures they may not.

    `beside`: (group, figure, conditions that the figure's source does not state).
    """

    beside: list[tuple[Group, Figure, list[str]]]
    refused: list[Refused]


def compare(
    found: list[Group], program: Program, defaults: dict, trained: dict[str, dict[str, str]], own=None
) -> Comparison:
    """The groups of one data set beside the ledger's figures in the metrics that they recorded.

    Args:
        trained: `training` by the name of the group or preset in our run scripts that repeats a figure, see
        `Figure.configuration`.
        own: (group, figure) -> whether the figure is of the group's own method. A group that shares the conditions of
        such figures is
            compared with these alone, any other group with all figures that share its conditions.
    """
    recorded = columns.recorded([run for group in found for run in group.runs])
    there = [f for f in figures() if f.dataset == found[0].dataset and (f.column.split, f.column.metric) in recorded]
    beside = []
    refused = {}
    for group in found:
        ours = of_group(group, program, defaults)
        apart = {}
        for figure in there:
            differing = tuple(differences(ours, figure, trained.get(figure.configuration)))
            apart.setdefault((figure.source, figure.column, differing), []).append(figure)
        shared = [
            figure
            for (*_, differing), figures_ in apart.items()
            for figure in figures_
            if not differing and group.counted
        ]
        same = [figure for figure in shared if own and own(group, figure)]
        beside += [(group, figure, silent(figure, trained.get(figure.configuration))) for figure in same or shared]
        for (*_, differing), those in apart.items():
            if differing:
                refused.setdefault((differing, tuple(those)), []).append(group)
    return Comparison(
        beside, [Refused(members, list(those), list(differing)) for (differing, those), members in refused.items()]
    )
