"""Random Erasing: rectangles by torchvision's rule from seed and place alone, erased exactly after normalisation."""

import bisect
import math
import random

import pytest
import torch
from torchvision.transforms.v2 import functional

import architectures
import datasets
import parameters
from datasets import _transforms
from engine.erasing import Erased, pixel_of
from engine.loading import training_loader
from engine.runtime import Runtime
from tests.engine.test_chunks import batches, trained
from tests.kit.processes import LoneRank
from tests.kit.runs import words_of


def test_rectangles_are_within_their_bounds():
    torch.manual_seed(0)
    boxes = _transforms.Erasing(0.5, (0.02, 0.4), (0.3, 10 / 3), [0.0], (60, 30)).draw(2000)
    erased = boxes[boxes[:, 2] > 0]
    assert boxes.shape == (2000, 4) and 900 < len(erased) < 1100
    top, column, height, width = erased.double().unbind(1)
    assert (top + height <= 60).all() and (column + width <= 30).all() and (height < 60).all() and (width < 30).all()
    area = height * width / 1800
    assert area.min() > 0.015 and area.max() < 0.42 and abs(math.exp((height / width).log().mean()) - 1.2) < 0.3
    assert len({tuple(box) for box in erased.tolist()}) > 500


def plain_ratio(generator):
    """Height by width of a rectangle by the authors' loop, in an image of 60 x 30."""
    while True:
        area = generator.uniform(0.02, 0.4) * 1800
        ratio = generator.uniform(0.3, 10 / 3)
        height = round(math.sqrt(area * ratio))
        width = round(math.sqrt(area / ratio))
        if width < 30 and height < 60:
            return height / width


def test_height_by_width_is_drawn_uniformly_as_by_the_authors():
    torch.manual_seed(0)
    uniform, by_logarithm = (
        _transforms.Erasing(1.0, (0.02, 0.4), (0.3, 10 / 3), [0.0], (60, 30), aspect) for aspect in ("uniform", "log")
    )
    top, column, height, width = uniform.draw(3000).double().unbind(1)
    assert min(top.min(), column.min()) >= 0 and height.min() > 0
    assert (top + height).max() <= 60 and (column + width).max() <= 30
    generator = random.Random(1)
    expected = sorted(plain_ratio(generator) for _ in range(3000))
    ratios = sorted((height / width).tolist())
    gaps = [abs(bisect.bisect(ratios, value) - bisect.bisect(expected, value)) / 3000 for value in expected]
    assert max(gaps) < 1.95 * math.sqrt(2 / 3000), "Kolmogorov and Smirnov, 0.1 %"
    boxes = by_logarithm.draw(3000).double()
    assert (boxes[:, 2] / boxes[:, 3]).mean() < 0.9 * (height / width).mean()
    assert "aspect=uniform" in str(uniform)


def options(data, *flags):
    return parameters.read(words_of(*["--dataset folder --dataset_folder_path", data, "--not_pretrained", *flags]))


def test_the_flag_chooses_how_the_aspect_is_drawn(folder_data):
    for flags, expected in (
        ("", "uniform"),
        ("--random_erasing_aspect uniform", "uniform"),
        ("--random_erasing_aspect log", "log"),
    ):
        opt = options(folder_data, "--random_erasing 0.5", flags)
        assert datasets.select("folder", opt, input_size=36)["training"].transform.erasing.aspect == expected


@pytest.mark.parametrize(("name", "value"), [("resnet18", [0.0]), ("bninception", [0.485, 0.456, -0.406])])
def test_erased_pixels_have_the_value_after_normalisation(name, value):
    network = architectures.select(name, not_pretrained=True, embed_dim=4)
    torch.manual_seed(1)
    images = torch.randint(0, 256, (3, 3, 20, 12), dtype=torch.uint8)
    boxes = torch.tensor([[2, 3, 5, 4], [0, 0, 0, 0], [0, 0, 19, 11]])
    seen = network.prepare(Erased(images, boxes, pixel_of(network, value)).on(lambda tensor: tensor))
    order = [2, 1, 0] if network.input_space == "BGR" else [0, 1, 2]
    for image, box, seen_image in zip(network.prepare(images), boxes.tolist(), seen, strict=True):
        fill = torch.tensor((value * 3)[:3])[order].view(3, 1, 1)
        expected = functional.erase(image, *box, fill) if box[2] else image
        assert torch.allclose(seen_image, expected, atol=1e-4)


def test_parts_and_workers_get_the_same_rectangles(folder_data):
    augmented = "--color_jitter .3 .3 .3 .1 --color_jitter_p .5 --randaugment 2 9 --auto_augment .5"
    flags = f"--random_erasing 0.7 {augmented}"
    chosen = [[0, 1, 2, 3, 1], [3, 2, 1, 0, 0]]

    def loaded(words, ranks=None, kernels=0):
        opt = options(folder_data, f"--resize_size 40 --crop_size 36 --kernels {kernels} {words}")
        dataset = datasets.select("folder", opt, input_size=36)["training"]
        torch.manual_seed(4)
        return list(training_loader(dataset, chosen, opt, 2, ranks))

    batches = loaded(flags)
    assert sum(int(batch.images.boxes[:, 2].bool().sum()) for batch in batches) >= 8
    by_worker = loaded(flags, kernels=1)
    by_rank = [loaded(flags, LoneRank(rank, 3)) for rank in range(3)]
    for number, batch in enumerate(batches):
        for name in ("images", "boxes"):
            expected = getattr(batch.images, name)
            assert torch.equal(getattr(by_worker[number].images, name), expected), name
            assert torch.equal(torch.cat([getattr(part[number].images, name) for part in by_rank]), expected), name
    for batch, plain_batch in zip(batches, loaded(augmented), strict=True):
        assert torch.equal(batch.images.images, plain_batch.images), "erasing changes no other draw"


@pytest.mark.parametrize(
    ("precision", "close"), [("float32", {"rtol": 1e-5, "atol": 1e-6}), ("bfloat16", {"rtol": 2e-2, "atol": 2e-3})]
)
def test_steps_in_chunks_are_the_plain_steps(precision, close):
    boxes = torch.tensor([[0, 1, 3, 2], [0, 0, 0, 0], [2, 0, 2, 4]] * 4)
    states = []
    for chunk_size, erased in ((0, boxes), (5, boxes), (0, 0 * boxes)):
        flags = f"--loss margin --precision {precision}"
        trainer, step, _, _ = trained(chunk_size, flags, dtype=torch.float32, steps=0)
        step.pixel = torch.full((1, 3, 1, 1), 200.0)
        for batch in batches():
            step(batch._replace(images=Erased(batch.images, erased)))
        states.append(torch.cat([value.flatten() for value in trainer.parameters()]))
    torch.testing.assert_close(states[1], states[0], **close)
    assert not torch.allclose(states[2], states[0], **close), "erasing acts"


def test_slices_and_memory_format():
    runtime = Runtime(parameters.read(["--dataset", "glyphs", "--channels_last"]))
    boxes = torch.tensor([[0, 0, 2, 2]] * 4)
    erased = Erased(torch.zeros(4, 3, 6, 5, dtype=torch.uint8), boxes, torch.ones(1, 3, 1, 1))
    images = runtime.to_device(erased[1:3])
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert images.shape == (2, 3, 6, 5) and images.sum() == 2 * 3 * 4
    assert len(erased[torch.tensor([3, 0, 1])]) == 3
