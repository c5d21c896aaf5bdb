import pytest
import torch
from scipy.stats import chisquare

from tests.datasampler.made import draw, labels_of, make_sampler
from utilities.errors import UserError

SIZES = [2, 30, 5, 1]


def test_classes_are_uniform_and_the_last_two_are_a_pair():
    sampler, labels = make_sampler("full_random", SIZES, bs=5), labels_of(SIZES)
    torch.manual_seed(0)
    batches = torch.cat([draw(sampler) for _ in range(1000)])
    classes = labels[batches]
    assert chisquare(torch.bincount(classes[:, :-1].flatten())).pvalue > 1e-3  # balanced over classes of 1 to 30 images
    assert (classes[:, -1] == classes[:, -2]).all()
    has_two = classes[:, -1] != 3
    assert (batches[has_two, -1] != batches[has_two, -2]).all()
    for label in range(4):
        images = batches[classes == label]
        counts = torch.bincount(images, minlength=len(labels))[labels == label]
        assert len(counts) == 1 or chisquare(counts).pvalue > 1e-3


def test_a_batch_of_one_holds_no_pair():
    with pytest.raises(UserError, match="--bs 1 holds no pair"):
        make_sampler("full_random", SIZES, bs=1)
    assert labels_of(SIZES)[draw(make_sampler("full_random", SIZES, bs=2))].unique(dim=1).shape[1] == 1
