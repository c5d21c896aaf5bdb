"""Data on which the metric that selects the epoch is a constant are refused, against a plain search for two values."""

import itertools
from argparse import Namespace

import numpy as np
import pytest

import main
import metrics
import parameters
from evaluation import selectable
from tests.kit.data_sets import make_folder
from tests.kit.runs import run_words
from utilities.errors import UserError

PLAIN = {
    "evaluation_metrics": [],
    "evaluate": False,
    "evaluate_only": False,
    "evaluate_ensemble": False,
    "n_epochs": 1,
    "splits_to_eval": ["val", "test"],
    "eval_reference_set": "compared_to_self",
    "eval_relevance": None,
    "rerank_pairs": None,
    "tester": "global",
    "label_hierarchy_level": 0,
    "split_scheme": "half",
    "use_tv_split": True,
    "tv_split_by_samples": False,
    "tv_split_perc": 0.8,
    "split_partitions": 4,
}


METRICS = ("e_recall@1", "e_recall@2", "e_recall@4", "map_r", "mAP_c", "mrr", "precision@1", "r_precision", "map@2")


class Data:
    """Images of these classes, in the order of `names`."""

    def __init__(self, names, parents=None):
        labels = {name: label for label, name in enumerate(dict.fromkeys(names))}
        self.image_list = [(f"{i}.png", labels[name]) for i, name in enumerate(names)]
        self.class_names = {label: name for name, label in labels.items()}
        self.super_labels = {label: parents[name] if parents else None for name, label in labels.items()}


def refused(splits, metric, **flags):
    """The error of one line, or None."""
    try:
        selectable.check(splits, Namespace(**{**PLAIN, "storage_metrics": [metric], **flags}))
    except UserError as error:
        assert "\n" not in str(error) and metric in str(error)
        return str(error)
    return None


def taking_two_values(names):
    """The metrics to which two orders of points on a line, no two distances of which are equal, give two values."""
    values = {metric: set() for metric in METRICS}
    points = 3.0 ** np.arange(len(names))[:, None]
    for order in sorted(set(itertools.permutations(names))):
        results = metrics.compute(METRICS, points, np.array([ord(name) for name in order]))
        for metric, value in results.items():
            values[metric] |= set() if np.isnan(value) else {round(float(value), 9)}
    return {metric for metric, seen in values.items() if len(seen) > 1}


def test_what_needs_unknown_queries():
    for metric in ("known_auroc", "fpr@.95", "c_oscr", "dir@.01"):
        assert "needs queries of classes that the gallery does not hold" in refused({"val": Data("aabb")}, metric)
        assert refused({"val": Data("aabbc")}, metric) is None
    for metric in ("gap", "micro_ap@3", "aurc"):
        assert refused({"val": Data("aabb")}, metric) is None


def test_refused_where_no_order_of_neighbours_makes_a_difference():
    wrong = []
    for names in ("aab", "aabb", "aaa", "abcd", "aaabb", "abcc", "ab"):
        taking = taking_two_values(names)
        for metric in METRICS:
            is_refused = refused({"val": Data(names)}, metric) is not None
            is_constant = metric.startswith("e_recall") or len(set(names)) in (1, len(names))
            if is_refused if metric in taking else is_constant and not is_refused:
                wrong.append((names, metric))
    assert not wrong


TWO = Data("aabb")


ONE_CLASS = {"val": Data("aaaa"), "test": TWO}


SINGLES = {"val": Data("abcd"), "test": TWO}


IN_TRAINING = {"eval_reference_set": "compared_to_training_set"}


BY_SAMPLES = {"tv_split_by_samples": True, "tv_split_perc": 0.75}


OF_SINGLES = ["on val", "a single image of each of its 4 classes", "Lower --tv_split_perc 0.75"]


