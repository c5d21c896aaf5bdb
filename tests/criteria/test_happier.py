"""HAPPIER beyond its formula: ties, which data it takes, a run."""

import json

import numpy as np
import torch

import criteria
import main
import parameters
from tests.criteria import _table
from tests.criteria.test_table import build
from tests.kit.data_sets import make_cub200, make_folder
from tests.kit.refusals import refused
from utilities import levels


def test_equal_similarities_stand_before_each_other():
    """Similarities that are exact in binary: ties of relatives, of others, and with both."""
    rows = torch.tensor(
        [[1.0, 0.0], [0.5, 1.0], [0.5, -1.0], [0.5, 2.0], [0.25, 0.0], [0.5, 0.5], [1.0, 0.0]], dtype=torch.float64
    )
    x = torch.nn.functional.pad(rows, (0, 4)).requires_grad_()
    labels = torch.tensor([0, 0, 1, 3, 0, 2, 5])
    formula = _table.happier(_table.LEVELS)
    criterion = build("happier", formula=formula)
    own = torch.arange(7)
    values = criterion(x, labels), formula(criterion, x, x, _table.partners(labels, labels, own), (labels, labels, own))
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(value, x)[0] for value in values))


class Trained:
    """What a criterion asks of a data set."""

    name = "mine"
    n_classes = 3
    class_names = {0: "b", 1: "a", 2: "c"}

    def __init__(self, *lineages):
        self.lineages = set(lineages)
        self.super_labels = {
            label: next(names[1] for names in lineages if names[0] == name) for label, name in self.class_names.items()
        }


def test_levels_of_a_data_set_reach_the_criterion():
    criterion = build("happier", formula=_table.happier(_table.LEVELS))
    data = Trained(("a", "x", "z"), ("b", "y", "z"), ("c", "x", "z"))
    criteria.with_levels(torch.nn.ModuleList([criterion]), data)
    assert np.array_equal(criterion.class_levels, [[1, 1, 0], [0, 0, 0], [2, 0, 0]]) and levels.n_levels(data) == 3
    assert not any("class_levels" in name for name in criterion.state_dict()), "they are the data's"
    for lineages, message in (
        (
            (("a", None), ("b", None), ("c", None)),
            "--loss happier compares levels of classes, and --dataset mine has no super-classes",
        ),
        (
            (("a", "x"), ("a", "y"), ("b", "y"), ("c", "x")),
            "--loss happier: --dataset mine: levels do not nest: a of level 0 is in x and y",
        ),
        ((("a", "x"), ("b", None), ("c", "x")), "b has no class of level 1"),
    ):
        with refused(None, message):
            criteria.with_levels(criterion, Trained(*lineages))


def test_a_run_trains_and_is_measured_by_levels(tmp_path):
    root = make_folder(
        tmp_path / "things", names=[f"{a}/{b}/{c}" for a in "xy" for b in "st" for c in "123"], size=(20, 20)
    )
    words = [
        *"--loss happier --arch conv4_normalize --kernels 0 --save_path".split(),
        str(tmp_path),
        *"--bs 8 --samples_per_class 2".split(),
    ]
    metrics = ["e_recall@1", "h_ap", "asi_level0", "map_r_level1", "ndcg"]
    things = [
        "--dataset",
        "folder",
        "--dataset_folder_path",
        str(root),
        *"--resize_size 18 --crop_size 16 --data_sampler hierarchical".split(),
    ]
    run = main.main(
        parameters.read(
            [*words, *things, "--n_epochs", "1", "--evaluation_metrics", *metrics, "--storage_metrics", "h_ap"]
        )
    )
    values = json.loads((run.folder / "summary.json").read_text())["selected"]["values"]["test"]
    assert set(values) == set(metrics) and 0 < values["h_ap"] < 1
    make_cub200(tmp_path, n_classes=4, n_images=2)
    with refused("--loss happier compares levels of classes, and --dataset cub200 has no super-classes"):
        main.main(
            parameters.read([*words, "--dataset", "cub200", "--source", str(tmp_path), "--allow_partial_dataset"])
        )
