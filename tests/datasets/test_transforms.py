"""Presets, overrides, and agreement with the classic pipeline (Pillow and torchvision's first transforms)."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as classic

import datasets
from datasets import _transforms
from tests.datasets.layouts import read_folder
from tests.kit.images import random_picture, write_image
from tests.kit.refusals import refused


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Eight pictures of the classic size, wide and tall, in two classes."""
    root = tmp_path_factory.mktemp("photographs")
    for i in range(8):
        size = (500, 375) if i % 2 else (375, 500)
        write_image(root / f"class_{i // 4}" / f"{i}.jpg", i, size)
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


def near(ours, theirs):
    return ours.shape == theirs.shape and (ours.float() - theirs.float()).abs().mean() < 0.5


@pytest.mark.parametrize("augmentation", CLASSIC)
def test_training_pixels_agree_with_the_classic_pipeline(photographs, augmentation):
    dataset = read_folder(photographs, augmentation=augmentation, input_size=224)["training"]
    steps = classic.Compose([*CLASSIC[augmentation], classic.PILToTensor()])
    for index, path in enumerate(dataset.paths):
        torch.manual_seed(index)
        ours = dataset[index][1]
        torch.manual_seed(index)
        assert near(ours, steps(Image.open(path).convert("RGB")))


TALL = {"crop_size": [256, 128], "augmentation": "red"}
SQUASHED = {**TALL, "resize_mode": "squash"}
AS_IT_IS = {**TALL, "resize_mode": "none"}
CENTRE = classic.CenterCrop((256, 128))


@pytest.mark.parametrize(
    ("flags", "input_size", "steps", "text"),
    [
        *(
            (flags, size, [classic.Resize(resize), classic.CenterCrop(crop)], f"CenterCrop(size=({crop}, {crop}))")
            for flags, size, resize, crop in (
                ({}, None, 256, 224),
                ({}, 224, 256, 224),
                ({}, 227, 256, 227),
                ({}, 299, 342, 299),
                ({}, 48, 55, 48),
                ({"crop_size": 112}, 224, 128, 112),
                ({"resize_size": 300, "crop_size": 240}, 224, 300, 240),
                ({"augmentation": "big"}, 224, 256, 256),
                ({"augmentation": "mlrc"}, 224, 256, 227),
                ({"augmentation": "plain"}, 224, (256, 256), 227),
                ({"augmentation": "red"}, 299, 342, 299),
            )
        ),
        (TALL, None, [classic.Resize(256), CENTRE], "(256, 128)"),
        (SQUASHED, None, [classic.Resize((256, 128)), CENTRE], "Resize(size=[256, 128]"),
        ({**SQUASHED, "resize_size": 384}, None, [classic.Resize((384, 192)), CENTRE], "Resize(size=[384, 192]"),
        ({**TALL, "resize_mode": "long", "resize_size": 300}, None, [classic.Resize(225), CENTRE], "max_size=300"),
        (AS_IT_IS, None, [CENTRE], "CenterCrop"),
        ({**AS_IT_IS, "crop_size": [400, 400]}, None, [classic.CenterCrop(400)], "CenterCrop(size=(400, 400))"),
    ],
)
def test_test_transform(photographs, flags, input_size, steps, text):
    splits = read_folder(photographs, input_size=input_size, **flags)
    training = splits["training"]
    testing = splits["testing"]
    height, width = steps[-1].size
    for index, path in enumerate(testing.paths):
        ours = testing[index][1]
        assert near(ours, classic.Compose([*steps, classic.PILToTensor()])(Image.open(path).convert("RGB")))
        assert ours.shape == training[index][1].shape == (3, height, width)
    assert text in testing.transforms_as_resolved
    assert f"images: {height} x {width} pixels" in datasets.describe(splits)
    if flags.get("augmentation") == "red":
        assert ("Resize(" in training.transforms_as_resolved) == (flags.get("resize_mode") != "none")


