"""Networks of timm: names, data config, pooling, sizes, weights of every form, stages, blocks."""

import socket
import subprocess
import sys
import urllib.error

import pytest
import safetensors.torch
import timm
import torch

import architectures
import datasets
import parameters
from architectures import _timm, _weights
from tests.trainers import tiny
from utilities.errors import UnknownName, UserError

VIT, DINOV2, CONVNEXT = "timm:vit_tiny_patch16_224", "timm:vit_small_patch14_reg4_dinov2.lvd142m", "timm:convnext_atto"
CASES = {  # name -> (crop size, feature dimension, blocks, last stages)
    VIT: (32, 192, 12, {"blocks.10": 192, "blocks.11": 192}),
    DINOV2: (28, 384, 12, {"blocks.10": 384, "blocks.11": 384}),
    CONVNEXT: (64, 320, 12, {"stages.2": 160, "stages.3": 320}),
    "timm:efficientnet_lite0": (64, 1280, 16, {"blocks.4": 112, "blocks.6": 320}),
    "timm:resnet18": (64, 512, 8, {"layer3": 256, "layer4": 512}),
    "timm:swin_tiny_patch4_window7_224": (64, 768, 12, {"layers.2": 384, "layers.3": 768}),
}


def select(name, **flags):
    return architectures.select(name, **{"not_pretrained": True, "embed_dim": 8, **flags})


def images(size, count=2):
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("name", "backbone", "traits"),
    [
        ("timm:vit_small_patch16_224.dino_frozen_normalize", "timm:vit_small_patch16_224.dino", {"frozen", "normalize"}),
        ("timm:vit_small_patch16_224.augreg_in21k_ft_in1k_layernorm", "timm:vit_small_patch16_224.augreg_in21k_ft_in1k", {"layernorm"}),
        ("timm:vit_small_patch14_reg4_dinov2.lvd142m", "timm:vit_small_patch14_reg4_dinov2.lvd142m", set()),
        ("timm:resnet50_normalize_frozen", "timm:resnet50", {"frozen", "normalize"}),
    ],
)
def test_names_with_underscores_and_dots(name, backbone, traits):
    parsed = architectures.parse(name)
    assert (parsed.full, parsed.backbone, parsed.traits) == (name, backbone, traits)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("timm:vit_tiny_patch16_22", r"Did you mean 'timm:vit_tiny_patch16_224'\? Names: python -c .*list_models"),
        ("timm:vit_small_patch16_224.dinoo", "timm's weights of vit_small_patch16_224 are .*vit_small_patch16_224.dino$"),
        ("timm:vit_small_patch16_224.augreg_in21k_ftin1k", "timm's weights of vit_small_patch16_224 are"),
        ("timm:vit_tiny_patch16_224_frozn", "unknown trait .*Did you mean 'frozen'"),
        ("vit_tiny_patch16_224", "unknown architecture 'vit_tiny_patch16_224'.* and timm:<name>"),
    ],
)
def test_wrong_names(name, says):
    with pytest.raises(UnknownName, match=says) as error:
        architectures.check(name)
    assert "\n" not in str(error.value)


@pytest.mark.long
def test_timm_is_imported_when_named_alone_and_is_listed():
    code = "import sys, architectures; architectures.check('resnet50_frozen'); assert 'timm' not in sys.modules; {}"
    code = code.format("architectures.check('timm:resnet18'); assert 'timm' in sys.modules")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    listed = dict(parameters.listing("architectures"))
    assert "timm.list_models" in listed["timm:<name>"] and list(listed)[: -len(architectures.LISTED)] == architectures.REGISTRY.names()


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_features_are_those_before_the_logits(name):
    size, feature_dim, blocks, stages = CASES[name]
    network = select(f"{name}_normalize", crop_size=size).eval()
    embeddings, features = network(images(size))
    backbone = network.backbone
    expected = backbone.forward_head(backbone.forward_features(network.prepare(images(size))), pre_logits=True)
    assert torch.equal(features["pooled"], expected) and expected.shape == (2, feature_dim) == (2, network.feature_dim)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(2))
    assert len(network.blocks()) == blocks and len({id(block) for block in network.blocks()}) == blocks
    assert list(network.STAGES)[-2:] == list(stages)
    kept = []
    backbone.get_submodule(list(stages)[0]).register_forward_hook(lambda module, inputs, output: kept.append(output))
    assert network.give_stages(list(stages)) == list(stages.values())
    given = network(images(size))[1]["stages"][0]
    output = kept[-1]
    if output.ndim == 3:
        output = output[:, backbone.num_prefix_tokens :].mean(1)
    else:
        output = output.mean((1, 2) if "swin" in name else (2, 3))
    torch.testing.assert_close(given, output)


