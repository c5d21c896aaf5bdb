"""The embedded data set: which characters, how they look, written once and whole."""

import json
import multiprocessing
import os
import re
import unicodedata

import numpy as np
import pytest
import torch
from PIL import Image, ImageFont

import datasets
from datasets import _files, glyphs
from tests.kit.refusals import refused


@pytest.fixture(scope="module", params=["few", pytest.param("all", marks=pytest.mark.long)])
def splits(request, few_glyphs, tmp_path_factory):
    source = few_glyphs if request.param == "few" else glyphs.prepare(None, tmp_path_factory.mktemp("cache")).parent
    return datasets.select("glyphs", None, source, 48)


@pytest.fixture(scope="module")
def characters():
    """All that the data set holds, without a folder of them."""
    fonts = [
        ImageFont.truetype(str(file), glyphs.FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)
        for file in glyphs._face_files()
    ]
    return glyphs.distinct(
        {character: [glyphs.draw(character, font) for font in fonts] for character in glyphs.covered_characters()}
    )


def test_classes_are_distinct_characters_of_four_scripts(characters):
    assert 480 <= len(characters) <= 520 and characters == sorted(set(characters))
    assert all(unicodedata.category(character) in ("Lu", "Ll", "Lt", "Lo", "Nd") for character in characters)
    assert set("ABCXYZabcxyz0123456789") <= set(characters)
    # Greek and Cyrillic, which look like the Latin A
    assert "Α" not in characters and "А" not in characters
    assert [glyphs.script(character) for character in "q7ΩЖ"] == ["latin", "digit", "greek", "cyrillic"]


def test_half_of_the_classes_trains_and_no_two_share_an_image(splits, characters):
    training = splits["training"]
    testing = splits["testing"]
    n_classes = training.n_classes + testing.n_classes
    assert training.n_classes == n_classes // 2
    seen = {}
    script_of = {}
    for split in (training, testing):
        assert split.counts == {"images": 16 * split.n_classes, "classes": split.n_classes, "single_image_classes": 0}
        assert all(len(entries) == 16 for entries in split.image_dict.values())
        label, image, index = split[35]
        assert (label, index) == (2, 35) and image.dtype == torch.uint8 and image.shape == (3, 48, 48)
        for (_, label), pixels in zip(split.image_list, split.pixels.numpy(), strict=True):
            assert seen.setdefault(pixels.tobytes(), split.class_names[label]) == split.class_names[label]
        script_of |= {split.class_names[label]: script for label, script in split.super_labels.items()}
    names = [*training.class_names.values(), *testing.class_names.values()]
    assert names == [character for character in characters if character in names]
    assert len(names) == n_classes in (22, len(characters))
    assert set(script_of.values()) == {"latin", "greek", "cyrillic", "digit"}
    assert splits["evaluation"].pixels is training.pixels and splits["validation"] is None


def test_images_are_the_files_white_on_black_and_centred(splits):
    testing = splits["testing"]
    for index in range(0, len(testing), 97):
        file = np.asarray(Image.open(testing.paths[index]))
        image = testing[index][1]
        assert file.dtype == np.uint8 and all(np.array_equal(channel, file) for channel in image.numpy())
        assert file.max() > 200 and np.median(file) == 0
        # The image is the caller's own: a change does not reach the data set
        image.zero_()
        assert np.array_equal(testing.pixels[index, 0].numpy(), file)
    sans = [index for index, path in enumerate(splits["training"].paths) if path.endswith("DejaVuSans.png")]
    middle = splits["evaluation"].pixels[sans].float().mean(0)[0]
    assert abs((middle.sum(0) * torch.arange(48)).sum() / middle.sum() - 23.5) < 1


