"""A run as a function of images: the transform and the network that it was measured with."""

from argparse import Namespace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

import architectures
import datasets
import evaluation
import parameters
from datasets import _images, _transforms
from engine.loading import evaluation_loader
from engine.runtime import Runtime
from retrieval import data, export
from runs import Embedder, checkpoint, load_run
from tests.conftest import train
from tests.kit.images import write_image
from tests.kit.refusals import refused


@pytest.fixture(scope="module")
def embedder(run):
    return Embedder(run, device="cpu", batch_size=5)


@pytest.fixture(scope="module")
def paths(embedder):
    return data.split(embedder, "test").paths


def measured(folder, checkpoint_name="best", split="testing", **settings):
    """What evaluation embeds, and the paths of the images."""
    network, opt = load_run(folder, checkpoint_name)
    dataset = datasets.select(opt.dataset, opt, opt.source_path, **settings, **datasets.shape_for(network))[split]
    return evaluation.embed(network, evaluation_loader(dataset, opt), Runtime(opt)).features[
        "discriminative"
    ], dataset.paths


def edited(folder, flag, value):
    """Another value in a run's parameters.yaml."""
    file = folder / "parameters.yaml"
    (line,) = [line for line in file.read_text().splitlines() if line.startswith(f"{flag}:")]
    file.write_text(file.read_text().replace(line, f"{flag}: {value}"))


def test_paths_give_what_was_measured_by_the_checkpoint_asked_for(trained_run):
    content = checkpoint.read(trained_run / checkpoint.LAST)
    content["state_dict"] = {
        name: 1.5 * value if value.is_floating_point() else value for name, value in content["state_dict"].items()
    }
    torch.save(content, trained_run / checkpoint.LAST)
    embeddings = []
    for checkpoint_name in ("best", "last"):
        expected, paths = measured(trained_run, checkpoint_name)
        embedder = Embedder(trained_run, checkpoint_name)
        embeddings.append(embedder(paths))
        assert embeddings[-1].dtype == np.float32 and expected.shape == (len(paths), embedder.dimensions) == (24, 8)
        np.testing.assert_allclose(embeddings[-1], expected, atol=1e-6)
    assert np.abs(embeddings[0] - embeddings[0][::-1]).max() > 1e-3
    assert np.abs(embeddings[0] - embeddings[1]).max() > 1e-3


def test_the_fingerprint_is_of_weights_and_transform_and_a_long_side_is_limited(run, trained_run):
    assert Embedder(trained_run).fingerprint == Embedder(run).fingerprint
    edited(trained_run, "image_cache_side", 24)
    expected, paths = measured(trained_run)
    embedder = Embedder(trained_run)
    assert embedder.fingerprint != Embedder(run).fingerprint and "LongSide(24)" in embedder.preparation.text
    np.testing.assert_allclose(embedder(paths), expected, atol=1e-6)
    assert np.array_equal(embedder(_images.decode(paths[0])), embedder(paths[:1]))


def test_images_keep_their_shapes_under_a_long_side_for_evaluation(trained_run, tmp_path):
    edited(trained_run, "eval_long_side", 40)
    embedder = Embedder(trained_run, device="cpu")
    sizes = ((60, 30), (30, 60), (60, 30))
    images = [write_image(tmp_path / f"{i}.png", i, size) for i, size in enumerate(sizes)]
    together = embedder(images)
    assert embedder.preparation(_images.decode(str(images[1]))).shape == (3, 40, 20)
    np.testing.assert_allclose(together, np.concatenate([embedder([image]) for image in images]), atol=1e-6)
    settings = {"checkpoint": "best", "evaltype": None, "code": None, "calibration": None}
    settings |= {"format": ["onnx"], "tracker": []}
    with refused("an export takes one size"):
        export.export(Namespace(run_folder=trained_run, out=str(tmp_path / "out"), **settings))


def test_images_in_every_form_are_those_of_the_file(embedder, tmp_path):
    path = write_image(tmp_path / "a.png", 3)
    expected = embedder(path)
    assert expected.shape == (1, 8) and embedder([]).shape == (0, 8)
    array = np.array(Image.open(path))
    tensor = torch.from_numpy(array).permute(2, 0, 1)
    of_paths = [str(path), [path], np.array([str(path)])]
    of_tensors = [tensor, [tensor], tensor[None], tensor.float() / 255]
    for image in (*of_paths, *of_tensors, array, array[None], Image.open(path)):
        assert np.array_equal(embedder(image), expected), type(image)
    stacked = embedder(np.stack([array, array[::-1]]))
    assert stacked.shape == (2, 8) and np.array_equal(stacked[:1], embedder([array, array])[:1])
    assert not np.array_equal(stacked[0], stacked[1])
    grey = np.array(Image.open(write_image(tmp_path / "grey.png", 4, mode="L")))
    of_grey = embedder(np.repeat(grey[:, :, None], 3, 2))
    for image in (grey, torch.from_numpy(grey)[None], tmp_path / "grey.png"):
        assert np.array_equal(embedder(image), of_grey), type(image)
    transparent = Image.new("RGBA", (40, 30), (255, 0, 0, 0))
    assert np.array_equal(embedder(transparent), embedder(np.full((30, 40, 3), 255, np.uint8)))


