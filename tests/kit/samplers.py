"""Made-up data for the samplers' tests: classes of given sizes, their images scattered over the list."""

import random

import torch

import datasampler

# of ten classes: 65 images
SIZES = [9, 4, 7, 1, 12, 5, 3, 8, 6, 10]


def make_data(sizes, seed=0):
    """`(image_dict, image_list)` with `sizes[c]` images of class c, in random order."""
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    random.Random(seed).shuffle(labels)
    image_list = [(f"{index}.jpg", label) for index, label in enumerate(labels)]
    image_dict = {label: [] for label in range(len(sizes))}
    for index, (path, label) in enumerate(image_list):
        image_dict[label].append([path, index])
    return image_dict, image_list


def make_sampler(name, sizes, embeddings=None, dim=6, dtype=torch.float32, **flags):
    """The sampler before `precompute_indices`: two super-classes, and a storage (default: random)."""
    image_dict, image_list = make_data(sizes)
    sampler = datasampler.select(name, None, image_dict, image_list, **flags)
    sampler.set_super_labels({label: label % 2 for label in image_dict})
    if sampler.requires_storage:
        if embeddings is None:
            embeddings = torch.randn(len(image_list), dim, dtype=dtype, generator=torch.Generator().manual_seed(1))
        sampler.load_state_dict({"storage": embeddings})
    return sampler


def draw(sampler, seed=None):
    """An epoch's batches, `(batches, bs)`."""
    if seed is not None:
        torch.manual_seed(seed)
    sampler.precompute_indices()
    return torch.tensor(list(sampler))


def labels_of(sizes):
    """Class of each image, `(N,)`."""
    return torch.tensor([label for _, label in make_data(sizes)[1]])


def spied(sampler, method):
    """Results of `sampler.method` from now on, in a list that grows."""
    results = []
    original = getattr(sampler, method)

    def wrapper(*args, **kwargs):
        results.append(original(*args, **kwargs))
        return results[-1]

    setattr(sampler, method, wrapper)
    return results
