"""Presets, overrides, and agreement with the classic pipeline (Pillow and torchvision's first transforms)."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as classic

import datasets
from datasets import _transforms
from tests import builders
from utilities.errors import UserError


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Eight pictures of the classic size, wide and tall, in two classes."""
    root = tmp_path_factory.mktemp("photographs")
    for i in range(8):
        builders.write_image(root / f"class_{i // 4}" / f"{i}.jpg", i, (500, 375) if i % 2 else (375, 500))
    return root


def build(opt=None, input_size=None, image_size=None, **flags):
    flags = {"dataset": "glyphs" if image_size else "cub200", **flags}
    return _transforms.build(datasets.REGISTRY.options(opt, **flags), input_size, image_size)


FLIP = classic.RandomHorizontalFlip()
CLASSIC = {
    "base": [classic.RandomResizedCrop(224), FLIP],
    "big": [classic.RandomResizedCrop(256), FLIP],
    "red": [classic.Resize(256), classic.RandomCrop(224), FLIP],
    "mlrc": [classic.Resize(256), classic.RandomResizedCrop(227, scale=(0.16, 1)), FLIP],
    "plain": [classic.Resize((256, 256)), classic.RandomCrop(227), FLIP],
    "none": [classic.Resize(256), classic.CenterCrop(224)],
}


@pytest.mark.parametrize("augmentation", CLASSIC)
def test_training_pixels_agree_with_the_classic_pipeline_under_the_same_seed(photographs, augmentation):
    dataset = datasets.select("folder", dataset_folder_path=str(photographs), augmentation=augmentation, input_size=224)["training"]
    steps = classic.Compose([*CLASSIC[augmentation], classic.PILToTensor()])
    for index, path in enumerate(dataset.paths):
        torch.manual_seed(index)
        ours = dataset[index][1]
        torch.manual_seed(index)
        expected = steps(Image.open(path).convert("RGB"))
        assert ours.shape == expected.shape
        assert (ours.float() - expected.float()).abs().mean() < 0.5


@pytest.mark.parametrize(("flags", "input_size", "resize", "crop"), [
    ({}, None, 256, 224), ({}, 224, 256, 224), ({}, 227, 256, 227), ({}, 299, 342, 299), ({}, 48, 55, 48),
    ({"crop_size": 112}, 224, 128, 112), ({"resize_size": 300, "crop_size": 240}, 224, 300, 240),
    ({"augmentation": "big"}, 224, 256, 256), ({"augmentation": "mlrc"}, 224, 256, 227),
    ({"augmentation": "plain"}, 224, (256, 256), 227), ({"augmentation": "red"}, 299, 342, 299),
])  # fmt: skip
def test_test_transform(photographs, flags, input_size, resize, crop):
    splits = datasets.select("folder", dataset_folder_path=str(photographs), input_size=input_size, **flags)
    steps = classic.Compose([classic.Resize(resize), classic.CenterCrop(crop), classic.PILToTensor()])
    for index, path in enumerate(splits["testing"].paths):
        ours, expected = splits["testing"][index][1], steps(Image.open(path).convert("RGB"))
        assert ours.shape == expected.shape == (3, crop, crop)
        assert (ours.float() - expected.float()).abs().mean() < 0.5
    assert splits["training"][0][1].shape == (3, crop, crop)
    assert str(crop) in splits["testing"].transforms_as_resolved


def test_adv_jitters(photographs):
    image = builders.picture(5, (500, 375))
    training, _ = build(augmentation="adv")
    tensor = classic.functional.pil_to_tensor(image)
    grey = 0
    for seed in range(60):
        torch.manual_seed(seed)
        result = training(tensor)
        assert result.shape == (3, 224, 224) and result.dtype == torch.uint8
        grey += bool((result[0] == result[1]).all() and (result[1] == result[2]).all())
    assert 3 <= grey <= 25  # one in five
    assert "ColorJitter" in training.text and "RandomGrayscale(p=0.2)" in training.text


