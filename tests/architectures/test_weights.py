"""Initial weights: local files of every form, downloads that work and that fail, networks that have none."""

import functools
import os
import socket
import urllib.error

import pytest
import torch
import torchvision

from architectures import _torchvision, _weights
from tests.architectures import networks
from tests.architectures.networks import assert_same, saved, without_classifier
from tests.kit.refusals import refused


def select(name, **flags):
    return networks.select(name, **{"not_pretrained": False, **flags})


@pytest.fixture(scope="module")
def shufflenet():
    return networks.shufflenet(5)


def test_whole_networks_come_back_or_give_their_backbone(tmp_path, capsys):
    network = select("conv4_normalize", embed_hidden=[5])
    # A call in training moves the running statistics from their start
    network(torch.rand(4, 3, 48, 48))
    for wrapper in ("", "module.", "_orig_mod."):
        state = {wrapper + key: value for key, value in network.state_dict().items()}
        path = saved({"state_dict": state, "epoch": 1}, tmp_path / "checkpoint.pth.tar")
        assert_same(select("conv4_normalize", embed_hidden=[5], weights=path).state_dict(), network.state_dict())
    with refused("does not fit shufflenet"):
        select("shufflenet_v2_x0_5", weights=path)
    assert "only the backbone fits" not in capsys.readouterr().out
    narrow = select("conv4", embed_dim=4, weights=path)
    assert "only the backbone fits" in capsys.readouterr().out and narrow.last_linear.weight.shape == (4, 576)
    assert_same(narrow.backbone.state_dict(), network.backbone.state_dict())


def test_old_names_of_densenets_layers():
    for old, new in (
        ("denselayer12.norm.1.weight", "denselayer12.norm1.weight"),
        ("denselayer2.conv.2.weight", "denselayer2.conv2.weight"),
    ):
        assert _torchvision.current_key(f"features.denseblock1.{old}") == f"features.denseblock1.{new}"


@pytest.mark.parametrize(
    "constructor",
    [
        "alexnet",
        "vgg16_bn",
        "inceptionv3",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("vgg11", "resnet18", "densenet121", "squeezenet1_0")),
    ],
)
def test_pretrainedmodels_knows_the_keys_of_torchvisions_files(constructor):
    with torch.device("meta"):
        arguments = {"init_weights": False} if constructor == "inceptionv3" else {}
        name = constructor.replace("nv3", "n_v3")
        published = torchvision.models.get_model(name, **arguments).state_dict()
        network = select(f"ptm:{constructor}", not_pretrained=True)
    renamed = {network.published_key(key): value.shape for key, value in published.items()}
    expected = {key: value.shape for key, value in network.backbone.state_dict().items()}
    assert {key: renamed.get(key) for key in expected} == expected
    assert all(key.startswith(_weights.CLASSIFIERS) for key in renamed.keys() - expected.keys())


def test_files_that_do_not_fit_or_cannot_be_read_are_explained(shufflenet, tmp_path):
    path = tmp_path / "weights.pth"
    state = shufflenet.state_dict()
    keys = r"missing 0\.weight, .* in all\); unexpected .*conv1\.1\.weight.{,250}$"
    for content, says in (
        (state, f"does not fit conv4: {keys}"),
        ([1, 2], "holds no state dict"),
        ({}, "holds no state dict"),
        ({"weights": 3}, "holds no state dict"),
        (torch.zeros(3), "holds no state dict"),
        ({"state_dict": {}}, "holds no state dict"),
        (os.getcwd, r"cannot be read \(it holds posix.getcwd, and tensors alone are read\)"),
    ):
        with refused(says):
            select("conv4", weights=saved(content, path))
    with refused("size mismatch for .*shape"):
        select("shufflenet_v2_x1_0", weights=saved(state, path))
    # the first is a run's parameters.yaml
    for words in ("arch: conv4\nlr: 1e-05\n", "{}", "."):
        path.write_text(words)
        with refused(r"cannot be read( \(it is no file of torch.save\))?"):
            select("conv4", weights=str(path))
    with refused("no such file"):
        select("conv4", weights=str(tmp_path / "nowhere.pth"))


def test_no_network_is_one_clear_error(monkeypatch, tmp_path):
    limits = []
    errors = [urllib.error.URLError("no route"), TimeoutError("timed out"), ConnectionResetError("reset")]
    errors.append(RuntimeError("invalid hash value"))

    def fail(*args, **kwargs):
        limits.append(socket.getdefaulttimeout())
        raise errors[len(limits) - 1]

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    for name in ("resnet18_frozen_normalize", "bninception", "googlenet", "shufflenet_v2_x0_5"):
        with refused("(?=.*--not_pretrained)(?=.*--weights FILE)(?=.*http)"):
            select(name, weights_cache=str(tmp_path))
    assert limits == [_weights.TIMEOUT] * len(errors) and socket.getdefaulttimeout() is None


def test_downloads_land_in_the_cache_and_are_used(monkeypatch, tmp_path, shufflenet):
    requests = []

    def download(url, file, hash_prefix=None, progress=True):
        requests.append((url, hash_prefix))
        torch.save(shufflenet.state_dict(), file)

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    for _ in range(2):
        network = select("shufflenet_v2_x0_5", weights_cache=str(tmp_path / "cache"))
        assert network.weights_name == "IMAGENET1K_V1"
        assert_same(network.backbone.state_dict(), without_classifier(shufflenet))
    weights = torchvision.models.ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1
    assert requests == [(weights.url, weights.url[-14:-4])]
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(b"half a file")
    with refused("delete that file"):
        select("shufflenet_v2_x0_5", weights_cache=str(tmp_path / "cache"))


def test_families_ask_for_the_published_weights(monkeypatch, capsys):
    import pretrainedmodels

    # with their classifiers, the auxiliary ones too
    builders = {
        "resnet50-0676ba61.pth": torchvision.models.resnet50,
        "googlenet-1378be20.pth": functools.partial(torchvision.models.googlenet, init_weights=False),
        "bn_inception-52deb4733.pth": functools.partial(pretrainedmodels.bninception, pretrained=None),
    }
    requested = []

    def published(address, **kwargs):
        assert kwargs["weights_only"]
        requested.append(address.rpartition("/")[2])
        return builders[requested[-1]]().state_dict()

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", published)
    names = ["resnet50", "googlenet", "bninception"]
    with torch.device("meta"):
        assert [select(name).weights_name for name in names] == ["IMAGENET1K_V1", "IMAGENET1K_V1", "imagenet"]
    assert requested == list(builders)
    # The names of weights are found without importing torchvision, but for vit_h_14, whose weights are named otherwise
    for name in ("resnet50", "vit_b_16", "vit_h_14"):
        assert _torchvision.weights_of(name) == _torchvision.published(name).name
    assert select("conv4").weights_name == "random"
    assert "conv4: there are no pretrained weights, it starts random" in capsys.readouterr().out
