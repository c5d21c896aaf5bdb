"""What holds for every network: shapes, traits, embedding layer, optimiser groups, repeatable starts."""

import argparse

import pytest
import torch

import architectures
from utilities.errors import UserError

FAMILIES = architectures.REGISTRY.names()
NORMS = torch.nn.modules.batchnorm._BatchNorm
RATES = {"lr": 1e-3, "decay": 1e-4}


def select(name, **flags):
    return architectures.select(name, **{"not_pretrained": True, "embed_dim": 8, **flags})


def images(size=64, count=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def statistics(network):
    norms = {path: module for path, module in network.named_modules() if isinstance(module, NORMS)}
    return {f"{path}.{key}": value.clone() for path, module in norms.items() for key, value in module.named_buffers()}


@pytest.mark.parametrize("family", FAMILIES)
def test_shapes_and_statements(family):
    network = select(family).eval()
    embeddings, features = network(images())
    assert embeddings.shape == (2, 8) and embeddings.dtype == torch.float32
    assert features["pooled"].shape == (2, network.feature_dim) and features["spatial"].ndim == 4
    assert isinstance(network.last_linear, torch.nn.Linear) and network.last_linear.in_features == network.feature_dim
    assert torch.equal(network.last_linear(features["pooled"]), embeddings)
    assert isinstance(network.input_size, int) and len(network.mean) == len(network.std) == 3
    assert network.name == family and network.weights_name == "random" and not network.frozen and not network.normalizes
    assert not torch.equal(embeddings[0], embeddings[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_uint8_and_float_images_are_the_same(family):
    network = select(family).eval()
    raw = images()
    with torch.no_grad():
        torch.testing.assert_close(network(raw)[0], network(raw.float() / 255)[0], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(network.prepare(raw), network.prepare(raw.float() / 255), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_frozen_batchnorm_through_every_mode(family):
    network = select(f"{family}_frozen")
    layers = [module for module in network.modules() if isinstance(module, NORMS)]
    assert layers and network.frozen
    before = statistics(network)
    for switch in (network.train, network.eval, network.train, lambda: network.train(False), lambda: network.train(True)):
        switch()
        assert not any(layer.training for layer in layers)
    assert network.training and network.last_linear.training
    network(images())
    assert before and all(torch.equal(before[key], value) for key, value in statistics(network).items())
    assert all(parameter.requires_grad for layer in layers for parameter in layer.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_without_the_trait_statistics_move(family):
    network = select(family)
    before = statistics(network)
    network(images())
    assert not all(torch.equal(before[key], value) for key, value in statistics(network).items())


def test_every_kind_of_batchnorm_of_the_backbone_is_frozen():
    """Not one that stands behind it, whose statistics are those of the training."""
    network = select("conv4_frozen")
    layers = [torch.nn.BatchNorm1d(576), torch.nn.SyncBatchNorm(576), torch.nn.BatchNorm3d(2), torch.nn.LayerNorm(576)]
    network.backbone.added, network.last_linear = torch.nn.Sequential(*layers), torch.nn.BatchNorm1d(576)
    network.train()
    assert [layer.training for layer in network.backbone.added] == [False, False, False, True] and network.last_linear.training


@pytest.mark.parametrize("name", ["conv4_normalize", "resnet50_frozen_normalize", "googlenet_normalize_frozen", "bninception_normalize"])
def test_normalize_gives_unit_length(name):
    network = select(name)
    embeddings, features = network(images(64, 3))
    assert network.normalizes
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(3))
    bare = network.last_linear(features["pooled"])
    torch.testing.assert_close(embeddings, bare / bare.norm(dim=1, keepdim=True))


def test_unit_length_is_exact_in_half_precision():
    network = select("conv4_normalize").eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings, _ = network(images())
    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(2))


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_reaches_every_parameter(family):
    network = select(f"{family}_frozen_normalize")
    network(images(64, 3))[0].square().mul(torch.arange(24.0).view(3, 8)).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in network.parameters())
    assert network.backbone.state_dict() and any(parameter.grad.abs().sum() > 0 for parameter in network.backbone.parameters())


@pytest.mark.parametrize("flags", [{}, {"embed_hidden": [7, 5]}, {"embed_dim": 0}])
@pytest.mark.parametrize("name", ["conv4", "resnet50_frozen"])
def test_every_parameter_is_in_one_group(name, flags):
    network = select(name, **flags)
    groups = network.param_groups(argparse.Namespace(**RATES, fc_lr=0.5, fc_decay=0.25))
    ids = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(ids) == sorted(id(parameter) for parameter in network.parameters())
    assert (groups[0]["lr"], groups[0]["weight_decay"]) == (1e-3, 1e-4)
    assert {id(parameter) for parameter in groups[0]["params"]} == {id(parameter) for parameter in network.backbone.parameters()}
    assert [(group["lr"], group["weight_decay"]) for group in groups[1:]] == ([] if flags.get("embed_dim") == 0 else [(0.5, 0.25)])
    torch.optim.Adam(groups)


@pytest.mark.parametrize("rates", [{}, {"fc_lr": -1, "fc_decay": None}, {"fc_lr": 0.0}])
def test_last_layer_takes_the_networks_rates_by_default(rates):
    groups = select("conv4").param_groups(argparse.Namespace(**RATES, **rates))
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(1e-3, 1e-4)] * 2
    assert select("conv4").param_groups(argparse.Namespace(**RATES, fc_decay=0.0))[1]["weight_decay"] == 0.0


def test_embed_dim_0_gives_the_bare_features():
    network = select("conv4", embed_dim=0)
    embeddings, features = network(images(48))
    assert network.embed_dim == 576 and torch.equal(embeddings, features["pooled"])
    assert not list(network.last_linear.parameters())
    with pytest.raises(UserError, match="--embed_dim 0"):
        select("conv4", embed_dim=0, embed_hidden=[3])


def test_embed_hidden_puts_layers_with_relu_before_the_last():
    network = select("conv4", embed_hidden=[7, 5]).eval()
    embeddings, features = network(images(48))
    widths = [(layer.in_features, layer.out_features) for layer in network.hidden if isinstance(layer, torch.nn.Linear)]
    assert widths == [(576, 7), (7, 5)] and network.last_linear.in_features == 5
    x = features["pooled"]
    for layer in (network.hidden[0], network.hidden[2]):
        x = (x @ layer.weight.T + layer.bias).clamp(min=0)
    torch.testing.assert_close(embeddings, x @ network.last_linear.weight.T + network.last_linear.bias)


@pytest.mark.parametrize("flags", [{"embed_dim": -1}, {"embed_hidden": [0]}])
def test_impossible_widths_are_refused(flags):
    with pytest.raises(UserError, match="at least"):
        select("conv4", **flags)


@pytest.mark.parametrize("name", ["conv4", "googlenet", "ptm:resnext101_32x4d"])
def test_a_seed_gives_a_start(name):
    starts = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        starts.append({key: value.clone() for key, value in select(name).state_dict().items()})
    assert all(torch.equal(value, starts[1][key]) for key, value in starts[0].items())
    assert not all(torch.equal(value, starts[2][key]) for key, value in starts[0].items())


def test_two_networks_share_no_weights():
    first, second = select("ptm:resnext101_32x4d"), select("ptm:resnext101_32x4d")
    assert not {id(parameter) for parameter in first.parameters()} & {id(parameter) for parameter in second.parameters()}


def test_state_dict_is_the_networks_alone():
    keys = set(select("conv4", embed_hidden=[4]).state_dict())
    assert {key.partition(".")[0] for key in keys} == {"backbone", "hidden", "last_linear"}


def test_other_float_types():
    network = select("conv4_normalize").double().eval()
    embeddings, _ = network(images(48))
    assert embeddings.dtype == torch.float64 and network.scale.dtype == torch.float64


@pytest.mark.parametrize("shape", [(3, 48, 48), (2, 1, 48, 48), (2, 48, 48, 3)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="expected"):
        select("conv4")(torch.zeros(shape))
