"""Stages: the mean maps that a network gives beside its embedding, only where they are asked for."""

import copy

import pytest
import torch

import architectures
from utilities.errors import UserError

CASES = {
    "resnet18": (32, {"layer1": 64, "layer2": 128, "layer3": 256, "layer4": 512}),
    "googlenet": (64, {"conv3": 192, "inception3b": 480, "inception4e": 832, "inception5b": 1024}),
    "bninception": (64, {"conv2": 192, "inception_3c": 576, "inception_4e": 1056, "inception_5b": 1024}),
    "conv4": (48, {"block1": 64, "block2": 64, "block3": 64, "block4": 64}),
    "regnet_y_400mf": (
        32, {"trunk_output.block1": 48, "trunk_output.block2": 104, "trunk_output.block3": 208, "trunk_output.block4": 440}
    ),
}  # fmt: skip


def select(name, **flags):
    return architectures.select(name, **{"not_pretrained": True, "embed_dim": 8, **flags})


def images(size=32, count=2):
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_the_stages_of_the_families(name):
    size, widths = CASES[name]
    network = select(name).eval()
    plain = network(images(size))
    assert list(network.STAGES) == list(widths) and "stages" not in plain[1]
    assert network.give_stages(list(widths)) == list(widths.values()) and not network.training
    embeddings, features = network(images(size))
    assert [tuple(stage.shape) for stage in features["stages"]] == [(2, width) for width in widths.values()]
    assert torch.equal(embeddings, plain[0])
    torch.testing.assert_close(features["stages"][-1], features["spatial"].mean((2, 3)))
    parts = dict(network.backbone.named_modules())
    if name == "resnet18":
        x = network.prepare(images(size))
        for step in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2"):
            x = parts[step](x)
        torch.testing.assert_close(features["stages"][1], x.mean((2, 3)))
    if name == "conv4":
        x = network.prepare(images(size)).contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(features["stages"][1], network.backbone[:8](x).mean((2, 3)))


def test_a_copy_and_a_second_asking_keep_their_own_stages():
    network = select("conv4")
    network.give_stages(["block2", "block4"])
    other = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    stages, others = network(images())[1]["stages"], other(images())[1]["stages"]
    assert network.training and not torch.equal(stages[0], others[0]) and torch.equal(network(images())[1]["stages"][0], stages[0])
    stages[0].sum().backward()
    assert network.backbone[4].weight.grad is not None and network.backbone[8].weight.grad is None and other.backbone[4].weight.grad is None
    assert network.give_stages(["block3"]) == [64] and len(network(images())[1]["stages"]) == 1


def test_any_module_is_a_stage_tokens_too_and_others_are_refused():
    network = select("vit_b_32", embed_dim=4).eval()
    with pytest.raises(UserError, match="no stage 'layer1': it names none, but any of its modules may be given"):
        network.give_stages(["layer1"])
    name = "encoder.layers.encoder_layer_0"
    kept = []
    network.backbone.get_submodule(name).register_forward_hook(lambda module, inputs, output: kept.append(output))
    assert network.give_stages([name]) == [768]
    with torch.no_grad():
        stages = network(images(224, 1))[1]["stages"]
    torch.testing.assert_close(stages[0], kept[-1].mean(1))
    with pytest.raises(UserError, match="resnet18 has no stage 'layer5': layer1, layer2, layer3, layer4"):
        select("resnet18").give_stages(["layer5"])


def test_the_layers_behind_the_backbone_are_one_call():
    for name in ("conv4", "conv4_normalize"):
        network = select(name, embed_hidden=[5])
        embeddings, features = network(images())
        assert torch.equal(network.embed(features["pooled"]), embeddings)
        by_hand = network.last_linear(network.hidden(features["pooled"]))
        torch.testing.assert_close(embeddings, by_hand / by_hand.norm(dim=1, keepdim=True) if network.normalizes else by_hand)
