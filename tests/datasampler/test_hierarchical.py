import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import datasampler
from tests.datasampler.made import draw, labels_of, make_data, make_sampler
from utilities.errors import UserError


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=3, max_size=14), st.integers(1, 3), st.data())
def test_a_super_class_is_used_up_before_another_continues(super_of, m, data):
    per_batch = data.draw(st.integers(1, len(super_of)))
    sizes = [3] * len(super_of)
    image_dict, image_list = make_data(sizes)
    sampler = datasampler.select("hierarchical", None, image_dict, image_list, bs=per_batch * m, samples_per_class=m)
    sampler.set_super_labels({label: f"super {number}" for label, number in enumerate(super_of)})
    labels, super_of = labels_of(sizes), torch.tensor(super_of)
    for batch in draw(sampler, seed=0):
        classes = labels[batch.view(per_batch, m)]
        assert (classes == classes[:, :1]).all()
        assert len(classes[:, 0].unique()) == per_batch
        assert all(len(group.unique()) == m for group in batch.view(per_batch, m))
        supers = super_of[classes[:, 0]]
        order = list(dict.fromkeys(supers.tolist()))
        assert sorted(supers.tolist(), key=order.index) == supers.tolist()  # one after the other
        for number in order[:-1]:
            assert (supers == number).sum() == (super_of == number).sum()


def test_super_classes_come_by_their_share_of_classes_and_classes_uniformly():
    sizes = [4] * 10
    image_dict, image_list = make_data(sizes)
    sampler = datasampler.select("hierarchical", None, image_dict, image_list, bs=4, samples_per_class=2)
    sampler.set_super_labels({label: label >= 8 for label in range(10)})
    torch.manual_seed(0)
    classes = labels_of(sizes)[torch.cat([draw(sampler) for _ in range(300)])].view(-1, 2, 2)[..., 0]
    first_is_large = int((classes[:, 0] < 8).sum())
    assert chisquare([first_is_large, len(classes) - first_is_large], [0.8 * len(classes), 0.2 * len(classes)]).pvalue > 1e-3
    assert chisquare(torch.bincount(classes.flatten())).pvalue > 1e-3


def test_chunks_hold_all_batches(monkeypatch):
    monkeypatch.setattr(datasampler.REGISTRY.module("hierarchical"), "CHUNK", 25)
    sampler = make_sampler("hierarchical", [4] * 10, bs=4)
    assert draw(sampler).shape == (10, 4)


@pytest.mark.parametrize("super_labels", [None, {}, {0: "a", 1: None, 2: "b"}, {0: "a", 1: "b"}])
def test_missing_super_labels_are_an_error(super_labels):
    image_dict, image_list = make_data([4] * 3)
    sampler = datasampler.select("hierarchical", None, image_dict, image_list, bs=4)
    with pytest.raises(UserError, match="needs super labels.*online_products"):
        sampler.set_super_labels(super_labels)
    with pytest.raises(UserError, match="needs super labels, 3 of 3 classes"):
        list(sampler)


def test_too_few_classes_is_an_error():
    with pytest.raises(UserError, match="takes 4 distinct classes, the training data hold 3"):
        make_sampler("hierarchical", [5, 5, 5], bs=8, samples_per_class=2)