def test_what_is_no_image_is_refused_in_one_line(embedder):
    numbers = [np.zeros((4, 4, 3)), np.zeros((2, 3, 4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8)]
    for image in [*numbers, torch.zeros(3, 4, 4) + 2, torch.zeros(3, 4, 4, dtype=torch.int64)]:
        with refused("."):
            embedder([image])


def test_a_stream_lists_what_cannot_be_decoded_and_takes_two_batches_ahead(embedder, paths, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no image")
    stream_paths = [*paths[:3], str(bad), *paths[3:7], str(tmp_path / "missing.png")]
    with refused("bad.jpg"):
        embedder(stream_paths)
    batches = list(embedder.stream(stream_paths))
    assert [len(batch.places) + len(batch.refused) for batch in batches] == [5, 4]
    assert [place for batch in batches for place, _ in batch.refused] == [3, 8]
    assert [place for batch in batches for place in batch.places] == [0, 1, 2, 4, 5, 6, 7]
    np.testing.assert_allclose(np.concatenate([batch.vectors for batch in batches]), embedder(paths[:7]), atol=1e-6)
    read_paths = []
    next(embedder.stream(read_paths.append(path) or path for path in paths * 2))
    assert len(read_paths) <= 2 * embedder.batch_size


@pytest.mark.parametrize(("flags", "side"), [("", 48), (" --crop_size 36", 36)])
def test_small_grey_data_sets_take_images_of_any_size(flags, side, tmp_path):
    words = f"--dataset glyphs --arch conv4_normalize --embed_dim 8 --augmentation none{flags}"
    opt = parameters.read(words.split())
    prepared = datasets.preparation(opt, architectures.select(opt.arch, opt))
    assert prepared.size == (side, side)
    own_image = write_image(tmp_path / "own.png", 2, (48, 48), mode="L")
    # what the data set gives
    expected_own = _transforms.build(opt, 48, 48)[1](_images.grey(str(own_image)).repeat(3, 1, 1))
    assert torch.equal(prepared(own_image), expected_own) and expected_own.shape == (3, side, side)
    photo = write_image(tmp_path / "photo.png", 1, (90, 60))
    grey = torch.from_numpy(np.array(Image.open(photo).convert("L")))[None].repeat(3, 1, 1)
    expected = v2.functional.resize(grey, [side, side])
    for image in (photo, str(photo), Image.open(photo), np.array(Image.open(photo))):
        assert torch.equal(prepared(image), expected), type(image)


def test_a_fold_is_a_run_and_its_cross_validation_is_not(cross_validated_once):
    with refused(r"cross-validation.*fold_0"):
        Embedder(cross_validated_once)
    embedder = Embedder(cross_validated_once / "fold_1")
    expected, paths = measured(cross_validated_once / "fold_1", split="validation", fold=1)
    assert data.split(embedder, "val").paths == paths
    np.testing.assert_allclose(embedder(paths), expected, atol=1e-6)


def test_a_network_with_several_embeddings_gives_the_one_asked_for(folder_data, tmp_path):
    words = ["--trainer", "classifier", "--evaltypes", "discriminative", "classifier_logits"]
    folder = train(folder_data, tmp_path, "--n_epochs", "1", *words)
    dataset = data.split(Embedder(folder), "test")
    with torch.no_grad():
        outputs = load_run(folder)[0](torch.stack([dataset[i][1] for i in range(6)]))[0]
    a, b = (torch.nn.functional.normalize(outputs[name]) for name in outputs)
    combined = {"Combined_discriminative_classifier_logits-1-.5": torch.cat([a, 0.5 * b], 1)}
    for name, expected in {**outputs, **combined}.items():
        np.testing.assert_allclose(Embedder(folder, evaltype=name)(dataset.paths[:6]), expected, atol=1e-5)
    with refused("the network gives"):
        Embedder(folder, evaltype="nothing")


def test_bad_devices_and_folders_are_one_line(run, tmp_path):
    for device in ("quantum", "cuda:77"):
        with refused("is not here"):
            Embedder(run, device=device)
    with refused(r"parameters\.yaml is missing"):
        Embedder(tmp_path)