@pytest.mark.parametrize(
    ("name", "size", "mean", "crop_pct"),
    [
        ("timm:vit_small_patch16_224.dino", 224, (0.485, 0.456, 0.406), 0.9),
        ("timm:vit_small_patch16_224.augreg_in21k", 224, (0.5, 0.5, 0.5), 0.9),
        ("timm:vit_base_patch16_clip_224.openai", 224, (0.48145466, 0.4578275, 0.40821073), None),
        ("timm:vit_small_patch14_reg4_dinov2.lvd142m", 518, (0.485, 0.456, 0.406), None),
    ],
)
def test_the_data_config_is_timms(name, size, mean, crop_pct):
    with torch.device("meta"):
        network = select(name)
    assert (network.input_size, network.mean, network.interpolation) == (size, mean, "bicubic")
    assert network.data_config["input_size"] == [3, size, size] and network.data_config["interpolation"] == "bicubic"
    assert crop_pct is None or network.data_config["crop_pct"] == crop_pct


def test_the_interpolation_reaches_the_transforms(tmp_path):
    opt = parameters.read(["--dataset", "cub200", "--arch", VIT])
    for network, by in ((select(VIT), "bicubic"), (select("conv4"), "bilinear")):
        shape = datasets.shape_for(network)
        training, test = datasets._transforms.build(opt, shape["input_size"], None, shape["interpolation"])
        assert all(f"interpolation=InterpolationMode.{by.upper()}" in steps.text for steps in (training, test))
    plain = datasets._transforms.build(opt, 48)
    assert [steps.text for steps in plain] == [steps.text for steps in (training, test)]


def test_frozen_is_for_batchnorm_alone():
    network = select("timm:resnet18_frozen").train()
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert norms and not any(module.training for module in norms) and network.backbone.layer1.training
    for name in (VIT, CONVNEXT):
        with pytest.raises(UserError, match="_frozen lets BatchNorm rest, and this backbone has none"):
            select(f"{name}_frozen", crop_size=32)


def test_layernorm_is_before_the_embedding_layer():
    network = select(f"{VIT}_layernorm", crop_size=32).eval()
    embeddings, features = network(images(32))
    pooled = features["pooled"].double()
    normed = (pooled - pooled.mean(1, keepdim=True)) / (pooled.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(embeddings, network.last_linear(normed.float()), atol=1e-5, rtol=1e-4)
    assert not any("layernorm" in key for key in network.state_dict())


@torch.no_grad()
def test_pooling():
    tokens = select(VIT, crop_size=32).eval()
    for pool in ("token", "avg", "avgmax"):
        network = select(VIT, crop_size=32, pool=pool).eval()
        network.load_state_dict(tokens.state_dict())
        out = network.backbone.forward_features(network.prepare(images(32)))
        patches = out[:, 1:]
        by_hand = {"token": out[:, 0], "avg": patches.mean(1), "avgmax": (patches.mean(1) + patches.amax(1)) / 2}[pool]
        torch.testing.assert_close(network(images(32))[1]["pooled"], by_hand)
    maps = select("timm:resnet18", pool="gem").eval()
    features = maps(images(64))[1]
    by_hand = torch.zeros(2, 512, dtype=torch.float64)
    for row in features["spatial"].double().clamp(min=1e-6).flatten(2).unbind(2):
        by_hand += row**3 / features["spatial"][0, 0].numel()
    torch.testing.assert_close(features["pooled"].double(), by_hand ** (1 / 3), atol=1e-5, rtol=1e-4)
    assert select(CONVNEXT, pool="gem").eval()(images(64))[1]["pooled"].shape == (2, 320)
    for name, pool in ((VIT, "gem"), ("timm:resnet18", "token"), ("conv4", "avg"), ("resnet18", "token"), ("vgg11", "gem")):
        with pytest.raises(UserError, match=f"--pool {pool}: ") as error:
            select(name, pool=pool)
        assert "\n" not in str(error.value)


def test_sizes_that_do_not_go(tmp_path):
    with pytest.raises(UserError, match="--crop_size 30: .* patches of 16 x 16: take a multiple, 32"):
        select(VIT, crop_size=30)
    with pytest.raises(UserError, match="takes images of 32 x 32 pixels, not 48 x 48"):
        select(VIT, crop_size=32)(images(48))


@pytest.mark.parametrize("form", ["pth", "safetensors"])
def test_position_embeddings_of_another_size(form, tmp_path):
    torch.manual_seed(3)
    published = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=10)
    path = tmp_path / f"weights.{form}"
    (torch.save if form == "pth" else safetensors.torch.save_file)(published.state_dict(), str(path))
    same = select(VIT, crop_size=64, weights=str(path))
    expected = published.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in same.backbone.state_dict().items())
    other = select(VIT, crop_size=32, weights=str(path)).backbone.pos_embed
    token, grid = published.pos_embed[:, :1], published.pos_embed[:, 1:].reshape(1, 4, 4, -1).permute(0, 3, 1, 2)
    grid = torch.nn.functional.interpolate(grid, size=(2, 2), mode="bicubic", antialias=True)
    torch.testing.assert_close(other, torch.cat([token, grid.flatten(2).mT], 1))