def test_adv_jitters_and_overrides_are_what_the_text_says():
    training, _ = build(augmentation="adv")
    tensor = classic.functional.pil_to_tensor(random_picture(5, (500, 375)))
    grey = 0
    for seed in range(60):
        torch.manual_seed(seed)
        result = training(tensor)
        assert result.shape == (3, 224, 224) and result.dtype == torch.uint8
        grey += bool((result[0] == result[1]).all() and (result[1] == result[2]).all())
    assert 3 <= grey <= 25 and "ColorJitter" in training.text and "RandomGrayscale(p=0.2)" in training.text
    # --color_jitter takes the place of the preset's jitter
    text = build(augmentation="adv", color_jitter=[0.1, 0.1, 0.1, 0.0])[0].text
    assert text.count("ColorJitter") == 1 and "RandomGrayscale" in text and "0.9, 1.1" in text
    training, test = build(resize_size=300, crop_size=200, crop_scale=[0.5, 0.75], crop_ratio=[1.0, 2.0])
    assert all(part in training.text for part in ("size=[300]", "(200, 200)", "(0.5, 0.75)", "(1.0, 2.0)"))
    assert "size=[300]" in test.text and "CenterCrop(size=(200, 200))" in test.text
    by_flags, _ = build(augmentation="base", resize_size=256, crop_size=227, crop_scale=[0.16, 1.0])
    assert build(augmentation="mlrc")[0].text == by_flags.text and build()[0].text == build(augmentation="base")[0].text


def test_test_images_may_have_a_resize_of_their_own():
    training, test = build(augmentation="base", eval_resize_size=224)
    assert "Resize(size=[" not in training.text and training.text == build()[0].text
    assert "Resize(size=[224]" in test.text
    training, test = build(augmentation="mlrc", resize_size=300, eval_resize_size=260)
    assert "size=[300]" in training.text and "size=[260]" in test.text
    flags = {"dataset": "cub200", "eval_resize_size": 232}
    assert datasets.sizes(flags) == (224, 232) and datasets.sizes({**flags, "eval_resize_size": None}) == (224, 256)


def test_impossible_values():
    for flags, match in (
        ({"eval_resize_size": 200}, "a crop of 224 reaches .* raise --eval_resize_size"),
        ({"eval_resize_size": 300, "resize_mode": "none"}, "--eval_resize_size 300 with --resize_mode none"),
        ({"crop_size": 300, "resize_size": 256}, "--resize_size"),
        ({"crop_size": [300, 100], "resize_size": 256}, "a crop of 300 100"),
        ({"crop_size": [256, 300], "resize_mode": "long", "resize_size": 280}, "long side 280"),
        ({"crop_scale": [0.5, 0.2]}, "--crop_scale"),
        ({"augmentation": "red", "crop_scale": [0.2, 1.0]}, "--crop_scale"),
        ({"pad_crop": 10}, "--augmentation base: take red or plain"),
        ({"random_erasing": 0.5, "random_erasing_value": [0.0, 1.0]}, "one number, or three"),
        ({"random_erasing": 0.5, "augmentation": "none"}, "is the test transform"),
        ({"color_jitter": [0.1, 0.1, 0.1, 0.6]}, "at most 0.5"),
        ({"image_size": 48, "resize_mode": "squash"}, "--resize_mode"),
        ({"image_size": 48, "augmentation": "red"}, "mirrors"),
    ):
        with refused(match):
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
        # Nothing of the picture lies near the border, so that a shift is a roll
        assert torch.equal(moved, torch.roll(image, (down, right), (1, 2)))
        seen.add((down, right))
    assert seen == {(down, right) for down in range(-2, 3) for right in range(-2, 3)}
    for size in (32, 224):
        assert all(steps(image).shape == (3, size, size) for steps in build(image_size=48, input_size=size))
        assert build(image_size=48, crop_size=size, input_size=48)[1](image).shape == (3, size, size)
    assert build(image_size=48, augmentation="base")[0].text == training.text
    assert build(image_size=48, augmentation="none")[0].text == "none"
    # What a shift brings in from beyond the border is black
    for seed in range(30):
        torch.manual_seed(seed)
        moved = _transforms.ShiftedCrop(8)(torch.full((3, 8, 8), 255, dtype=torch.uint8))
        lit = torch.nonzero(moved[0])
        height, width = (lit.max(0).values - lit.min(0).values + 1).tolist()
        assert (moved > 0).sum() == 3 * height * width and min(height, width) >= 6
    # smaller and larger than the crop
    for size, area in (((4, 30), 4 * 12), ((40, 30), 12 * 12)):
        moved = _transforms.ShiftedCrop(12)(torch.full((3, *size), 9, dtype=torch.uint8))
        assert moved.shape == (3, 12, 12) and (moved == 9).sum() == 3 * area


