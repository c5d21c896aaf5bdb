"""Initial weights: local files of every form, downloads that work and that fail, networks that have none."""

import os
import socket
import urllib.error

import pytest
import torch
import torchvision

import architectures
from architectures import _torchvision, _weights
from utilities.errors import UserError


def select(name, **flags):
    return architectures.select(name, **{"embed_dim": 8, **flags})


def same(first, second):
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[key]) for key, value in first.items())


@pytest.fixture(scope="module")
def resnet18():
    torch.manual_seed(5)
    network = torchvision.models.resnet18()
    for buffer in network.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    return network


@pytest.fixture(scope="module")
def bare(resnet18):
    return {key: value for key, value in resnet18.state_dict().items() if not key.startswith("fc.")}


@pytest.mark.parametrize(
    "form",
    [
        lambda state: state,
        lambda state: {key: value for key, value in state.items() if not key.startswith("fc.")},
        lambda state: {f"module.{key}": value for key, value in state.items()},
        lambda state: {f"module._orig_mod.{key}": value for key, value in state.items()},
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": {f"module.{key}": value for key, value in state.items()}},
        lambda state: {f"model.{key.replace('fc.', 'last_linear.')}": value for key, value in state.items()},
        lambda state: {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")},
    ],
    ids=["classifier", "bare", "module", "compiled", "checkpoint", "model", "other_classifier", "old"],
)
def test_backbones_state_dicts(form, resnet18, bare, tmp_path):
    torch.save(form(resnet18.state_dict()), tmp_path / "weights.pth")
    network = select("resnet18", weights=str(tmp_path / "weights.pth"))
    assert network.weights_name == str(tmp_path / "weights.pth")
    same(network.backbone.state_dict(), bare)


def test_resnet50s_state_dict(tmp_path):
    reference = torchvision.models.resnet50()
    torch.save(reference.state_dict(), tmp_path / "weights.pth")
    network = select("resnet50_frozen_normalize", weights=str(tmp_path / "weights.pth"), not_pretrained=True)
    state = reference.state_dict()
    del state["fc.weight"], state["fc.bias"]
    same(network.backbone.state_dict(), state)


@pytest.mark.parametrize("wrapper", ["", "module.", "_orig_mod."])
def test_whole_networks_come_back(wrapper, tmp_path):
    torch.manual_seed(0)
    network = select("conv4_normalize", embed_hidden=[5])
    network(torch.rand(4, 3, 48, 48))  # statistics move
    state = {wrapper + key: value for key, value in network.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 1}, tmp_path / "checkpoint.pth.tar")
    again = select("conv4_normalize", embed_hidden=[5], weights=str(tmp_path / "checkpoint.pth.tar"))
    same(again.state_dict(), network.state_dict())


def test_whole_network_of_another_width_gives_its_backbone(tmp_path, capsys):
    network = select("conv4")
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    other = select("conv4", embed_dim=4, weights=str(tmp_path / "weights.pth"))
    assert "only the backbone fits" in capsys.readouterr().out
    same(other.backbone.state_dict(), network.backbone.state_dict())
    assert other.last_linear.weight.shape == (4, 576)


@pytest.mark.parametrize("constructor", ["squeezenet1_1", "mobilenet_v3_small", "densenet121", "mnasnet0_5", "convnext_tiny"])
def test_torchvisions_own_state_dicts(constructor, tmp_path):
    reference = torchvision.models.get_model(constructor).eval()
    torch.save(reference.state_dict(), tmp_path / "weights.pth")
    network = select(constructor, weights=str(tmp_path / "weights.pth")).eval()
    reference.get_submodule(network.head.rpartition(".")[0])._modules[network.head.rpartition(".")[2]] = torch.nn.Identity()
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        features = network(image)[1]["pooled"]
        torch.testing.assert_close(features, reference(network.prepare(image)).flatten(1))


