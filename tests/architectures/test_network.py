"""What holds for every network: shapes, traits, embedding layer, optimiser groups, repeatable starts, stages."""

import argparse
import copy

import pytest
import torch
import torchvision
from torch.testing import assert_close

import architectures
from tests.architectures.networks import NORMS, assert_same, images, select
from tests.kit.documents import documented_example
from tests.kit.refusals import refused


@pytest.mark.parametrize("family", [*architectures.REGISTRY.names(), "osnet_x0_25", "osnet_ain_x0_25"])
def test_shapes_frozen_batchnorm_unit_length_and_gradients(family):
    network = select(family)
    frozen = select(f"{family}_frozen_normalize")
    frozen.load_state_dict(network.state_dict())
    before = statistics(network)
    layers = [module for module in frozen.modules() if isinstance(module, NORMS)]
    network(images())
    assert not all(torch.equal(before[key], value) for key, value in statistics(network).items()), "not frozen"
    embeddings, features = network.eval()(images())
    assert embeddings.shape == (2, 8) and embeddings.dtype == torch.float32
    assert not torch.equal(embeddings[0], embeddings[1])
    assert features["pooled"].shape == (2, network.feature_dim) and features["spatial"].ndim == 4
    assert torch.equal(network.last_linear(features["pooled"]), embeddings) and network.weights_name == "random"
    assert_close(embeddings, network(images().float() / 255)[0], rtol=1e-3, atol=1e-4)
    assert_close(network.prepare(images()), network.prepare(images().float() / 255), rtol=1e-5, atol=1e-4)
    for switch in (frozen.train, frozen.eval, frozen.train, lambda: frozen.train(False), lambda: frozen.train(True)):
        switch()
        assert layers and not any(layer.training for layer in layers)
    embeddings, features = frozen(images(64, 3))
    assert frozen.training and frozen.last_linear.training
    assert before and all(torch.equal(before[key], value) for key, value in statistics(frozen).items())
    bare = frozen.last_linear(features["pooled"])
    assert_close(embeddings, bare / bare.norm(dim=1, keepdim=True))
    embeddings.square().mul(torch.arange(24.0).view(3, 8)).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in frozen.parameters())
    assert any(parameter.grad.abs().sum() > 0 for parameter in frozen.backbone.parameters())


def statistics(network):
    norms = {path: module for path, module in network.named_modules() if isinstance(module, NORMS)}
    return {f"{path}.{key}": value.clone() for path, module in norms.items() for key, value in module.named_buffers()}


def test_every_batchnorm_is_frozen_and_unit_length_exact():
    """Not one that stands behind the backbone, whose statistics are those of the training."""
    network = select("conv4_frozen")
    layers = [torch.nn.BatchNorm1d(576), torch.nn.SyncBatchNorm(576), torch.nn.BatchNorm3d(2), torch.nn.LayerNorm(576)]
    network.backbone.added = torch.nn.Sequential(*layers)
    network.last_linear = torch.nn.BatchNorm1d(576)
    network.train()
    assert [layer.training for layer in network.backbone.added] == [False] * 3 + [True]
    assert network.last_linear.training
    network = select("conv4_normalize").eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings, _ = network(images())
    assert embeddings.dtype == torch.float32
    assert network.double()(images())[0].dtype == torch.float64 == network.scale.dtype
    assert_close(embeddings.norm(dim=1), torch.ones(2))


@pytest.mark.parametrize("flags", [{}, {"embed_hidden": [7, 5]}, {"embed_dim": 0}])
def test_every_parameter_is_in_one_group(flags):
    network = select("conv4", **flags)
    for rates, expected in (
        ({"fc_lr": 0.5, "fc_decay": 0.25}, (0.5, 0.25)),
        ({}, (1e-3, 1e-4)),
        ({"fc_lr": -1, "fc_decay": None}, (1e-3, 1e-4)),
        ({"fc_lr": 0.0}, (1e-3, 1e-4)),
        ({"fc_decay": 0.0}, (1e-3, 0.0)),
    ):
        groups = network.param_groups(argparse.Namespace(lr=1e-3, decay=1e-4, layer_decay=1.0, **rates))
        assert sorted(id(p) for group in groups for p in group["params"]) == sorted(id(p) for p in network.parameters())
        head_rates = [] if flags.get("embed_dim") == 0 else [expected]
        assert [(group["lr"], group["weight_decay"]) for group in groups] == [(1e-3, 1e-4), *head_rates]
        assert {id(p) for p in groups[0]["params"]} == {id(p) for p in network.backbone.parameters()}


def test_widths_of_the_layers_behind_the_backbone():
    network = select("conv4", embed_dim=0)
    embeddings, features = network(images(48))
    assert network.embed_dim == 576 and torch.equal(embeddings, features["pooled"])
    assert not list(network.last_linear.parameters())
    for name in ("conv4", "conv4_normalize"):
        network = select(name, embed_hidden=[7, 5]).eval()
        assert {key.partition(".")[0] for key in network.state_dict()} == {"backbone", "hidden", "last_linear"}
        embeddings, features = network(images(48))
        x = features["pooled"]
        for layer, shape in ((network.hidden[0], (7, 576)), (network.hidden[2], (5, 7))):
            assert layer.weight.shape == shape
            x = (x @ layer.weight.T + layer.bias).clamp(min=0)
        x = x @ network.last_linear.weight.T + network.last_linear.bias
        if network.normalizes:
            x = x / x.norm(dim=1, keepdim=True)
        assert_close(embeddings, x)
        assert torch.equal(network.embed(features["pooled"]), embeddings), "one call"
    for flags, message in (
        ({"embed_dim": 0, "embed_hidden": [3]}, "--embed_dim 0 leaves out"),
        ({"embed_dim": -1}, "at least"),
        ({"embed_hidden": [0]}, "at least"),
    ):
        with refused(message):
            select("conv4", **flags)
    for shape in ((3, 48, 48), (2, 1, 48, 48), (2, 48, 48, 3)):
        with pytest.raises(ValueError, match="expected"):
            network(torch.zeros(shape))


