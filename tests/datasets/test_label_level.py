"""--label_level_train 1: training uses the super-classes, evaluation the classes, on the same images in order."""

import pytest

import parameters
from runs import RunFolder
from tests.datasets.layouts import read_folder
from tests.kit import tiny
from tests.kit.data_sets import make_folder
from tests.kit.refusals import refused
from tests.kit.runs import last_checkpoint


def test_training_goes_by_the_super_classes_and_nothing_else_changes(tmp_path, data):
    root = tmp_path / "things"
    for part in ("train", "test"):
        # names that do not sort by super-class everywhere
        for parent in ("tools", "fruit"):
            make_folder(root / part / parent, names=[f"{part}_{parent}_{c}" for c in range(3)], n_images=4)
    by_class, by_super = (read_folder(root, label_level_train=level) for level in (0, 1))
    training = by_super["training"]
    classes = by_class["training"]
    assert training.n_classes == 2 and set(training.class_names.values()) == {"fruit", "tools"}
    assert classes.n_classes == 6 and training.paths == classes.paths == by_super["evaluation"].paths
    for index, (path, label) in enumerate(training.image_list):
        assert training.class_names[label] == classes.super_labels[classes.image_list[index][1]]
        assert [path, index] in training.image_dict[label]
    assert sum(map(len, training.image_dict.values())) == len(training) == 24
    assert set(training.super_labels.values()) == {None}
    for split in ("testing", "evaluation"):
        assert by_super[split].image_list == by_class[split].image_list
        assert by_super[split].class_names == by_class[split].class_names
    with refused("--label_level_train 1: --dataset folder has no super-classes; online_products, glyphs and"):
        read_folder(data, label_level_train=1)
    flags = "--trainer metric_only --loss proxyanchor --label_level_train 1 --n_epochs 1"
    run = tiny.run(root, tmp_path, *flags.split())
    assert last_checkpoint(run.folder)["criterion"]["proxies"].shape == (2, 8) and run.opt.n_classes == 2
    by_class = tiny.measured(run)["test"]["map_r"]
    by_super = tiny.measured(run, "--label_hierarchy_level", "1")["test"]["map_r"]
    assert by_class == pytest.approx(RunFolder(run.folder).selected["values"]["test"]["map_r"]) != by_super
    with refused("the images that train, validate and test"):
        parameters.resolve(["--resume_from", str(run.folder), "--label_level_train", "0", "--resume_allow_changes"])
