"""Networks of timm: names, data config, pooling, sizes, weights of every form, stages, blocks."""

import socket
import urllib.error

import pytest
import safetensors.torch
import torch
from torch.testing import assert_close

import architectures
import datasets
import parameters
from architectures import _timm
from tests.architectures.networks import assert_same, images, saved, select
from tests.kit.refusals import refused

TINY = "timm:test_vit"
VIT = "timm:vit_tiny_patch16_224"
DINOV2 = "timm:vit_small_patch14_reg4_dinov2.lvd142m"
CONVNEXT = "timm:convnext_atto"
# name -> (crop size, feature dimension, blocks, last stages)
CASES = {
    VIT: (32, 192, 12, {"blocks.10": 192, "blocks.11": 192}),
    DINOV2: (28, 384, 12, {"blocks.10": 384, "blocks.11": 384}),
    CONVNEXT: (64, 320, 12, {"stages.2": 160, "stages.3": 320}),
    "timm:efficientnet_lite0": (64, 1280, 16, {"blocks.4": 112, "blocks.6": 320}),
    "timm:resnet18": (64, 512, 8, {"layer3": 256, "layer4": 512}),
    "timm:swin_tiny_patch4_window7_224": (64, 768, 12, {"layers.2": 384, "layers.3": 768}),
}


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_features_are_those_before_the_logits(name):
    size, feature_dim, blocks, stages = CASES[name]
    network = select(f"{name}_normalize", crop_size=size).eval()
    embeddings, features = network(images(size))
    backbone = network.backbone
    expected = backbone.forward_head(backbone.forward_features(network.prepare(images(size))), pre_logits=True)
    assert torch.equal(features["pooled"], expected) and expected.shape == (2, feature_dim) == (2, network.feature_dim)
    assert_close(embeddings.norm(dim=1), torch.ones(2))
    assert len(network.blocks()) == blocks and len({id(block) for block in network.blocks()}) == blocks
    assert list(network.STAGES)[-2:] == list(stages)
    outputs = []
    backbone.get_submodule(list(stages)[0]).register_forward_hook(lambda module, inputs, output: outputs.append(output))
    assert network.give_stages(list(stages)) == list(stages.values())
    stage = network(images(size))[1]["stages"][0]
    output = outputs[-1]
    over = (1, 2) if "swin" in name else (2, 3)
    if output.ndim == 3:
        output = output[:, backbone.num_prefix_tokens :]
        over = 1
    assert_close(stage, output.mean(over))


def test_the_data_config_and_interpolation_are_timms():
    for name, size, mean in (
        ("vit_small_patch16_224.dino", 224, (0.485, 0.456, 0.406)),
        ("vit_base_patch16_clip_224.openai", 224, (0.48145466, 0.4578275, 0.40821073)),
        ("vit_small_patch14_reg4_dinov2.lvd142m", 518, (0.485, 0.456, 0.406)),
    ):
        with torch.device("meta"):
            network = select(f"timm:{name}")
        assert (network.input_size, network.mean, network.interpolation) == (size, mean, "bicubic")
        assert network.data_config["input_size"] == [3, size, size]
        assert network.data_config["interpolation"] == "bicubic"
    opt = parameters.read(["--dataset", "cub200", "--arch", TINY])
    for name, interpolation in ((TINY, "BICUBIC"), ("conv4", "BILINEAR")):
        shape = datasets.shape_for(select(name))
        transforms = datasets._transforms.build(opt, shape["input_size"], None, shape["interpolation"])
        assert all(f"interpolation=InterpolationMode.{interpolation}" in steps.text for steps in transforms)