def test_the_input_of_bag_of_tricks():
    """Squashed to 256 x 128, 10 pixels of black around it, a random crop of 256 x 128, flip."""
    training, test = build(augmentation="red", resize_mode="squash", crop_size=[256, 128], pad_crop=10)
    image = torch.full((3, 300, 200), 255, dtype=torch.uint8)
    seen = set()
    assert test(image).shape == (3, 256, 128) and bool((test(image) == 255).all())
    for seed in range(60):
        torch.manual_seed(seed)
        moved_crop = training(image)
        lit = torch.nonzero(moved_crop[0])
        seen.add(tuple((lit.max(0).values - lit.min(0).values + 1).tolist()))
        assert moved_crop.shape == (3, 256, 128)
    heights, widths = zip(*seen, strict=True)
    assert 246 <= max(heights) <= 256 and min(widths) >= 118 and len(seen) > 20


def test_added_steps_act_are_recorded_and_draw_without_pixels():
    image = torch.from_numpy(np.array(random_picture(5, (500, 375)))).permute(2, 0, 1)
    plain = build()[0]
    erasing = {"random_erasing": 0.5, "random_erasing_area": [0.02, 0.33], "random_erasing_value": [1.0, 2.0, 3.0]}
    for flags, *words in (
        ({"color_jitter": [0.25, 0.2, 0.1, 0.0]}, "ColorJitter(brightness=(0.75, 1.25)"),
        ({"color_jitter": [0.3, 0.3, 0.3, 0.1], "color_jitter_p": 0.5}, "ColorJitter", "p=0.5"),
        ({"randaugment": [2, 9]}, "RandAugment(", "num_ops=2, magnitude=9"),
        ({"auto_augment": 0.4}, "AutoAugment(", "p=0.4"),
        ({"random_erasing": 0.5}, "RandomErasing(p=0.5, scale=(0.02, 0.4), ratio=(0.3, 3.33", "value=[0.0]"),
        (erasing, "(0.02, 0.33)", "[1.0, 2.0, 3.0]"),
    ):
        training = build(**flags)[0]
        changed = 0
        for seed in range(12):
            torch.manual_seed(seed)
            transformed = training(image)
            after = torch.rand(())
            torch.manual_seed(seed)
            changed += not torch.equal(transformed, plain(image))
            torch.manual_seed(seed)
            training(image.to("meta"))
            assert torch.equal(torch.rand(()), after), "the draws do not depend on the pixels"
            assert transformed.dtype == torch.uint8 and transformed.shape == (3, 224, 224)
        assert all(word in training.text for word in words) and (changed == 0) == ("random_erasing" in flags)
        assert "color_jitter_p" not in flags or changed < 12
    transform = build(image_size=48, crop_size=[32, 24], randaugment=[1, 5], random_erasing=0.5)[0]
    assert transform(torch.zeros(3, 48, 48, dtype=torch.uint8)).shape == (3, 32, 24)
    assert "RandomErasing" in transform.text


def test_images_in_their_own_shape_become_multiples_of_a_patch():
    flags = datasets.REGISTRY.options(None, dataset="folder", eval_long_side=100)
    steps = _transforms.build(flags, (64, 32), None, "bicubic", (14, 14))[1]
    assert steps.text == "Limit(side=100); Multiple(14)"
    assert steps(torch.zeros(3, 300, 150, dtype=torch.uint8)).shape == (3, 98, 56)
    assert _transforms.build(flags, 224)[1].text == "Limit(side=100)"
    assert _transforms.sizes(datasets.REGISTRY.options(None, dataset="folder"), (256, 128))[0] == (256, 128)
