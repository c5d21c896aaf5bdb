"""Networks on the photographs: near-duplicates by their features, the power of the test, frozen networks and adapters.

All photographs are embedded once by each network. The parts of the split take their rows of these features, and put
them where `python -m evaluation models` looks for them, so that this command prints the numbers at once.
"""

import bisect
import functools
import math
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

import numpy as np

import datasets
import evaluation
import metrics
from appraise import photographs
from appraise.steps import Appraisal
from datasets._image_set import ImageSet
from engine.runtime import Runtime
from evaluation import adapters, file_arrays, from_files, outputs, whitening
from evaluation.task import Task
from results import bootstrap
from results.bootstrap import Outcomes
from results.formats import file_name
from tools import models
from tools._frozen_model import Model
from utilities.errors import UserError
from utilities.intervals import t_quantile, t_shift

METRICS = ["e_recall@1", "map_r"]
# A photograph that is alone in its class, or in a class of one group, has nothing to find.
MEASURED_BY = ["--evaluation_metrics", *METRICS, "--eval_skip_unmatched"]
COMPONENTS = 128  # of the rows with principal components
LEAST_SELECT = 8  # classes: below, no training is proposed
POWER = 0.8
# differences in R@1, in percentage points
POINTS = (1, 2, 5)
MOST_CLASSES = 10**6
# kinds of rows, the cheapest first
COSTS = ("frozen", "components", "adapter", "tuned")


class Bench:
    """The networks and what they embed.

    commands: the flags of `python -m evaluation models`. models: label -> network. runtime: of this process.
    """

    def __init__(self, appraisal: Appraisal, archs: list[str], data_words: list[str]):
        self.appraisal = appraisal
        self.folder = appraisal.folder
        words = ["--archs", *archs, *data_words, "--save_path", str(appraisal.folder), "--seed"]
        words += [str(appraisal.flags.seed), *MEASURED_BY]
        self.commands, options = models.read(words)
        self.runtime = Runtime(next(iter(options.values()))).begin()
        self.models = {}
        for label, opt in options.items():
            training = models.training_options(self.commands.rest, opt)
            store = appraisal.folder / "features"
            self.models[label] = Model(label, opt, store, self.commands.feature_type, Runtime(opt), training=training)

    def photographs(self, model: Model, table: str) -> ImageSet:
        """All images of a table."""
        flags = {"dataset_csv": str(self.folder / table), "evaluate_all": True}
        shape = datasets.shape_for(model.facts)
        return self.appraisal.splits(model.opt, shape, **flags)["testing"]

    def features(self, model: Model, table: str) -> tuple[np.ndarray, float, set[str]]:
        """The backbone's features `(N, F)` of all images of a table, the seconds that they took, on which devices."""
        dataset = self.photographs(model, table)
        if model.shards(dataset).read() is None:
            model.embedded({"photographs": dataset})
        return model.shards(dataset).read()

    def parts(self, model: Model) -> dict[str, evaluation.Embedded]:
        """Part -> its images, with the features at unit length: train, select, set_aside, test."""
        shape = datasets.shape_for(model.facts)
        chosen = {}
        for part in photographs.PARTS[1:]:
            table = str(self.folder / photographs.table_of(part))
            splits = self.appraisal.splits(model.opt, shape, dataset_csv=table)
            chosen.setdefault("train", splits["evaluation"])
            chosen[part.replace(" ", "_")] = splits["testing"]
        rows, seconds, devices = self.features(model, photographs.PHOTOGRAPHS)
        everything = self.photographs(model, photographs.PHOTOGRAPHS)
        row_of = {name: row for row, name in enumerate(_names(everything))}
        for dataset in chosen.values():
            places = np.array([row_of[name] for name in _names(dataset)])
            rate = seconds / len(rows)
            model.shards(dataset).fill(functools.partial(_part, rows[places], rate), ", ".join(sorted(devices)))
        return model.embedded(chosen)


def _names(dataset: ImageSet) -> list[tuple]:
    """What tells the images of a data set apart: their paths and boxes."""
    if dataset.boxes is None:
        return [(path, None) for path in dataset.paths]
    return [(path, box.tobytes()) for path, box in zip(dataset.paths, dataset.boxes, strict=True)]