def test_frozen_and_layernorm():
    network = select("timm:resnet18_frozen").train()
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert norms and not any(module.training for module in norms) and network.backbone.layer1.training
    with refused("_frozen freezes BatchNorm, and this backbone has none"):
        select(f"{TINY}_frozen", crop_size=32)
    network = select(f"{TINY}_layernorm", crop_size=32).eval()
    embeddings, features = network(images(32))
    pooled = features["pooled"].double()
    normed = (pooled - pooled.mean(1, keepdim=True)) / (pooled.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    assert_close(embeddings, network.last_linear(normed.float()), atol=1e-5, rtol=1e-4)
    assert not any("layernorm" in key for key in network.state_dict())


@torch.no_grad()
def test_pooling_of_tokens_and_sizes_that_do_not_go():
    tokens = select(TINY, crop_size=32).eval()
    out = tokens.backbone.forward_features(tokens.prepare(images(32)))
    patches = out[:, 1:]
    for pool, by_hand in {
        "token": out[:, 0],
        "avg": patches.mean(1),
        "avgmax": (patches.mean(1) + patches.amax(1)) / 2,
        "token_avg": torch.cat([out[:, 0], patches.mean(1)], 1),
    }.items():
        network = select(TINY, crop_size=32, pool=pool).eval()
        network.backbone.load_state_dict(tokens.backbone.state_dict())
        assert_close(network(images(32))[1]["pooled"], by_hand)
        assert network.feature_dim == by_hand.shape[1]
    # as EVA-02 and BEiT have one
    network.backbone.fc_norm = torch.nn.LayerNorm(network.feature_dim // 2).requires_grad_(False)
    network.backbone.fc_norm.weight.mul_(3)
    expected = torch.cat([network.backbone.fc_norm(part) for part in (out[:, 0], patches.mean(1))], 1)
    assert_close(network(images(32))[1]["pooled"], expected)
    assert select(TINY, crop_size=[32, 32]).input_size == 32
    refusals = {TINY: "gem", "timm:test_resnet": "token", "conv4": "avg", "resnet18": "token", "vgg11": "gem"}
    for name, pool in refusals.items():
        with refused(f"--pool {pool}: "), torch.device("meta"):
            select(name, pool=pool)
    with refused("--crop_size 30: .* patches of 16 x 16: take a multiple, 32"):
        select(TINY, crop_size=30)
    with refused("takes images of 32 x 32 pixels, not 48 x 48"):
        tokens(images(48))


def test_position_embeddings_of_another_size(tmp_path):
    import timm

    torch.manual_seed(3)
    published = timm.create_model("test_vit", img_size=64, num_classes=10)
    path = saved(published.state_dict(), tmp_path / "weights.pth")
    expected = {key: value for key, value in published.state_dict().items() if not key.startswith("head.")}
    assert_same(select(TINY, crop_size=64, weights=path).backbone.state_dict(), expected)
    resized = select(TINY, crop_size=32, weights=path).backbone.pos_embed
    token = published.pos_embed[:, :1]
    grid = published.pos_embed[:, 1:].reshape(1, 4, 4, -1).permute(0, 3, 1, 2)
    grid = torch.nn.functional.interpolate(grid, size=(2, 2), mode="bicubic", antialias=True)
    assert_close(resized, torch.cat([token, grid.flatten(2).mT], 1))


@pytest.mark.long
def test_dinov2s_own_file(tmp_path):
    """The authors' files name registers and blocks otherwise, hold a mask token, and positions for the class token."""
    network = select(DINOV2, crop_size=28)
    state = network.backbone.state_dict()
    width = network.feature_dim
    theirs = {{"reg_token": "register_tokens"}.get(key, key): value + 0.5 for key, value in state.items()}
    theirs["mask_token"] = torch.zeros(1, width)
    theirs["pos_embed"] = torch.cat([torch.zeros(1, 1, width), state["pos_embed"] + 0.5], 1)
    loaded = select(DINOV2, crop_size=28, weights=saved(theirs, tmp_path / "dinov2.pth")).backbone.state_dict()
    assert state.keys() == loaded.keys()
    # the class token holds its position, here 0
    assert all(torch.allclose(loaded[key], value + 0.5) for key, value in state.items())


@pytest.mark.parametrize(
    "name", ["test_vit", "test_convnext", pytest.param("swin_tiny_patch4_window7_224", marks=pytest.mark.long)]
)
def test_timms_own_files_and_whole_networks(name, tmp_path):
    """With the classifier, which is left out; and as this program writes a network."""
    import timm

    expected = timm.create_model(name).state_dict()
    safetensors.torch.save_file(expected, str(tmp_path / "weights.safetensors"))
    loaded = select(f"timm:{name}", weights=str(tmp_path / "weights.safetensors"))
    assert all(torch.equal(value, expected[key]) for key, value in loaded.backbone.state_dict().items())
    checkpoint = saved({"state_dict": loaded.state_dict()}, tmp_path / "checkpoint.pth.tar")
    assert_same(select(f"timm:{name}", weights=checkpoint).state_dict(), loaded.state_dict())


def test_the_hubs_cache_is_read_without_network(monkeypatch, tmp_path):
    import timm

    def silent(*args, **kwargs):
        raise urllib.error.URLError(socket.gaierror(-2, "Name or service not known"))

    monkeypatch.setattr("urllib.request.urlopen", silent)
    with refused(r"timm/test_vit.* \(.*not known.*--weights FILE.*--not_pretrained"):
        architectures.select(TINY, embed_dim=8, crop_size=32, weights_cache=str(tmp_path))
    published = timm.create_model("test_vit")
    config = _timm.data_config("test_vit")
    folder = tmp_path / f"models--{config.hf_hub_id.replace('/', '--')}"
    for subfolder in ("refs", "snapshots/abc"):
        (folder / subfolder).mkdir(parents=True)
    (folder / "refs/main").write_text("abc")
    safetensors.torch.save_file(published.state_dict(), str(folder / "snapshots/abc/model.safetensors"))
    network = architectures.select(TINY, embed_dim=8, weights_cache=str(tmp_path))
    assert torch.equal(network.backbone.blocks[3].attn.qkv.weight, published.blocks[3].attn.qkv.weight)
    assert network.weights_name == f"test_vit.{config.tag}"
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 64)
    with refused("broken.safetensors cannot be read"):
        select("conv4", weights=str(tmp_path / "broken.safetensors"))


@pytest.mark.parametrize("name", [TINY, "timm:test_convnext", "timm:test_efficientnet_frozen"])
def test_checkpointing_and_layer_decay(name):
    size = 32 if name == TINY else 64
    torch.manual_seed(0)
    network = select(name, crop_size=size)
    lean = select(name, crop_size=size, grad_checkpointing=True)
    lean.load_state_dict(network.state_dict())
    for model in (network, lean):
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout) or type(module).__name__ == "DropPath":
                module.eval()
        model(images(size))[0].square().sum().backward()
    for (key, parameter), lean_parameter in zip(network.named_parameters(), lean.parameters(), strict=True):
        assert_close(parameter.grad, lean_parameter.grad, msg=key)
    opt = parameters.read(["--dataset", "glyphs", "--arch", name, "--layer_decay", ".5", "--lr", "1"])
    groups = network.param_groups(opt)
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in network.parameters())
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    blocks = network.blocks()
    stem = next(network.backbone.parameters())
    depths = {1: blocks[-1].parameters(), len(blocks): blocks[0].parameters(), len(blocks) + 1: [stem]}
    for depth, layers in depths.items():
        assert {rates[id(p)] for p in layers} == {0.5**depth}
