"""What holds for every sampler, without naming any."""

import io
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import datasampler
from tests.datasampler.made import draw, labels_of, make_data, make_sampler
from utilities.errors import UnknownName, UserError

NAMES = datasampler.REGISTRY.names()
SIZES = [9, 4, 7, 1, 12, 5, 3, 8, 6, 10]  # 65 images
FLAGS = {"bs": 12, "samples_per_class": 3, "data_batchmatch_bigbs": 40, "data_fixed_triplets_n": 20, "data_hard_triplets_share": 1.0}


def constant(name, constant):
    return getattr(datasampler.REGISTRY.module(name), constant)


def gives_triplets(name):
    return getattr(datasampler.REGISTRY.module(name), "GIVES_TRIPLETS", False)


@pytest.mark.parametrize("name", NAMES)
def test_contract(name):
    assert isinstance(constant(name, "USES_SAMPLES_PER_CLASS"), bool)
    assert isinstance(constant(name, "GUARANTEES_POSITIVES"), bool)
    assert len(datasampler.REGISTRY.caption(name)) > 20
    sampler = make_sampler(name, SIZES, **FLAGS)
    assert isinstance(sampler, torch.utils.data.Sampler)
    sampler.precompute_indices()
    batches = list(sampler)
    assert len(batches) == len(sampler) and len(sampler) in (65 // 12, 65 // 12 + 1)
    for batch in batches[: 65 // 12]:
        assert isinstance(batch, list) and len(batch) == 12 and all(type(index) is int and 0 <= index < 65 for index in batch)


@pytest.mark.parametrize("name", [name for name in NAMES if constant(name, "USES_SAMPLES_PER_CLASS")])
def test_composition(name):
    sampler, labels = make_sampler(name, SIZES, **FLAGS), labels_of(SIZES)
    for _ in range(5):
        groups = labels[draw(sampler)].view(-1, 4, 3)
        assert (groups == groups[..., :1]).all()
    with pytest.raises(UserError, match="--bs 12 is not a multiple of --samples_per_class 5"):
        make_sampler(name, SIZES, **{**FLAGS, "samples_per_class": 5})


@pytest.mark.parametrize("name", [name for name in NAMES if constant(name, "GUARANTEES_POSITIVES")])
def test_positives(name):
    sampler, labels = make_sampler(name, SIZES, **FLAGS), labels_of(SIZES)
    for batch in draw(sampler):
        assert len(labels[batch].unique()) < len(batch)


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_batches(name):
    sampler = make_sampler(name, SIZES, **FLAGS)

    def epoch(seed=None):
        if seed is not None:
            torch.manual_seed(seed)
        sampler.precompute_indices()
        return list(sampler)

    first, second = epoch(3), epoch()
    assert first != second
    assert epoch(3) == first and epoch() == second
    assert epoch(4) != first


@pytest.mark.parametrize("name", NAMES)
def test_only_torchs_generator_is_used(name):
    sampler = make_sampler(name, SIZES, **FLAGS)
    random.seed(0), np.random.seed(0)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].copy(), np.random.get_state()[2]  # noqa: NPY002
    draw_epoch = list(sampler) if not sampler.requires_storage else (sampler.precompute_indices(), list(sampler))
    assert draw_epoch
    assert random.getstate() == before[0]
    assert (np.random.get_state()[1] == before[1]).all() and np.random.get_state()[2] == before[2]  # noqa: NPY002


@pytest.mark.parametrize("name", NAMES)
def test_same_batches_for_any_number_of_workers(name):
    sampler = make_sampler(name, SIZES, **FLAGS)
    epochs = []
    for workers in (0, 2):
        torch.manual_seed(5)
        sampler.precompute_indices()
        loader = torch.utils.data.DataLoader(torch.arange(65), batch_sampler=sampler, num_workers=workers)
        epochs.append([batch.tolist() for batch in loader])
    assert epochs[0] == epochs[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_larger_than_the_data_is_refused(name):
    with pytest.raises(UserError, match="--bs 66 .* 65 training images"):
        make_sampler(name, SIZES, bs=66, samples_per_class=2)


@pytest.mark.parametrize("name", [name for name in NAMES if not gives_triplets(name)])  # those: test_triplets.py
@pytest.mark.parametrize(
    ("sizes", "bs", "m"),
    [
        *[([1] * 12, 4, 2), ([1] * 12, 12, 1), ([2, 1, 1], 4, 2), ([30], 2, 2)],
        *[([5, 1], 6, 3), ([3] * 4, 8, 2), ([1, 40], 4, 2), ([2] * 8, 9, 3)],
    ],
    ids=str,
)
def test_degenerate_data(name, sizes, bs, m):
    """One image a class, one class, as many images as a batch holds, a class larger than all others."""
    sampler = make_sampler(name, sizes, bs=bs, samples_per_class=m)
    sampler.precompute_indices()
    batches = list(sampler)
    labels = labels_of(sizes)
    assert len(batches) == len(sampler) >= 1
    for batch in batches[: len(labels) // bs]:
        assert len(batch) == bs and min(batch) >= 0 and max(batch) < len(labels)
    if constant(name, "USES_SAMPLES_PER_CLASS"):
        for group in torch.tensor(batches).view(-1, m):
            size = int((labels == labels[group[0]]).sum())
            assert len(labels[group].unique()) == 1
            if name != "class_random":  # the published one draws with replacement
                assert len(group.unique()) >= min(size, m)


@pytest.mark.parametrize("name", NAMES)
def test_identical_embeddings(name):
    sampler = make_sampler(name, SIZES, embeddings=torch.full((65, 6), 0.3), **FLAGS)
    sampler.precompute_indices()
    assert all(len(batch) == 12 for batch in list(sampler)[:5])


@pytest.mark.parametrize("name", NAMES)
def test_state_makes_the_round_trip(name):
    sampler = make_sampler(name, SIZES, **FLAGS)
    file = io.BytesIO()
    torch.save(sampler.state_dict(), file)
    file.seek(0)
    image_dict, image_list = make_data(SIZES)
    other = datasampler.select(name, None, image_dict, image_list, **FLAGS)
    other.set_super_labels({label: label % 2 for label in image_dict})
    other.load_state_dict(torch.load(file, weights_only=True))
    sampler.replace_storage_entries(torch.ones(2, 6), torch.tensor([3, 5]))
    other.replace_storage_entries(torch.ones(2, 6), torch.tensor([3, 5]))
    for seed in (0, 1):
        epochs = []
        for one in (sampler, other):
            torch.manual_seed(seed)
            one.precompute_indices()
            epochs.append(list(one))
        assert epochs[0] == epochs[1]


@pytest.mark.parametrize("name", NAMES)
def test_classes_of_any_name_and_empty_ones(name):
    image_dict, image_list = make_data(SIZES)
    renamed = {"empty": [], **{("class", label): entries for label, entries in image_dict.items()}}
    sampler = datasampler.select(name, None, renamed, image_list, **FLAGS)
    sampler.set_super_labels({label: "all" for label in renamed})
    sampler.load_state_dict({"storage": torch.randn(65, 4)} if sampler.requires_storage else {})
    sampler.precompute_indices()
    assert all(0 <= index < 65 for batch in sampler for index in batch)


def test_indices_outside_of_the_list_are_refused():
    for index in (-1, 4):
        with pytest.raises(ValueError, match="outside of image_list"):
            datasampler.select("class_random", None, {0: [["a", 0], ["b", index]]}, [("a", 0)] * 4, bs=2)


def test_flags_that_steer_nothing_say_so(capsys):
    make_sampler("class_random", SIZES, **FLAGS)
    assert capsys.readouterr().out == ""
    for flag in ({"data_idx_full_prec": True}, {"data_sim_measure": "cosine"}):
        make_sampler("class_random", SIZES, **FLAGS, **flag)
        printed = capsys.readouterr().out
        assert "steer nothing" in printed and printed.count("\n") == 1


def test_unknown_sampler_names_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'class_balanced'"):
        datasampler.select("class_balance", None, *make_data(SIZES))


def test_opt_is_read_and_flags_have_priority():
    sampler = datasampler.select("class_random", SimpleNamespace(bs=8, samples_per_class=2), *make_data(SIZES), samples_per_class=4)
    assert (sampler.batch_size, sampler.classes_per_batch) == (8, 2)
