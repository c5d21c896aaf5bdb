"""Levels of classes in evaluation: of data sets with roles, of files in every form, of dumped embeddings; what is refused."""

import contextlib

import numpy as np
import pytest

import evaluation
import metrics
from evaluation import __main__ as command
from evaluation import outputs, selectable
from tests.builders import refused
from tests.evaluation._made import SPLITS, by_loops, evaluated, made_splits, options, points_of, splits_with_roles
from tests.metrics._plain import plain_hierarchical, random_levels
from utilities.errors import UserError

HIERARCHICAL = ["h_ap", "asi", "ndcg"]
NAMES = [*HIERARCHICAL, "e_recall@1", "e_recall@1_level1", "map_r_level2"]


def with_levels(splits, higher=None):
    """The splits with a third level: all classes but f in one."""
    for dataset in {id(dataset): dataset for dataset in splits.values()}.values():
        above = higher or {"first": "one", "second": "two"}
        dataset.lineages = {(name, parent, above[parent]) for name, parent, *_ in dataset.lineages}
    return splits


def shared(splits, one, other):
    """How many levels two images, (split, row) each, share."""
    lines = []
    for split, row in (one, other):
        dataset = splits[SPLITS[split]]
        lines.append(next(line for line in dataset.lineages if line[0] == dataset.names[row]))
    return sum(a == b for a, b in zip(*lines, strict=True))


@pytest.mark.parametrize("reference", ["compared_to_self", "compared_to_sets_combined", "compared_to_training_set"])
def test_levels_of_a_data_set_with_roles_and_sequences(reference):
    splits = with_levels(splits_with_roles(4, everywhere=True))
    scores, _, network = evaluated(splits, "--evaluation_metrics", *NAMES, "nmi", "--eval_reference_set", reference, "--splits_to_eval", "val", "test")
    sources = {"compared_to_self": ["test"], "compared_to_sets_combined": ["val", "test"], "compared_to_training_set": ["train"]}[reference]
    expected, orders = by_loops(splits, "test", sources, points_of(splits, network))
    assert scores["test"]["e_recall@1"] == pytest.approx(expected["e_recall@1"], abs=1e-12)
    for name in HIERARCHICAL:
        values = []
        for row, found in orders.items():
            levels = [shared(splits, ("test", row), one) for one in found]
            counts = "test" in sources and bool(splits["testing"].is_gallery[row])
            values.append(plain_hierarchical(name, levels, 3, counts))
        assert scores["test"][name] == pytest.approx(np.nanmean(values), abs=1e-9), name
    first = [float(bool(found) and shared(splits, ("test", row), found[0]) >= 2) for row, found in orders.items()]
    assert scores["test"]["e_recall@1_level1"] == pytest.approx(np.mean(first))


def test_dumped_embeddings_hold_their_levels(tmp_path):
    splits = with_levels(splits_with_roles(2))
    scores, embedded, _ = evaluated(splits, "--evaluation_metrics", *NAMES, "--splits_to_eval", "val", "test")
    path = outputs.dump(tmp_path, embedded, options("--dump_embeddings", "--splits_to_eval", "val", "test"))[-1]
    assert np.load(path)["higher_names"].shape == (36, 1)
    found = command.main([str(path), "--evaluation_metrics", *NAMES])
    assert {name: found[name] for name in NAMES} == pytest.approx({name: scores["test"][name] for name in NAMES}, abs=1e-12)


FEATURES, LABELS = random_levels(0, 70)
IN_ALL = metrics.compute(NAMES, FEATURES, LABELS)
IN_GALLERY = metrics.compute(NAMES, FEATURES[:25], LABELS[:25], FEATURES[25:], LABELS[25:])


def measured(folder, *words, names=NAMES, **arrays):
    np.savez(folder / "file.npz", **arrays)
    return command.main([str(folder / "file.npz"), "--evaluation_metrics", *names, *words])


@pytest.mark.parametrize("kind", ["numbers", "names"])
def test_a_file_with_labels_of_levels(tmp_path, capsys, kind):
    labels = LABELS if kind == "numbers" else np.char.add("c", LABELS.astype(str))
    given = {"features": FEATURES, "labels": labels}
    assert measured(tmp_path, **given) == IN_ALL
    assert f"70 embeddings of 3 dimensions, {len(set(LABELS[:, 0].tolist()))} classes" in capsys.readouterr().out
    assert measured(tmp_path, features=FEATURES[:25], labels=labels[:25], reference_features=FEATURES[25:], reference_labels=labels[25:]) == IN_GALLERY
    is_query = np.arange(70) < 25
    found = measured(tmp_path, **given, is_query=is_query, is_gallery=~is_query, names=[*NAMES, "nmi"])
    assert {name: found[name] for name in NAMES} == IN_GALLERY
    np.savez(tmp_path / "gallery.npz", features=FEATURES[25:], labels=labels[25:])
    given = {"features": FEATURES[:25], "labels": labels[:25]}
    assert measured(tmp_path, "--gallery", str(tmp_path / "gallery.npz"), **given) == IN_GALLERY
    again = ("--rerank", "k_reciprocal", "--rerank_k1", "6", "--rerank_k2", "3")
    reranked = metrics.compute(NAMES, FEATURES, LABELS, rerank=metrics.KReciprocal(6, 3))
    assert measured(tmp_path, *again, features=FEATURES, labels=labels) == reranked
    for array, name in ((FEATURES, "features"), (labels, "labels")):
        np.save(tmp_path / f"{name}.npy", array)
    words = [str(tmp_path / "features.npy"), "--labels", str(tmp_path / "labels.npy"), "--evaluation_metrics", *NAMES]
    assert command.main(words) == IN_ALL


