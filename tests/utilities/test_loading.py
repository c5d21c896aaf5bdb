"""Batches and augmentations depend on the seed alone: not on workers, not on what the training draws in between."""

from argparse import Namespace

import pytest
import torch

from utilities.loading import evaluation_loader, training_loader


class Noisy(torch.utils.data.Dataset):
    """Every item carries a random draw, as an augmentation would."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index % 4, torch.rand(3), index


class Draws(torch.utils.data.Sampler):
    def __init__(self):
        pass

    def __len__(self):
        return 6

    def __iter__(self):
        for _ in range(6):
            yield torch.randint(40, (5,)).tolist()

    def precompute_indices(self):
        pass


def epochs(kernels, iterations=None, disturb=True):
    torch.manual_seed(3)
    opt = Namespace(kernels=kernels, eval_kernels=kernels, eval_bs=7, seed=3, iterations_per_epoch=iterations)
    loader, drawn = training_loader(Noisy(), Draws(), opt), []
    for _ in range(2):
        for _, noise, indices in loader:
            drawn.append((indices.tolist(), noise))
            if disturb:
                torch.rand(11)  # a miner draws from the same stream
    return drawn


@pytest.mark.parametrize("kernels", [1, 2])
def test_workers_change_nothing(kernels):
    for (indices, noise), (expected_indices, expected_noise) in zip(epochs(kernels), epochs(0), strict=True):
        assert indices == expected_indices and torch.equal(noise, expected_noise)


def test_augmentations_differ_between_batches_and_epochs():
    noises = [noise for _, noise in epochs(0)]
    assert len({tuple(n.flatten().tolist()) for n in noises}) == len(noises) == 12


def test_loading_takes_nothing_from_the_stream_but_the_epochs_draws():
    torch.manual_seed(3)
    opt = Namespace(kernels=0, eval_kernels=0, eval_bs=7, seed=3, iterations_per_epoch=None)
    for _ in evaluation_loader(Noisy(), opt):
        pass
    after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(1))


@pytest.mark.parametrize("iterations", [4, 6, 15])
def test_iterations_per_epoch(iterations):
    assert len(epochs(0, iterations)) == 2 * iterations


def test_evaluation_goes_through_the_data_in_order():
    opt = Namespace(kernels=0, eval_kernels=0, eval_bs=7, seed=3, iterations_per_epoch=None)
    assert torch.cat([indices for _, _, indices in evaluation_loader(Noisy(), opt)]).tolist() == list(range(40))
