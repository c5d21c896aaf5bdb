"""Every kind of image becomes RGB as Pillow makes it; a broken one is named."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

import datasets
from datasets import _images
from tests import builders
from utilities.errors import UserError


@pytest.mark.parametrize(("suffix", "mode"), [
    ("jpg", "RGB"), ("jpg", "L"), ("jpg", "CMYK"), ("png", "RGB"), ("png", "L"), ("png", "RGBA"), ("png", "P"), ("png", "1"), ("gif", "P"),
    ("bmp", "RGB"), ("webp", "RGB"),
])  # fmt: skip
def test_decoding_agrees_with_pillow(tmp_path, suffix, mode):
    path = builders.write_image(tmp_path / f"a.{suffix}", 3, (41, 29), mode)
    image = _images.decode(str(path))
    assert image.dtype == torch.uint8 and image.shape == (3, 29, 41)
    expected = np.asarray(Image.open(path).convert("RGB"))
    assert np.abs(image.permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1


def test_a_jpeg_under_another_suffix_and_its_orientation(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    path = tmp_path / "a.png"
    builders.picture(1, (41, 29)).save(path, format="JPEG", exif=exif)
    assert _images.decode(str(path)).shape == (3, 29, 41)  # the orientation is not applied, as in the classic pipelines


@pytest.mark.parametrize("damage", ["half", "two bytes", "nothing", "text", "gone", "png half"])
def test_a_file_that_cannot_be_decoded_is_named(tmp_path, damage):
    root = builders.make_folder(tmp_path / "things", n_classes=4, n_images=2, size=(120, 90))
    victim = root / "class_0" / "001.jpg"
    whole = victim.read_bytes()
    if damage == "png half":
        buffer = io.BytesIO()
        builders.picture(1, (120, 90)).save(buffer, "PNG")
        victim.write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    else:
        damaged = {"half": whole[: len(whole) // 2], "two bytes": whole[:-2], "nothing": b"", "text": b"an image"}
        victim.write_bytes(damaged.get(damage, whole))
    splits = datasets.select("folder", dataset_folder_path=str(root))
    if damage == "gone":
        victim.unlink()
    assert splits["training"][0][1].shape == (3, 224, 224)
    with pytest.raises(UserError) as caught:
        splits["training"][1]
    assert str(victim) in str(caught.value) and "\n" not in str(caught.value)


def test_batches_of_a_loader(folder_data):
    dataset = datasets.select("folder", dataset_folder_path=str(folder_data), input_size=32)["training"]
    loader = torch.utils.data.DataLoader(dataset, batch_size=5, num_workers=1)
    batches = list(loader)
    labels, images, indices = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert images.dtype == torch.uint8 and images.shape == (24, 3, 32, 32)
    assert labels.tolist() == [label for _, label in dataset.image_list] and indices.tolist() == list(range(24))
