"""Levels of classes in evaluation: of data sets with roles, of dumped embeddings; what is refused."""

import contextlib

import numpy as np
import pytest

import evaluation
from evaluation import __main__ as command
from evaluation import outputs, selectable
from tests.kit.plain_metrics import plain_hierarchical
from tests.kit.refusals import refused
from tests.kit.splits import SPLITS, by_loops, evaluated, made_splits, options, points_of, splits_with_roles

HIERARCHICAL = ["h_ap", "asi", "ndcg"]
NAMES = [*HIERARCHICAL, "e_recall@1", "e_recall@1_level1", "map_r_level2"]
TWO = {"first": "one", "second": "two"}


SOURCES = {
    "compared_to_self": ["test"],
    "compared_to_sets_combined": ["val", "test"],
    "compared_to_training_set": ["train"],
}


def with_levels(splits, higher=None):
    """The splits with a third level: all classes but f in one."""
    for dataset in {id(dataset): dataset for dataset in splits.values()}.values():
        above = higher or TWO
        dataset.lineages = {(name, parent, above[parent]) for name, parent, *_ in dataset.lineages}
    return splits


def shared(splits, image, partner):
    """How many levels two images, (split, row) each, share."""
    lines = []
    for split, row in (image, partner):
        dataset = splits[SPLITS[split]]
        lines.append(next(line for line in dataset.lineages if line[0] == dataset.names[row]))
    return sum(a == b for a, b in zip(*lines, strict=True))


@pytest.mark.parametrize("reference", SOURCES)
def test_levels_of_a_data_set_with_roles_and_sequences(reference, tmp_path):
    splits = with_levels(splits_with_roles(4, everywhere=True))
    flags = ["--eval_reference_set", reference, "--splits_to_eval", "val", "test"]
    scores, embedded, network = evaluated(splits, "--evaluation_metrics", *NAMES, "nmi", *flags)
    sources = SOURCES[reference]
    by_hand, orders = by_loops(splits, "test", sources, points_of(splits, network))
    levels_of = {row: [shared(splits, ("test", row), image) for image in order] for row, order in orders.items()}
    is_coarse_hit = [bool(levels) and levels[0] >= 2 for levels in levels_of.values()]
    expected = {"e_recall@1": by_hand["e_recall@1"], "e_recall@1_level1": np.mean(is_coarse_hit)}
    is_searched = splits["testing"].is_gallery & ("test" in sources)
    for name in HIERARCHICAL:
        values = [plain_hierarchical(name, levels, 3, bool(is_searched[row])) for row, levels in levels_of.items()]
        expected[name] = np.nanmean(values)
    assert {name: scores["test"][name] for name in expected} == pytest.approx(expected, abs=1e-9)
    if reference == "compared_to_self":
        path = outputs.dump(tmp_path, embedded, options(*flags))[-1]
        assert np.load(path)["higher_names"].shape == (36, 1)
        measured = command.main([str(path), "--evaluation_metrics", *NAMES])
        assert measured == pytest.approx({name: scores["test"][name] for name in NAMES}, abs=1e-12)


def test_data_without_fitting_levels_are_refused_before_training():
    single = "metric 'h_ap' compares levels of classes, and the classes of --dataset made have a single level"
    gap = "--evaluation_metrics h_ap: --dataset made: b has no class of level 2"
    for flags, levels, message in (
        ([], None, single),
        ([], {"first": "", "second": "two"}, gap),
        (["--label_hierarchy_level", "1"], TWO, "leave out --label_hierarchy_level 1"),
        (["--tester", "same_parent_label"], TWO, "leave out --tester same_parent_label"),
    ):
        splits = made_splits(parents=False) if levels is None else with_levels(made_splits(), levels)
        words = ["--evaluation_metrics", "e_recall@1", "h_ap", "--splits_to_eval", "train", "val", *flags]
        with refused(None, message):
            evaluation.loaders(splits, options(*words))
    splits = with_levels(made_splits())
    splits["testing"].lineages |= {("i", "first", "one"), ("i", "second", "two")}
    measured = ["--splits_to_eval", "val", "test"]
    with refused("levels do not nest: i of level 0 is in first and second of level 1"):
        evaluation.loaders(splits, options("--evaluation_metrics", "e_recall@1", "ndcg", *measured))
    evaluation.loaders(splits, options(*measured))


def test_an_epoch_is_chosen_by_what_can_vary():
    """By super-classes where no class has two images; by levels within one super-class."""
    splits = with_levels(made_splits())
    val = splits["validation"]
    val.names = [f"{name}{i}" for i, name in enumerate(val.names)]
    lines = {name[0]: name[1:] for name in val.lineages}
    val.lineages = {(name, *lines[name[0]]) for name in val.names}
    val.labels = np.arange(len(val.names))
    val.class_names = dict(enumerate(val.names))
    val.super_labels = {label: lines[name[0]][0] for label, name in val.class_names.items()}
    val.image_list = list(zip(val.paths, range(len(val.names)), strict=True))
    names = {"e_recall@1": "a single image of each", "e_recall@1_level1": None, "h_ap": None}
    for metric, message in names.items():
        opt = options("--storage_metrics", metric, "--evaluation_metrics", metric, "--splits_to_eval", "val")
        with refused(message) if message else contextlib.nullcontext():
            selectable.check({"val": val}, opt)
    scores, *_ = evaluated(splits, "--evaluation_metrics", *names, "--splits_to_eval", "val")
    assert 0 < scores["val"]["h_ap"] < 1
