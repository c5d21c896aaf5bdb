"""Initial weights: local files of every form, downloads that work and that fail, networks that have none."""

import os
import socket
import urllib.error

import pytest
import torch
import torchvision

from architectures import _torchvision, _weights
from tests.architectures import networks
from tests.architectures.networks import assert_same, saved
from tests.kit.refusals import refused


def select(name, **flags):
    return networks.select(name, **{"not_pretrained": False, **flags})


@pytest.fixture(scope="module")
def shufflenet():
    torch.manual_seed(5)
    network = torchvision.models.shufflenet_v2_x0_5()
    for buffer in network.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    return network


FORMS = {
    "classifier": lambda state: state,
    "bare": lambda state: {key: value for key, value in state.items() if not key.startswith("fc.")},
    "compiled": lambda state: {f"module._orig_mod.{key}": value for key, value in state.items()},
    "checkpoint": lambda state: {"state_dict": state, "epoch": 3},
    "model": lambda state: {"model": {f"module.{key}": value for key, value in state.items()}},
    "other classifier": lambda state: {
        f"model.{key.replace('fc.', 'last_linear.')}": value for key, value in state.items()
    },
    "old": lambda state: {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")},
}


def test_state_dicts_of_backbones(shufflenet, tmp_path):
    state = shufflenet.state_dict()
    for form in FORMS.values():
        path = saved(form(state), tmp_path / "weights.pth")
        network = select("shufflenet_v2_x0_5_frozen_normalize", weights=path, not_pretrained=True)
        assert network.weights_name == path
        assert_same(network.backbone.state_dict(), FORMS["bare"](state))


def test_whole_networks_come_back_or_give_their_backbone(tmp_path, capsys):
    network = select("conv4_normalize", embed_hidden=[5])
    network(torch.rand(4, 3, 48, 48))  # statistics move
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


@pytest.mark.parametrize(
    "name",
    [
        "squeezenet1_1",
        "mobilenet_v3_small",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("densenet121", "mnasnet0_5", "convnext_tiny", "ptm:alexnet")
        ),
    ],
)
def test_torchvisions_own_state_dicts(name, tmp_path):
    reference = torchvision.models.get_model(name.removeprefix("ptm:")).eval()
    network = select(name, weights=saved(reference.state_dict(), tmp_path / "weights.pth")).eval()
    head = "classifier.6" if name == "ptm:alexnet" else network.head
    reference.get_submodule(head.rpartition(".")[0])._modules[head.rpartition(".")[2]] = torch.nn.Identity()
    image = torch.rand(1, 3, 224, 224) if name == "ptm:alexnet" else torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(network(image)[1]["pooled"], reference(network.prepare(image)).flatten(1))


def test_densenets_published_files_spell_layers_as_they_were_called_years_ago():
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
        published = torchvision.models.get_model(
            {"inceptionv3": "inception_v3"}.get(constructor, constructor), **arguments
        ).state_dict()
        network = select(f"ptm:{constructor}", not_pretrained=True)
    renamed = {network.published_key(key): value.shape for key, value in published.items()}
    expected = {key: value.shape for key, value in network.backbone.state_dict().items()}
    assert {key: renamed.get(key) for key in expected} == expected
    assert all(key.startswith(_weights.CLASSIFIERS) for key in renamed.keys() - expected.keys())


def test_files_that_do_not_fit_or_cannot_be_read_are_explained(shufflenet, tmp_path):
    path = tmp_path / "weights.pth"
    for name, content, says in (
        (
            "conv4",
            shufflenet.state_dict(),
            r"does not fit conv4: missing 0\.weight, .* in all\); unexpected .*conv1\.1\.weight.{,250}$",
        ),
        ("shufflenet_v2_x1_0", shufflenet.state_dict(), "size mismatch for .*shape"),
        *(
            ("conv4", content, "holds no state dict")
            for content in ([1, 2], {}, {"weights": 3}, torch.zeros(3), {"state_dict": {}})
        ),
        ("conv4", os.getcwd, r"cannot be read \(it holds posix.getcwd, and tensors alone are read\)"),
    ):
        with refused(says):
            select(name, weights=saved(content, path))
    for words in ("arch: conv4\nlr: 1e-05\n", "{}", "."):  # the first is a run's parameters.yaml
        path.write_text(words)
        with refused(r"cannot be read( \(it is no file of torch.save\))?"):
            select("conv4", weights=str(path))
    with refused("no such file"):
        select("conv4", weights=str(tmp_path / "nowhere.pth"))


def test_no_network_is_one_clear_error(monkeypatch, tmp_path):
    limits = []
    errors = {
        "resnet18_frozen_normalize": urllib.error.URLError("no route"),
        "bninception": TimeoutError("timed out"),
        "googlenet": ConnectionResetError("reset"),
        "shufflenet_v2_x0_5": RuntimeError("invalid hash value"),
    }
    for name, error in errors.items():

        def fail(*args, error=error, **kwargs):
            limits.append(socket.getdefaulttimeout())
            raise error

        monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
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
        assert_same(network.backbone.state_dict(), FORMS["bare"](shufflenet.state_dict()))
    weights = torchvision.models.ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1
    assert requests == [(weights.url, weights.url[-14:-4])]
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(b"half a file")
    with refused("delete that file"):
        select("shufflenet_v2_x0_5", weights_cache=str(tmp_path / "cache"))


def test_families_ask_for_the_published_weights(monkeypatch, capsys):
    import pretrainedmodels

    for name, weights, url, build in (
        ("resnet50", "IMAGENET1K_V1", "resnet50-0676ba61.pth", torchvision.models.resnet50),
        (
            "googlenet",
            "IMAGENET1K_V1",
            "googlenet-1378be20.pth",
            lambda: torchvision.models.googlenet(init_weights=False),
        ),
        (
            "bninception",
            "imagenet",
            "bn_inception-52deb4733.pth",
            lambda: pretrainedmodels.bninception(pretrained=None),
        ),
    ):

        def published(address, url=url, build=build, **kwargs):
            assert address.endswith(url) and kwargs["weights_only"]
            return build().state_dict()  # with its classifiers, the auxiliary ones too

        monkeypatch.setattr(torch.hub, "load_state_dict_from_url", published)
        with torch.device("meta"):
            assert select(name).weights_name == weights
    for name in (
        "resnet50",
        "vit_b_16",
        "vit_h_14",
    ):  # known without torchvision; the last has none of the first's name
        assert _torchvision.weights_of(name) == _torchvision.published(name).name
    assert (
        select("conv4").weights_name == "random"
        and "conv4: there are no pretrained weights, it starts random" in capsys.readouterr().out
    )