@pytest.mark.parametrize(
    ("splits", "metric", "flags", "message"),
    [
        (SINGLES, "e_recall@1", BY_SAMPLES, [*OF_SINGLES, "leave out --tv_split_by_samples"]),
        (ONE_CLASS, "map_r", {"tv_split_perc": 0.99}, ["has 1 class, ", "Lower --tv_split_perc 0.99"]),
        (
            {"train": TWO, "val": Data("ccdd")},
            "e_recall@1",
            IN_TRAINING,
            ["no image of a class that is in the reference", "compared_to_self"],
        ),
        ({"train": TWO, "val": Data("ab")}, "e_recall@1", IN_TRAINING, None),
        ({"train": TWO, "val": Data("ccdd")}, "nmi", IN_TRAINING, None),
        (
            {"val": Data("abc")},
            "nmi",
            {"split_scheme": "class_disjoint", "use_tv_split": False},
            ["--split_partitions 4"],
        ),
        ({"test": Data("abc")}, "e_recall@1", {"use_tv_split": False}, ["on test"]),
        (ONE_CLASS, "e_recall@1", {"evaluate": True}, None),
        (ONE_CLASS, "e_recall@1", {"evaluate_only": True}, None),
        (ONE_CLASS, "e_recall@1", {"evaluate_ensemble": True}, None),
        (ONE_CLASS, "e_recall@1", {"n_epochs": 0}, None),
    ],
)
def test_reasons_and_ways_out(splits, metric, flags, message):
    printed = refused(splits, metric, **flags)
    assert printed is None if message is None else all(words in printed for words in message), printed


SEPARATE = {"a": "x", "b": "y"}


TOGETHER = {"a": "x", "b": "x"}


PAIRS = {"a": "x", "b": "x", "c": "y", "d": "y"}


INSIDE = {"tester": "same_parent_label"}


LEVEL = {"label_hierarchy_level": 1}


@pytest.mark.parametrize(
    ("names", "metric", "parents", "flags", "is_refused"),
    [
        ("abcd", "alignment", None, {}, True),
        ("aaaa", "fnmr@.1", None, {}, True),
        ("abcd", "opis", None, {}, True),
        ("aaaa", "alignment", None, {}, False),
        ("abcd", "uniformity", None, {}, False),
        ("aab", "fnmr@.1", None, {}, False),
        ("aaaa", "e_recall@1_worst10", None, {}, True),
        ("abcd", "rho_spectrum@1", None, {}, False),
        ("abcd", "dists@inter", None, {}, False),
        ("abcd", "dists@intra", None, {}, True),
        ("aaaa", "f1", None, {}, True),
        ("aaaa", "c_recall@1", None, {}, True),
        ("abb", "c_recall@2", None, {}, True),
        ("aabb", "e_recall@1", SEPARATE, {}, False),
        ("aabb", "e_recall@1", SEPARATE, INSIDE, True),
        ("aabb", "e_recall@1", TOGETHER, INSIDE, False),
        ("aabb", "e_recall@1", TOGETHER, LEVEL, True),
        ("abcd", "e_recall@1", PAIRS, LEVEL, False),
    ],
)
def test_metrics_and_super_classes(names, metric, parents, flags, is_refused):
    assert bool(refused({"val": Data(names, parents)}, metric, **flags)) == is_refused


def test_a_run_is_refused_before_it_writes(tmp_path):
    root = make_folder(tmp_path / "things", n_classes=10, n_images=4, size=(16, 16))
    argv = run_words(root, tmp_path / "runs")
    argv += "--loss softmax --bs 4 --storage_metrics e_recall@1 --use_tv_split".split()
    for flags, words in (
        ("--tv_split_by_samples", "a single image of each of its 5 classes"),
        ("--tv_split_perc 0.99 --dry_run", "1 class, "),
        ("--eval_reference_set compared_to_training_set --tv_split_perc 0.5", "in the reference"),
    ):
        with pytest.raises(UserError, match=words):
            main.main(parameters.read([*argv, *flags.split()]))
        assert not (tmp_path / "runs").exists()