def test_processes_may_render_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(glyphs, "covered_characters", lambda: list("ABab"))
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    processes = [context.Process(target=lambda: (barrier.wait(60), glyphs.prepare(None, tmp_path))) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert os.listdir(tmp_path) == ["glyphs"] and glyphs._is_current(tmp_path / "glyphs", glyphs._fingerprint())


def test_sizes_places_and_the_split_of_training(few_glyphs, monkeypatch):
    root = few_glyphs / "glyphs"
    before = (root / "manifest.json").stat().st_mtime_ns
    # the data set's own folder in place of the one above it
    splits = datasets.select("glyphs", None, root, 224)
    assert splits["training"].root == str(root)
    assert splits["training"][0][1].shape == splits["testing"][0][1].shape == (3, 224, 224)
    splits = datasets.select("glyphs", None, few_glyphs, use_tv_split=True)
    training = splits["training"]
    validation = splits["validation"]
    assert training.n_classes == int(0.8 * (training.n_classes + validation.n_classes))
    assert splits["testing"][0][1].shape == (3, 48, 48)
    assert len(splits["evaluation"].pixels) == len(training) and len(validation.pixels) == len(validation)
    assert torch.equal(validation[3][1][0], torch.from_numpy(np.array(Image.open(validation.paths[3]))))
    assert (root / "manifest.json").stat().st_mtime_ns == before and os.listdir(few_glyphs) == ["glyphs"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(few_glyphs))
    assert glyphs.default_source_path() == str(few_glyphs / _files.CACHE)


def test_an_outdated_or_damaged_folder_is_rendered_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(glyphs, "covered_characters", lambda: list("ABab"))
    root = glyphs.prepare(None, tmp_path)
    for damage in ("U+0041/DejaVuSans.png", "manifest.json", "version"):
        if damage == "version":
            monkeypatch.setattr(glyphs, "VERSION", glyphs.VERSION + 1)
        else:
            (root / damage).unlink()
        assert not glyphs._is_current(root, glyphs._fingerprint())
        assert glyphs.prepare(None, tmp_path) == root and glyphs._is_current(root, glyphs._fingerprint())
    assert os.listdir(tmp_path) == ["glyphs"]
    assert json.loads((root / "manifest.json").read_text())["version"] == glyphs.VERSION


@pytest.mark.parametrize("entry", ["notes.txt", "U+0041/mine.png", "U+0041/DejaVuSans.png/", "letters/", "u+0041/"])
def test_a_folder_of_the_user_is_never_touched(entry, tmp_path, monkeypatch):
    monkeypatch.setattr(glyphs, "_render", lambda *arguments: pytest.fail("rendered"))
    path = tmp_path / "glyphs" / entry
    path.mkdir(parents=True) if entry.endswith("/") else path.parent.mkdir(parents=True)
    if not entry.endswith("/"):
        path.write_text("mine")
    (tmp_path / "glyphs" / "manifest.json").write_text("{}")
    with refused(re.escape(entry.rstrip("/")) + ".*choose another --source_path, or move it away"):
        glyphs.prepare(None, tmp_path)
    assert path.exists() and os.listdir(tmp_path) == ["glyphs"]


def test_a_file_or_a_link_of_that_name_is_never_touched(tmp_path):
    file, link, dead_link = (tmp_path / folder / "glyphs" for folder in ("file", "link", "nowhere"))
    for path in (file, link, dead_link):
        path.parent.mkdir()
    file.write_text("mine")
    link.symlink_to(tmp_path)
    dead_link.symlink_to(tmp_path / "absent")
    for path, kind in ((file, "a file"), (link, "a link"), (dead_link, "a link")):
        with refused(rf"{kind}.*choose another --source_path"):
            glyphs.prepare(None, path.parent)
    assert file.read_text() == "mine" and dead_link.is_symlink()


def test_what_appears_during_the_rendering_is_not_touched(tmp_path, monkeypatch):
    def render(folder, fingerprint):
        (folder / "manifest.json").write_text("{}")
        (tmp_path / "glyphs").mkdir()
        (tmp_path / "glyphs" / "mine.txt").write_text("mine")

    monkeypatch.setattr(glyphs, "_render", render)
    with refused("mine.txt"):
        glyphs.prepare(None, tmp_path)
    assert os.listdir(tmp_path) == ["glyphs"] and os.listdir(tmp_path / "glyphs") == ["mine.txt"]


def test_interrupted_rendering_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(glyphs, "covered_characters", lambda: list("AB"))
    monkeypatch.setattr(Image.Image, "save", full)
    with refused("No space left.*--source_path"):
        glyphs.prepare(None, tmp_path)
    assert os.listdir(tmp_path) == []