def _part(rows: np.ndarray, seconds: float, part: slice) -> tuple[np.ndarray, float]:
    """The features of a part of the images, and the seconds that they took, `seconds` each."""
    return rows[part], seconds * (part.stop - part.start)


# --------------------------------------------------------------------------------------------------------------- groups
def find_groups(appraisal: Appraisal) -> dict:
    """Near-duplicates by the first network; writes the table of photographs in which they are one sequence."""
    features = appraisal.results["features"]
    archs = features["plan"]["archs"][:1]
    bench = Bench(appraisal, archs, [*appraisal.table_words(features["table"]), *appraisal.planned_words])
    (model,) = bench.models.values()
    dataset = bench.photographs(model, features["table"])
    rows, _, _ = bench.features(model, features["table"])
    labels = np.array([label for _, label in dataset.image_list])
    similarity, pairs = photographs.near_duplicates(rows, labels)
    return photographs.group(appraisal, features["table"], dataset, similarity, pairs)


# ----------------------------------------------------------------------------------------------------- measured queries
class Measured(NamedTuple):
    """The queries of a file of embeddings: their task, metric -> value of each `(Q,)`, and the file's arrays."""

    task: Task
    values: dict[str, np.ndarray]
    arrays: dict

    def outcomes(self, metric: str) -> Outcomes:
        """Sums over each class, of classes with queries that count."""
        classes = np.unique(self.task.queries.labels, return_inverse=True)[1]
        return bootstrap.class_outcomes([self.values[metric]], classes)


def measured(path: Path) -> Measured:
    """The file's queries search each other, as `python -m evaluation FILE` does."""
    arrays = file_arrays.read_queries(str(path), has_gallery=False, with_names=True)
    task = from_files.task_of(str(path), arrays)
    space = metrics.EmbeddingSpace(**task.arguments(), skip_unmatched=True)
    return Measured(task, metrics.per_query(METRICS, space), arrays)


def interval(outcomes: Outcomes) -> list[float]:
    """Mean over queries, and the bounds of its 95 % interval over classes (and seeds)."""
    mean = bootstrap.interval(outcomes)
    return [mean.value, max(mean.low, 0.0), min(mean.high, 1.0)]


def compared(first: Outcomes, second: Outcomes) -> bootstrap.Difference:
    """First - second on the same classes."""
    return bootstrap.difference(first, second, tuple(bootstrap.drawn_means([first, second])))


def saved(outcomes: Outcomes) -> dict:
    """The outcomes as JSON holds them."""
    return {"sums": outcomes.sums.tolist(), "sizes": outcomes.sizes.tolist()}


def loaded(content: dict) -> Outcomes:
    """The outcomes of `saved`."""
    return Outcomes(np.array(content["sums"]), np.array(content["sizes"]))


# ---------------------------------------------------------------------------------------------------------------- power
def power(appraisal: Appraisal) -> dict:
    """The least difference in R@1 that the test can show, by two frozen networks on select and train classes."""
    bench = Bench(appraisal, appraisal.results["features"]["plan"]["archs"], appraisal.select_words)
    of_networks = []
    for model in list(bench.models.values())[:2]:
        parts = bench.parts(model)
        model.release()
        rows = np.concatenate([parts[split].features[evaluation.MAIN_EVALTYPE] for split in ("train", "select")])
        labels, sequences = _labels(parts["train"].dataset, parts["select"].dataset)
        space = metrics.EmbeddingSpace(rows, labels, query_sequences=sequences, skip_unmatched=True)
        values = metrics.per_query(METRICS[:1], space)[METRICS[0]]
        of_networks.append(bootstrap.class_outcomes([values], labels))
    if len(of_networks) == 2:
        error = compared(*of_networks).error
    else:
        # as if two such networks erred independently: an upper bound
        error = math.sqrt(2) * bootstrap.interval(of_networks[0]).error
    n_measured = len(of_networks[0].sizes)
    n_test = next(part["classes"] for part in appraisal.results["split"]["parts"] if part["part"] == "test")
    least = 100 * least_difference(error, n_measured, n_test)
    needs = {str(points): classes_needed(error, n_measured, points / 100) for points in POINTS}
    return {
        "summary": f"{n_test} test classes show differences in R@1 from {least:.1f} points on",
        "test_classes": n_test,
        "least": least,
        "needed": needs,
        "networks": len(of_networks),
        "error": error,
        "classes": n_measured,
    }


