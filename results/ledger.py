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
from dataclasses import dataclass
from pathlib import Path

import datasets
from options.flags.shared import has_folds
from results import columns, roles, settings
from results.columns import Column
from results.groups import Group, all_runs
from results.recorded import RecordedRun
from results.roles import FlagRoles
from results.settings import UNKNOWN, flag_text

FILE = Path(__file__).resolve().parent.parent / "docs" / "published" / "ledger.csv"
NOT_STATED = "not stated"
# column of the ledger -> its title
CONDITIONS = {
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
# title of the flags of a training, where a source does not state them
TRAINING = "training"
# flags that the conditions above include
IN_CONDITIONS = {
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
# an evaluation by distances of all embeddings, each split in itself
PLAIN = "plain"
LAST = "last"
UNTRAINED = "nothing, untrained"
# split schemes whose validation images are of training classes
OF_SAMPLES = ("closed_set", "index")
CROP = re.compile(r"CenterCrop\(size=[\[(]?(\d+)(?:, (\d+))?")
RESIZE = re.compile(r"Resize\(size=[\[(]?(\d+)(?:, (\d+))?")
LONG = re.compile(r"\bResize\(interpolation=\w+, max_size=(\d+)")


@dataclass(frozen=True)
class Figure:
    """One published number in printed units (percent where the metric is a share); its deviation has ddof 0.

    Args:
        conditions: as `CONDITIONS` names them, texts.
        group: group of the run in Revisit_Runs.sh or MLRC_Runs.sh that reproduces it; empty if there is none.
        preset: preset of configs/, run by Frontier_Runs.sh, that reproduces it; empty if there is none.
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
        """The group or the preset that reproduces it; empty if there is none."""
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


def of_group(group: Group, defaults: dict | None = None) -> dict[str, str]:
    """The conditions of a group's runs, worded as in the ledger; where its runs differ (in weights, say), all values.

    Args:
        defaults: flag -> default of main.py, for flags that the runs were recorded without.
    """
    conditions = [of_run(run, defaults) for run in group.counted or group.runs]
    return settings.together(conditions) | {"seeds": str(len(group.seeds))}


def of_run(run: RecordedRun, defaults: dict | None = None) -> dict[str, str]:
    """The conditions of one run, without the number of its group's seeds."""
    import architectures

    flags = {**(defaults or {}), **run.flags}
    crop, resize = _sizes(run, flags)
    backbone = architectures.without_traits(str(flags.get("arch", UNKNOWN)))
    dimensions = flags.get("embed_dim", UNKNOWN) or run.environment.get("dimensions", UNKNOWN)
    return {
        "dataset": run.dataset,
        "split": _split(flags, defaults or {}, run.roles),
        "boxes": _boxes(flags),
        "pretraining": _pretraining(run, flags),
        # a tag after the dot names the weights
        "backbone": backbone.rpartition(":")[2].partition(".")[0],
        "dimensions": flag_text(dimensions),
        "crop": crop,
        "test_resize": resize,
        "batch": flag_text(flags.get("bs", UNKNOWN)),
        "sampler": f"{flags.get('data_sampler', UNKNOWN)}, {flags.get('samples_per_class', UNKNOWN)} a class",
        "epochs": _epochs(flags),
        "selection": _selection(run, flags),
        "evaluation": _evaluation(flags, defaults or {}, run.roles),
        **training(flags, run.roles),
    }


def training(flags: dict, flag_roles: FlagRoles) -> dict[str, str]:
    """How a network is trained: `--flag` -> value as text.

    Without the conditions above, its loss and its miner.
    """
    flags = sorted(flag_roles.of_training(flags).items())
    return {f"--{name}": flag_text(value) for name, value in flags if name not in IN_CONDITIONS}


def _evaluation(flags: dict, defaults: dict, flag_roles: FlagRoles) -> str:
    """`plain`, or the flags by which values are measured otherwise."""
    flags = sorted(flag_roles.of_evaluation(flags, defaults).items())
    return ", ".join(f"{name} {flag_text(value)}" for name, value in flags if name not in IN_CONDITIONS) or PLAIN


def _split(flags: dict, defaults: dict, flag_roles: FlagRoles) -> str:
    """The scheme (`half`: the field's own split) and every flag of the data that is not at its default, boxes aside."""
    unread = roles.without_effect(flags) | {"dataset", "dataset_name", "split_scheme", "use_tv_split"}
    # where --split_sets is unset, all --split_partitions serve as validation
    usual = {**defaults, "split_sets": flags.get("split_partitions")}
    parts = [str(flags.get("split_scheme") or "half")]
    for name in sorted(flag_roles.of_data(flags)):
        if name in unread or name.endswith("_boxes"):
            continue
        value = flag_text(flags[name])
        # The share of validation is always named.
        if name == "tv_split_perc" or value not in (*settings.UNSET, flag_text(usual.get(name))):
            parts.append(f"{name} {value}")
    return ", ".join(parts)


def _boxes(flags: dict) -> str:
    """Whether images are cropped to bounding boxes; unknown for --dataset csv, whose file may have boxes."""
    unread = roles.without_effect(flags)
    if any(value for name, value in flags.items() if name.endswith("_boxes") and name not in unread):
        return "yes"
    return UNKNOWN if flags.get("dataset") == "csv" else "no"


def _pretraining(run: RecordedRun, flags: dict) -> str:
    """The name of the weights as recorded, else from the flags.

    Without --not_pretrained and --weights they are the published ones.
    """
    import architectures

    if recorded := run.environment.get("weights"):
        return recorded
    if flags.get("not_pretrained"):
        return "random"
    if flags.get("weights"):
        return str(flags["weights"])
    return architectures.published_weights(str(flags.get("arch"))) or UNKNOWN


def _sizes(run: RecordedRun, flags: dict) -> tuple[str, str]:
    """Crop and resize of the test images: as recorded, else from the flags for networks with an input of 224 pixels."""
    if recorded := run.environment.get("transforms, testing"):
        crop = CROP.search(recorded)
        resize = RESIZE.search(recorded) or LONG.search(recorded)
        return _matched_size(crop), _matched_size(resize)
    crop, resize = datasets.sizes(flags) or (UNKNOWN, UNKNOWN)
    return _size(crop), _size(resize)


def _size(pixels) -> str:
    if isinstance(pixels, tuple):
        return " x ".join(map(str, pixels))
    return str(pixels or "none")


def _matched_size(match: re.Match | None) -> str:
    if match is None:
        return "none"
    if match.re is LONG:
        return f"long side {match[1]}"
    if match.re is CROP and match[1] == match[2]:
        return match[1]
    return " x ".join(filter(None, match.groups()))


def _epochs(flags: dict) -> str:
    """`150`; `1000 of 100 batches, patience 9` where epochs have a length of their own and a run may stop early."""
    text = str(flags.get("n_epochs", UNKNOWN))
    if flags.get("iterations_per_epoch") is not None:
        text += f" of {flags['iterations_per_epoch']} batches"
    if flags.get("patience") is not None:
        text += f", patience {flags['patience']}"
    return text


def _selection(run: RecordedRun, flags: dict) -> str:
    if flags.get("n_epochs") == 0:
        return UNTRAINED
    if columns.selection_split(run) != "val":
        return TEST
    by_samples = flags.get("tv_split_by_samples")
    if has_folds(flags):
        by_samples = flags.get("split_scheme") in OF_SAMPLES
    return BY_SAMPLES if by_samples else BY_CLASSES


def differences(ours: dict[str, str], figure: Figure, trained: dict[str, str] | None = None) -> list[str]:
    """The conditions in which a group and a figure differ, as text; empty if they may be compared.

    Args:
        trained: the figure's `training`, if known.
    """
    ours = {"evaluation": PLAIN, **ours}
    theirs = {**dict(figure.conditions), **(trained or {})}
    if theirs["selection"] == LAST:
        # every run has a last epoch
        theirs["selection"] = ours["selection"]
    texts = []
    for name, value in theirs.items():
        if name != "seeds" and name in ours and value not in (ours[name], NOT_STATED):
            texts.append(f"{CONDITIONS.get(name, name)} {value} (ours: {ours[name]})")
    return texts


def silent(figure: Figure, trained: dict[str, str] | None = None) -> list[str]:
    """The titles of the conditions that a figure's source does not state; `trained` as in `differences`."""
    theirs = dict(figure.conditions)
    unstated = [title for name, title in CONDITIONS.items() if name != "seeds" and theirs[name] == NOT_STATED]
    if not trained:
        unstated.append(TRAINING)
    return unstated


@dataclass
class Refused:
    """Published figures that must not be compared with some groups, and what differs.

    The figures are of one source, metric and set of conditions.
    """

    groups: list[Group]
    figures: list[Figure]
    differences: list[str]


@dataclass
class Comparison:
    """The groups of a data set with the published figures they may be compared with, and the figures they may not.

    Attributes:
        comparable: (group, figure, conditions that the figure's source does not state).
    """

    comparable: list[tuple[Group, Figure, list[str]]]
    refused: list[Refused]


def compare(
    dataset_groups: list[Group], defaults: dict, trained: dict[str, dict[str, str]], is_of_method=None
) -> Comparison:
    """The groups of one data set beside the ledger's figures in the metrics that they recorded.

    Args:
        trained: `training` by the name of the group or preset in our run scripts that repeats a figure, see
            `Figure.configuration`.
        is_of_method: (group, figure) -> whether the figure is of the group's method. A group that shares the
            conditions of such figures is compared with these alone, any other group
            with all figures that share its conditions.
    """
    recorded = columns.recorded(all_runs(dataset_groups))
    candidates = []
    for figure in figures():
        if figure.dataset == dataset_groups[0].dataset and (figure.column.split, figure.column.metric) in recorded:
            candidates.append(figure)
    comparable = []
    refused = {}  # (differences, figures) -> groups
    for group in dataset_groups:
        ours = of_group(group, defaults)
        similar = {}  # (source, column, differences) -> figures
        for figure in candidates:
            differing = tuple(differences(ours, figure, trained.get(figure.configuration)))
            similar.setdefault((figure.source, figure.column, differing), []).append(figure)
        same_conditions = []
        for (_, _, differing), same_source in similar.items():
            if differing:
                refused.setdefault((differing, tuple(same_source)), []).append(group)
            elif group.counted:
                same_conditions += same_source
        of_method = [figure for figure in same_conditions if is_of_method and is_of_method(group, figure)]
        for figure in of_method or same_conditions:
            comparable.append((group, figure, silent(figure, trained.get(figure.configuration))))
    refusals = []
    for (differing, their_figures), members in refused.items():
        refusals.append(Refused(members, list(their_figures), list(differing)))
    return Comparison(comparable, refusals)
