"""Training and validation are disjoint, labels begin at 0, whatever the data set and the way of cutting."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import datasets
from datasets import _splits
from datasets._images import Image
from tests.datasets.test_layouts import MAKERS, check_split
from utilities.errors import UserError


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
    training = {f"c{c}": [Image(f"{c}/{i}", f"c{c}") for i in range(size)] for c, size in enumerate(sizes)}
    n_training = math.floor(round(len(sizes) * part, 5))
    if 0 < n_training < len(sizes):
        first, rest = _splits.cut_by_classes(training, part)
        assert list(first) == list(training)[:n_training] and list(rest) == list(training)[n_training:]
    else:
        with pytest.raises(UserError, match="--tv_split_perc"):
            _splits.cut_by_classes(training, part)
    expected = {name: max(1, math.floor(round(len(images) * part, 5))) for name, images in training.items()}
    if all(expected[name] == len(images) for name, images in training.items()):
        with pytest.raises(UserError, match="--tv_split_perc"):
            _splits.cut_by_samples(training, part)
        return
    first, rest = _splits.cut_by_samples(training, part)
    assert {name: len(images) for name, images in first.items()} == expected
    assert all(rest.values()) and all(first[name] + rest.get(name, []) == training[name] for name in training)


def test_shares_are_not_at_the_mercy_of_floats():
    assert [_splits.share(100, part / 100) for part in range(101)] == list(range(101))


def test_impossible_splits(folder_data):
    flags = {"dataset_folder_path": str(folder_data), "use_tv_split": True}
    for part in (0.0, 1.0, 1.5, -0.2):
        with pytest.raises(UserError, match="--tv_split_perc"):
            datasets.select("folder", tv_split_perc=part, **flags)
    with pytest.raises(UserError, match="at least one"):
        datasets.select("folder", tv_split_perc=0.1, **flags)
