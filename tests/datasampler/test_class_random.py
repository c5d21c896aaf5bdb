import torch
from scipy.stats import chisquare

from tests.datasampler.made import draw, labels_of, make_sampler

SIZES = [2, 5, 9, 4]


def test_classes_and_images_are_uniform_and_drawn_with_replacement():
    sampler, labels = make_sampler("class_random", SIZES, bs=4, samples_per_class=2), labels_of(SIZES)
    torch.manual_seed(0)
    batches = torch.cat([draw(sampler) for _ in range(1000)])  # (5000, 4)
    groups = batches.view(-1, 2, 2)
    classes = labels[groups[..., 0]]  # (5000, 2)
    pairs_of_classes = torch.bincount((classes[:, 0] * 4 + classes[:, 1]), minlength=16)
    assert chisquare(pairs_of_classes).pvalue > 1e-3  # the same class twice as often as any other pair
    for label in range(4):
        members = (labels == label).nonzero().squeeze(1)
        of_class = groups[classes == label]  # (R, 2)
        place = torch.searchsorted(members, of_class)
        pairs = torch.bincount(place[:, 0] * len(members) + place[:, 1], minlength=len(members) ** 2)
        assert chisquare(pairs).pvalue > 1e-3  # the same image twice as often as any other pair