@pytest.mark.parametrize("name", ["conv4", "googlenet", pytest.param("ptm:resnext101_32x4d", marks=pytest.mark.long)])
def test_a_seed_gives_a_start_and_two_networks_share_no_weights(name):
    networks = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        networks.append(select(name))
    first, second, of_other_seed = (network.state_dict() for network in networks)
    assert_same(first, second)
    assert not all(torch.equal(value, of_other_seed[key]) for key, value in first.items())
    assert not {id(p) for p in networks[0].parameters()} & {id(p) for p in networks[1].parameters()}


def test_resnexts_do_not_share_the_packages_body():
    import pretrainedmodels

    weight = select("ptm:resnext101_32x4d").backbone.features[0].weight
    shared = pretrainedmodels.resnext101_32x4d(pretrained=None).features[0].weight
    assert weight is not shared and weight.shape == shared.shape and not torch.equal(weight, shared)


STAGES = {
    "resnet18": (32, {"layer1": 64, "layer2": 128, "layer3": 256, "layer4": 512}),
    "googlenet": (64, {"conv3": 192, "inception3b": 480, "inception4e": 832, "inception5b": 1024}),
    "bninception": (64, {"conv2": 192, "inception_3c": 576, "inception_4e": 1056, "inception_5b": 1024}),
    "conv4": (48, {"block1": 64, "block2": 64, "block3": 64, "block4": 64}),
    "regnet_y_400mf": (32, {f"trunk_output.block{k + 1}": width for k, width in enumerate((48, 104, 208, 440))}),
}


@pytest.mark.parametrize("name", STAGES)
@torch.no_grad()
def test_the_stages_of_the_families(name):
    size, widths = STAGES[name]
    network = select(name).eval()
    plain = network(images(size))
    assert list(network.STAGES) == list(widths) and "stages" not in plain[1]
    assert network.give_stages(list(widths)) == list(widths.values()) and not network.training
    embeddings, features = network(images(size))
    assert [tuple(stage.shape) for stage in features["stages"]] == [(2, width) for width in widths.values()]
    assert torch.equal(embeddings, plain[0])
    assert_close(features["stages"][-1], features["spatial"].mean((2, 3)))
    x = network.prepare(images(size))
    parts = dict(network.backbone.named_modules())
    if name == "resnet18":
        for step in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2"):
            x = parts[step](x)
        assert_close(features["stages"][1], x.mean((2, 3)))
    if name == "conv4":
        x = network.backbone[:8](x.contiguous(memory_format=torch.channels_last))
        assert_close(features["stages"][1], x.mean((2, 3)))


def test_a_copy_and_a_second_asking_keep_their_own_stages():
    network = select("conv4")
    network.give_stages(["block2", "block4"])
    changed = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(0.1)
    stages = network(images(32))[1]["stages"]
    changed_stages = changed(images(32))[1]["stages"]
    assert network.training and not torch.equal(stages[0], changed_stages[0])
    assert torch.equal(network(images(32))[1]["stages"][0], stages[0])
    stages[0].sum().backward()
    assert network.backbone[4].weight.grad is not None
    assert network.backbone[8].weight.grad is changed.backbone[4].weight.grad is None
    assert network.give_stages(["block3"]) == [64] and len(network(images(32))[1]["stages"]) == 1


@torch.no_grad()
def test_any_module_is_a_stage_tokens_too_and_others_are_refused(monkeypatch):
    def small_vit(name, weights, **arguments):
        sizes = {"patch_size": 32, "num_layers": 1, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 16}
        return torchvision.models.VisionTransformer(**sizes, **arguments)

    with monkeypatch.context() as patch:
        patch.setattr(torchvision.models, "get_model", small_vit)
        network = select("vit_b_32").eval()
    name = "encoder.layers.encoder_layer_0"
    outputs = []
    for candidate, says in (
        (network, "vit_b_32 .*no stage 'layer5'|it names none"),
        (select("resnet18"), "resnet18 has no stage 'layer5': layer1, layer2"),
    ):
        with refused(says):
            candidate.give_stages(["layer5"])
    network.backbone.get_submodule(name).register_forward_hook(lambda module, inputs, output: outputs.append(output))
    assert network.give_stages([name]) == [16]
    assert_close(network(images(224, 1))[1]["stages"][0], outputs[-1].mean(1))
    with refused("224 x 224 pixels, not 64 x 64: --crop_size 224"):
        network(images())


def test_the_network_of_contributing():
    content = {}
    exec(documented_example("class Network(_network.Network):"), content)
    opt = architectures.REGISTRY.options(None, embed_dim=8)
    name = architectures.Name("mine_normalize", "mine", frozenset({"normalize"}))
    network = content["Network"](opt, name).eval()
    assert (network.input_size, network.mean, network.std, network.input_space) == (48, (0.5,) * 3, (0.5,) * 3, "RGB")
    embeddings, features = network(images(48))
    assert embeddings.shape == (2, 8) and features["pooled"].shape == (2, 64)
    assert_close(embeddings.norm(dim=1), torch.ones(2))