def test_dinov2s_own_file(tmp_path):
    """The authors' files name registers and blocks otherwise, hold a mask token, and positions for the class token."""
    network = select(DINOV2, crop_size=28)
    state, width = network.backbone.state_dict(), network.feature_dim
    theirs = {}
    for key, value in state.items():
        theirs[{"reg_token": "register_tokens"}.get(key, key)] = value + 0.5
    theirs["mask_token"] = torch.zeros(1, width)
    theirs["pos_embed"] = torch.cat([torch.zeros(1, 1, width), state["pos_embed"] + 0.5], 1)
    torch.save(theirs, tmp_path / "dinov2.pth")
    loaded = select(DINOV2, crop_size=28, weights=str(tmp_path / "dinov2.pth")).backbone.state_dict()
    assert state.keys() == loaded.keys()
    moved = [key for key in state if not torch.allclose(loaded[key], state[key] + 0.5)]
    assert moved == []  # the class token holds its position, here 0


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "convnext_atto", "efficientnet_b0", "resnet18", "swin_tiny_patch4_window7_224"])
def test_timms_own_files_and_whole_networks(name, tmp_path):
    """With the classifier, which is left out; and as this program writes a network."""
    network = timm.create_model(name)
    safetensors.torch.save_file(network.state_dict(), str(tmp_path / "weights.safetensors"))
    loaded = select(f"timm:{name}", weights=str(tmp_path / "weights.safetensors"))
    expected = network.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in loaded.backbone.state_dict().items())
    torch.save({"state_dict": loaded.state_dict()}, tmp_path / "checkpoint.pth.tar")
    again = select(f"timm:{name}", weights=str(tmp_path / "checkpoint.pth.tar")).state_dict()
    assert all(torch.equal(value, again[key]) for key, value in loaded.state_dict().items())


def _foreign_efficientnet(backbone):
    """The keys of efficientnet-lite-pytorch, spelled out from its layers: key -> ours."""
    keys, parts = {}, ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    norm = lambda theirs, ours: {f"{theirs}.{part}": f"{ours}.{part}" for part in parts}  # noqa: E731
    keys |= {"_conv_stem.weight": "conv_stem.weight", **norm("_bn0", "bn1"), "_conv_head.weight": "conv_head.weight", **norm("_bn1", "bn2")}
    number = 0
    for stage, blocks in enumerate(backbone.blocks):
        for place in range(len(blocks)):
            theirs, ours = f"_blocks.{number}", f"blocks.{stage}.{place}"
            if number == 0:  # no expansion
                keys |= {f"{theirs}._depthwise_conv.weight": f"{ours}.conv_dw.weight", **norm(f"{theirs}._bn1", f"{ours}.bn1")}
                keys |= {f"{theirs}._project_conv.weight": f"{ours}.conv_pw.weight", **norm(f"{theirs}._bn2", f"{ours}.bn2")}
            else:
                keys |= {f"{theirs}._expand_conv.weight": f"{ours}.conv_pw.weight", **norm(f"{theirs}._bn0", f"{ours}.bn1")}
                keys |= {f"{theirs}._depthwise_conv.weight": f"{ours}.conv_dw.weight", **norm(f"{theirs}._bn1", f"{ours}.bn2")}
                keys |= {f"{theirs}._project_conv.weight": f"{ours}.conv_pwl.weight", **norm(f"{theirs}._bn2", f"{ours}.bn3")}
            number += 1
    return keys


