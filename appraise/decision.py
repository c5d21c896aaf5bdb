"""The decision: training the best network if it pays, the choice among all rows, the test, and a threshold.

Rows are chosen by select classes alone. The test classes are measured once, for the chosen row and the best frozen one.
"""

import contextlib
import io
import shlex
import time
from pathlib import Path

import numpy as np
import torch

import architectures
import evaluation
import metrics
from appraise import networks, plan
from appraise.networks import METRICS, Bench, Measured
from appraise.steps import Appraisal
from datasets import _schemes
from engine.loading import evaluation_loader
from evaluation import __main__ as evaluating
from evaluation import file_arrays
from evaluation.feature_store import digest
from launch import __main__ as launch
from launch.lines import read_lines
from launch.runner import FAILED, FINISHED, Runner
from results.bootstrap import Outcomes
from runs.folder import RunFolder
from utilities.console import say
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.files import write_file, write_npz
from utilities.reading import read_json

RUNS = "runs.sh"
GALLERY = "threshold.npz"
DECISION = "decision.json"
# learning rate of a pretrained network
RATE = "1e-5"
BATCH = 32
WORST_CLASSES = 6  # on the page
WRONG_QUERIES = 3  # of each


# ---------------------------------------------------------------------------------------------------------------- tuned
def tune(appraisal: Appraisal) -> dict:
    """Train the best frozen network, and measure the runs on select classes."""
    planned = appraisal.results["features"]["plan"]
    select = next(part["classes"] for part in appraisal.results["split"]["parts"] if part["part"] == "select")
    if appraisal.flags.tune == "no":
        return _untrained("no training: --tune no")
    if select < networks.LEAST_SELECT:
        return _untrained(
            f"no training: {select} select classes cannot choose between it and a frozen network; it needs "
            f"{networks.LEAST_SELECT}"
        )
    if not planned["seeds"]:
        return _untrained(next(note for note in planned["notes"] if note.startswith("no training")))
    frozen = [row for row in appraisal.results["frozen"]["rows"] if row["kind"] == "frozen"]
    label = max(frozen, key=lambda row: row["recall"][0])["label"]
    traits = traits_of(appraisal, label)
    commands = [run_words(appraisal, label, traits, seed) for seed in range(planned["seeds"])]
    lines = [shlex.join(["python", "main.py", *words]) for words in commands]
    write_file(appraisal.folder / RUNS, "\n".join(lines) + "\n")
    tasks, refused = launch.make_tasks(read_lines(appraisal.folder / RUNS, {}))
    if refused:
        return _untrained(f"no training: {refused[0][1]}")
    runner = trained(tasks)
    failed = [*runner.outcomes[FAILED]]
    if len(runner.outcomes[FINISHED]) + len(failed) < len(tasks):
        raise UserError(
            f"--out {appraisal.folder}: a run is still at work: {runner.summary()}; try again when it ended"
        )
    if failed:
        return _untrained(f"training failed: {failed[0].splitlines()[0]}")
    # a split file makes a cross-validation of one fold
    rows = [_tuned_row(appraisal, label, task.folder / "fold_0") for task in tasks]
    outcomes = Outcomes(
        np.concatenate([networks.loaded(row["select"]).sums for row in rows]), networks.loaded(rows[0]["select"]).sizes
    )
    row = {
        **rows[0],
        "name": f"{label}, trained, {count_of(len(rows), 'seed')}",
        "recall": networks.interval(outcomes),
        "map_r": np.mean([row["map_r"] for row in rows], axis=0).tolist(),
        "select": networks.saved(outcomes),
        "folders": [row["folder"] for row in rows],
    }
    return {"summary": f"{row['name']}: R@1 {100 * row['recall'][0]:.1f} %", "rows": [row], "note": ""}


def trained(tasks: list) -> Runner:
    """The runner that has done the tasks. Runs that a killed appraisal has left at work are waited for.

    Such a run may fail a task, or take its folder, before it can be seen: what is not finished is tried once more.
    """
    for _ in range(2):
        workers = {task.at_work() for task in tasks} - {None}
        if workers:
            say(f"      waiting for a run that was started before: {', '.join(sorted(workers))}")
        while any(task.at_work() for task in tasks):
            time.sleep(1)
        runner = Runner(tasks, 1, [])
        runner.run()
        if len(runner.outcomes[FINISHED]) == len(tasks):
            break
    return runner


