"""Random Erasing: rectangles by torchvision's rule from seed and place alone, erased exactly after normalisation, whatever the part of a batch."""

import math

import pytest
import torch
from torchvision.transforms.v2 import functional

import architectures
import criteria
import datasets
import parameters
import trainers
from datasets import _transforms
from tests import builders
from training.erasing import Erased, pixel_of
from training.loading import training_loader
from training.optimisers import build_optimizer
from training.ranks import Ranks
from training.runtime import Runtime
from training.step import build_step

SMALL = ["--not_pretrained", "--resize_size", "40", "--crop_size", "36", "--kernels", "0"]


class Of(Ranks):
    """One of several processes, without the others."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """The flags of eight pictures in four classes, two of them for training."""
    root = tmp_path_factory.mktemp("photographs")
    for number in range(8):
        builders.write_image(root / f"class_{number // 2}" / f"{number}.jpg", number, (50, 40))
    return ["--dataset", "folder", "--dataset_folder_path", str(root), *SMALL]


def test_rectangles_are_within_their_bounds():
    torch.manual_seed(0)
    boxes = _transforms.Erasing(0.5, (0.02, 0.4), (0.3, 10 / 3), [0.0], (60, 30)).draw(2000)
    erased = boxes[boxes[:, 2] > 0]
    assert boxes.shape == (2000, 4) and 900 < len(erased) < 1100
    top, left, height, width = erased.double().unbind(1)
    assert (top + height <= 60).all() and (left + width <= 30).all() and (height < 60).all() and (width < 30).all()
    area = height * width / 1800
    assert area.min() > 0.015 and area.max() < 0.42 and abs(math.exp((height / width).log().mean()) - 1.2) < 0.3
    assert len({tuple(box) for box in erased.tolist()}) > 500


@pytest.mark.parametrize(("name", "value"), [("resnet18", [0.0]), ("bninception", [0.485, 0.456, -0.406])])
def test_erased_pixels_have_the_value_after_normalisation(name, value):
    network = architectures.select(name, not_pretrained=True, embed_dim=4)
    torch.manual_seed(1)
    images = torch.randint(0, 256, (3, 3, 20, 12), dtype=torch.uint8)
    boxes = torch.tensor([[2, 3, 5, 4], [0, 0, 0, 0], [0, 0, 19, 11]])
    seen = network.prepare(Erased(images, boxes, pixel_of(network, value)).on(lambda tensor: tensor))
    order = [2, 1, 0] if network.input_space == "BGR" else [0, 1, 2]
    for image, box, found in zip(network.prepare(images), boxes.tolist(), seen, strict=True):
        fill = torch.tensor((value * 3)[:3])[order].view(3, 1, 1)
        expected = functional.erase(image, *box, fill) if box[2] else image
        assert torch.allclose(found, expected, atol=1e-4)


def test_parts_and_workers_get_the_same_rectangles(photographs):
    more = ["--random_erasing", "0.7", "--color_jitter", ".3", ".3", ".3", ".1", "--color_jitter_p", ".5", "--randaugment", "2", "9", "--auto_augment", ".5"]
    batches = [[0, 1, 2, 3, 1], [3, 2, 1, 0, 0]]

    def loaded(words, ranks=None, kernels=0):
        opt = parameters.read([*photographs, *words, "--kernels", str(kernels)])
        dataset = datasets.select("folder", opt, input_size=36)["training"]
        torch.manual_seed(4)
        return list(training_loader(dataset, batches, opt, 2, ranks))

    whole = loaded(more)
    assert sum(int(batch.images.boxes[:, 2].bool().sum()) for batch in whole) >= 8
    by_worker = loaded(more, kernels=1)
    by_rank = [loaded(more, Of(rank, 3)) for rank in range(3)]
    for number, batch in enumerate(whole):
        for name in ("images", "boxes"):
            expected = getattr(batch.images, name)
            assert torch.equal(getattr(by_worker[number].images, name), expected), name
            assert torch.equal(torch.cat([getattr(part[number].images, name) for part in by_rank]), expected), name
    plain = loaded(more[2:])
    assert all(torch.equal(batch.images.images, other.images) for batch, other in zip(whole, plain, strict=True)), "erasing changes no other draw"


class Sampler:
    """Two batches, without a memory."""

    def __len__(self):
        return 2

    def __iter__(self):
        return iter([[0, 1, 2, 3, 1], [3, 2, 1, 0, 0]])

    def precompute_indices(self):
        """Nothing."""

    def replace_storage_entries(self, embeddings, indices):
        """Nothing."""


@pytest.mark.parametrize("more", [["--chunk_size", "2"], ["--chunk_size", "3", "--precision", "bfloat16"]])
def test_steps_in_chunks_are_the_plain_steps(photographs, more):
    shared = ["--arch", "resnet18_frozen_normalize", "--loss", "softmax", "--optim", "sgd", "--lr", ".02", "--embed_dim", "8", "--random_erasing", ".7"]

    def trained(words):
        opt = parameters.read([*photographs, *shared, "--bs", "5", "--data_sampler", "shuffle", *words]).but(n_classes=2)
        torch.manual_seed(0)
        network = architectures.select(opt.arch, opt)
        criterion = criteria.select(opt.loss, opt)
        runtime = Runtime(opt)
        trainer = trainers.select(opt.trainer, opt, network, criterion)
        step = build_step(opt, trainer, build_optimizer(network, criterion, opt, trainer.param_groups(opt)), runtime, Sampler())
        step.start_epoch(1)
        torch.manual_seed(4)
        loader = training_loader(datasets.select("folder", opt, input_size=36)["training"], Sampler(), opt)
        return [step(batch).loss for batch in loader], network.last_linear.weight

    losses, weight = trained(more[2:])
    others, cut = trained(more)
    close = {"atol": 2e-3, "rtol": 2e-2} if "bfloat16" in more else {"atol": 1e-5, "rtol": 1e-4}
    torch.testing.assert_close(torch.stack(others), torch.stack(losses), **close)
    torch.testing.assert_close(cut, weight, **close)
    assert not torch.equal(torch.stack(trained([*more, "--random_erasing", "0"])[0]), torch.stack(losses)), "erasing acts"


def test_slices_and_memory_format():
    runtime = Runtime(parameters.read(["--dataset", "glyphs", "--channels_last"]))
    erased = Erased(torch.zeros(4, 3, 6, 5, dtype=torch.uint8), torch.tensor([[0, 0, 2, 2]] * 4), torch.ones(1, 3, 1, 1))
    images = runtime.to_device(erased[1:3])
    assert images.shape == (2, 3, 6, 5) and images.is_contiguous(memory_format=torch.channels_last) and images.sum() == 2 * 3 * 4
    assert len(erased[torch.tensor([3, 0, 1])]) == 3
