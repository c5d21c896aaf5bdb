"""Poolings, the last stride and the neck, against torch written out; what losses and evaluation see of a neck."""

import math

import pytest
import torch
from torch.testing import assert_close

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


def read(words):
    return parameters.read(["--dataset", "glyphs", *words.split()])


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
        assert_close(features["pooled"].double(), formula(maps), rtol=1e-4, atol=1e-5, msg=kind)


def test_a_pooling_in_place_of_one_with_weights():
    model = network("timm:vit_pe_core_tiny_patch16_384.fb", pool="avg")
    published = {**model.backbone.state_dict(), "attn_pool.latent": torch.zeros(1)}
    assert model.published_state(published).keys() == model.backbone.state_dict().keys()


@pytest.mark.parametrize(
    "arch", ["resnet18", "googlenet", "bninception", "regnet_y_400mf", "ptm:se_resnet50", "timm:regnetx_002"]
)
def test_the_last_stage_keeps_the_size_of_its_map(arch):
    # it reads tensors while it is built
    device = "cpu" if arch == "regnet_y_400mf" else "meta"
    shapes = []
    with torch.device(device):
        for stride, size in ((2, (2, 2)), (1, (4, 4))):
            model = network(arch, last_stride=stride).eval()
            assert model(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))[1]["spatial"].shape[2:] == size
            shapes.append({name: value.shape for name, value in model.state_dict().items()})
    assert shapes[0] == shapes[1]


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
    assert_close(embeddings, after)
    assert_close(features["before_neck"], before)
    assert "before_neck" not in network("conv4")(IMAGES)[1]
    # without an embedding layer the neck stands on the pooled features
    model = network(neck=neck, embed_dim=0).eval()
    embeddings, features = model(IMAGES)
    pooled = features["pooled"]
    over = (pooled - pooled.mean(1, keepdim=True)) / (pooled.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    expected = pooled / math.sqrt(1 + 1e-5) if neck == "bn" else over
    assert_close(embeddings, expected)
    assert model.embed_dim == 512


def test_what_of_poolings_and_necks_trains(tmp_path):
    opt = read("--arch resnet18 --not_pretrained --pool gem_learned --neck bn --decay .01")
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
    path = saved(model.state_dict(), tmp_path / "whole.pth")
    assert select("resnet18", opt, weights=path).backbone.avgpool.power.item() == 4
    frozen = network("conv4_frozen", neck="bn").train()
    assert frozen.neck.training and not frozen.backbone[1].training, "_frozen rests the backbone's BatchNorm"


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_metric_loss_sees_the_chosen_side_of_the_neck(side):
    opt = read(f"--arch conv4 --neck bn --neck_feature {side} --trainer classifier --embed_dim 8")
    opt.n_classes = 5
    trainer = trainers.select("classifier", opt, select("conv4", opt), criterion_of("contrastive"))
    outputs = trainer.train().outputs(IMAGES)
    torch.manual_seed(0)
    embeddings, features = trainer.network(IMAGES)
    compared = features["before_neck"] if side == "before" else embeddings
    assert_close(outputs["embeddings"], compared)
    assert_close(outputs["evaluated"], embeddings)
    assert_close(outputs["classifier_logits"], trainer.evaluated_heads.linear(embeddings))


def test_what_cannot_be_is_one_line():
    with refused("no last stage"):
        network("conv4", last_stride=1)
    with refused("--neck_feature before has no effect without --neck: add it"):
        network(neck_feature="before")
    opt = read("--loss npair --batch_mining npair --arch conv4 --neck bn")
    with refused("--neck bn: --loss npair is meant for embeddings of any length"):
        criterion_of("npair", opt, batchminer=lambda *arguments: None)
    with refused("one image has no batch statistics"):
        network("conv4", neck="bn").train()(IMAGES[:1])
