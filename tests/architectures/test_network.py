"""What holds for every network: shapes, traits, embedding layer, optimiser groups, repeatable starts."""

import argparse

import pytest
import torch

import architectures
from tests.architectures.made import NORMS, images, refused, select

every_family = pytest.mark.parametrize("family", architectures.REGISTRY.names())


def statistics(network):
    norms = {path: module for path, module in network.named_modules() if isinstance(module, NORMS)}
    return {f"{path}.{key}": value.clone() for path, module in norms.items() for key, value in module.named_buffers()}


@every_family
def test_shapes_statements_and_kinds_of_images(family):
    network = select(family)
    before = statistics(network)
    network(images())
    assert not all(torch.equal(before[key], value) for key, value in statistics(network).items()), "not frozen"
    embeddings, features = network.eval()(images())
    assert embeddings.shape == (2, 8) and embeddings.dtype == torch.float32 and not torch.equal(embeddings[0], embeddings[1])
    assert features["pooled"].shape == (2, network.feature_dim) and features["spatial"].ndim == 4
    assert torch.equal(network.last_linear(features["pooled"]), embeddings)
    assert network.name == family and network.weights_name == "random" and not network.frozen and not network.normalizes
    torch.testing.assert_close(embeddings, network(images().float() / 255)[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(network.prepare(images()), network.prepare(images().float() / 255), rtol=1e-5, atol=1e-4)


@every_family
def test_frozen_batchnorm_through_every_mode_unit_length_and_gradients(family):
    network = select(f"{family}_frozen_normalize")
    layers = [module for module in network.modules() if isinstance(module, NORMS)]
    assert layers and network.frozen and network.normalizes
    before = statistics(network)
    for switch in (network.train, network.eval, network.train, lambda: network.train(False), lambda: network.train(True)):
        switch()
        assert not any(layer.training for layer in layers)
    assert network.training and network.last_linear.training
    embeddings, features = network(images(64, 3))
    assert before and all(torch.equal(before[key], value) for key, value in statistics(network).items())
    bare = network.last_linear(features["pooled"])
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(embeddings, bare / bare.norm(dim=1, keepdim=True))
    embeddings.square().mul(torch.arange(24.0).view(3, 8)).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in network.parameters())
    assert network.backbone.state_dict() and any(parameter.grad.abs().sum() > 0 for parameter in network.backbone.parameters())


def test_every_kind_of_batchnorm_is_frozen_and_unit_length_is_exact_in_half_precision():
    """Not one that stands behind the backbone, whose statistics are those of the training."""
    network = select("conv4_frozen")
    layers = [torch.nn.BatchNorm1d(576), torch.nn.SyncBatchNorm(576), torch.nn.BatchNorm3d(2), torch.nn.LayerNorm(576)]
    network.backbone.added, network.last_linear = torch.nn.Sequential(*layers), torch.nn.BatchNorm1d(576)
    network.train()
    assert [layer.training for layer in network.backbone.added] == [False, False, False, True] and network.last_linear.training
    network = select("conv4_normalize").eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings, _ = network(images())
    assert embeddings.dtype == torch.float32 and network.double()(images())[0].dtype == torch.float64 == network.scale.dtype
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(2))


@pytest.mark.parametrize("flags", [{}, {"embed_hidden": [7, 5]}, {"embed_dim": 0}])
def test_every_parameter_is_in_one_group(flags):
    network = select("conv4", **flags)
    behind = [] if flags.get("embed_dim") == 0 else [True]
    for given, of_layers in (
        ({"fc_lr": 0.5, "fc_decay": 0.25}, (0.5, 0.25)), ({}, (1e-3, 1e-4)), ({"fc_lr": -1, "fc_decay": None}, (1e-3, 1e-4)),
        ({"fc_lr": 0.0}, (1e-3, 1e-4)), ({"fc_decay": 0.0}, (1e-3, 0.0)),
    ):  # fmt: skip
        groups = network.param_groups(argparse.Namespace(lr=1e-3, decay=1e-4, **given))
        assert sorted(id(p) for group in groups for p in group["params"]) == sorted(id(p) for p in network.parameters())
        assert [(group["lr"], group["weight_decay"]) for group in groups] == [(1e-3, 1e-4), *(of_layers for _ in behind)]
        assert {id(p) for p in groups[0]["params"]} == {id(p) for p in network.backbone.parameters()}


def test_widths_of_the_layers_behind_the_backbone():
    network = select("conv4", embed_dim=0)
    embeddings, features = network(images(48))
    assert network.embed_dim == 576 and torch.equal(embeddings, features["pooled"]) and not list(network.last_linear.parameters())
    for name in ("conv4", "conv4_normalize"):
        network = select(name, embed_hidden=[7, 5]).eval()
        assert {key.partition(".")[0] for key in network.state_dict()} == {"backbone", "hidden", "last_linear"}
        embeddings, features = network(images(48))
        widths = [(layer.in_features, layer.out_features) for layer in network.hidden if isinstance(layer, torch.nn.Linear)]
        assert widths == [(576, 7), (7, 5)] and network.last_linear.in_features == 5
        x = features["pooled"]
        for layer in (network.hidden[0], network.hidden[2]):
            x = (x @ layer.weight.T + layer.bias).clamp(min=0)
        x = x @ network.last_linear.weight.T + network.last_linear.bias
        torch.testing.assert_close(embeddings, x / x.norm(dim=1, keepdim=True) if network.normalizes else x)
        assert torch.equal(network.embed(features["pooled"]), embeddings), "one call"
    for flags in ({"embed_dim": 0, "embed_hidden": [3]}, {"embed_dim": -1}, {"embed_hidden": [0]}):
        with refused("--embed_dim 0 leaves out" if len(flags) == 2 else "at least"):
            select("conv4", **flags)
    for shape in ((3, 48, 48), (2, 1, 48, 48), (2, 48, 48, 3)):
        with pytest.raises(ValueError, match="expected"):
            network(torch.zeros(shape))


@pytest.mark.parametrize("name", ["conv4", "googlenet", "ptm:resnext101_32x4d"])
def test_a_seed_gives_a_start_and_two_networks_share_no_weights(name):
    networks = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        networks.append(select(name))
    one, again, other = (network.state_dict() for network in networks)
    assert all(torch.equal(value, again[key]) for key, value in one.items()) and not all(torch.equal(value, other[key]) for key, value in one.items())
    assert not {id(p) for p in networks[0].parameters()} & {id(p) for p in networks[1].parameters()}