def _untrained(note: str) -> dict:
    return {"summary": note, "rows": [], "note": note}


def traits_of(appraisal: Appraisal, label: str) -> str:
    """The traits of a network that is trained: BatchNorm keeps the statistics of its pretraining, if it has some."""
    (model,) = Bench(appraisal, [label], appraisal.select_words).models.values()
    has_batchnorm = any(isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) for layer in model.network.modules())
    if has_batchnorm and model.facts.weights_name != "random":
        return "_frozen_normalize"
    return "_normalize"


def run_words(appraisal: Appraisal, label: str, traits: str, seed: int) -> list[str]:
    """The flags of main.py of one run. `traits`: of the network."""
    arch, *flags = shlex.split(label)
    words = [*appraisal.split_words, "--arch", f"{architectures.without_traits(arch)}{traits}", *flags]
    words += ["--loss", "multisimilarity", "--lr", RATE, "--n_epochs", str(plan.EPOCHS), "--bs", str(BATCH)]
    words += ["--splits_to_eval", "val", *networks.MEASURED_BY, "--storage_metrics", METRICS[0]]
    # runs of other photographs, or of another split, are others
    place = digest({"photographs": appraisal.fingerprint, "split": read_json(appraisal.folder / "split.json")})
    words += ["--no_train_metrics", "--save_path", str(appraisal.folder / "runs" / place[:8])]
    words += ["--group", "tuned", "--seed"]
    return [*words, str(seed)]


def _tuned_row(appraisal: Appraisal, label: str, folder: Path) -> dict:
    """The row of one run."""
    bench = Bench(appraisal, [label], appraisal.select_words)
    (model,) = bench.models.values()
    network = bench.runtime.place(RunFolder(folder).network())
    parts = {}
    for split, part in bench.parts(model).items():
        parts[split] = evaluation.embed(network, evaluation_loader(part.dataset, model.opt), bench.runtime, split)
    row = networks.row_of(appraisal, f"{label}, trained, {folder.parent.name}", "tuned", model, parts)
    return {**row, "run": str(folder)}


# --------------------------------------------------------------------------------------------------------------- choice
def all_rows(appraisal: Appraisal) -> list[dict]:
    """The rows of the table, the best by select classes first."""
    rows = [*appraisal.results["frozen"]["rows"], *appraisal.results["tuned"]["rows"]]
    return sorted(rows, key=lambda row: -row["recall"][0])


def chosen(rows: list[dict]) -> dict:
    """The cheapest row whose paired interval to the best contains 0; of equally cheap ones the best."""
    best = rows[0]
    for kind in networks.COSTS:
        for row in (row for row in rows if row["kind"] == kind):
            difference = networks.compared(networks.loaded(best["select"]), networks.loaded(row["select"]))
            if row is best or difference.low <= 0:
                return row
    return best


def test_of(appraisal: Appraisal, row: dict) -> Outcomes:
    """The outcomes of a row on test classes, of all its seeds."""
    parts = []
    for folder in row.get("folders", [row["folder"]]):
        of_test = networks.measured(appraisal.folder / folder / "embeddings_test.npz")
        parts.append(of_test.outcomes(METRICS[0]))
    return Outcomes(np.concatenate([part.sums for part in parts]), parts[0].sizes)


def row_named(appraisal: Appraisal, name: str) -> dict:
    """The row of a name."""
    return next(row for row in all_rows(appraisal) if row["name"] == name)


