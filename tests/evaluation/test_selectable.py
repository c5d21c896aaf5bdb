"""Data on which the metric that chooses the epoch is a constant are refused before training, against a plain search for two values."""

import itertools
from argparse import Namespace

import numpy as np
import pytest

import main
import metrics
import parameters
from evaluation import selectable
from tests import builders
from utilities.errors import UserError


class Data:
    """Images of these classes, in the order of `names`."""

    def __init__(self, names, parents=None):
        labels = {name: label for label, name in enumerate(dict.fromkeys(names))}
        self.image_list = [(f"{i}.png", labels[name]) for i, name in enumerate(names)]
        self.class_names = {label: name for name, label in labels.items()}
        self.super_labels = {label: parents[name] if parents else None for name, label in labels.items()}


def refused(splits, metric, **flags):
    opt = Namespace(**{
        "evaluate": False, "evaluate_only": False, "evaluate_ensemble": False, "n_epochs": 1, "storage_metrics": [metric], "splits_to_eval": ["val", "test"],
        "eval_reference_set": "compared_to_self", "tester": "global", "label_hierarchy_level": 0, "split_scheme": "half", "use_tv_split": True,
        "tv_split_by_samples": False, "tv_split_perc": 0.8, "split_partitions": 4, **flags,
    })  # fmt: skip
    try:
        selectable.check(splits, opt)
    except UserError as error:
        assert "\n" not in str(error) and metric in str(error)
        return str(error)
    return None


def takes_two_values(names, metric):
    """Whether two orders of points on a line, no two distances of which are equal, give the metric two values."""
    values, points = set(), 3.0 ** np.arange(len(names))[:, None]
    for order in itertools.islice(itertools.permutations(range(len(names))), 800):
        labels = np.array([sorted(set(names)).index(names[i]) for i in order])
        values.add(round(float(metrics.compute([metric], points, labels)[metric]), 9))
    return len({value for value in values if not np.isnan(value)}) > 1


NAMES = ("aab", "aabb", "aaa", "abcd", "aaabb", "aabbc", "abcc", "aaaab", "ab")
METRICS = ("e_recall@1", "e_recall@2", "e_recall@4", "map_r", "mAP_c", "mrr", "precision@1", "r_precision", "map@2")


@pytest.mark.long
def test_refused_where_no_order_of_neighbours_makes_a_difference():
    wrong = []
    for names, metric in itertools.product(NAMES, METRICS):
        is_refused = refused({"val": Data(names)}, metric) is not None
        if takes_two_values(names, metric):
            wrong += [(names, metric)] if is_refused else []
        elif metric.startswith("e_recall") or len(set(names)) in (1, len(names)):
            wrong += [(names, metric)] if not is_refused else []
    assert not wrong


def test_reasons_and_ways_out():
    single = refused({"val": Data("abcd"), "test": Data("aabb")}, "e_recall@1", tv_split_by_samples=True, tv_split_perc=0.75)
    assert "on val" in single and "a single image of each of its 4 classes" in single and "Lower --tv_split_perc 0.75" in single
    assert "leave out --tv_split_by_samples" in single
    one = refused({"val": Data("aaaa"), "test": Data("aabb")}, "map_r", tv_split_perc=0.99)
    assert "has 1 class, " in one and "Lower --tv_split_perc 0.99" in one
    apart = refused({"train": Data("aabb"), "val": Data("ccdd")}, "e_recall@1", eval_reference_set="compared_to_training_set")
    assert "no image of a class that is in the reference" in apart and "compared_to_self" in apart
    assert refused({"train": Data("aabb"), "val": Data("ab")}, "e_recall@1", eval_reference_set="compared_to_training_set") is None
    assert refused({"train": Data("aabb"), "val": Data("ccdd")}, "nmi", eval_reference_set="compared_to_training_set") is None
    assert "--split_partitions 4" in refused({"val": Data("abc")}, "nmi", split_scheme="class_disjoint", use_tv_split=False)
    assert "on test" in refused({"test": Data("abc")}, "e_recall@1", use_tv_split=False)


def test_what_chooses_nothing_is_measured():
    constant = {"val": Data("aaaa")}
    assert refused(constant, "e_recall@1")
    for flags in ({"evaluate": True}, {"evaluate_only": True}, {"evaluate_ensemble": True}, {"n_epochs": 0}):
        assert refused({**constant, "test": Data("aabb")}, "e_recall@1", **flags) is None
    for names, metric, is_refused in (
        ("abcd", "alignment", True), ("aaaa", "fnmr@.1", True), ("abcd", "opis", True), ("aaaa", "alignment", False), ("abcd", "uniformity", False),
        ("aab", "fnmr@.1", False), ("aaaa", "e_recall@1_worst10", True), ("abcd", "rho_spectrum@1", False), ("abcd", "dists@inter", False),
        ("abcd", "dists@intra", True), ("aaaa", "f1", True),
    ):  # fmt: skip
        assert bool(refused({"val": Data(names)}, metric)) == is_refused, (names, metric)


def test_super_classes():
    apart, together = {"a": "x", "b": "y"}, {"a": "x", "b": "x"}
    for names, parents, flags, is_refused in (
        ("aabb", apart, {}, False), ("aabb", apart, {"tester": "same_parent_label"}, True), ("aabb", together, {"tester": "same_parent_label"}, False),
        ("aabb", together, {"label_hierarchy_level": 1}, True),
        ("abcd", {"a": "x", "b": "x", "c": "y", "d": "y"}, {"label_hierarchy_level": 1}, False),
    ):  # fmt: skip
        assert bool(refused({"val": Data(names, parents)}, "e_recall@1", **flags)) == is_refused, (names, parents, flags)


def test_a_run_is_refused_before_it_writes(tmp_path):
    for number, (n_images, flags, words) in enumerate((
        (4, ["--use_tv_split", "--tv_split_by_samples"], "a single image of each of its 5 classes"),
        (4, ["--use_tv_split", "--tv_split_perc", "0.99", "--dry_run"], "1 class, "),
        (4, ["--use_tv_split", "--eval_reference_set", "compared_to_training_set", "--tv_split_perc", "0.5"], "in the reference"),
        (1, [], "a single image"),
    )):  # fmt: skip
        root = builders.make_folder(tmp_path / f"things_{number}", n_classes=10, n_images=n_images, size=(16, 16))
        argv = ["--dataset", "folder", "--dataset_folder_path", str(root), *builders.SMALL, *builders.SHORT_RUN]
        argv += ["--loss", "softmax", "--samples_per_class", "1", "--bs", "4", "--storage_metrics", "e_recall@1", *flags]
        with pytest.raises(UserError, match=words):
            main.main(parameters.read([*argv, "--save_path", str(tmp_path / "runs")]))
        assert not (tmp_path / "runs").exists()
