"""Training and validation are disjoint, labels begin at 0, whatever the data set and the way of cutting."""

import math
from argparse import Namespace
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import datasets
from datasets import _cars196_classes, _schemes, _splits, cars196
from datasets._images import Image
from tests import builders
from tests.datasets.test_layouts import MAKERS, check_split
from utilities.errors import UserError


def made(sizes):
    """Classes of so many images."""
    return {f"c{c}": [Image(f"{c}/{i}", f"c{c}") for i in range(size)] for c, size in enumerate(sizes)}


@pytest.mark.parametrize(("name", "layout"), MAKERS)
@pytest.mark.parametrize("by_samples", [False, True])
def test_tv_split_of_every_data_set(tmp_path, name, layout, by_samples):
    MAKERS[name, layout](tmp_path, layout=layout)
    whole = datasets.select(name, None, tmp_path, 64, allow_partial_dataset=True)
    flags = {"use_tv_split": True, "tv_split_by_samples": by_samples, "tv_split_perc": 0.5, "allow_partial_dataset": True}
    splits = datasets.select(name, None, tmp_path, 64, **flags)
    n, of_class = whole["training"].n_classes, len(whole["training"].image_dict[0])
    training, validation = splits["training"], splits["validation"]
    if by_samples:
        check_split(training, n, n * of_class // 2)
        check_split(validation, n, n * of_class // 2)
        assert training.class_names == validation.class_names
        for label, entries in whole["training"].image_dict.items():
            paths = [path for path, _ in entries]
            assert [path for path, _ in training.image_dict[label]] == paths[: of_class // 2]
            assert [path for path, _ in validation.image_dict[label]] == paths[of_class // 2 :]
    else:
        check_split(training, n // 2, n * of_class // 2)
        check_split(validation, n // 2, n * of_class // 2)
        assert list(training.class_names.values()) == list(whole["training"].class_names.values())[: n // 2]
        assert list(validation.class_names.values()) == list(whole["training"].class_names.values())[n // 2 :]
    assert not set(training.paths) & set(validation.paths)
    assert sorted(training.paths + validation.paths) == sorted(whole["training"].paths)
    assert splits["testing"].image_list == whole["testing"].image_list
    assert splits["evaluation"].image_list == training.image_list
    assert splits["evaluation"].transforms_as_resolved == validation.transforms_as_resolved != training.transforms_as_resolved


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.floats(0.01, 0.99))
def test_cuts(sizes, part):
    training, opt = made(sizes), Namespace(tv_split_perc=part, split_shuffle=None)
    n_training = math.floor(round(len(sizes) * part, 5))
    if 0 < n_training < len(sizes):
        first, rest = _splits.cut_by_classes(training, opt)
        assert list(first) == list(training)[:n_training] and list(rest) == list(training)[n_training:]
    else:
        with pytest.raises(UserError, match="--tv_split_perc"):
            _splits.cut_by_classes(training, opt)
    expected = {name: max(1, math.floor(round(len(images) * part, 5))) for name, images in training.items()}
    if all(expected[name] == len(images) for name, images in training.items()):
        with pytest.raises(UserError, match="--tv_split_perc"):
            _splits.cut_by_samples(training, opt)
        return
    first, rest = _splits.cut_by_samples(training, opt)
    assert {name: len(images) for name, images in first.items()} == expected
    assert all(rest.values()) and all(first[name] + rest.get(name, []) == training[name] for name in training)


@given(st.lists(st.integers(1, 12), min_size=2, max_size=40), st.floats(0.1, 0.9), st.integers(0, 99))
def test_mixed_cuts_are_as_large_and_in_the_same_order(sizes, part, seed):
    training = made(sizes)
    plain, mixed = (Namespace(tv_split_perc=part, split_shuffle=shuffle) for shuffle in (None, seed))
    for cut in (_splits.cut_by_classes, _splits.cut_by_samples):
        try:
            expected = cut(training, plain)
        except UserError:
            continue
        found = cut(training, mixed)
        for theirs, ours in zip(expected, found, strict=True):
            assert sum(map(len, theirs.values())) == sum(map(len, ours.values())) or cut is _splits.cut_by_classes
            assert len(theirs) == len(ours) and list(ours) == [name for name in training if name in ours]
            assert all(images == [image for image in training[name] if image in images] for name, images in ours.items())
        assert found == cut(training, mixed), "the same seed, the same split"


def test_stanford_online_products_is_cut_inside_each_category(tmp_path):
    builders.make_online_products(tmp_path, n_train=120, n_images=1, size=(8, 8))
    splits = datasets.select("online_products", None, tmp_path, allow_partial_dataset=True, use_tv_split=True, tv_split_perc=0.85)
    found = {split: Counter(splits[split].super_labels.values()) for split in ("training", "validation")}
    assert found["training"] == dict.fromkeys(builders.PRODUCTS, 8)  # int(.85 * 10), as the ICML code
    assert found["validation"] == dict.fromkeys(builders.PRODUCTS, 2)
    ids = {split: [int(name[:5]) for name in splits[split].class_names.values()] for split in found}
    expected = [c for c in range(1, 121) if (c - 1) % 10 < 8]
    assert ids["training"] == expected and ids["validation"] == [c for c in range(1, 121) if c not in expected]


def test_categories_too_small_to_be_cut_are_cut_together():
    training = made([1] * 9)
    groups = [["c0", "c1", "c2", "c3"], ["c4"], ["c5"], ["c6"], ["c7", "c8"]]
    first, rest = _splits.cut_by_classes(training, Namespace(tv_split_perc=0.5, split_shuffle=None), groups)
    assert (list(first), list(rest)) == (["c0", "c1", "c4", "c7"], ["c2", "c3", "c5", "c6", "c8"])


def test_validation_of_cars_is_cut_by_name_as_in_the_icml_code():
    names = _cars196_classes.NAMES[:98]
    training = {name: [Image(name, name)] for name in names}
    opt = Namespace(tv_split_perc=0.8, split_shuffle=None)
    first, rest = _splits.cut_by_classes(training, opt, cars196.validation_groups(names))
    assert set(first) == set(sorted(names)[:78]) and list(first) == [name for name in names if name in first]
    assert len(set(first) - set(names[:78])) == 2 and {name.split()[0] for name in set(first) ^ set(names[:78])} == {"Chrysler"}


def test_shares_are_not_at_the_mercy_of_floats():
    assert [_splits.share(100, part / 100) for part in range(101)] == list(range(101))


def test_impossible_splits(folder_data):
    flags = {"dataset_folder_path": str(folder_data), "use_tv_split": True}
    for part in (0.0, 1.0, 1.5, -0.2):
        with pytest.raises(UserError, match="--tv_split_perc"):
            datasets.select("folder", tv_split_perc=part, **flags)
    with pytest.raises(UserError, match="at least one"):
        datasets.select("folder", tv_split_perc=0.1, **flags)


BLOCKS = [f"{category}_{i:02d}" for category in "abcd" for i in range(6)]  # 24 sorted names in four categories


def categories(split):
    return {name[0] for name in split.class_names.values()}


@pytest.mark.parametrize("flags", [
    {}, {"use_tv_split": True, "tv_split_perc": 0.5}, {"split_scheme": "class_disjoint"}, {"split_scheme": "mlrc"},
])  # fmt: skip
def test_shuffled_splits_hold_every_category_and_are_repeatable(tmp_path, flags):
    root = builders.make_folder(tmp_path / "things", names=BLOCKS, n_images=2, size=(8, 8))
    flags = {"dataset_folder_path": str(root), **flags}
    blocks, mixed, again, other = (datasets.select("folder", split_shuffle=seed, **flags) for seed in (None, 7, 7, 8))
    assert "--split_shuffle" in datasets.describe(blocks) and "mixed" in datasets.describe(mixed)
    assert categories(blocks["training"]).isdisjoint(categories(blocks["testing"]))
    assert len(categories(mixed["training"])) > len(categories(blocks["training"])) - flags.get("use_tv_split", False)
    assert len(categories(mixed["testing"])) > 2
    assert mixed["training"].image_list == again["training"].image_list != other["training"].image_list
    for split in ("training", "validation", "testing"):
        if mixed[split] is not None:
            assert mixed[split].counts == blocks[split].counts
            assert list(mixed[split].class_names.values()) == sorted(mixed[split].class_names.values())


def test_a_new_class_moves_no_other():
    names = [f"class {i}" for i in range(50)]
    order = [names[i] for i in _schemes.mixed(names, 3)]
    more = [*names[:20], "one more", *names[20:]]
    assert [name for name in (more[i] for i in _schemes.mixed(more, 3)) if name != "one more"] == order
    assert sorted(order) == sorted(names) != order


@pytest.mark.parametrize(
    "flags", [{"use_tv_split": True, "tv_split_perc": 0.5}, {"split_scheme": "class_disjoint", "split_partitions": 2, "split_sets": 2}]
)
def test_a_published_test_set_is_never_shuffled(tmp_path, flags):
    builders.make_cub200(tmp_path, n_classes=24, n_images=2, size=(8, 8))
    plain, mixed = (
        datasets.select("cub200", None, tmp_path, allow_partial_dataset=True, split_shuffle=seed, **flags) for seed in (None, 5)
    )
    assert mixed["testing"].image_list == plain["testing"].image_list
    assert set(mixed["training"].paths) != set(plain["training"].paths) and len(mixed["training"]) == len(plain["training"])
    assert set(mixed["training"].paths) | set(mixed["validation"].paths) == set(plain["training"].paths) | set(plain["validation"].paths)


def test_shuffling_images_and_what_cannot_be_shuffled(tmp_path, folder_data):
    flags = {"dataset_folder_path": str(folder_data), "split_sets": 2, "split_partitions": 2}
    for scheme in ("closed_set", "index"):
        plain, mixed = (datasets.select("folder", split_scheme=scheme, split_shuffle=seed, **flags) for seed in (None, 2))
        for split in ("training", "validation", "testing"):
            assert len(plain[split]) == len(mixed[split]) and set(plain[split].paths) != set(mixed[split].paths)
            if scheme == "closed_set":
                assert Counter(label for _, label in plain[split].image_list) == Counter(label for _, label in mixed[split].image_list)
    file = tmp_path / "splits.json"
    file.write_text('{"train": ["class_0"], "test": ["class_1"]}')
    with pytest.raises(UserError, match="--split_shuffle 1"):
        datasets.select("folder", split_scheme="predefined", split_file=str(file), split_shuffle=1, **flags)