def test_super_classes_of_a_file_are_levels_too(tmp_path):
    given = {"features": FEATURES, "labels": LABELS[:, 0], "groups": LABELS[:, 1]}
    assert measured(tmp_path, **given, higher_names=LABELS[:, 2:]) == IN_ALL
    names = ["h_ap", "e_recall@1_level1"]
    assert measured(tmp_path, **given, names=names) == metrics.compute(names, FEATURES, LABELS[:, :2])
    plain = measured(tmp_path, **given, names=["e_recall@1", "e_recall@1_group_gap"])
    assert plain == metrics.compute(list(plain), FEATURES, LABELS[:, 0], groups=LABELS[:, 1])


def test_a_file_without_fitting_levels_is_refused_in_one_line(tmp_path):
    crossed = np.stack([np.arange(70) % 5, np.arange(70) % 3], 1)
    given, other = {"features": FEATURES, "labels": LABELS}, tmp_path / "gallery.npz"
    np.savez(other, features=FEATURES, labels=LABELS[:, 0], groups=np.char.add("c", LABELS[:, 1].astype(str)))
    of_gallery = ["--gallery", str(other)]
    for words, arrays, message in (
        ([], {"labels": LABELS[:, 0]}, "compares levels of classes, and labels have a single level"),
        ([], {"labels": crossed}, "levels do not nest: 0 of level 0 is in"),
        ([], {"labels": LABELS.T}, r"labels have shape \(3, 70\)"),
        ([], {"reference_features": FEATURES, "reference_labels": LABELS[:, 0]}, "labels have a single level"),
        ([], {"labels": LABELS[:, 0], "groups": LABELS[:9, 1]}, "groups have shape"),
        ([], {"positive_indptr": np.arange(71), "positive_indices": np.roll(np.arange(70), 1)}, "lists have a single level"),
        (of_gallery, {}, "levels of numbers beside levels of names"),
        (of_gallery, {"labels": LABELS[:, 0]}, "labels have a single level"),
    ):
        with refused(message):
            measured(tmp_path, *words, **given | arrays)


@pytest.mark.parametrize("flags,levels,message", [
    ([], None, "metric 'h_ap' compares levels of classes, and the classes of --dataset made have a single level"),
    ([], {"first": "", "second": "two"}, "--evaluation_metrics h_ap: --dataset made: b has no class of level 2"),
    (["--label_hierarchy_level", "1"], {"first": "one", "second": "two"}, "leave out --label_hierarchy_level 1"),
    (["--tester", "same_parent_label"], {"first": "one", "second": "two"}, "leave out --tester same_parent_label"),
])  # fmt: skip
def test_data_without_fitting_levels_are_refused_before_training(flags, levels, message):
    splits = made_splits(parents=levels is not None)
    splits = splits if levels is None else with_levels(splits, levels)
    with refused(None, message):
        evaluation.loaders(splits, options("--evaluation_metrics", "e_recall@1", "h_ap", "--splits_to_eval", "train", "val", *flags))


def test_a_class_in_two_super_classes_is_refused_before_training():
    splits = with_levels(made_splits())
    splits["testing"].lineages |= {("i", "first", "one"), ("i", "second", "two")}
    opt = options("--evaluation_metrics", "e_recall@1", "ndcg", "--splits_to_eval", "val", "test")
    with pytest.raises(UserError, match="levels do not nest: i of level 0 is in first and second of level 1"):
        evaluation.loaders(splits, opt)
    evaluation.loaders(splits, options("--splits_to_eval", "val", "test"))


def test_an_epoch_is_chosen_by_what_can_vary():
    """By super-classes where no class has two images; by levels within one super-class."""
    splits = with_levels(made_splits())
    val = splits["validation"]
    val.names = [f"{name}{i}" for i, name in enumerate(val.names)]
    lines = {name[0]: name[1:] for name in val.lineages}
    val.lineages = {(name, *lines[name[0]]) for name in val.names}
    val.labels, val.class_names = np.arange(len(val.names)), dict(enumerate(val.names))
    val.super_labels = {label: lines[name[0]][0] for label, name in val.class_names.items()}
    val.image_list = list(zip(val.paths, range(len(val.names)), strict=True))
    for metric, message in (("e_recall@1", "a single image of each"), ("e_recall@1_level1", None), ("h_ap", None)):
        opt = options("--storage_metrics", metric, "--evaluation_metrics", metric, "--splits_to_eval", "val")
        with contextlib.nullcontext() if message is None else pytest.raises(UserError, match=message):
            selectable.check({"val": val}, opt)
    scores, *_ = evaluated(splits, "--evaluation_metrics", "e_recall@1", "h_ap", "e_recall@1_level1", "--splits_to_eval", "val")
    assert 0 < scores["val"]["h_ap"] < 1
