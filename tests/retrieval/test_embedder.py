"""A run as a function of images: the transform and the network that it was measured with."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

import architectures
import datasets
import evaluation
import main
import parameters
import runs
from datasets import _images, _transforms
from retrieval import data
from runs import Embedder, load_run
from tests import builders
from tests.retrieval.conftest import train
from training.loading import evaluation_loader
from training.runtime import Runtime
from utilities.errors import UserError


@pytest.fixture(scope="module")
def embedder(run):
    return Embedder(run, device="cpu", batch_size=5)


@pytest.fixture(scope="module")
def test_split(embedder):
    return data.split(embedder, "test")


def measured(folder, split="testing"):
    """What evaluation embeds, and the data set."""
    network, opt = load_run(folder)
    dataset = datasets.select(opt.dataset, opt, opt.source_path, **datasets.shape_for(network))[split]
    return evaluation.embed(network, evaluation_loader(dataset, opt), Runtime(opt)).features["discriminative"], dataset


def test_paths_give_what_was_measured(run, embedder):
    expected, dataset = measured(run)
    given = embedder(dataset.paths)
    assert given.dtype == np.float32 and given.shape == (len(dataset), embedder.dimensions) == (24, 8)
    np.testing.assert_allclose(given, expected, atol=1e-6)
    assert np.abs(given - given[::-1]).max() > 1e-3  # not all the same
    assert np.abs(Embedder(run, "last")(dataset.paths) - expected).max() < 1e-6  # one epoch: the best is the last


def test_the_networks_selected_checkpoint_counts(folder_data, tmp_path):
    train(folder_data, tmp_path, "--seed", "1", "--n_epochs", "2", "--lr", "0.05")
    folder = tmp_path / "folder" / "Tiny_s1"
    paths = data.split(Embedder(folder), "test").paths
    best, last = (Embedder(folder, which)(paths) for which in ("best", "last"))
    for which, given in (("best", best), ("last", last)):
        network = load_run(folder, which)[0]
        dataset = data.split(Embedder(folder, which), "test")
        with torch.no_grad():
            expected = network(torch.stack([dataset[i][1] for i in range(len(dataset))]))[0].numpy()
        np.testing.assert_allclose(given, expected, atol=1e-6)


def test_images_in_every_form_are_those_of_the_file(embedder, test_split, tmp_path):
    path = builders.write_image(tmp_path / "a.png", 3)
    expected = embedder(path)
    assert expected.shape == (1, 8)
    array = np.array(Image.open(path))
    tensor = torch.from_numpy(array).permute(2, 0, 1)
    for image in (
        str(path),
        [path],
        array,
        Image.open(path),
        tensor,
        [tensor],
        tensor[None],
        tensor.float() / 255,
        array[None],
        np.array([str(path)]),
    ):
        assert np.array_equal(embedder(image), expected), type(image)
    both = embedder(np.stack([array, array[::-1]]))
    assert both.shape == (2, 8) and np.array_equal(both[:1], embedder([array, array])[:1]) and not np.array_equal(both[0], both[1])
    assert embedder([]).shape == (0, 8)


def test_grey_transparent_and_sideways_images(embedder, tmp_path):
    grey = np.array(Image.open(builders.write_image(tmp_path / "grey.png", 4, mode="L")))
    assert np.array_equal(embedder(grey), embedder(np.repeat(grey[:, :, None], 3, 2)))
    assert np.array_equal(embedder(torch.from_numpy(grey)[None]), embedder(tmp_path / "grey.png"))
    transparent = Image.new("RGBA", (40, 30), (255, 0, 0, 0))
    assert np.array_equal(embedder(transparent), embedder(np.full((30, 40, 3), 255, np.uint8)))


@pytest.mark.parametrize(
    "image", [np.zeros((4, 4, 3)), torch.zeros(3, 4, 4) + 2, np.zeros((2, 3, 4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8), torch.zeros(3, 4, 4, dtype=torch.int64)]
)  # fmt: skip
def test_what_is_no_image_is_refused_in_one_line(embedder, image):
    with pytest.raises(UserError) as error:
        embedder([image])
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_decoded_is_named_by_the_call_and_listed_by_the_stream(embedder, test_split, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no image")
    paths = [*test_split.paths[:3], str(bad), *test_split.paths[3:7], str(tmp_path / "missing.png")]
    with pytest.raises(UserError, match="bad.jpg"):
        embedder(paths)
    batches = list(embedder.stream(paths))
    assert [len(batch.places) + len(batch.refused) for batch in batches] == [5, 4]
    assert [place for batch in batches for place, _ in batch.refused] == [3, 8]
    vectors = np.concatenate([batch.vectors for batch in batches])
    np.testing.assert_allclose(vectors, embedder(test_split.paths[:7]), atol=1e-6)
    assert [place for batch in batches for place in batch.places] == [0, 1, 2, 4, 5, 6, 7]


def test_a_stream_takes_no_more_than_two_batches_ahead(embedder, test_split):
    taken = []

    def images():
        for path in test_split.paths * 2:
            taken.append(path)
            yield path

    stream = embedder.stream(images())
    next(stream)
    assert len(taken) <= 2 * embedder.batch_size


@pytest.mark.parametrize(("more", "side"), [((), 48), (("--crop_size", "36"), 36)])
def test_small_grey_data_sets_take_images_of_any_size(more, side, tmp_path):
    opt = parameters.read(["--dataset", "glyphs", "--arch", "conv4_normalize", "--embed_dim", "8", "--augmentation", "none", *more])
    prepared = datasets.preparation(opt, architectures.select(opt.arch, opt))
    assert prepared.size == (side, side)
    own = builders.write_image(tmp_path / "own.png", 2, (48, 48), mode="L")
    shown = _transforms.build(opt, 48, 48)[1](_images.grey(str(own)).repeat(3, 1, 1))  # what the data set gives
    assert torch.equal(prepared(own), shown) and shown.shape == (3, side, side)
    photo = builders.write_image(tmp_path / "photo.png", 1, (90, 60))
    grey = torch.from_numpy(np.array(Image.open(photo).convert("L")))[None].repeat(3, 1, 1)
    assert torch.equal(prepared(photo), v2.functional.resize(grey, [side, side])) and torch.equal(
        prepared(photo), prepared(Image.open(photo))
    )
    assert torch.equal(prepared(np.array(Image.open(photo))), prepared(str(photo)))


@pytest.mark.long
def test_a_run_on_glyphs_gives_what_was_measured(tmp_path):
    main.main(
        parameters.read(["--dataset", "glyphs", *builders.SHORT_RUN, "--n_epochs", "1", "--savename", "G", "--save_path", str(tmp_path)])
    )
    expected, dataset = measured(tmp_path / "glyphs" / "G")
    np.testing.assert_allclose(Embedder(tmp_path / "glyphs" / "G")(dataset.paths), expected, atol=1e-6)


def test_a_long_side_that_the_run_limits_is_limited(folder_data, tmp_path):
    train(folder_data, tmp_path, "--seed", "0", "--image_cache_side", "24")
    folder = tmp_path / "folder" / "Tiny_s0"
    expected, dataset = measured(folder)
    embedder = Embedder(folder)
    np.testing.assert_allclose(embedder(dataset.paths), expected, atol=1e-6)
    assert "LongSide(24)" in embedder.preparation.text
    array = np.array(Image.open(dataset.paths[0]))
    assert np.array_equal(embedder(_images.decode(dataset.paths[0])), embedder(dataset.paths[:1])) and array.shape == (30, 40, 3)


def test_a_fold_is_a_run_and_its_cross_validation_is_not(data, tmp_path):
    train(data, tmp_path, "--seed", "0", "--split_scheme", "class_disjoint", "--folds", "1")
    folder = tmp_path / "folder" / "Tiny_s0"
    with pytest.raises(UserError, match=r"cross-validation.*fold_0"):
        Embedder(folder)
    from retrieval import data as split_of

    embedder = Embedder(folder / "fold_1")
    validation = split_of.split(embedder, "val")
    network, opt = load_run(folder / "fold_1")
    expected = datasets.select(opt.dataset, opt, opt.source_path, fold=1, **datasets.shape_for(network))["validation"]
    assert validation.paths == expected.paths
    with torch.no_grad():
        vectors = network(torch.stack([expected[i][1] for i in range(len(expected))]))[0].numpy()
    np.testing.assert_allclose(embedder(validation.paths), vectors, atol=1e-6)


def test_a_network_with_several_embeddings_gives_the_one_asked_for(folder_data, tmp_path):
    train(folder_data, tmp_path, "--seed", "0", "--trainer", "classifier", "--evaltypes", "discriminative", "classifier_logits")
    folder = tmp_path / "folder" / "Tiny_s0"
    dataset = data.split(Embedder(folder), "test")
    with torch.no_grad():
        outputs = load_run(folder)[0](torch.stack([dataset[i][1] for i in range(6)]))[0]
    for name in ("discriminative", "classifier_logits"):
        np.testing.assert_allclose(Embedder(folder, evaltype=name)(dataset.paths[:6]), outputs[name], atol=1e-5)
    a, b = (torch.nn.functional.normalize(outputs[name]) for name in outputs)
    combined = Embedder(folder, evaltype="Combined_discriminative_classifier_logits-1-.5")(dataset.paths[:6])
    np.testing.assert_allclose(combined, torch.cat([a, 0.5 * b], 1), atol=1e-5)
    with pytest.raises(UserError, match="the network gives"):
        Embedder(folder, evaltype="nothing")


def test_the_fingerprint_is_of_weights_and_transform(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    assert Embedder(copy).fingerprint == Embedder(run).fingerprint
    text = (copy / "parameters.yaml").read_text()
    (copy / "parameters.yaml").write_text(text.replace("resize_size: 40", "resize_size: 41"))
    assert Embedder(copy).fingerprint != Embedder(run).fingerprint


def test_bad_devices_and_folders_are_one_line(run, tmp_path):
    for wrong in ({"device": "quantum"}, {"device": "cuda:77"}):
        with pytest.raises(UserError, match="is not here"):
            Embedder(run, **wrong)
    with pytest.raises(UserError, match=r"parameters\.yaml is missing"):
        runs.Embedder(tmp_path)
