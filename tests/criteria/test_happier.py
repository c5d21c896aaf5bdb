"""HAPPIER beyond its formula: ties, which data it takes, a run."""

import numpy as np
import torch

import criteria
from runs import RunFolder
from tests.criteria import _table
from tests.criteria.test_table import build
from tests.kit.data_sets import make_cub200, make_folder
from tests.kit.refusals import refused
from tests.kit.runs import on_folder, run_main
from utilities import levels

NO_LEVELS = "--loss happier compares levels of classes, and --dataset"


def test_equal_similarities_stand_before_each_other():
    """Similarities that are exact in binary: ties of relatives, of others, and with both."""
    rows = torch.tensor(
        [[1.0, 0.0], [0.5, 1.0], [0.5, -1.0], [0.5, 2.0], [0.25, 0.0], [0.5, 0.5], [1.0, 0.0]], dtype=torch.float64
    )
    x = torch.nn.functional.pad(rows, (0, 4)).requires_grad_()
    labels = torch.tensor([0, 0, 1, 3, 0, 2, 5])
    formula = _table.happier(_table.LEVELS)
    criterion = build("happier", formula=formula)
    own_rows = torch.arange(7)
    pairs = _table.partners(labels, labels, own_rows)
    values = criterion(x, labels), formula(criterion, x, x, pairs, (labels, labels, own_rows))
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(value, x)[0] for value in values))


class Trained:
    """What a criterion asks of a data set."""

    name = "mine"
    n_classes = 3
    class_names = {0: "b", 1: "a", 2: "c"}

    def __init__(self, *lineages):
        self.lineages = set(lineages)
        parents = {names[0]: names[1] for names in reversed(lineages)}
        self.super_labels = {label: parents[name] for label, name in self.class_names.items()}


def test_levels_of_a_data_set_reach_the_criterion():
    criterion = build("happier", formula=_table.happier(_table.LEVELS))
    data = Trained(("a", "x", "z"), ("b", "y", "z"), ("c", "x", "z"))
    criteria.with_levels(torch.nn.ModuleList([criterion]), data)
    assert np.array_equal(criterion.class_levels, [[1, 1, 0], [0, 0, 0], [2, 0, 0]]) and levels.n_levels(data) == 3
    assert not any("class_levels" in name for name in criterion.state_dict()), "they are the data's"
    for lineages, message in (
        ([("a", None), ("b", None), ("c", None)], f"{NO_LEVELS} mine has no super-classes"),
        ([("a", "x"), ("a", "y"), ("b", "y"), ("c", "x")], "mine: levels do not nest: a of level 0 is in x and y"),
        ([("a", "x"), ("b", None), ("c", "x")], "b has no class of level 1"),
    ):
        with refused(message):
            criteria.with_levels(criterion, Trained(*lineages))


def test_a_run_trains_and_is_measured_by_levels(tmp_path):
    names = [f"{a}/{b}/{c}" for a in "xy" for b in "st" for c in "123"]
    root = make_folder(tmp_path / "things", names=names, size=(20, 20))
    words = "--loss happier --arch conv4_normalize --kernels 0 --bs 8 --samples_per_class 2 --n_epochs 1".split()
    words += "--resize_size 18 --crop_size 16 --data_sampler hierarchical --storage_metrics h_ap".split()
    metrics = ["e_recall@1", "h_ap", "asi_level0", "map_r_level1", "ndcg"]
    run = run_main(*on_folder(root, tmp_path, *words, "--evaluation_metrics", *metrics))
    values = RunFolder(run.folder).selected["values"]["test"]
    assert set(values) == set(metrics) and 0 < values["h_ap"] < 1
    make_cub200(tmp_path, n_classes=4, n_images=2)
    words = "--loss happier --arch conv4_normalize --kernels 0 --bs 8 --dataset cub200 --allow_partial_dataset".split()
    with refused(f"{NO_LEVELS} cub200 has no super-classes"):
        run_main(*words, "--source", tmp_path, "--save_path", tmp_path)
