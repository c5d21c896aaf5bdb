"""--label_level_train 1: training goes by the super-classes, evaluation by the classes, on the same images in the same order."""

import pytest

import datasets
import parameters
from runs import RunFolder, checkpoint
from tests import builders
from tests.trainers import tiny


@pytest.fixture(scope="module")
def hierarchy(tmp_path_factory):
    """X/train and X/test of two super-classes with three classes each; their names do not sort by super-class everywhere."""
    root = tmp_path_factory.mktemp("levels") / "things"
    for part in ("train", "test"):
        for parent in ("tools", "fruit"):
            builders.make_folder(root / part / parent, names=[f"{part}_{parent}_{c}" for c in range(3)], n_images=4)
    return root


def splits_of(root, level):
    return datasets.select("folder", dataset_folder_path=str(root), label_level_train=level)


def test_training_has_the_super_classes_as_labels_and_nothing_else_changes(hierarchy, data):
    by_class, by_super = splits_of(hierarchy, 0), splits_of(hierarchy, 1)
    training, classes = by_super["training"], by_class["training"]
    assert training.n_classes == 2 and set(training.class_names.values()) == {"fruit", "tools"} and classes.n_classes == 6
    assert training.paths == classes.paths == by_super["evaluation"].paths, "the places of images are those of evaluation"
    for index, (path, label) in enumerate(training.image_list):
        assert training.class_names[label] == classes.super_labels[classes.image_list[index][1]]
        assert [path, index] in training.image_dict[label]
    assert sum(map(len, training.image_dict.values())) == len(training) == 24 and set(training.super_labels.values()) == {None}
    for split in ("testing", "evaluation"):
        assert by_super[split].image_list == by_class[split].image_list and by_super[split].class_names == by_class[split].class_names
    with tiny.refused("--label_level_train 1: --dataset folder knows no super-classes; online_products, glyphs and"):
        splits_of(data, 1)


def test_a_run_has_as_many_class_vectors_as_super_classes_and_is_measured_by_class(hierarchy, tmp_path):
    run = tiny.run(hierarchy, tmp_path, "--trainer", "metric_only", "--loss", "proxyanchor", "--label_level_train", "1", "--n_epochs", "1")
    assert checkpoint.read(run.folder / checkpoint.LAST)["criterion"]["proxies"].shape == (2, 8) and run.opt.n_classes == 2
    by_class, by_super = tiny.measured(run), tiny.measured(run, "--label_hierarchy_level", "1")
    assert by_class["test"]["map_r"] == pytest.approx(RunFolder(run.folder).selected["values"]["test"]["map_r"]) != by_super["test"]["map_r"]
    with tiny.refused("the images that train, validate and test"):
        parameters.resolve(["--resume_from", str(run.folder), "--label_level_train", "0", "--resume_allow_changes"])
    with tiny.refused("--data_sampler hierarchical needs super labels"):
        flags = ["--label_level_train", "1", "--data_sampler", "hierarchical", "--samples_per_class", "4"]
        tiny.run(hierarchy, tmp_path, *flags, "--dry_run")
