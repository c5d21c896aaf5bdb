import pytest
import torch

from tests.datasampler.made import make_sampler


@pytest.mark.parametrize("bs", [1, 4, 5, 7, 20])
def test_every_image_once_an_epoch(bs):
    sampler = make_sampler("shuffle", [3, 9, 8], bs=bs)
    epochs = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        batches = list(sampler)
        assert len(batches) == len(sampler)
        assert [len(batch) for batch in batches[:-1]] == [bs] * (len(sampler) - 1) and 1 <= len(batches[-1]) <= bs
        epochs.append([index for batch in batches for index in batch])
        assert sorted(epochs[-1]) == list(range(20))
    assert epochs[0] != epochs[1]


def test_samples_per_class_is_not_used():
    assert len(make_sampler("shuffle", [10], bs=5, samples_per_class=3)) == 2
