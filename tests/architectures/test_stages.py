"""Stages: the mean maps that a network gives beside its embedding, only where they are asked for."""

import copy

import pytest
import torch

from tests.architectures.made import images, refused, select

CASES = {
    "resnet18": (32, {"layer1": 64, "layer2": 128, "layer3": 256, "layer4": 512}),
    "googlenet": (64, {"conv3": 192, "inception3b": 480, "inception4e": 832, "inception5b": 1024}),
    "bninception": (64, {"conv2": 192, "inception_3c": 576, "inception_4e": 1056, "inception_5b": 1024}),
    "conv4": (48, {"block1": 64, "block2": 64, "block3": 64, "block4": 64}),
    "regnet_y_400mf": (32, {f"trunk_output.block{number}": width for number, width in enumerate((48, 104, 208, 440), start=1)}),
}


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
    x, parts = network.prepare(images(size)), dict(network.backbone.named_modules())
    if name == "resnet18":
        for step in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2"):
            x = parts[step](x)
        torch.testing.assert_close(features["stages"][1], x.mean((2, 3)))
    if name == "conv4":
        x = network.backbone[:8](x.contiguous(memory_format=torch.channels_last))
        torch.testing.assert_close(features["stages"][1], x.mean((2, 3)))


def test_a_copy_and_a_second_asking_keep_their_own_stages():
    network = select("conv4")
    network.give_stages(["block2", "block4"])
    other = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    stages, others = network(images(32))[1]["stages"], other(images(32))[1]["stages"]
    assert network.training and not torch.equal(stages[0], others[0]) and torch.equal(network(images(32))[1]["stages"][0], stages[0])
    stages[0].sum().backward()
    assert network.backbone[4].weight.grad is not None and network.backbone[8].weight.grad is None and other.backbone[4].weight.grad is None
    assert network.give_stages(["block3"]) == [64] and len(network(images(32))[1]["stages"]) == 1


@torch.no_grad()
def test_any_module_is_a_stage_tokens_too_and_others_are_refused():
    network, name, kept = select("vit_b_32").eval(), "encoder.layers.encoder_layer_0", []
    for other, says in ((network, "vit_b_32 .*no stage 'layer5'|it names none"), (select("resnet18"), "resnet18 has no stage 'layer5': layer1, layer2")):
        with refused(says):
            other.give_stages(["layer5"])
    network.backbone.get_submodule(name).register_forward_hook(lambda module, inputs, output: kept.append(output))
    assert network.give_stages([name]) == [768]
    torch.testing.assert_close(network(images(224, 1))[1]["stages"][0], kept[-1].mean(1))
    with refused("224 x 224 pixels, not 64 x 64: --crop_size 224"):
        network(images())
