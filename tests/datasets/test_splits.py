"""Training and validation are disjoint, labels begin at 0, however they are cut; and the order in which is cut."""

import math
from argparse import Namespace
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import datasets
from datasets import _cars196_classes, _schemes, _splits, cars196
from datasets._images import Image
from datasets._layout import Reading
from tests.datasets.layouts import names, partial, read_folder
from tests.kit.data_sets import PRODUCTS, make_cub200, make_folder, make_online_products
from tests.kit.refusals import refused
from utilities.errors import UserError


def classes_of(sizes):
    """Classes of so many images."""
    return {f"c{c}": [Image(f"{c}/{i}", f"c{c}") for i in range(size)] for c, size in enumerate(sizes)}


def cutting(part, shuffle=None):
    return Namespace(tv_split_perc=part, split_shuffle=shuffle)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.floats(0.01, 0.99))
def test_cuts(sizes, part):
    assert [_splits.share(100, part / 100) for part in range(101)] == list(range(101)), "not at the mercy of floats"
    training = classes_of(sizes)
    opt = cutting(part)
    n_training = math.floor(round(len(sizes) * part, 5))
    if 0 < n_training < len(sizes):
        first, validation = _splits.cut_by_classes(training, opt)
        assert list(first) == list(training)[:n_training] and list(validation) == list(training)[n_training:]
    else:
        with refused("--tv_split_perc"):
            _splits.cut_by_classes(training, opt)
    expected = {name: max(1, math.floor(round(len(images) * part, 5))) for name, images in training.items()}
    if all(expected[name] == len(images) for name, images in training.items()):
        with refused("--tv_split_perc"):
            _splits.cut_by_samples(training, opt)
        return
    first, validation = _splits.cut_by_samples(training, opt)
    assert {name: len(images) for name, images in first.items()} == expected
    assert all(validation.values())
    assert all(first[name] + validation.get(name, []) == training[name] for name in training)


@given(st.lists(st.integers(1, 12), min_size=2, max_size=40), st.floats(0.1, 0.9), st.integers(0, 99))
def test_mixed_cuts_are_as_large_and_in_the_same_order(sizes, part, seed):
    training = classes_of(sizes)
    for cut in (_splits.cut_by_classes, _splits.cut_by_samples):
        try:
            expected = cut(training, cutting(part))
        except UserError:
            continue
        parts = cut(training, cutting(part, seed))
        for theirs, ours in zip(expected, parts, strict=True):
            assert sum(map(len, theirs.values())) == sum(map(len, ours.values())) or cut is _splits.cut_by_classes
            assert len(theirs) == len(ours) and list(ours) == [name for name in training if name in ours]
            for name, images in ours.items():
                assert images == [image for image in training[name] if image in images]
        assert parts == cut(training, cutting(part, seed)), "the same seed, the same split"


def test_products_are_cut_by_category_and_cars_by_name(tmp_path):
    make_online_products(tmp_path, n_train=120, n_images=1, size=(8, 8))
    splits = partial("online_products", tmp_path, use_tv_split=True, tv_split_perc=0.85)
    # int(.85 * 10) of the ten classes of a category train
    for split, places in (("training", range(8)), ("validation", (8, 9))):
        assert Counter(splits[split].super_labels.values()) == dict.fromkeys(PRODUCTS, len(places))
        assert [int(name[:5]) for name in names(splits)[split]] == [c + 1 for c in range(120) if c % 10 in places]
    cars = _cars196_classes.NAMES[:98]
    classes = {name: [Image(name, name)] for name in cars}
    first, _ = _splits.cut_by_classes(classes, cutting(0.8), cars196.validation_groups(cars))
    assert set(first) == set(sorted(cars)[:78]) and list(first) == [name for name in cars if name in first]
    assert len(set(first) - set(cars[:78])) == 2
    assert {name.split()[0] for name in set(first) ^ set(cars[:78])} == {"Chrysler"}
    # those too small to be cut are cut together
    groups = [["c0", "c1", "c2", "c3"], ["c4"], ["c5"], ["c6"], ["c7", "c8"]]
    first, validation = _splits.cut_by_classes(classes_of([1] * 9), cutting(0.5), groups)
    assert (list(first), list(validation)) == (["c0", "c1", "c4", "c7"], ["c2", "c3", "c5", "c6", "c8"])