# ------------------------------------------------------------------------------------------------------------ sentences
def recommendation(results: dict[str, dict]) -> list[str]:
    """What to do, the first that applies, then which network to use."""
    data = results["data"]
    shared = set()
    for group in data["copies_across"]:
        names = sorted({name for _, name in group})
        shared |= {(names[0], name) for name in names[1:]}
    alike = {tuple(pair) for pair in results["groups"]["class_pairs"]} - shared
    faults = []
    if shared:
        verb = "shares" if len(shared) == 1 else "share"
        faults.append(f"{count_of(len(shared), 'pair')} of classes {verb} photographs")
    if data["broken"]:
        faults.append(f"{count_of(len(data['broken']), 'file')} cannot be read")
    sentences = []
    if faults:
        sentences.append(f"Correct the photographs first: {'; '.join(faults)}. Then run the same command again.")
    if alike:
        verb = "has" if len(alike) == 1 else "have"
        sentences.append(
            f"Look at the near-duplicates: {count_of(len(alike), 'pair')} of classes {verb} photographs that look "
            "almost the same to the network. Correct those that show the same."
        )
    if 2 * len(data["single"]) >= len(data["sizes"]):
        sentences.append(
            f"Collect more photographs: {len(data['single']):,} of {len(data['sizes']):,} classes have only one."
        )
    sentences.append(_network_sentence(results))
    sentences.append(test_sentence(results["threshold"]))
    sentences.append(results["threshold"]["promise"]["sentence"])
    return sentences


def _network_sentence(results: dict[str, dict]) -> str:
    threshold = results["threshold"]
    trained = results["tuned"]["rows"]
    if trained and threshold["chosen"] == trained[0]["name"]:
        return f"Use {threshold['chosen']}: training pays on select classes."
    sentence = f"Use {threshold['chosen']}."
    power = results["power"]
    if trained:
        sentence += (
            f" Training shows no gain; {power['test_classes']} test classes cannot show less than "
            f"{power['least']:.1f} points."
        )
    return sentence


def test_sentence(threshold: dict) -> str:
    """The result on test classes."""
    value, low, high = (100 * number for number in threshold["test"])
    text = (
        f"On test classes, which chose nothing, {threshold['chosen']} finds the class of {value:.1f} % "
        f"[{low:.1f}, {high:.1f}] of the photographs"
    )
    if threshold["chosen"] == threshold["frozen"]:
        return f"{text}."
    value, low, high = (100 * number for number in threshold["difference"])
    return f"{text}: {value:+.1f} points [{low:+.1f}, {high:+.1f}] beside {threshold['frozen']} as it is."


def power_sentences(power: dict) -> list[str]:
    """The least difference that the test can show, and the classes for smaller ones."""
    source = "of two frozen networks"
    if power["networks"] == 1:
        source = "of two networks like this one, as if they erred independently (with two --archs it is measured)"
    needs = []
    for points, classes in power["needed"].items():
        number = f"{classes:,}" if classes is not None else "more than a million"
        needs.append(f"{number} for {count_of(int(points), 'point')}")
    if power["least"] >= 100:
        return [f"{power['test_classes']} test classes cannot show any difference in R@1. Needed: {', '.join(needs)}."]
    return [
        f"{power['test_classes']} test classes cannot show a difference in R@1 below {power['least']:.1f} points (with "
        f"a chance of {100 * networks.POWER:.0f} %, by the difference {source} on {power['classes']} select and train "
        "classes).",
        f"Test classes needed: {', '.join(needs)}.",
    ]


# ------------------------------------------------------------------------------------------------------------ threshold
def decide(appraisal: Appraisal) -> dict:
    """Choose a row, measure it and the best frozen one on the test classes, and find its threshold."""
    rows = all_rows(appraisal)
    row = chosen(rows)
    frozen = next(row for row in rows if row["kind"] == "frozen")
    outcomes = test_of(appraisal, row)
    reference = test_of(appraisal, frozen)
    difference = networks.compared(outcomes, reference)
    of_test = networks.measured(appraisal.folder / row["folder"] / "embeddings_test.npz")
    write_gallery(appraisal.folder / GALLERY, appraisal.folder / row["folder"], appraisal.flags.seed)
    promised = promise(appraisal)
    return {
        "summary": f"{row['name']}: R@1 {100 * outcomes.means.mean():.1f} % on test classes",
        "chosen": row["name"],
        "frozen": frozen["name"],
        "test": networks.interval(outcomes),
        "test_frozen": networks.interval(reference),
        "difference": [difference.value, difference.low, difference.high],
        "worst": worst_classes(of_test),
        "promise": promised,
    }


