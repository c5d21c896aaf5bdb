"""--feature_cache: the head trains on features that are computed once, to the numbers of a training on images."""

import pytest
import torch

import architectures
import datasets
import main
import parameters
import trainers
from architectures import _network
from tests.kit.refusals import refused
from tests.kit.runs import SHORT_RUN, SMALL_IMAGES, assert_same_run, last_checkpoint, on_folder, recorded_values

REST = ["--freeze_backbone", "--augmentation", "none"]


def train(folder_data, tmp_path, name, *flags):
    words = ["--savename", name, *"--n_epochs 2 --loss triplet --batch_mining semihard".split(), *SMALL_IMAGES]
    return main.main(parameters.read(on_folder(folder_data, tmp_path, *words, *SHORT_RUN, *REST, *flags)))


def state(run):
    return last_checkpoint(run.folder)["state_dict"]


def values(run):
    return recorded_values(run.folder).to_dict()


def counted_images(monkeypatch):
    """How many images the backbone sees, in a list that grows."""
    counts = []
    extract = _network.Network.prepare
    monkeypatch.setattr(
        _network.Network, "prepare", lambda self, images: counts.append(len(images)) or extract(self, images)
    )
    return counts


CASES = [
    "--eval_bs 5 --image_cache cache",
    (
        "--n_epochs 1 --data_sampler greedy_coreset --data_batchmatch_bigbs 16 --precision bfloat16 --embed_dim 0 "
        "--loss proxynca"
    ),
]
LONG = [
    "--kernels 1 --embed_hidden 6 --check_untrained_accuracy",
    "--arch resnet18_frozen_normalize --use_tv_split --tv_split_perc .5 --splits_to_eval val --final_test",
]


@pytest.mark.parametrize("flags", [*CASES, *(pytest.param(case, marks=pytest.mark.long) for case in LONG)])
def test_numbers_are_those_without_it(folder_data, tmp_path, flags, monkeypatch):
    flags = [str(tmp_path / word) if word == "cache" else word for word in flags.split()]
    plain = train(folder_data, tmp_path, "plain", *flags)
    counts = counted_images(monkeypatch)
    cached = train(folder_data, tmp_path, "cached", *flags, "--feature_cache")
    for name, value in state(plain).items():
        torch.testing.assert_close(state(cached)[name], value, rtol=1e-5, atol=1e-7)
    assert values(cached) == pytest.approx(values(plain), rel=1e-5, abs=1e-7)
    # the storage of the training images is made before the features
    images = 48 + 24 * ("greedy_coreset" in flags)
    assert sum(counts) == images + 1, "the backbone sees each image once, and the check of the evaluation one"


def test_a_resumed_run_is_bit_equal(folder_data, tmp_path):
    uninterrupted = train(folder_data, tmp_path / "a", "run", "--feature_cache")
    train(folder_data, tmp_path / "b", "run", "--feature_cache", "--n_epochs", "1")
    resumed = train(folder_data, tmp_path / "b", "run", "--feature_cache", "--resume")
    assert_same_run(resumed.folder, uninterrupted.folder)


def test_the_network_takes_features_where_its_backbone_rests(folder_data):
    dataset = datasets.select("folder", dataset_folder_path=str(folder_data), augmentation="none")["training"]
    dataset.features = torch.rand(len(dataset), 5)
    label, row, index = dataset[3]
    assert torch.equal(row, dataset.features[3]) and (label, index) == (0, 3)
    assert dataset.original(3).shape == (3, 30, 40)
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    frozen, moving = (
        architectures.select("conv4", not_pretrained=True, embed_dim=8, freeze_backbone=is_frozen).eval()
        for is_frozen in (True, False)
    )
    expected, features = frozen(images)
    embeddings, activations = frozen(features["pooled"])
    assert torch.equal(embeddings, expected) and set(activations) == {"pooled"}
    with refused("'spatial' is needed"):
        activations["spatial"]
    with pytest.raises(ValueError, match=r"expected \(B, 3, H, W\)"):
        moving(features["pooled"])


def test_what_cannot_work_is_refused(folder_data, tmp_path, monkeypatch):
    words = ["--dataset", "folder", "--dataset_folder_path", str(folder_data), "--feature_cache"]
    for flags, expected in (
        (["--augmentation", "none"], "add --freeze_backbone"),
        (["--freeze_backbone"], "--augmentation base makes each image anew"),
        (["--freeze_backbone", "--dataset", "glyphs"], "--augmentation shift makes each image anew"),
    ):
        with refused(expected):
            parameters.resolve([*words, *flags])

    class Spatial(trainers.Base):
        def outputs(self, images):
            embeddings, features = self.network(images)
            return {"embeddings": embeddings, "spatial": features["spatial"].mean((2, 3))}

        def losses(self, outputs, batch):
            return self.metric_losses(outputs, batch)

    monkeypatch.setattr(trainers.REGISTRY.module("metric_only"), "Trainer", Spatial)
    with refused("'spatial' is needed"):
        train(folder_data, tmp_path, "run", "--feature_cache", "--dry_run")
