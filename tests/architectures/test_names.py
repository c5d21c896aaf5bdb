"""The grammar of --arch, and what wrong names say."""

import subprocess
import sys

import pytest

import architectures
from utilities.errors import UnknownName


@pytest.mark.parametrize(
    ("name", "backbone", "traits"),
    [
        ("resnet50", "resnet50", set()),
        ("resnet50_frozen_normalize", "resnet50", {"frozen", "normalize"}),
        ("resnet50_normalize_frozen", "resnet50", {"frozen", "normalize"}),
        ("wide_resnet50_2", "wide_resnet50_2", set()),
        ("wide_resnet50_2_frozen", "wide_resnet50_2", {"frozen"}),
        ("efficientnet_b0_normalize", "efficientnet_b0", {"normalize"}),
        ("vit_b_16", "vit_b_16", set()),
        ("resnext50_32x4d_frozen_normalize", "resnext50_32x4d", {"frozen", "normalize"}),
        ("tv:vgg11_bn_frozen", "tv:vgg11_bn", {"frozen"}),
        ("ptm:se_resnet50_normalize", "ptm:se_resnet50", {"normalize"}),
        ("se_resnet50", "se_resnet50", set()),
    ],
)
def test_names_are_read(name, backbone, traits):
    parsed = architectures.parse(name)
    assert (parsed.full, parsed.backbone, parsed.traits) == (name, backbone, traits)
    architectures.check(name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("resnet50_frozn", "'frozn'. Did you mean 'frozen'? Available: frozen, layernorm, normalize"),
        ("resnet50_frozn_normalize", "'frozn'"),
        ("resnet50_normalize_frozn", "'frozn'"),
        ("vit_b_16_normalise", "'normalise'. Did you mean 'normalize'?"),
        ("resnet50_2", "'2'"),
        ("resnet5", "'resnet5'. Did you mean 'resnet50'? Available: bninception, conv4, googlenet, resnet50, and any torchvision or "),
        ("ResNet50", "Did you mean 'resnet50'?"),
        ("conv4frozen", "Did you mean 'conv4'?"),
        ("efficientnet_b9", "Did you mean 'efficientnet_b"),
        ("se_resnet51_frozen", "Did you mean 'se_resnet50'?"),
        ("deeplabv3_resnet50", "unknown architecture"),
        ("fasterrcnn_resnet50_fpn", "unknown architecture"),
        ("r3d_18", "unknown architecture"),
        ("quantized_resnet50", "unknown architecture"),
        ("tv:bninception", "in the package 'tv'"),
        ("ptm:vit_b_16", "in the package 'ptm'"),
        ("elsewhere:resnet50", "unknown architecture"),
        ("_network", "unknown architecture"),
        ("frozen", "unknown architecture"),
        ("_frozen", "unknown architecture"),
        ("", "unknown architecture"),
    ],
)
def test_wrong_names_are_explained(name, says):
    with pytest.raises(UnknownName) as error:
        architectures.check(name)
    assert says in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(UnknownName):
        architectures.select(name, not_pretrained=True)


def test_torchvision_stands_before_pretrainedmodels():
    assert architectures._module_of("resnet18") is architectures._torchvision
    assert architectures._module_of("ptm:resnet18") is architectures._pretrainedmodels
    assert architectures._module_of("polynet") is architectures._pretrainedmodels


def test_captions_name_the_paper():
    for family in architectures.REGISTRY.names():
        assert "arXiv" in architectures.REGISTRY.caption(family)


IN_A_FRESH_PROCESS = """
import sys, torch, architectures
for name in ("resnet50_frozen_normalize", "bninception", "googlenet_frozen", "conv4"):
    architectures.check(name)
architectures.REGISTRY.options()
assert not {"torchvision", "pretrainedmodels"} & set(sys.modules), "a family's name costs a heavy import"
starts = []
for _ in range(2):
    torch.manual_seed(1)
    starts.append(architectures.select("bninception", not_pretrained=True).last_linear.weight)
assert torch.equal(*starts), "importing a package draws from the generator"
"""


def test_families_are_checked_without_heavy_imports_and_imports_draw_nothing():
    done = subprocess.run([sys.executable, "-c", IN_A_FRESH_PROCESS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
