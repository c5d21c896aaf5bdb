"""Each family against the package it comes from, and any constructor of both packages."""

import pytest
import torch
import torchvision

import architectures
from architectures import _pretrainedmodels, _torchvision
from utilities.errors import UserError

IMAGENET_MEAN, IMAGENET_STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def select(name, **flags):
    return architectures.select(name, **{"not_pretrained": True, "embed_dim": 8, **flags})


def images(size=64, count=2):
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def by_hand(raw, mean, std):
    return (raw.float() / 255 - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1)


def saved(network, tmp_path):
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    return str(tmp_path / "weights.pth")


@torch.no_grad()
def test_resnet50_is_torchvisions(tmp_path):
    reference = torchvision.models.resnet50().eval()
    network = select("resnet50", weights=saved(reference, tmp_path)).eval()
    raw = images()
    features = network(raw)[1]
    reference.fc = torch.nn.Identity()
    torch.testing.assert_close(features["pooled"], reference(by_hand(raw, IMAGENET_MEAN, IMAGENET_STD)), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(features["spatial"].mean((2, 3)), features["pooled"])
    assert features["spatial"].shape == (2, 2048, 2, 2)
    assert (network.input_size, network.feature_dim, network.mean, network.std) == (224, 2048, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@torch.no_grad()
@pytest.mark.parametrize(("name", "constructor", "size"), [("googlenet", "googlenet", 64), ("inception_v3", "inception_v3", 96)])
def test_inception_sees_what_its_weights_saw(name, constructor, size, tmp_path):
    """torchvision's own use: ImageNet's mean and deviation, then `transform_input`; auxiliary classifiers in the file."""
    reference = torchvision.models.get_model(constructor, init_weights=False, transform_input=True).eval()
    network = select(name, weights=saved(reference, tmp_path)).eval()
    raw = images(size)
    features = network(raw)[1]
    reference.fc = torch.nn.Identity()
    torch.testing.assert_close(features["pooled"], reference(by_hand(raw, IMAGENET_MEAN, IMAGENET_STD)), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(features["spatial"].mean((2, 3)), features["pooled"], rtol=1e-3, atol=1e-5)
    assert network.mean == network.std == (0.5, 0.5, 0.5) and network.input_size == {"googlenet": 224, "inception_v3": 299}[name]
    assert not any("aux" in key.lower() for key in network.state_dict())
    network.train()
    assert isinstance(network(raw)[0], torch.Tensor)


@torch.no_grad()
def test_bninception_sees_blue_first_from_0_to_255(tmp_path):
    import pretrainedmodels

    reference = pretrainedmodels.bninception(pretrained=None).eval()
    network = select("bninception", weights=saved(reference, tmp_path)).eval()
    raw = images(224, 1)
    blue_first = raw[:, [2, 1, 0]].float() - torch.tensor([104.0, 117.0, 128.0]).view(1, 3, 1, 1)
    torch.testing.assert_close(network.prepare(raw), blue_first, rtol=1e-6, atol=1e-4)
    torch.testing.assert_close(network.prepare(raw.float() / 255), blue_first, rtol=1e-6, atol=1e-4)
    reference.last_linear = torch.nn.Identity()
    features = network(raw)[1]
    torch.testing.assert_close(features["pooled"], reference(blue_first), rtol=1e-3, atol=1e-3)
    assert features["spatial"].shape == (1, 1024, 7, 7)
    assert (network.input_space, network.input_range, network.mean, network.std) == ("BGR", 255, (104, 117, 128), (1, 1, 1))


@torch.no_grad()
@pytest.mark.parametrize("size", [96, 227, 256])
def test_bninception_takes_any_size(size):
    network = select("bninception").eval()
    embeddings, features = network(images(size, 1))
    assert embeddings.shape == (1, 8) and features["pooled"].shape == (1, 1024)
    torch.testing.assert_close(features["spatial"].mean((2, 3)), features["pooled"])


@torch.no_grad()
def test_conv4_is_four_blocks_of_64():
    network = select("conv4").eval()
    raw = images(48, 3)
    x = raw.float() / 127.5 - 1
    convolutions = [module for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert [(layer.in_channels, layer.out_channels) for layer in convolutions] == [(3, 64)] + [(64, 64)] * 3
    assert all(layer.kernel_size == (3, 3) for layer in convolutions)
    for convolution, norm in zip(convolutions, norms, strict=True):
        x = torch.nn.functional.max_pool2d(torch.relu(norm(convolution(x))), 2)
    features = network(raw)[1]
    torch.testing.assert_close(features["spatial"], x)
    torch.testing.assert_close(features["pooled"], x.flatten(1))
    assert (network.input_size, network.feature_dim) == (48, 576)


@torch.no_grad()
@pytest.mark.parametrize("size", [16, 28, 84])
def test_conv4_takes_other_sizes(size):
    assert select("conv4")(images(size))[1]["pooled"].shape == (2, 576)


def test_conv4_refuses_what_is_too_small():
    with pytest.raises(UserError, match="at least 16 x 16 pixels, not 15 x 15"):
        select("conv4")(images(15))


def test_vit_takes_one_size():
    network = select("vit_b_32").eval()
    with pytest.raises(UserError, match="224 x 224 pixels, not 64 x 64: --crop_size 224"):
        network(images())


def test_sizes_a_package_cannot_pool_are_explained():
    with torch.device("meta"), pytest.raises(UserError, match="224 x 224 pixels, not 299 x 299"):
        select("ptm:densenet121")(torch.zeros(1, 3, 299, 299))


ON_META = [name for name in _torchvision.names() if not name.startswith("regnet")]  # regnet reads tensors while it is built


DEEP = ("_b", "_l", "_m", "_s", "_base", "_large", "_small", "13", "19", "13_bn", "19_bn", "_16", "b5", "b6", "b7", "101", "152")
DEEP += ("161", "169", "201")


@pytest.mark.parametrize("name", [name for name in ON_META if not name.endswith(DEEP) or name == "mobilenet_v3_small"])
def test_torchvision_constructors(name):
    with torch.device("meta"):
        network = select(f"tv:{name}_frozen_normalize")
        for mode in (True, False):
            embeddings, features = network.train(mode)(torch.zeros(2, 3, network.input_size, network.input_size, dtype=torch.uint8))
            assert embeddings.shape == (2, 8) and features["pooled"].shape == (2, network.feature_dim)
    assert not any(module.out_features == 1000 for module in network.modules() if isinstance(module, torch.nn.Linear))


@torch.no_grad()
def test_regnet():
    network = select("regnet_y_400mf").eval()
    features = network(images())[1]
    assert features["pooled"].shape == (2, network.feature_dim) == (2, 440)
    torch.testing.assert_close(network.backbone(network.prepare(images())), features["pooled"])


SMALL = ["alexnet", "densenet121", "dpn68", "dpn68b", "fbresnet152", "inceptionv3", "inceptionv4", "nasnetamobile", "resnet18"]
SMALL += ["cafferesnet101", "se_resnet50", "se_resnext50_32x4d", "squeezenet1_0", "vgg11_bn", "xception", "bninception"]


@pytest.mark.parametrize("name", SMALL)
def test_pretrainedmodels_constructors(name):
    import pretrainedmodels

    with torch.device("meta"):
        network = select(f"ptm:{name}_frozen")
        for mode in (True, False):
            embeddings, features = network.train(mode)(torch.zeros(2, 3, network.input_size, network.input_size, dtype=torch.uint8))
            assert embeddings.shape == (2, 8) and features["pooled"].shape == (2, network.feature_dim)
    settings = next(iter(pretrainedmodels.pretrained_settings[name].values()))
    assert network.input_size == settings["input_size"][1] and list(network.mean) == list(settings["mean"])
    assert network.input_space == settings["input_space"]


def test_names_are_those_of_classifiers():
    assert len(_torchvision.names()) >= 80 and len(_pretrainedmodels.names()) >= 40
    assert not any("quant" in name or "deeplab" in name or "rcnn" in name for name in _torchvision.names())


def test_input_sizes_follow_the_weights():
    with torch.device("meta"):
        sizes = {name: select(name).input_size for name in ("efficientnet_b1", "swin_v2_t", "inception_v3", "vit_h_14", "resnet18")}
    assert sizes == {"efficientnet_b1": 240, "swin_v2_t": 256, "inception_v3": 299, "vit_h_14": 518, "resnet18": 224}


def test_an_absent_package_is_one_line(monkeypatch):
    def absent():
        raise ImportError("No module named 'six'")

    monkeypatch.setattr(_pretrainedmodels, "package", absent)
    with pytest.raises(UserError, match="pip install pretrainedmodels six"):
        select("bninception")
