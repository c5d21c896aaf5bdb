"""The samplers without a memory: which classes and images are drawn, and how often."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import datasampler
from datasampler._base import draw_within, random_below
from tests.kit.refusals import refused
from tests.kit.samplers import draw, labels_of, make_data, make_sampler


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def classes_of_groups(batch, labels, sizes, m):
    """The classes of a batch, each with m images, which are distinct where the class has as many."""
    groups = batch.view(-1, m)
    classes = labels[groups]
    assert (classes == classes[:, :1]).all() and len(classes[:, 0].unique()) == len(groups)
    assert all(len(group.unique()) == min(m, sizes[label]) for group, label in zip(groups, classes[:, 0], strict=True))
    return classes[:, 0]


def assert_uniform(counts, expected=None):
    assert chisquare(counts, expected).pvalue > 1e-3, counts


def test_draws_are_uniform_below_large_bounds_and_of_every_subset():
    assert_uniform(torch.bincount(random_below(torch.full((30000,), 7)), minlength=7))
    bounds = torch.tensor([1, 2, 2**40, 2**61]).repeat(1000)
    draws = random_below(bounds)
    assert (draws >= 0).all() and (draws < bounds).all()
    for size, count in ((5, 2), (4, 3), (6, 1)):
        draws = draw_within(torch.full((20000,), size), count).sort(1).values
        subsets = torch.tensor([*itertools.combinations(range(size), count)])
        counts = (draws[:, None] == subsets).all(2).sum(0)
        assert counts.sum() == 20000
        assert_uniform(counts)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(1, 4), st.data())
def test_batches_of_any_sizes(sizes, m, data):
    """Of `class_balanced` distinct classes; of `class_groups` every image, and filled groups; of `hierarchical` one
    super-class after the other.
    """
    per_batch = data.draw(st.integers(1, len(sizes)))
    labels = labels_of(sizes)
    super_of = torch.tensor([data.draw(st.integers(0, 3)) for _ in sizes])
    if per_batch * m > sum(sizes):
        return
    flags = {"bs": per_batch * m, "samples_per_class": m}
    batches = draw(make_sampler("class_balanced", sizes, **flags), seed=0)
    classes = torch.cat([classes_of_groups(batch, labels, sizes, m) for batch in batches])
    counts = torch.bincount(classes, minlength=len(sizes))
    assert counts.max() - counts.min() <= 1

    sampler = make_sampler("hierarchical", sizes, **flags)
    sampler.set_super_labels({label: f"super {number}" for label, number in enumerate(super_of.tolist())})
    for batch in draw(sampler, seed=0):
        supers = super_of[classes_of_groups(batch, labels, sizes, m)]
        order = list(dict.fromkeys(supers.tolist()))
        # a super-class is used up before another continues
        assert sorted(supers.tolist(), key=order.index) == supers.tolist()
        assert all((supers == number).sum() == (super_of == number).sum() for number in order[:-1])

    sampler = make_sampler("class_groups", sizes, **flags)
    groups = draw(sampler, seed=0).view(-1, m)
    n_groups = sum(-(-size // m) for size in sizes)
    assert len(groups) == len(sampler) * per_batch and 0 <= len(groups) - n_groups < per_batch
    for group in groups:
        classes_of_groups(group, labels, sizes, m)
    counts = torch.bincount(groups[:n_groups].flatten(), minlength=len(labels))
    # A class fills its last group, and no image comes twice before every one has come
    for label, size in enumerate(sizes):
        of_class = counts[labels == label]
        assert of_class.min() >= 1 and of_class.sum() == -(-size // m) * m and of_class.max() - of_class.min() <= 1


def test_balanced_images_and_pairs_of_classes_are_uniform():
    """The classes that complete a batch at the seam of two passes are random ones."""
    sampler = make_sampler("class_balanced", [5] * 6, bs=8, samples_per_class=2)
    assert_uniform(torch.bincount(torch.cat([draw(sampler) for _ in range(300)]).flatten(), minlength=30))
    sampler = make_sampler("class_balanced", [4] * 5, bs=6, samples_per_class=2)
    labels = labels_of([4] * 5)
    meetings = torch.zeros(5, 5)
    for _ in range(400):
        present = torch.zeros(3, 5).scatter_(1, labels[draw(sampler)], 1.0)
        meetings += present.T @ present
    assert_uniform(meetings[torch.triu_indices(5, 5, 1).unbind()])


def test_random_classes_and_images_are_uniform():
    sizes = [2, 5, 9, 4]
    sampler = make_sampler("class_random", sizes, bs=4, samples_per_class=2)
    labels = labels_of(sizes)
    groups = torch.cat([draw(sampler) for _ in range(1000)]).view(-1, 2, 2)
    classes = labels[groups[..., 0]]  # (5000, 2)
    # the same class twice as often as any other pair
    assert_uniform(torch.bincount((classes[:, 0] * 4 + classes[:, 1]), minlength=16))
    for label in range(4):
        members = (labels == label).nonzero().squeeze(1)
        place = torch.searchsorted(members, groups[classes == label])
        assert_uniform(torch.bincount(place[:, 0] * len(members) + place[:, 1], minlength=len(members) ** 2))


def test_class_groups_repeat_a_class_and_draw_the_number_of_groups():
    sizes = [12, 12, 12]
    sampler = make_sampler("class_groups", sizes, bs=12, samples_per_class=3, data_class_groups_draw=True)
    labels = labels_of(sizes)
    epochs = torch.stack([draw(sampler) for _ in range(900)])
    assert epochs.shape == (900, 3, 12) and len(sampler) == 3
    largest = torch.ones(900, dtype=torch.long)
    for m in (2, 3, 4, 6):
        groups = labels[epochs].view(900, -1, m)
        largest[(groups == groups[:, :, :1]).all(2).all(1)] = m
    counts = torch.bincount(largest)[[2, 3, 4, 6]]
    # drawn evenly from the divisors; by chance groups of 2 look like larger ones
    assert counts.min() > 100 and counts.sum() == 900, counts
    sampler = make_sampler("class_groups", sizes, bs=12, samples_per_class=3)
    batches = torch.cat([draw(sampler) for _ in range(50)])
    assert max(torch.bincount(labels[batch]).max() for batch in batches) > 3, "a class twice in a batch"
    with refused("no number of groups from 2 to half of --bs 7 divides it"):
        make_sampler("class_groups", sizes, bs=7, samples_per_class=7, data_class_groups_draw=True)


def test_full_random_is_uniform_over_classes_and_ends_with_a_pair():
    sizes = [2, 30, 5, 1]
    sampler = make_sampler("full_random", sizes, bs=5)
    labels = labels_of(sizes)
    batches = torch.cat([draw(sampler) for _ in range(1000)])
    classes = labels[batches]
    assert_uniform(torch.bincount(classes[:, :-1].flatten()))
    assert (classes[:, -1] == classes[:, -2]).all()
    has_two = classes[:, -1] != 3
    assert (batches[has_two, -1] != batches[has_two, -2]).all()
    for label in range(3):
        assert_uniform(torch.bincount(batches[classes == label], minlength=len(labels))[labels == label])


def test_several_super_classes_share_a_batch_equally():
    super_of = torch.tensor([0] * 6 + [1] * 6 + [2] * 6 + [3])
    sampler = make_sampler("hierarchical", [3] * 19, bs=16, samples_per_class=2, data_hierarchical_supers=2)
    sampler.set_super_labels(dict(enumerate(super_of.tolist())))
    seen = set()
    for batch in torch.cat([draw(sampler) for _ in range(100)]):
        classes = labels_of([3] * 19)[batch].view(-1, 2)[:, 0]
        counts = torch.bincount(super_of[classes], minlength=4).tolist()
        assert len(set(classes.tolist())) == 8
        assert sorted(counts) == [0, 0, 4, 4] or counts[3] == 1 and sorted(counts) in ([0, 0, 1, 7], [0, 1, 1, 6])
        seen.add(tuple(counts))
    assert {(4, 4, 0, 0), (4, 0, 4, 0), (0, 4, 4, 0)} <= seen


def test_super_classes_come_by_their_share(monkeypatch):
    # two batches at a time
    monkeypatch.setattr(datasampler.REGISTRY.module("hierarchical"), "CHUNK", 25)
    sampler = make_sampler("hierarchical", [4] * 10, bs=4, samples_per_class=2)
    sampler.set_super_labels({label: label >= 8 for label in range(10)})
    classes = labels_of([4] * 10)[torch.cat([draw(sampler) for _ in range(300)])].view(-1, 2, 2)[..., 0]
    assert len(classes) == 3000
    first_is_large = int((classes[:, 0] < 8).sum())
    assert_uniform([first_is_large, 3000 - first_is_large], [2400, 600])
    assert_uniform(torch.bincount(classes.flatten()))
    for super_labels in (None, {0: "a", 1: None, 2: "b"}, {0: "a", 1: "b"}):
        sampler = datasampler.select("hierarchical", None, *make_data([4] * 3), bs=4)
        with refused("needs super labels.*online_products"):
            sampler.set_super_labels(super_labels)
        with refused("needs super labels, 3 of 3 classes"):
            list(sampler)


def test_shuffle_gives_every_image_once_an_epoch():
    for bs in (1, 4, 7, 20):
        # shuffle does not use samples_per_class
        sampler = make_sampler("shuffle", [3, 9, 8], bs=bs, samples_per_class=3)
        epochs = [list(sampler), list(sampler)]
        for batches in epochs:
            assert len(batches) == len(sampler) == -(-20 // bs)
            assert [len(batch) for batch in batches[:-1]] == [bs] * (len(sampler) - 1) and 1 <= len(batches[-1]) <= bs
            assert sorted(sum(batches, [])) == list(range(20))
        assert epochs[0] != epochs[1]
