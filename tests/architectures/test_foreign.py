"""Checkpoints of FastReID, made by key names alone, and the pooling of its stem."""

import pytest
import torch
from torch.nn.functional import max_pool2d, pad
from torch.testing import assert_close

from tests.architectures.networks import assert_same, images, saved, select
from tests.kit.refusals import refused

FLAGS = {"neck": "bn", "stem_pool": "ceil", "last_stride": 1, "embed_dim": 0}
PIXELS = {
    "pixel_mean": torch.tensor([123.675, 116.28, 103.53]).view(1, 3, 1, 1),
    "pixel_std": torch.tensor([58.395, 57.12, 57.375]).view(1, 3, 1, 1),
}


def stirred(network):
    """The network with norms and statistics drawn."""
    for value in network.state_dict().values():
        if value.ndim == 1 and value.is_floating_point():
            value.uniform_(0.5, 1.5)
    return network


def as_fastreid(network):
    """The content of a FastReID file of a network: its head's names, the classifier, the pixels' statistics."""
    state = {"heads.weight": torch.ones(7, 4), **PIXELS}
    place = 0
    for key, value in network.state_dict().items():
        if key == "last_linear.weight":
            state["heads.bottleneck.0.weight"] = value[:, :, None, None].clone()
            place = 1
        elif key.startswith("neck."):
            state[f"heads.bottleneck.{place}.{key.removeprefix('neck.')}"] = value.clone()
        elif key == "backbone.avgpool.power":
            state["heads.pool_layer.p"] = value.clone()
        elif key.startswith("backbone."):
            state[key] = value.clone()
    return {"model": state, "iteration": 9}


@pytest.mark.parametrize(
    ("arch", "flags"),
    [
        ("resnet18", {}),
        ("resnet18", {"embed_dim": 8, "pool": "gem_learned"}),
        pytest.param("resnet50_ibn_a", {"pool": "gem_learned"}, marks=pytest.mark.long),
    ],
)
def test_a_checkpoint_of_fastreid_is_loaded_with_its_head(arch, flags, tmp_path, capsys):
    torch.manual_seed(0)
    flags = FLAGS | flags
    source = stirred(select(arch, **flags))
    if flags["embed_dim"]:
        torch.nn.init.zeros_(source.last_linear.bias)
    path = saved(as_fastreid(source), tmp_path / "model_final.pth")
    torch.manual_seed(1)
    network = select(arch, **flags, weights=path)
    assert_same(network.state_dict(), source.state_dict())
    assert capsys.readouterr().out == ""
    with torch.no_grad():
        assert_close(network.eval()(images())[0], source.eval()(images())[0])
    if flags["embed_dim"]:
        assert "only the backbone fits" not in capsys.readouterr().out
        select(arch, **{**flags, "embed_dim": 4}, weights=path)
        assert "only the backbone fits" in capsys.readouterr().out


def test_what_would_compute_something_else_is_refused(tmp_path, capsys):
    torch.manual_seed(0)
    content = as_fastreid(stirred(select("resnet18", **FLAGS, pool="gem_learned")))
    path = saved(content, tmp_path / "sbs.pth")
    with refused("FastReID's, .*without padding.*: add --stem_pool ceil"):
        select("resnet18", weights=path, pool="gem_learned")
    with refused("learned power, .*: add --pool gem_learned"):
        select("resnet18", weights=path, **FLAGS)
    content["model"] |= {"backbone.NL_2.0.g.weight": torch.ones(1), "pixel_mean": torch.full((1, 3, 1, 1), 127.5)}
    with refused("non-local blocks .*WITH_NL False"):
        select("resnet18", weights=saved(content, tmp_path / "nl.pth"), **FLAGS, pool="gem_learned")
    del content["model"]["backbone.NL_2.0.g.weight"]
    select("resnet18", weights=saved(content, tmp_path / "half.pth"), **FLAGS, pool="gem_learned")
    assert "pixel_mean is not that of --arch resnet18" in capsys.readouterr().out


@torch.no_grad()
def test_the_stem_pools_without_padding_over_incomplete_windows():
    maps = torch.randn(2, 3, 8, 7)
    expected = max_pool2d(pad(maps, (0, 1, 0, 1), value=-torch.inf), 3, 2)
    for arch in ("resnet18", "osnet_x0_25", "timm:test_resnet"):
        pooling = select(arch, stem_pool="ceil").backbone.maxpool
        padded = select(arch).backbone.maxpool
        assert torch.equal(pooling(maps), expected[:, :, :4, :3]) and (pooling.padding, padded.padding) == (0, 1)
        assert pooling(maps[..., :6]).shape == padded(maps[..., :6]).shape
        assert not torch.equal(pooling(maps[..., :6]), padded(maps[..., :6]))
    for arch in ("googlenet", "conv4"):
        with refused("--stem_pool ceil: .* has no pooling of 3 x 3 behind its stem"):
            select(arch, stem_pool="ceil")
