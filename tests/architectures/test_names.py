"""The grammar of --arch, and what wrong names say."""

import re
import sys

import pytest
import torch

import architectures
import parameters
from tests.architectures.networks import select
from utilities.errors import UnknownName


def test_names_are_read():
    names = (
        "resnet50, resnet50 frozen normalize, wide_resnet50_2, wide_resnet50_2 frozen, efficientnet_b0 normalize, "
        "vit_b_16, resnext50_32x4d normalize frozen, tv:vgg11_bn frozen, ptm:se_resnet50 normalize, "
        "timm:vit_small_patch16_224.dino frozen normalize, timm:vit_small_patch14_reg4_dinov2.lvd142m, "
        "timm:vit_small_patch16_224.augreg_in21k_ft_in1k layernorm, timm:resnet50 normalize frozen"
    )
    for name in names.split(", "):
        full = name.replace(" ", "_")
        backbone, *traits = name.split()
        parsed = architectures.parse(full)
        assert (parsed.full, parsed.backbone, parsed.traits) == (full, backbone, set(traits))
        architectures.check(full)


UNKNOWN = ("deeplabv3_resnet50", "quantized_resnet50", "elsewhere:resnet50", "_network", "_frozen", "")
WRONG = {
    "resnet50_frozn": "'frozn'. Did you mean 'frozen'? Available: frozen, layernorm, normalize",
    "resnet50_frozn_normalize": "'frozn'",
    "resnet5": "'resnet5'. Did you mean 'resnet50'?",
    "tv:bninception": "in the package 'tv'",
    "ptm:vit_b_16": "in the package 'ptm'",
    "timm:vit_tiny_patch16_22": "Did you mean 'timm:vit_tiny_patch16_224'?",
    "timm:vit_tiny_patch16_224_frozn": "Did you mean 'frozen'",
    "timm:vit_small_patch16_224.dinoo": "timm's weights of vit_small_patch16_224 are ",
    "vit_tiny_patch16_224": "and timm:<name>",
    **dict.fromkeys(UNKNOWN, "unknown architecture"),
}


def test_wrong_names_are_explained():
    for name, says in WRONG.items():
        with pytest.raises(UnknownName, match=re.escape(says)) as caught:
            architectures.check(name)
        assert "\n" not in str(caught.value)
    with pytest.raises(UnknownName, match="'2'"):
        select("resnet50_2")


def test_which_package_a_name_is_of_and_what_is_listed():
    torchvisions = architectures._torchvision
    older = architectures._pretrainedmodels
    modules = [architectures._module_of(name) for name in ("resnet18", "ptm:resnet18", "polynet")]
    assert modules == [torchvisions, older, older]
    for package, least in ((torchvisions, 80), (older, 40)):
        names = package.names()
        assert len(names) >= least and not any(word in name for name in names for word in ("quant", "deeplab", "rcnn"))
    listed = dict(parameters.listing("architectures"))
    assert "timm.list_models" in listed["timm:<name>"]
    assert list(listed)[: -len(architectures.LISTED)] == architectures.REGISTRY.names()


def test_a_familys_name_needs_no_package_and_an_import_draws_nothing(monkeypatch, tmp_path):
    """Of what files import at their top: tests/test_imports.py."""
    (tmp_path / "pretrainedmodels.py").write_text("import torch\nDRAWN = torch.rand(9)\n")
    with monkeypatch.context() as patch, torch.device("meta"):
        patch.syspath_prepend(tmp_path)
        # monkeypatch notes the module here, to put it back after the block; inside, it is imported anew
        patch.setitem(sys.modules, "pretrainedmodels", None)
        del sys.modules["pretrainedmodels"]
        state = torch.get_rng_state()
        package = architectures._pretrainedmodels.package()
        assert package.__file__ == str(tmp_path / "pretrainedmodels.py") and package.DRAWN.device.type == "cpu"
        assert torch.equal(torch.get_rng_state(), state)

    def refuse():
        raise AssertionError("a family's name costs a heavy import")

    monkeypatch.setattr(architectures._timm, "names", refuse)
    architectures.check("resnet18_frozen")
    for source in ("torchvision", "pretrainedmodels", "timm"):
        monkeypatch.setitem(sys.modules, source, None)
        monkeypatch.setattr(getattr(architectures, f"_{source}"), "names", refuse)
    for name in ("resnet50_frozen_normalize", "bninception", "googlenet_frozen", "conv4"):
        architectures.check(name)
    architectures.REGISTRY.options()