@pytest.mark.long
def test_old_files_of_densenet_and_vit(tmp_path):
    """Published files spell some layers as they were called years ago."""
    for constructor, spell in [
        ("densenet121", lambda key: _respelled(key, {"norm1.": "norm.1.", "norm2.": "norm.2.", "conv1.": "conv.1.", "conv2.": "conv.2."})),
        ("vit_b_32", lambda key: _respelled(key, {"mlp.0.": "mlp.linear_1.", "mlp.3.": "mlp.linear_2."})),
    ]:
        reference = torchvision.models.get_model(constructor).state_dict()
        old = {spell(key): value for key, value in reference.items()}
        assert old.keys() != reference.keys()
        torch.save(old, tmp_path / "weights.pth")
        state = select(constructor, weights=str(tmp_path / "weights.pth")).backbone.state_dict()
        same(state, {key: reference[key] for key in state})


def _respelled(key, names):
    for new, old in names.items():
        if "denselayer" in key or "encoder_layer" in key:
            key = key.replace(f".{new}", f".{old}")
    return key


def test_pretrainedmodels_reads_torchvisions_files(tmp_path):
    reference = torchvision.models.alexnet().eval()
    torch.save(reference.state_dict(), tmp_path / "weights.pth")
    network = select("ptm:alexnet", weights=str(tmp_path / "weights.pth")).eval()
    reference.classifier[-1] = torch.nn.Identity()
    image = torch.rand(1, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(network(image)[1]["pooled"], reference(network.prepare(image)))


@pytest.mark.parametrize("constructor", ["vgg11", "vgg16_bn", "resnet18", "densenet121", "squeezenet1_0", "inceptionv3"])
def test_pretrainedmodels_knows_the_keys_of_torchvisions_files(constructor):
    with torch.device("meta"):
        arguments = {"init_weights": False} if constructor == "inceptionv3" else {}
        published = torchvision.models.get_model({"inceptionv3": "inception_v3"}.get(constructor, constructor), **arguments).state_dict()
        network = select(f"ptm:{constructor}", not_pretrained=True)
    renamed = {network.published_key(key): value.shape for key, value in published.items()}
    own = {key: value.shape for key, value in network.backbone.state_dict().items()}
    assert {key: renamed.get(key) for key in own} == own
    assert all(key.startswith(_weights.CLASSIFIERS) for key in renamed.keys() - own.keys())


def test_files_that_do_not_fit_are_explained(resnet18, tmp_path):
    path = str(tmp_path / "weights.pth")
    torch.save(resnet18.state_dict(), path)
    with pytest.raises(UserError, match=r"does not fit conv4: missing 0\.weight, .* in all\); unexpected .*conv1\.weight") as error:
        select("conv4", weights=path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500
    with pytest.raises(UserError, match="does not fit resnet50"):
        select("resnet50", weights=path)
    with pytest.raises(UserError, match="size mismatch for .*shape") as error:
        select("wide_resnet50_2", weights=_saved(torchvision.models.resnet50().state_dict(), path))
    assert "\n" not in str(error.value)


def _saved(content, path):
    torch.save(content, path)
    return path


@pytest.mark.parametrize("content", [[1, 2], {}, {"weights": 3}, torch.zeros(3), {"state_dict": {}}])
def test_files_without_a_state_dict_are_explained(content, tmp_path):
    with pytest.raises(UserError, match="holds no state dict"):
        select("conv4", weights=_saved(content, str(tmp_path / "weights.pth")))


def test_files_that_cannot_be_read_are_explained(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        select("conv4", weights=str(tmp_path / "nowhere.pth"))
    (tmp_path / "text.pth").write_text("no weights")
    with pytest.raises(UserError, match="cannot be read"):
        select("conv4", weights=str(tmp_path / "text.pth"))
    for text in ("arch: conv4\nlr: 1e-05\n", "not a checkpoint", "{}", "."):  # of a run's parameters.yaml, pickle says: pop from empty list
        (tmp_path / "text.pth").write_text(text)
        with pytest.raises(UserError, match=r"cannot be read \(it is no file of torch.save\)"):
            select("conv4", weights=str(tmp_path / "text.pth"))
    with pytest.raises(UserError, match=r"cannot be read \(it holds posix.getcwd, and tensors alone are read\)"):
        select("conv4", weights=_saved(os.getcwd, str(tmp_path / "pickle.pth")))
    with pytest.raises(UserError, match="cannot be read"):
        select("conv4", weights=str(tmp_path))


def test_of_another_backbone_nothing_is_said_to_fit(tmp_path, capsys):
    path = _saved(select("conv4", embed_dim=16).state_dict(), str(tmp_path / "conv4.pth"))
    with pytest.raises(UserError, match="does not fit resnet18"):
        select("resnet18", weights=path)
    assert "only the backbone fits" not in capsys.readouterr().out
    select("conv4", weights=path, embed_dim=8)
    assert "only the backbone fits" in capsys.readouterr().out


FAILURES = [urllib.error.URLError("no route"), TimeoutError("timed out"), ConnectionResetError("reset"), RuntimeError("invalid hash value")]


@pytest.mark.parametrize("error", FAILURES)
@pytest.mark.parametrize("name", ["resnet50_frozen_normalize", "bninception", "googlenet", "squeezenet1_1"])
def test_no_network_is_one_clear_error(name, error, monkeypatch, tmp_path, capsys):
    limits = []

    def fail(*args, **kwargs):
        limits.append(socket.getdefaulttimeout())
        raise error

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    with pytest.raises(UserError) as raised:
        select(name, weights_cache=str(tmp_path))
    message = str(raised.value)
    assert "--not_pretrained" in message and "--weights FILE" in message and "http" in message and "\n" not in message
    assert limits == [_weights.TIMEOUT] and socket.getdefaulttimeout() is None
    select(name, not_pretrained=True, weights_cache=str(tmp_path))


def test_downloads_land_in_the_cache_and_are_used(monkeypatch, tmp_path, bare, resnet18):
    asked = []

    def download(url, file, hash_prefix=None, progress=True):
        asked.append((url, hash_prefix))
        torch.save(resnet18.state_dict(), file)

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    for _ in range(2):
        network = select("resnet18", weights_cache=str(tmp_path / "cache"))
        assert network.weights_name == "IMAGENET1K_V1"
        same(network.backbone.state_dict(), bare)
    weights = torchvision.models.ResNet18_Weights.IMAGENET1K_V1
    assert asked == [(weights.url, weights.url[-12:-4])]
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(b"half a file")
    with pytest.raises(UserError, match="delete that file"):
        select("resnet18", weights_cache=str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("name", "weights", "url"),
    [
        ("resnet50", "IMAGENET1K_V1", "resnet50-0676ba61.pth"),
        ("googlenet", "IMAGENET1K_V1", "googlenet-1378be20.pth"),
        ("bninception", "imagenet", "bn_inception-52deb4733.pth"),
    ],
)
def test_families_ask_for_the_published_weights(name, weights, url, monkeypatch):
    def published(asked, **kwargs):
        assert asked.endswith(url) and kwargs["weights_only"]
        network = {"resnet50": lambda: torchvision.models.resnet50(), "googlenet": lambda: torchvision.models.googlenet(init_weights=False)}
        if name in network:
            return network[name]().state_dict()  # with its classifiers, the auxiliary ones too
        import pretrainedmodels

        return pretrainedmodels.bninception(pretrained=None).state_dict()

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", published)
    assert select(name).weights_name == weights


def test_every_conv4_says_that_it_starts_random(capsys):
    for _ in range(2):  # two runs of one process, such as folds or trials
        assert select("conv4").weights_name == "random"
        assert capsys.readouterr().out.splitlines() == ["conv4: there are no pretrained weights, it starts random"]
    select("conv4", not_pretrained=True)
    assert capsys.readouterr().out == ""


def test_the_name_of_torchvisions_weights_needs_no_torchvision(monkeypatch):
    names = ["resnet50", "googlenet", "vit_b_16", "vit_h_14"]  # the last one has none of that name
    expected = [_torchvision.published(name).name for name in names]
    assert [_torchvision.weights_of(name) for name in names] == expected and expected[-1] != expected[0] == "IMAGENET1K_V1"
    _torchvision.weights_of.cache_clear()
    monkeypatch.setattr(_torchvision, "published", None)
    assert [_torchvision.weights_of(name) for name in names[:3]] == expected[:3]
    _torchvision.weights_of.cache_clear()
