import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from tests.datasampler.made import draw, labels_of, make_sampler
from utilities.errors import UserError


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=2, max_size=12), st.integers(1, 4), st.data())
def test_every_batch_has_distinct_classes_and_distinct_images(sizes, m, data):
    per_batch = data.draw(st.integers(1, len(sizes)))
    if per_batch * m > sum(sizes):
        return
    sampler, labels = make_sampler("class_balanced", sizes, bs=per_batch * m, samples_per_class=m), labels_of(sizes)
    batches = draw(sampler, seed=0)
    for batch in batches:
        groups = batch.view(per_batch, m)
        classes = labels[groups]
        assert (classes == classes[:, :1]).all()
        assert len(classes[:, 0].unique()) == per_batch
        for group, label in zip(groups, classes[:, 0], strict=True):
            assert len(group.unique()) == min(m, sizes[label])
    counts = torch.bincount(labels[batches.view(-1, m)[:, 0]], minlength=len(sizes))
    assert counts.max() - counts.min() <= 1


def test_images_of_a_class_are_uniform():
    sizes = [5] * 6
    sampler = make_sampler("class_balanced", sizes, bs=8, samples_per_class=2)
    torch.manual_seed(0)
    counts = torch.bincount(torch.cat([draw(sampler) for _ in range(500)]).flatten(), minlength=30)
    assert chisquare(counts).pvalue > 1e-3


def test_pairs_of_classes_meet_about_equally_often():
    """The classes that complete a batch at the seam of two passes are random ones."""
    sizes = [4] * 5
    sampler, labels = make_sampler("class_balanced", sizes, bs=6, samples_per_class=2), labels_of(sizes)
    torch.manual_seed(0)
    meetings = torch.zeros(5, 5)
    for _ in range(400):
        present = torch.zeros(3, 5).scatter_(1, labels[draw(sampler)], 1.0)
        meetings += present.T @ present
    pairs = meetings[torch.triu_indices(5, 5, 1).unbind()]
    assert chisquare(pairs).pvalue > 1e-3


def test_too_few_classes_is_an_error_that_names_the_numbers():
    with pytest.raises(UserError, match="takes 4 distinct classes, the training data hold 3"):
        make_sampler("class_balanced", [5, 5, 5], bs=8, samples_per_class=2)