def promise(appraisal: Appraisal) -> dict:
    """The threshold, what it promises for new classes, and its rates; or why there is none, and what one would need."""
    words = promise_words(appraisal)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return evaluating.main(words)
    except UserError as error:
        (appraisal.folder / DECISION).unlink(missing_ok=True)
        return {"threshold": None, "sentence": str(error)}


def promise_words(appraisal: Appraisal) -> list[str]:
    """The words of `python -m evaluation` that find the threshold."""
    flags = appraisal.flags
    words = ["decide", str(appraisal.folder / GALLERY), "--promise", flags.promise, "--rate", f"{flags.rate:g}"]
    return [*words, "--out", str(appraisal.folder / DECISION)]


def write_gallery(path: Path, folder: Path, seed: int) -> None:
    """Write the file of embeddings from which a threshold is found.

    The gallery is the train and select classes and half of the groups of each test class; the queries are the other
    half, and the set-aside classes, which are new.

    Args:
        folder: of the row's files of embeddings. seed: of the halves.
    """
    parts = {}
    for part in ("train", "select", "test", "set_aside"):
        parts[part] = file_arrays.read_queries(str(folder / f"embeddings_{part}.npz"), False, with_names=True)
    columns = {"features": [], "class_names": [], "paths": [], "sequence": [], "is_query": [], "is_gallery": []}
    for part, arrays in parts.items():
        size = len(arrays["features"])
        sequences = arrays.get("sequence", np.full(size, "")).astype(str)
        is_gallery = np.full(size, part != "set_aside")
        if part == "test":
            is_gallery = first_half(arrays["class_names"], sequences, arrays["paths"], seed)
        for name in ("features", "class_names", "paths"):
            columns[name].append(arrays[name])
        columns["sequence"].append(sequences)
        columns["is_gallery"].append(is_gallery)
        columns["is_query"].append(~is_gallery)
    joined = {name: np.concatenate(of_parts) for name, of_parts in columns.items()}
    joined["labels"] = np.unique(joined["class_names"], return_inverse=True)[1]
    if not (joined["sequence"] != "").any():
        del joined["sequence"]
    write_npz(path, joined)


def first_half(classes: np.ndarray, sequences: np.ndarray, paths: np.ndarray, seed: int) -> np.ndarray:
    """`(N,)` whether an image is in the first half of its class's groups, in the order of `mixed`; a class of one group
    is in it as a whole. A group is a sequence, or an image of none.
    """
    groups = np.where(sequences == "", paths, sequences)
    is_first = np.zeros(len(classes), dtype=bool)
    for name in np.unique(classes):
        rows = np.flatnonzero(classes == name)
        names = np.unique(groups[rows]).tolist()
        order = _schemes.mixed(names, seed)[: max(len(names) // 2, 1)]
        is_first[rows] = np.isin(groups[rows], [names[place] for place in order])
    return is_first


def worst_classes(of_test: Measured) -> list[dict]:
    """The test classes that are found least, each with queries that find another class and what they find."""
    task = of_test.task
    hits = of_test.values[METRICS[0]]
    labels = task.queries.labels
    space = metrics.EmbeddingSpace(**task.arguments())
    nearest = space.neighbours(1)[:, 0]
    names = of_test.arrays["class_names"]
    paths = of_test.arrays["paths"]
    shares = []
    for label in np.unique(labels[~np.isnan(hits)]):
        rows = np.flatnonzero((labels == label) & ~np.isnan(hits))
        shares.append((float(hits[rows].mean()), names[rows[0]], rows))
    shares.sort(key=lambda entry: (entry[0], entry[1]))
    worst = []
    for share, name, rows in shares[:WORST_CLASSES]:
        wrong = [row for row in rows if not hits[row] and nearest[row] >= 0]
        pairs = [[paths[row], paths[nearest[row]], names[nearest[row]]] for row in wrong[:WRONG_QUERIES]]
        if share < 1:
            worst.append({"class": name, "share": share, "images": len(rows), "wrong": np.array(pairs).tolist()})
    return worst
