"""Samplers of triplets: what a batch is made of, what the seed and the stored embeddings decide, resume, what is
refused.
"""

import itertools
import math

import pytest
import torch

from tests.kit import tiny
from tests.kit.mining import assert_drawn_with
from tests.kit.refusals import refused
from tests.kit.samplers import draw, labels_of, make_sampler, spied

NAMES = ["fixed_triplets", "hard_triplets"]
SIZES = [5, 1, 3, 2, 6]


def triplets_of(batches):
    return [tuple(triplet) for triplet in batches.view(-1, 3).tolist()]


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_whole_triplets(name):
    labels = labels_of(SIZES).tolist()
    sampler = make_sampler(name, SIZES, bs=9, data_fixed_triplets_n=50, data_hard_triplets_share=0.7)
    n_batches = 50 // 3 if name == "fixed_triplets" else 35 // 3
    for _ in range(3):
        batches = draw(sampler)
        assert batches.shape == (len(sampler), 9) == (n_batches, 9)
        for a, p, n in triplets_of(batches):
            assert labels[a] == labels[p] != labels[n] and a != p


def test_classes_then_images_are_drawn_alike():
    """Two classes at random, the first among those that have two images; two images of the one, one of the other."""
    labels = labels_of(SIZES).tolist()
    sampler = make_sampler("fixed_triplets", SIZES, bs=3, data_fixed_triplets_n=60_000)
    expected = {}
    for a, p, n in itertools.permutations(range(17), 3):
        size = SIZES[labels[a]]
        if labels[a] == labels[p] != labels[n]:
            expected[a, p, n] = 1 / 4 / (size * (size - 1)) / 4 / SIZES[labels[n]]
    assert math.isclose(sum(expected.values()), 1)
    assert_drawn_with(expected, triplets_of(sampler.triplets))


def test_the_fixed_set_is_that_of_the_seed_and_comes_back():
    before = torch.get_rng_state()
    flags = {"bs": 6, "data_fixed_triplets_n": 20}
    first, second, of_other_seed = (make_sampler("fixed_triplets", SIZES, **flags, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before), "the training's stream is left alone"
    triplets = first.triplets
    assert torch.equal(triplets, second.triplets) and not torch.equal(triplets, of_other_seed.triplets)
    epochs = [triplets_of(draw(first)) for _ in range(3)]
    assert all(sorted(epoch) == sorted(triplets_of(triplets)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    for wrong in (torch.tensor([[0, 1, 17]]), torch.tensor([[-1, 1, 2]]), torch.zeros(3, 2, dtype=torch.long)):
        with pytest.raises(ValueError, match="17 training images"):
            second.load_state_dict({"triplets": wrong})
    # A state with another number of triplets is passed over
    second.load_state_dict({"triplets": torch.zeros(4, 3, dtype=torch.long)})
    assert torch.equal(second.triplets, triplets)
    second.load_state_dict({"triplets": triplets.flip(0)})
    assert torch.equal(second.triplets, triplets.flip(0))


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_the_hardest_share_by_stored_embeddings(share, monkeypatch):
    embeddings = torch.randn(17, 4, generator=torch.Generator().manual_seed(2))
    # ten triplets at a time
    monkeypatch.setattr("datasampler.hard_triplets.CHUNK", 40)
    flags = {"bs": 3, "data_fixed_triplets_n": 47, "data_hard_triplets_share": share}
    sampler = make_sampler("hard_triplets", SIZES, embeddings, **flags)
    candidates = spied(sampler, "draw_triplets")
    distances = torch.cdist(embeddings.double(), embeddings.double())

    def hardness(triplets):
        return sorted((float(distances[a, p] - distances[a, n]) for a, p, n in triplets), reverse=True)

    for _ in range(3):
        batches = draw(sampler)
        expected = hardness(triplets_of(candidates[-1]))[: math.ceil(47 * share)]
        assert hardness(triplets_of(batches)) == pytest.approx(expected)
    # The candidates are drawn anew each epoch
    assert not torch.equal(candidates[0], candidates[1])
    flags = {"bs": 3, "data_fixed_triplets_n": 200, "data_hard_triplets_share": 0.01}
    sampler = make_sampler("hard_triplets", SIZES, torch.zeros(17, 2), **flags)
    sampler.replace_storage_entries(torch.tensor([[9.0, 0.0]]), torch.tensor([4]))
    # the one image that lies far from its class
    assert all(p == 4 for _, p, _ in triplets_of(draw(sampler, 0)))


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_work_is_one_line(name):
    one_triplet = {"bs": 6, "data_fixed_triplets_n": 1}
    for sizes, flags, message in (
        ([4, 4], {"bs": 8}, "--bs 8 is not a multiple of 3"),
        ([1, 1, 1], {"bs": 3}, "no triplet: of their 3 classes 0 have two images"),
        ([9], {"bs": 3}, "no triplet: of their 1 classes 1 have two images"),
        ([4, 4], one_triplet, "--data_fixed_triplets_n 1.*: 1 triplets do not fill one batch of --bs 6"),
    ):
        with refused(message):
            make_sampler(name, sizes, **flags)
    # the smallest data
    labels = labels_of([2, 1]).tolist()
    sampler = make_sampler(name, [2, 1], bs=3, data_fixed_triplets_n=200, data_hard_triplets_share=1.0)
    assert set(triplets_of(draw(sampler))) == {t for t in itertools.permutations(range(3)) if labels[t[2]] == 1}


def test_the_command_line_refuses_at_once():
    packaged = ["--loss", "triplet", "--batch_mining", "packaged", "--data_sampler"]
    with refused("--bs 10 is not a multiple of 3"):
        tiny.resolve("--data_sampler", "fixed_triplets", "--bs", "10")
    with refused("--batch_mining packaged .* these do: fixed_triplets, hard_triplets"):
        tiny.resolve(*packaged, "class_balanced")
    opt = tiny.resolve(*packaged, "fixed_triplets", "--bs", "111", "--samples_per_class", "2")
    # These samplers do not go by --samples_per_class, which need not divide --bs
    assert opt.bs % opt.samples_per_class


@pytest.mark.parametrize("name", [NAMES[0], pytest.param(NAMES[1], marks=pytest.mark.long)])
def test_training_resumes_bit_for_bit(name, data, tmp_path):
    flags = ["--batch_mining", "packaged", "--data_sampler", name, "--data_fixed_triplets_n", "9", "--bs", "6"]
    run = tiny.assert_resumes(data, tmp_path, *flags)
    assert set(run.parts["sampler"].state_dict()) == {"triplets" if name == "fixed_triplets" else "storage"}