def _labels(*parts: ImageSet) -> tuple[np.ndarray, np.ndarray | None]:
    """Numbers of the classes `(N,)` and of the sequences `(N,)` of the images of several parts."""
    names = []
    sequences = []
    for part in parts:
        names += [part.class_names[label] for _, label in part.image_list]
        if part.sequences is None:
            sequences += [""] * len(part)
        else:
            sequences += [part.sequence_names.get(number, "") for number in part.sequences.tolist()]
    labels = np.unique(names, return_inverse=True)[1]
    distinct = np.unique(sequences)
    if len(distinct) == 1:
        return labels, None
    numbers = np.searchsorted(distinct, sequences)
    return labels, np.where(np.array(sequences) == "", -1, numbers)


def least_difference(error: float, measured_classes: int, classes: int) -> float:
    """The difference that a 95 % interval over `classes` shows with a chance of 80 %.

    `error`: standard error of a difference on `measured_classes` classes.
    """
    freedom = classes - 1
    return error * math.sqrt(measured_classes / classes) * t_shift(POWER, freedom, t_quantile(freedom))


def classes_needed(error: float, measured_classes: int, difference: float) -> int | None:
    """The least number of classes that shows a difference; None above a million."""
    counts = range(2, MOST_CLASSES + 1)
    place = bisect.bisect_left(
        counts, True, key=lambda count: least_difference(error, measured_classes, count) <= difference
    )
    return counts[place] if place < len(counts) else None


# --------------------------------------------------------------------------------------------------------------- frozen
def measure_frozen(appraisal: Appraisal) -> dict:
    """Each network as it is, by principal components of its features, and with a linear adapter, on select classes."""
    archs = appraisal.results["features"]["plan"]["archs"]
    bench = Bench(appraisal, archs, appraisal.select_words)
    rows = []
    missing = []
    for model in bench.models.values():
        embedded = bench.parts(model)
        rows.append(row_of(appraisal, model.label, "frozen", model, embedded))
        try:
            project = whitening.pca(embedded["train"].features[evaluation.MAIN_EVALTYPE], COMPONENTS, False)
        except UserError as error:
            missing.append(f"{model.label}, PCA to {COMPONENTS}: {error}")
        else:
            projected = {split: _projected(part, project) for split, part in embedded.items()}
            rows.append(row_of(appraisal, f"{model.label}, PCA to {COMPONENTS}", "components", model, projected))
        try:
            adapted = adapters.adapted("linear", embedded, model.training).embedded
        except UserError as error:
            missing.append(f"{model.label}, linear adapter: {error}")
        else:
            opt = model.opt.but(evaltypes=model.training.evaltypes)
            rows.append(row_of(appraisal, f"{model.label}, linear adapter", "adapter", model, adapted, opt))
        model.release()
    best = max(rows, key=lambda row: row["recall"][0])
    return {
        "summary": f"best on select classes: {best['name']}, R@1 {100 * best['recall'][0]:.1f} %",
        "rows": rows,
        "missing": missing,
    }


def _projected(part: evaluation.Embedded, project) -> evaluation.Embedded:
    return part._replace(features={evaluation.MAIN_EVALTYPE: project(part.features[evaluation.MAIN_EVALTYPE])})


def row_of(
    appraisal: Appraisal, name: str, kind: str, model: Model, embedded: dict, opt: Namespace | None = None
) -> dict:
    """A row of the table; the embeddings of all parts are written to a folder of its name."""
    folder = appraisal.folder / "rows" / file_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    outputs.dump(folder, embedded, opt or model.opt)
    of_select = measured(folder / "embeddings_select.npz")
    return {
        "name": name,
        "label": model.label,
        "kind": kind,
        "folder": str(folder.relative_to(appraisal.folder)),
        "width": of_select.arrays["features"].shape[1],
        "parameters": model.facts.parameters,
        "recall": interval(of_select.outcomes(METRICS[0])),
        "map_r": interval(of_select.outcomes(METRICS[1])),
        "select": saved(of_select.outcomes(METRICS[0])),
        "remarks": model.remarks(),
    }