def test_overrides_are_what_the_text_says():
    training, test = build(augmentation="base", resize_size=300, crop_size=200, crop_scale=[0.5, 0.75], crop_ratio=[1.0, 2.0])
    assert all(part in training.text for part in ("size=[300]", "(200, 200)", "(0.5, 0.75)", "(1.0, 2.0)"))
    assert "size=[300]" in test.text and "CenterCrop(size=(200, 200))" in test.text
    mlrc, _ = build(augmentation="mlrc")
    by_flags, _ = build(augmentation="base", resize_size=256, crop_size=227, crop_scale=[0.16, 1.0])
    assert mlrc.text == by_flags.text
    assert build()[0].text == build(augmentation="base")[0].text


@pytest.mark.parametrize(("flags", "match"), [
    ({"crop_size": 300, "resize_size": 256}, "--resize_size"), ({"augmentation": "big", "resize_size": 200}, "--crop_size"),
    ({"crop_scale": [0.5, 0.2]}, "--crop_scale"), ({"crop_scale": [0.0, 1.0]}, "--crop_scale"),
    ({"crop_scale": [0.5, 1.2]}, "--crop_scale"),
    ({"crop_ratio": [2.0, 1.0]}, "--crop_ratio"), ({"augmentation": "red", "crop_scale": [0.2, 1.0]}, "--crop_scale"),
    ({"augmentation": "shift", "crop_ratio": [0.5, 1.0]}, "--crop_ratio"), ({"crop_size": 0}, "--crop_size"),
    ({"resize_size": -1}, "--resize_size"),
])  # fmt: skip
def test_impossible_values(flags, match):
    with pytest.raises(UserError, match=match):
        build(**flags)


def test_images_shown_whole_are_only_moved():
    image = torch.zeros(3, 48, 48, dtype=torch.uint8)
    image[:, 20:30, 10:14] = torch.arange(40, dtype=torch.uint8).view(10, 4) + 100
    training, test = build(image_size=48, input_size=48)
    assert test(image) is image and training.text != test.text == "none"
    seen = set()
    for seed in range(200):
        torch.manual_seed(seed)
        moved = training(image)
        place = torch.nonzero(moved[0])
        down, right = (place.min(0).values - torch.tensor([20, 10])).tolist()
        assert torch.equal(moved, torch.roll(image, (down, right), (1, 2)))  # nothing lies near the border
        seen.add((down, right))
    assert seen == {(down, right) for down in range(-2, 3) for right in range(-2, 3)}
    for size in (32, 224):
        assert all(steps(image).shape == (3, size, size) for steps in build(image_size=48, input_size=size))
        assert build(image_size=48, crop_size=size, input_size=48)[1](image).shape == (3, size, size)
    assert build(image_size=48, augmentation="base")[0].text == training.text
    assert build(image_size=48, augmentation="none")[0].text == "none"
    for augmentation in ("adv", "big", "red", "mlrc", "plain"):
        with pytest.raises(UserError, match="mirrors"):
            build(image_size=48, augmentation=augmentation)
    with pytest.raises(UserError, match="--resize_size"):
        build(image_size=48, resize_size=64)


def test_what_leaves_the_border_is_black():
    image = torch.full((3, 8, 8), 255, dtype=torch.uint8)
    shift = _transforms.ShiftedCrop(8)
    for seed in range(30):
        torch.manual_seed(seed)
        moved = shift(image)
        lit = torch.nonzero(moved[0])
        height, width = (lit.max(0).values - lit.min(0).values + 1).tolist()
        assert (moved > 0).sum() == 3 * height * width and min(height, width) >= 6
    small = _transforms.ShiftedCrop(12)(torch.full((3, 4, 30), 9, dtype=torch.uint8))
    assert small.shape == (3, 12, 12) and (small == 9).sum() == 3 * 4 * 12


def test_shift_of_photographs(photographs):
    dataset = datasets.select("folder", dataset_folder_path=str(photographs), augmentation="shift", input_size=224)["training"]
    large = classic.functional.pil_to_tensor(classic.Resize(256)(Image.open(dataset.paths[1]).convert("RGB"))).float()
    height, width = large.shape[1:]
    top, left = (height - 224) // 2, (width - 224) // 2
    for seed in range(5):
        torch.manual_seed(seed)
        image = dataset[1][1].float()
        differences = [
            (image - large[:, top + y : top + y + 224, left + x : left + x + 224]).abs().mean() for y in range(-3, 4) for x in range(-3, 4)
        ]
        assert np.min(differences) < 0.5