@pytest.mark.parametrize("flags", [{}, {"use_tv_split": True, "tv_split_perc": 0.5}, {"split_scheme": "mlrc"}])
def test_shuffled_splits_hold_every_category_and_are_repeatable(tmp_path, flags):
    # 24 sorted names in four categories
    blocks = [f"{category}_{i:02d}" for category in "abcd" for i in range(6)]
    root = make_folder(tmp_path / "things", names=blocks, n_images=2, size=(8, 8))
    plain, mixed, mixed_again, of_other_seed = (
        read_folder(root, split_shuffle=seed, **flags) for seed in (None, 7, 7, 8)
    )

    def categories(splits, split):
        return {name[0] for name in names(splits)[split]}

    plain_categories = categories(plain, "training")
    assert plain_categories.isdisjoint(categories(plain, "testing"))
    assert "is shuffled before the split" in datasets.describe(mixed)
    assert len(categories(mixed, "training")) > len(plain_categories) - flags.get("use_tv_split", False)
    assert len(categories(mixed, "testing")) > 2
    assert mixed["training"].image_list == mixed_again["training"].image_list != of_other_seed["training"].image_list
    for split, of_split in names(mixed).items():
        assert mixed[split].counts == plain[split].counts and of_split == sorted(of_split)
    # a new class moves no other
    longer = [*blocks[:20], "one more", *blocks[20:]]
    order = [[block_names[i] for i in _schemes.mixed(block_names, 3)] for block_names in (blocks, longer)]
    assert [name for name in order[1] if name != "one more"] == order[0] != blocks


def test_what_is_shuffled_and_what_is_not(tmp_path, folder_data):
    make_cub200(tmp_path, n_classes=24, n_images=2, size=(8, 8))
    for flags in (
        {"use_tv_split": True, "tv_split_perc": 0.5},
        {"split_scheme": "class_disjoint", "split_partitions": 2, "split_sets": 2},
    ):
        plain, mixed = (partial("cub200", tmp_path, split_shuffle=seed, **flags) for seed in (None, 5))
        assert mixed["testing"].image_list == plain["testing"].image_list, "a published test set"
        paths, mixed_paths = (splits["training"].paths for splits in (plain, mixed))
        assert set(mixed_paths) != set(paths) and len(mixed_paths) == len(paths)
        assert {*mixed_paths, *mixed["validation"].paths} == {*paths, *plain["validation"].paths}
    flags = {"split_sets": 2, "split_partitions": 2}
    for scheme in ("closed_set", "index"):
        plain, mixed = (
            read_folder(folder_data, split_scheme=scheme, split_shuffle=seed, **flags) for seed in (None, 2)
        )
        for split in ("training", "validation", "testing"):
            assert len(plain[split]) == len(mixed[split]) and set(plain[split].paths) != set(mixed[split].paths)
            labels = [Counter(label for _, label in splits[split].image_list) for splits in (plain, mixed)]
            assert scheme == "index" or labels[0] == labels[1]


def test_roles_stay_but_under_oodml():
    """Which divides all classes anew; the note is said once."""
    before = [Image("a", "x", is_gallery=False), Image("b", "x", is_query=False)]
    for scheme, stay in (("half", True), ("class_disjoint", True), ("oodml", False)):
        reading = Reading(before, split_of=["test", "test"])
        for _ in range(2):
            images = _splits._without_roles(before, reading, Namespace(split_scheme=scheme))
        assert images == (before if stay else [Image("a", "x"), Image("b", "x")])
        assert len(reading.notes) == (not stay)