def test_efficientnet_lite_pytorchs_file(tmp_path):
    own = timm.create_model("efficientnet_lite0", num_classes=0)
    for number, value in enumerate(own.state_dict().values()):
        value.fill_(number)
    keys = _foreign_efficientnet(own)
    assert sorted(keys.values()) == sorted(own.state_dict())
    theirs = {key: own.state_dict()[ours] for key, ours in keys.items()}
    torch.save({**theirs, "_fc.weight": torch.zeros(1000, 1280), "_fc.bias": torch.zeros(1000)}, tmp_path / "lite0.pth")
    loaded = select("timm:efficientnet_lite0_frozen_normalize", weights=str(tmp_path / "lite0.pth")).backbone.state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in own.state_dict().items())


def test_files_that_do_not_fit_are_explained(tmp_path):
    torch.save(timm.create_model("resnet18").state_dict(), tmp_path / "weights.pth")
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 64)
    for name, file, says in (
        (VIT, "weights.pth", "does not fit timm:vit_tiny_patch16_224"),
        (CONVNEXT, "weights.pth", "does not fit timm:convnext_atto"),
        ("timm:efficientnet_b0", "weights.pth", "does not fit timm:efficientnet_b0"),
        ("conv4", "broken.safetensors", "broken.safetensors cannot be read"),
        (VIT, "none.safetensors", "no such file"),
    ):
        with pytest.raises(UserError, match=says) as error:
            select(name, weights=str(tmp_path / file))
        assert "\n" not in str(error.value)


def test_without_network_one_line_names_both_ways_out(monkeypatch, tmp_path):
    def silent(*args, **kwargs):
        raise urllib.error.URLError(socket.gaierror(-2, "Name or service not known"))

    monkeypatch.setattr("urllib.request.urlopen", silent)
    with pytest.raises(UserError, match=r"timm/vit_tiny_patch16_224.* \(.*not known.*--weights FILE.*--not_pretrained") as error:
        architectures.select(f"{VIT}.augreg_in21k", embed_dim=8, crop_size=32, weights_cache=str(tmp_path))
    assert "\n" not in str(error.value)


def test_the_hubs_cache_is_read_without_network(monkeypatch, tmp_path):
    monkeypatch.setattr(_timm, "_reach", lambda host: pytest.fail("the file is in the cache"))
    published = timm.create_model("vit_tiny_patch16_224")
    config = _timm.data_config("vit_tiny_patch16_224")
    folder = tmp_path / f"models--{config.hf_hub_id.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    safetensors.torch.save_file(published.state_dict(), str(folder / "snapshots" / "abc" / "model.safetensors"))
    network = architectures.select(VIT, embed_dim=8, weights_cache=str(tmp_path))
    assert torch.equal(network.backbone.blocks[3].attn.qkv.weight, published.blocks[3].attn.qkv.weight)
    assert network.weights_name == f"vit_tiny_patch16_224.{config.tag}" and _weights.SAFE == ".safetensors"


@pytest.mark.parametrize("name", [VIT, CONVNEXT, "timm:efficientnet_b0_frozen"])
def test_checkpointing_and_layer_decay(name):
    size = CASES.get(name, (64,))[0]
    torch.manual_seed(0)
    network = select(name, crop_size=size)
    lean = select(name, crop_size=size, grad_checkpointing=True)
    lean.load_state_dict(network.state_dict())
    for one in (network, lean):
        for module in one.modules():
            if isinstance(module, torch.nn.Dropout) or type(module).__name__ == "DropPath":
                module.eval()
        one(images(size))[0].square().sum().backward()
    for (key, one), other in zip(network.named_parameters(), lean.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, msg=key)
    opt = parameters.read(["--dataset", "glyphs", "--arch", name, "--layer_decay", ".5", "--lr", "1"])
    groups = network.param_groups(opt)
    found = [id(p) for group in groups for p in group["params"]]
    assert sorted(found) == sorted(id(p) for p in network.parameters())
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    blocks = network.blocks()
    assert {rates[id(p)] for p in blocks[-1].parameters()} == {0.5} and {rates[id(p)] for p in blocks[0].parameters()} == {
        0.5 ** len(blocks)
    }
    stem = next(network.backbone.parameters())
    assert rates[id(stem)] == 0.5 ** (len(blocks) + 1)


def test_a_cascade_on_a_vit_trains_and_comes_back(data, tmp_path):
    flags = ["--arch", f"{VIT}_normalize", "--resize_size", "36", "--crop_size", "32", "--augmentation", "none", "--not_pretrained", "--n_epochs", "1"]
    run = tiny.run(data, tmp_path, "--trainer", "cascaded", *flags)
    environment = (run.folder / "environment.yaml").read_text()
    assert "data_config" in environment and "BICUBIC" in environment
    from runs import load_run

    network, _ = load_run(run.folder)
    assert network(images(32))[0].shape[0] == 2
