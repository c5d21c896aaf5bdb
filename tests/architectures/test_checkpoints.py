"""--weights of the field's programs: small files with the key names of each.

They are read without running anything; which of their tensors are taken.
"""

import argparse
import pathlib
import re
from collections import OrderedDict

import numpy as np
import pytest
import torch
import torchvision

from architectures import _checkpoints
from runs import checkpoint
from tests.architectures import networks
from tests.architectures.networks import assert_same, saved, without_classifier
from tests.kit.refusals import refused
from utilities import pickles

NAME = "shufflenet_v2_x0_5"


class Settings(dict):
    """Stands for the classes of other programs, such as Lightning's AttributeDict."""


def loaded(path, name=NAME, **flags):
    """The state of a backbone with the weights of a file."""
    return networks.select(name, not_pretrained=False, weights=str(path), **flags).backbone.state_dict()


@pytest.fixture(scope="module")
def states():
    """Two state dicts without a classifier: of the weights that are to be taken, and of others."""
    return [without_classifier(networks.shufflenet(seed)) for seed in (1, 2)]


def put(prefix, state):
    return {f"{prefix}{key}": value for key, value in state.items()}


HEAD = {"0.weight": torch.ones(3, 4), "2.bias": torch.ones(3)}
OPTIMIZER = {"state": {0: {"exp_avg": torch.ones(2), "step": 3}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
FLAGS = argparse.Namespace(lr=0.1, arch="x", output=pathlib.PosixPath("/somewhere"))

# layout -> the file's content; the prefix that the line names; words of what is listed
LAYOUTS = {
    # https://github.com/Lightning-AI/pytorch-lightning: checkpoint["state_dict"] has the module's attribute names
    "Lightning": (
        lambda a, b: {
            "state_dict": put("model.net.", a) | put("model.head.", HEAD),
            "hyper_parameters": Settings(lr=0.1),
            "epoch": 3,
            "optimizer_states": [OPTIMIZER],
            "pytorch-lightning_version": "2.1",
            "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": np.float64(0.5)}},
        },
        "state_dict.model.net",
        ["state_dict.model.head (2 tensors)"],
    ),
    # facebookresearch/moco, main_lincls.py: retains only module.encoder_q up to before the embedding layer
    "MoCo": (
        lambda a, b: {
            "epoch": 200,
            "arch": "resnet50",
            "optimizer": OPTIMIZER,
            "state_dict": put("module.encoder_q.", a | put("fc.", HEAD))
            | put("module.encoder_k.", b | put("fc.", HEAD))
            | {"module.queue": torch.ones(2, 3)},
        },
        "state_dict.module.encoder_q",
        ["module.encoder_k (", "module.queue", "--weights_prefix: state_dict.module.encoder_k"],
    ),
    # facebookresearch/moco-v3
    "MoCo v3": (
        lambda a, b: {
            "state_dict": put("module.base_encoder.", a | put("head.", HEAD))
            | put("module.momentum_encoder.", b)
            | put("module.predictor.", HEAD)
        },
        "state_dict.module.base_encoder",
        ["module.momentum_encoder (", "module.predictor (2 tensors)"],
    ),
    # facebookresearch/dino, main_dino.py saves student (DistributedDataParallel), teacher and args; eval_knn.py takes
    # the teacher
    "DINO": (
        lambda a, b: {
            "student": put("module.backbone.", b) | put("module.head.", HEAD),
            "teacher": put("backbone.", a) | put("head.", HEAD),
            "args": FLAGS,
            "epoch": 1,
            "optimizer": OPTIMIZER,
            "dino_loss": {"center": torch.ones(1, 3)},
        },
        "teacher.backbone",
        ["teacher.head (2 tensors)", "dino_loss", "--weights_prefix: student.module.backbone"],
    ),
    # facebookresearch/dinov2: teacher_checkpoint.pth
    "DINOv2": (
        lambda a, b: {"teacher": put("backbone.", a) | put("dino_head.", HEAD) | put("ibot_head.", HEAD)},
        "teacher.backbone",
        ["dino_head", "ibot_head"],
    ),
    # lightly's benchmarks: backbone, projection_head, and momentum copies
    "lightly": (
        lambda a, b: {
            "state_dict": put("backbone.", a) | put("backbone_momentum.", b) | put("projection_head.layers.", HEAD)
        },
        "state_dict.backbone",
        ["backbone_momentum (", "projection_head"],
    ),
    "teacher and student of lightly": (
        lambda a, b: put("student_backbone.", b) | put("teacher_backbone.", a),
        "teacher_backbone",
        ["student_backbone"],
    ),
    # timm's CheckpointSaver
    "timm": (
        lambda a, b: {"state_dict": a, "state_dict_ema": b, "args": FLAGS, "metric": np.float64(1)},
        "state_dict",
        ["--weights_prefix: state_dict_ema"],
    ),
    # DeiT, ConvNeXt, MAE
    "model_ema": (
        lambda a, b: {"model": a, "model_ema": b, "args": FLAGS, "scaler": {}},
        "model",
        ["--weights_prefix: model_ema"],
    ),
    # pytorch-metric-learning and powerful-benchmarker: trunk_best5.pth is a state dict; others keep both in one file
    "trunk": (lambda a, b: {"trunk": put("module.", a), "embedder": put("net.", HEAD)}, "trunk.module", ["embedder"]),
    "net": (lambda a, b: put("net.", a) | put("criterion.", HEAD), "net", ["criterion"]),
    "encoder": (
        lambda a, b: {"state_dict": put("encoder.", a) | put("decoder.", HEAD)},
        "state_dict.encoder",
        ["decoder"],
    ),
    "arrays": (
        lambda a, b: {"model": {key: value.numpy() for key, value in a.items()}, "matching_heuristics": True},
        "model",
        [],
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_backbone_is_found_in_each_layout_and_the_rest_is_listed(layout, states, tmp_path, capsys):
    content, prefix, words = LAYOUTS[layout]
    path = saved(content(*states), tmp_path / "checkpoint.pth")
    assert_same(loaded(path), states[0])
    output = capsys.readouterr().out
    if words:
        assert f"weights under {prefix};" in output and output.count("\n") == 1
    assert all(word in output for word in words), output
    assert_same(loaded(path, weights_prefix=f"{prefix}."), states[0])
    if "--weights_prefix: " in output:
        second_prefix = output.rpartition("--weights_prefix: ")[2].strip().partition(",")[0]
        assert_same(loaded(path, weights_prefix=second_prefix), states[1])


def test_files_of_usual_layouts_are_read_without_a_word(states, tmp_path, capsys):
    """With a classifier, without; of an old torch; wrapped; checkpoints; with a classifier of another name; arrays."""
    state = networks.shufflenet(1).state_dict()
    contents = [
        state,
        states[0],
        {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")},
        put("module._orig_mod.", state),
        {"state_dict": state, "epoch": 3},
        {"model": put("module.", state)},
        {"state_dict": put("backbone.", states[0])},
        put("model.", {key.replace("fc.", "last_linear."): value for key, value in state.items()}),
    ]
    files = [saved(content, tmp_path / f"{number}.pth") for number, content in enumerate(contents)]
    np.savez(tmp_path / "arrays.npz", **{key: value.numpy() for key, value in states[0].items()})
    for file in (*files, str(tmp_path / "arrays.npz")):
        network = networks.select(f"{NAME}_frozen_normalize", weights=file)
        assert network.weights_name == file
        assert_same(network.backbone.state_dict(), states[0])
    assert capsys.readouterr().out == ""


def test_a_backbone_with_nothing_behind_it_is_no_whole_network(tmp_path, capsys):
    state = networks.select("conv4").backbone.state_dict()
    content = {"student": put("backbone.", state), "teacher": put("backbone.", state) | HEAD}
    assert_same(loaded(saved(content, tmp_path / "dino.pth"), "conv4", weights_prefix="student"), state)
    assert "only the backbone fits" not in capsys.readouterr().out


def test_a_prefix_that_is_not_there_or_is_ambiguous(states, tmp_path):
    path = saved({"a": put("net.", states[0]), "b": put("net.", states[1])}, tmp_path / "both.pth")
    assert_same(loaded(path, weights_prefix="b"), states[1])
    for flags, message in (
        ({}, "in several places: choose one by --weights_prefix: a.net, b.net"),
        ({"weights_prefix": "net"}, "--weights_prefix net: .* has a.net. and b.net.: give one of them in full"),
        ({"weights_prefix": "c"}, "--weights_prefix c: no key of .* begins so; there are a, b, a.net, b.net"),
        ({"name": "conv4"}, "does not fit conv4: missing .*say by --weights_prefix where they lie"),
    ):
        with refused(message):
            loaded(path, **flags)


def test_sequential_children_and_chunks_of_blocks(tmp_path):
    torch.manual_seed(0)
    resnet = torchvision.models.resnet18()
    children = torch.nn.Sequential(*list(resnet.children())[:-1])
    content = {"state_dict": put("backbone.", children.state_dict()) | put("projection_head.", HEAD)}
    assert_same(loaded(saved(content, tmp_path / "lightly.ckpt"), "resnet18"), without_classifier(resnet))
    expected = networks.select("timm:test_vit").backbone.state_dict()
    chunked = {}
    for key, value in expected.items():
        chunked[re.sub(r"^blocks\.(\d+)", lambda match: f"blocks.{int(match[1]) // 2}.{match[1]}", key)] = value
    assert chunked.keys() != expected.keys()
    content = {"teacher": put("backbone.", chunked) | {"dino_head.mlp.0.weight": torch.ones(2)}}
    assert_same(loaded(saved(content, tmp_path / "chunks.pth"), "timm:test_vit"), expected)


RAN = []


def run(value):
    RAN.append(value)


class Harmful:
    """Runs a function where it is unpickled."""

    def __reduce__(self):
        return run, (1,)


class Method(Harmful):
    """Runs a method of an object of the file."""

    def __reduce__(self):
        return RAN.append, (1,)


def test_nothing_that_a_file_names_is_run(states, tmp_path):
    path = tmp_path / "file.pth"
    for extra in (Harmful(), [Settings(a=1), Harmful(), {1: Harmful()}]):
        for legacy in (False, True):
            torch.save({"model": states[0], "extra": extra}, path, _use_new_zipfile_serialization=not legacy)
            assert_same(loaded(path), states[0])
            assert RAN == []
    mixed = {"args": FLAGS, "settings": Settings(lr=1), "a": np.arange(3), "b": OrderedDict(c=torch.ones(2))}
    content = _checkpoints.content_of(saved(mixed, path))
    assert isinstance(content["args"], pickles.Unread) and not vars(content["args"])
    assert content["settings"] == {"lr": 1} and _checkpoints.flattened(content).keys() == {"a", "b.c"}
    with refused("it holds calls of functions, and tensors alone are read"):
        loaded(saved([Method()], path))
    with refused("holds no state dict"):
        loaded(saved(torchvision.models.shufflenet_v2_x0_5(), path))


def test_values_that_are_no_weights_are_refused_with_file_and_keys(states, tmp_path):
    key = "conv1.0.weight"
    state = states[0]
    weight = state[key]
    path = tmp_path / "weights.pth"
    for value, fault in (
        ((weight * 100).to(torch.int8), "int8 instead of floating-point numbers"),
        (weight * torch.nan, "NaN or infinity"),
        (weight / 0, "NaN or infinity"),
    ):
        with refused(rf"--weights .*weights.pth holds {fault} in a\.conv1\.0\.weight: give"):
            loaded(saved(put("a.", state | {key: value}), path))
    floats = {name: value for name, value in state.items() if value.is_floating_point()}
    with refused(r"holds NaN or infinity in conv1.0.weight, conv1.1.weight, conv1.1.bias … \(\d+ in all\)"):
        loaded(saved(state | {name: value * torch.nan for name, value in floats.items()}, path))
    quantized = torch.quantize_per_tensor(weight, 0.01, 0, torch.qint8)
    torch.testing.assert_close(loaded(saved(state | {key: quantized}, path))[key], quantized.dequantize())
    assert_same(loaded(saved(state | {key: weight.to_sparse()}, path)), state)
    half = saved(state | {name: value.half() for name, value in floats.items()}, path)
    assert loaded(half)[key].dtype == torch.float32
    whole_state = networks.select("conv4").state_dict()
    whole_state["last_linear.bias"] *= torch.inf
    with refused("holds NaN or infinity in last_linear.bias"):
        loaded(saved(whole_state, path), "conv4")


def test_a_runs_checkpoint_with_nan_is_refused_with_file_and_key():
    network = networks.select("conv4")
    content = {"state_dict": {key: value.clone() for key, value in network.state_dict().items()}}
    checkpoint.restore_network("run/checkpoint.pth.tar", content, network)
    content["state_dict"]["last_linear.weight"][0, 0] = torch.nan
    with refused("^run/checkpoint.pth.tar holds NaN or infinity in last_linear.weight: "):
        checkpoint.restore_network("run/checkpoint.pth.tar", content, network)
