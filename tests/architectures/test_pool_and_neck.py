"""Poolings, the last stride and the neck, against torch written out; what losses and evaluation see of a neck."""

import math

import pytest
import torch

import parameters
import trainers
from architectures import select
from criteria import select as criterion_of
from engine.optimisers import parameter_groups
from tests.architectures.networks import images, saved
from tests.kit.refusals import refused

IMAGES = images(64, 4)


def network(arch="resnet18", **flags):
    torch.manual_seed(0)
    return select(arch, **{"not_pretrained": True, "embed_dim": 8, **flags})


@pytest.mark.parametrize("arch", ["resnet18", "bninception", "timm:test_resnet"])
def test_poolings_are_their_formulas(arch):
    """Of the map that the network gives beside them."""
    gem = lambda m: m.clamp(min=1e-6).pow(3).mean(1).pow(1 / 3)  # noqa: E731
    formulas = {
        "avgmax": lambda m: (m.mean(1) + m.max(1).values) / 2,
        "avg": lambda m: m.mean(1),
        "max": lambda m: m.max(1).values,
        "gem": gem,
        "gem_learned": gem,
    }
    for kind, formula in list(formulas.items())[: 1 if arch == "bninception" else None]:
        features = network(arch, pool=kind).eval()(IMAGES)[1]
        maps = features["spatial"].double().flatten(2).transpose(1, 2)  # (B, hw, C)
        torch.testing.assert_close(features["pooled"].double(), formula(maps), rtol=1e-4, atol=1e-5, msg=kind)


def test_a_pooling_that_replaces_one_with_weights_takes_the_published_file():
    model = network("timm:vit_pe_core_tiny_patch16_384.fb", pool="avg")
    published = {**model.backbone.state_dict(), "attn_pool.latent": torch.zeros(1)}
    assert model.published_state(published).keys() == model.backbone.state_dict().keys()


@pytest.mark.parametrize(
    "arch", ["resnet18", "googlenet", "bninception", "regnet_y_400mf", "ptm:se_resnet50", "timm:regnetx_002"]
)
def test_the_last_stage_keeps_the_size_of_its_map(arch):
    device = "cpu" if arch == "regnet_y_400mf" else "meta"  # it reads tensors while it is built
    with torch.device(device):
        plain, whole_map = (network(arch, last_stride=stride).eval() for stride in (2, 1))
        (small, large) = (
            model(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))[1]["spatial"].shape[2:] for model in (plain, whole_map)
        )
    assert (small, large) == ((2, 2), (4, 4))
    assert {name: value.shape for name, value in plain.state_dict().items()} == {
        name: value.shape for name, value in whole_map.state_dict().items()
    }


@pytest.mark.parametrize("traits", ["", "_normalize"])
@pytest.mark.parametrize("neck", ["bn", "layernorm"])
def test_a_neck_is_its_formula_and_the_features_hold_what_it_saw(neck, traits):
    model = network(f"conv4{traits}", neck=neck).double().train()
    embeddings, features = model(IMAGES)
    before = features["pooled"] @ model.last_linear.weight.T + model.last_linear.bias
    over = 0 if neck == "bn" else 1
    after = (before - before.mean(over, keepdim=True)) / (before.var(over, unbiased=False, keepdim=True) + 1e-5).sqrt()
    if traits:
        before, after = (x / x.norm(dim=1, keepdim=True) for x in (before, after))
    torch.testing.assert_close(embeddings, after)
    torch.testing.assert_close(features["before_neck"], before)
    assert "before_neck" not in network("conv4")(IMAGES)[1]
    model = network(neck=neck, embed_dim=0).eval()  # without an embedding layer the neck stands on the pooled features
    embeddings, features = model(IMAGES)
    pooled = features["pooled"]
    over = (pooled - pooled.mean(1, keepdim=True)) / (pooled.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    expected = pooled / math.sqrt(1 + 1e-5) if neck == "bn" else over
    torch.testing.assert_close(embeddings, expected)
    assert model.embed_dim == 512


def test_what_of_poolings_and_necks_trains_and_files_without_them_load(tmp_path):
    words = [
        "--dataset",
        "glyphs",
        "--arch",
        "resnet18",
        "--not_pretrained",
        "--pool",
        "gem_learned",
        "--neck",
        "bn",
        "--decay",
        ".01",
    ]
    opt = parameters.read(words)
    model = select(opt.arch, opt)
    power = model.backbone.avgpool.power
    groups = parameter_groups(model, torch.nn.Identity(), opt)
    (group,) = [group for group in groups if id(power) in map(id, group["params"])]
    assert power.item() == 3 and (group["name"], group["weight_decay"]) == ("backbone", 0.01)
    trained = {id(p) for group in groups for p in group["params"]}
    assert id(model.neck.weight) in trained and id(model.neck.bias) not in trained, "the neck's bias stays zero"
    assert model.neck.weight.eq(1).all() and not model.neck.bias.any()
    model.requires_grad_(False).requires_grad_(True)
    assert not model.neck.bias.requires_grad and model.neck.weight.requires_grad, "in any phase of a trainer"
    model(IMAGES)[0].square().mul(torch.arange(4.0)[:, None]).sum().backward()
    assert power.grad.abs() > 0
    bare = saved(network().backbone.state_dict(), tmp_path / "bare.pth")
    assert select("resnet18", pool="gem_learned", weights=bare, embed_dim=8).backbone.avgpool.power.item() == 3
    power.data.fill_(4)
    assert (
        select("resnet18", opt, weights=saved(model.state_dict(), tmp_path / "whole.pth")).backbone.avgpool.power.item()
        == 4
    )
    frozen = network("conv4_frozen", neck="bn").train()
    assert frozen.neck.training and not frozen.backbone[1].training, "_frozen rests the backbone's BatchNorm"


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_metric_loss_sees_the_chosen_side_evaluation_and_classifier_the_side_behind(side):
    words = [
        "--dataset",
        "glyphs",
        "--arch",
        "conv4",
        "--neck",
        "bn",
        "--neck_feature",
        side,
        "--trainer",
        "classifier",
        "--embed_dim",
        "8",
    ]
    opt = parameters.read(words)
    opt.n_classes = 5
    trainer = trainers.select("classifier", opt, select("conv4", opt), criterion_of("contrastive"))
    outputs = trainer.train().outputs(IMAGES)
    torch.manual_seed(0)
    embeddings, features = trainer.network(IMAGES)
    compared = features["before_neck"] if side == "before" else embeddings
    torch.testing.assert_close(outputs["embeddings"], compared)
    torch.testing.assert_close(outputs["evaluated"], embeddings)
    torch.testing.assert_close(outputs["classifier_logits"], trainer.evaluated_heads.linear(embeddings))


def test_what_cannot_be_is_one_line():
    for flags, message in (
        ({"last_stride": 1, "arch": "conv4"}, "no last stage"),
        ({"neck_feature": "before"}, "--neck_feature before has no effect without --neck: add it"),
    ):
        with refused(message):
            network(**flags)
    with refused("--neck bn: --loss npair is meant for embeddings of any length"):
        words = ["--dataset", "glyphs", "--loss", "npair", "--batch_mining", "npair", "--arch", "conv4", "--neck", "bn"]
        criterion_of("npair", parameters.read(words), batchminer=lambda *arguments: None)
    with refused("one image has no batch statistics"):
        network("conv4", neck="bn").train()(IMAGES[:1])
