"""What holds for every sampler, without naming any."""

import io
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import datasampler
from tests.kit.refusals import refused
from tests.kit.samplers import SIZES, labels_of, make_data, make_sampler
from utilities.errors import UnknownName

MODULES = datasampler.REGISTRY.modules()
FLAGS = {"bs": 12, "samples_per_class": 3, "data_batchmatch_bigbs": 40}
FLAGS |= {"data_fixed_triplets_n": 20, "data_hard_triplets_share": 1.0}
# a batch of these may hold no two images of one class
WITHOUT_POSITIVES = {"shuffle"}


def generators():
    """States of the generators that no sampler draws from."""
    return random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]  # noqa: NPY002


@pytest.mark.parametrize("name", MODULES)
def test_every_sampler_keeps_the_contract(name):
    """Batches of bs indices, of groups and with positives where it says so; they are the seed's."""
    module = MODULES[name]
    labels = labels_of(SIZES)
    states = generators()
    assert len(datasampler.REGISTRY.caption(name)) > 20
    sampler = make_sampler(name, SIZES, **FLAGS)
    assert isinstance(sampler, torch.utils.data.Sampler)
    # class_groups fills the last group of each class, so that it has more batches
    assert len(sampler) in (65 // 12, 65 // 12 + 1) or name == "class_groups"

    def epoch(seed=None):
        if seed is not None:
            torch.manual_seed(seed)
        sampler.precompute_indices()
        loader = torch.utils.data.DataLoader(torch.arange(65), batch_sampler=sampler)
        return [batch.tolist() for batch in loader]

    first = epoch(3)
    second = epoch()
    assert epoch(3) == first != second == epoch() and epoch(4) != first
    for batches in (first, second, epoch(), epoch()):
        assert len(batches) == len(sampler)
        for batch in batches[: 65 // 12]:
            assert len(batch) == 12 and min(batch) >= 0 and max(batch) < 65
            assert name in WITHOUT_POSITIVES or len(labels[batch].unique()) < 12
            groups = labels[batch].view(4, 3)
            assert not module.USES_SAMPLES_PER_CLASS or (groups == groups[:, :1]).all()
    assert all(type(index) is int for batch in sampler for index in batch)
    assert generators() == states
    if module.USES_SAMPLES_PER_CLASS:
        with refused("--bs 12 is not a multiple of --samples_per_class 5"):
            make_sampler(name, SIZES, **{**FLAGS, "samples_per_class": 5})
    with refused("--bs 66 .* 65 training images"):
        make_sampler(name, SIZES, bs=66, samples_per_class=2)


@pytest.mark.parametrize("name", MODULES)
def test_every_sampler_takes_any_names_and_a_saved_state(name):
    image_dict, image_list = make_data(SIZES)
    renamed = {"empty": [], **{("class", label): entries for label, entries in image_dict.items()}}
    first, second = (datasampler.select(name, None, renamed, image_list, **FLAGS) for _ in range(2))
    for sampler in (first, second):
        sampler.set_super_labels({label: "all" for label in renamed})
    storage = {"storage": torch.full((65, 6), 0.3)} if first.requires_storage else {}
    first.load_state_dict(storage)
    first.precompute_indices()
    assert {*sum(first, [])} <= {*range(65)}
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    epochs = []
    for sampler in (first, second):
        sampler.replace_storage_entries(torch.ones(2, 6), torch.tensor([3, 5]))
        torch.manual_seed(1)
        sampler.precompute_indices()
        epochs.append(list(sampler))
    assert epochs[0] == epochs[1]


@pytest.mark.parametrize(
    "name", [name for name, module in MODULES.items() if not getattr(module, "GIVES_TRIPLETS", False)]
)
def test_degenerate_data(name):
    """One image a class, one class, as many images as a batch holds, a class larger than all others."""
    cases = [([1] * 12, 4, 2), ([1] * 12, 12, 1), ([2, 1, 1], 4, 2), ([30], 2, 2)]
    cases += [([5, 1], 6, 3), ([3] * 4, 8, 2), ([1, 40], 4, 2), ([2] * 8, 9, 3)]
    for sizes, bs, m in cases:
        sampler = make_sampler(name, sizes, bs=bs, samples_per_class=m)
        labels = labels_of(sizes)
        sampler.precompute_indices()
        batches = list(sampler)
        assert len(batches) == len(sampler) >= 1, sizes
        for batch in batches[: len(labels) // bs]:
            assert len(batch) == bs and min(batch) >= 0 and max(batch) < len(labels), sizes
        if MODULES[name].USES_SAMPLES_PER_CLASS:
            for group in torch.tensor(batches).view(-1, m):
                assert len(labels[group].unique()) == 1, sizes
                distinct = min(int((labels == labels[group[0]]).sum()), m)
                # the published class_random draws with replacement
                assert name == "class_random" or len(group.unique()) >= distinct, sizes


def test_flags_are_read_and_refused(capsys):
    for index in (-1, 4):
        with pytest.raises(ValueError, match="outside of image_list"):
            datasampler.select("class_random", None, {0: [["a", 0], ["b", index]]}, [("a", 0)] * 4, bs=2)
    assert capsys.readouterr().out == ""
    for flag in ({"data_idx_full_prec": True}, {"data_sim_measure": "cosine"}):
        make_sampler("class_random", SIZES, **FLAGS, **flag)
        printed = capsys.readouterr().out
        assert "steer nothing" in printed and printed.count("\n") == 1
    with pytest.raises(UnknownName, match="Did you mean 'class_balanced'"):
        datasampler.select("class_balance", None, *make_data(SIZES))
    opt = SimpleNamespace(bs=8, samples_per_class=2)
    sampler = datasampler.select("class_random", opt, *make_data(SIZES), samples_per_class=4)
    assert (sampler.batch_size, sampler.classes_per_batch) == (8, 2)
    for name in ("class_balanced", "hierarchical"):
        with refused("takes 4 distinct classes, the training data hold 3"):
            make_sampler(name, [5, 5, 5], bs=8, samples_per_class=2)
    with refused("--bs 1 holds no pair"):
        make_sampler("full_random", SIZES, bs=1)
