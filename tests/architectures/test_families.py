"""Each family against the package it comes from, and any constructor of both packages."""

import pytest
import torch
import torchvision
from torch.testing import assert_close

from architectures import _torchvision
from tests.architectures.networks import images, saved, select
from tests.kit.refusals import refused

IMAGENET_MEAN = torch.tensor([0.485, 0.456, 0.406])
IMAGENET_STD = torch.tensor([0.229, 0.224, 0.225])
LONG = ("densenet121", "mnasnet0_5", "convnext_tiny")


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "size", "arguments"),
    [
        ("resnet18", 64, {}),
        ("googlenet", 64, {"init_weights": False, "transform_input": True}),
        ("inception_v3", 96, {"init_weights": False, "transform_input": True}),
        ("squeezenet1_1", 64, {}),
        ("mobilenet_v3_small", 64, {}),
        *(pytest.param(name, 64, {}, marks=pytest.mark.long) for name in LONG),
        pytest.param("ptm:alexnet", 224, {}, marks=pytest.mark.long),
    ],
)
def test_torchvisions_families_see_what_their_weights_saw(name, size, arguments, tmp_path):
    """torchvision's own use: ImageNet's normalisation, then perhaps `transform_input`; with auxiliary classifiers."""
    reference = torchvision.models.get_model(name.removeprefix("ptm:"), **arguments).eval()
    network = select(name, weights=saved(reference.state_dict(), tmp_path / "weights.pth")).eval()
    raw = images(size)
    features = network(raw)[1]
    head = "classifier.6" if name == "ptm:alexnet" else network.head
    reference.set_submodule(head, torch.nn.Identity())
    expected = reference((raw.float() / 255 - IMAGENET_MEAN.view(1, 3, 1, 1)) / IMAGENET_STD.view(1, 3, 1, 1))
    assert_close(features["pooled"], expected.flatten(1), rtol=1e-3, atol=1e-4)
    assert network.input_size == (299 if name == "inception_v3" else 224)
    assert not any("aux" in key.lower() for key in network.state_dict())
    if name == "resnet18":
        assert features["spatial"].shape == (2, 512, 2, 2)
        assert (network.feature_dim, network.mean, network.std) == (512, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    elif arguments:
        assert network.mean == network.std == (0.5, 0.5, 0.5) and isinstance(network.train()(raw)[0], torch.Tensor)
    if name == "resnet18" or arguments:
        assert_close(features["spatial"].mean((2, 3)), features["pooled"], rtol=1e-3, atol=1e-5)


@torch.no_grad()
def test_bninception_sees_blue_first_from_0_to_255(tmp_path):
    import pretrainedmodels

    reference = pretrainedmodels.bninception(pretrained=None).eval()
    network = select("bninception", weights=saved(reference.state_dict(), tmp_path / "weights.pth")).eval()
    raw = images(224, 1)
    blue_first = raw[:, [2, 1, 0]].float() - torch.tensor([104.0, 117.0, 128.0]).view(1, 3, 1, 1)
    for pictures in (raw, raw.float() / 255):
        assert_close(network.prepare(pictures), blue_first, rtol=1e-6, atol=1e-4)
    reference.last_linear = torch.nn.Identity()
    features = network(raw)[1]
    assert_close(features["pooled"], reference(blue_first), rtol=1e-3, atol=1e-3)
    assert features["spatial"].shape == (1, 1024, 7, 7)
    assert network.input_space == "BGR" and network.input_range == 255
    assert network.mean == (104, 117, 128) and network.std == (1, 1, 1)
    for size in (96, 227):
        features = network(images(size, 1))[1]
        assert_close(features["spatial"].mean((2, 3)), features["pooled"])


@torch.no_grad()
def test_conv4_is_four_blocks_of_64():
    network = select("conv4").eval()
    x = images(48, 3).float() / 127.5 - 1
    convolutions = [module for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert [(layer.in_channels, layer.out_channels) for layer in convolutions] == [(3, 64)] + [(64, 64)] * 3
    assert all(layer.kernel_size == (3, 3) for layer in convolutions)
    for convolution, norm in zip(convolutions, norms, strict=True):
        x = torch.nn.functional.max_pool2d(torch.relu(norm(convolution(x))), 2)
    features = network(images(48, 3))[1]
    assert_close(features["spatial"], x)
    assert_close(features["pooled"], x.flatten(1))
    assert (network.input_size, network.feature_dim) == (48, 576)
    for size in (16, 28, 84):
        assert network(images(size))[1]["pooled"].shape == (2, 576)
    with refused("at least 16 x 16 pixels, not 15 x 15"):
        network(images(15))


# regnet reads tensors while it is built, and of a family the smallest networks are enough
DEEP = "_b _l _m _s _base _large _small 13 19 13_bn 19_bn _16 b5 b6 b7 101 152 161 169 201".split()
TORCHVISIONS = [
    name
    for name in _torchvision.names()
    if not name.startswith("regnet") and (not name.endswith(tuple(DEEP)) or name == "mobilenet_v3_small")
]
PRETRAINEDMODELS = (
    "alexnet densenet121 dpn68 dpn68b fbresnet152 inceptionv3 inceptionv4 nasnetamobile resnet18 cafferesnet101 "
    "se_resnet50 se_resnext50_32x4d squeezenet1_0 vgg11_bn xception bninception"
).split()
# the cheapest of each kind: what ends in a convolution, in maps or in features, is made for one size, or has two
# outputs
QUICK = (
    "tv:efficientnet_b0 tv:resnet18 tv:shufflenet_v2_x0_5 tv:squeezenet1_0 tv:swin_t tv:vgg11 tv:vit_b_32 ptm:alexnet "
    "ptm:dpn68b ptm:inceptionv3 ptm:squeezenet1_0 ptm:vgg11_bn"
).split()
CONSTRUCTORS = [*(f"tv:{name}" for name in TORCHVISIONS), *(f"ptm:{name}" for name in PRETRAINEDMODELS)]


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in CONSTRUCTORS if name not in QUICK)]
)
def test_constructors_of_both_packages(name):
    traits = "_frozen" if name.startswith("ptm:") else "_frozen_normalize"
    with torch.device("meta"):
        network = select(f"{name}{traits}")
        pictures = torch.zeros(2, 3, network.input_size, network.input_size, dtype=torch.uint8)
        # a second output comes in training alone; networks of pretrainedmodels also pool otherwise in evaluation
        modes = (True, False) if name.startswith("ptm:") else (True,)
        for mode in modes:
            embeddings, features = network.train(mode)(pictures)
            assert embeddings.shape == (2, 8) and features["pooled"].shape == (2, network.feature_dim)
    assert name != "ptm:alexnet" or "spatial" not in features
    assert not any(module.out_features == 1000 for module in network.modules() if isinstance(module, torch.nn.Linear))
    if name.startswith("ptm:"):
        import pretrainedmodels

        settings = next(iter(pretrainedmodels.pretrained_settings[network.constructor].values()))
        assert network.input_size == settings["input_size"][1] and list(network.mean) == list(settings["mean"])
        assert network.input_space == settings["input_space"]


@torch.no_grad()
def test_input_sizes_and_regnet():
    network = select("regnet_y_400mf").eval()
    features = network(images())[1]
    assert features["pooled"].shape == (2, network.feature_dim) == (2, 440)
    assert_close(network.backbone(network.prepare(images())), features["pooled"])
    with torch.device("meta"):
        for name, size, resized in (
            ("efficientnet_b1", 240, "bicubic"),
            ("swin_v2_t", 256, "bicubic"),
            ("vit_h_14", 518, "bicubic"),
            ("resnet18", 224, "bilinear"),
        ):
            assert (select(name).input_size, select(name).interpolation) == (size, resized)
        with refused("224 x 224 pixels, not 299 x 299"):
            select("ptm:densenet121")(torch.zeros(1, 3, 299, 299))
