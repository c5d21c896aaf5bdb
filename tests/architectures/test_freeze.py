"""--freeze_backbone: the backbone keeps weights and statistics, has no gradient and no place in the optimiser; what is behind it trains."""

import pytest
import torch

import architectures
import parameters
from runs import checkpoint, load_run
from tests.architectures import made
from tests.architectures.made import images
from tests.trainers import tiny


def select(name, **flags):
    return made.select(name, **{"freeze_backbone": True, **flags})


@pytest.mark.parametrize("family", architectures.REGISTRY.names())
def test_the_backbone_rests_through_every_mode(family):
    network = select(family, embed_hidden=[6]).train()
    before = {name: value.clone() for name, value in network.backbone.state_dict().items()}
    network(images())[0].sum().backward()
    assert all(torch.equal(before[name], value) for name, value in network.backbone.state_dict().items())
    assert all(p.grad is None and not p.requires_grad for p in network.backbone.parameters())
    assert all(p.grad is not None for p in (*network.hidden.parameters(), *network.last_linear.parameters()))
    assert not any(module.training for module in network.backbone.modules()) and network.training and network.hidden.training
    network.requires_grad_(False).requires_grad_(True)  # a phase of a trainer
    assert not any(p.requires_grad for p in network.backbone.parameters()) and network.last_linear.weight.requires_grad


def test_its_outputs_are_those_of_evaluation_and_it_is_in_no_group():
    network, other = select("conv4"), select("conv4", freeze_backbone=False)
    other.load_state_dict(network.state_dict())
    assert torch.equal(network.train()(images())[0], other.eval()(images())[0])
    opt = parameters.read(["--dataset", "glyphs", "--fc_lr", ".01"])
    (group,) = network.param_groups(opt)
    assert {id(p) for p in group["params"]} == {id(p) for p in network.last_linear.parameters()} and group["lr"] == 0.01
    assert [group["name"] for group in other.param_groups(opt)] == ["backbone", "last_linear"]


def test_a_run_trains_the_last_layer_alone_and_says_what_rests(data, tmp_path, capsys):
    run = tiny.assert_resumes(data, tmp_path, "--trainer", "classifier", "--freeze_backbone", epochs=2)
    assert "the backbone rests, at the random weights that it starts from" in capsys.readouterr().out
    state = checkpoint.read(run.folder / checkpoint.LAST)
    torch.manual_seed(run.opt.seed)
    start = architectures.select(run.opt.arch, run.opt).state_dict()
    changed = {name for name, value in state["state_dict"].items() if not torch.equal(value, start[name])}
    assert changed == {"last_linear.weight", "last_linear.bias"}
    assert {group["name"] for group in state["optimizer"]["param_groups"]} == {"last_linear", "classifier"}
    assert load_run(run.folder)[0].backbone_rests
    assert tiny.measured(run)["test"]["map_r"] == pytest.approx(run.state["selected"]["values"]["test"]["map_r"])


def test_a_linear_probe_and_what_is_refused(data, tmp_path, capsys, monkeypatch):
    probe = ["--freeze_backbone", "--embed_dim", "0"]
    tiny.run(data, tmp_path, "--trainer", "classifier", *probe, "--loss_weights", "metric_loss=0", "--dry_run")
    assert "dry run: one batch of" in capsys.readouterr().out
    with tiny.refused("there is nothing to train: with --freeze_backbone and --embed_dim 0"):
        tiny.run(data, tmp_path, "--trainer", "metric_only", *probe, "--dry_run")
    with tiny.refused("weigh 0|nothing"):
        tiny.run(data, tmp_path, "--trainer", "classifier", *probe, "--loss_weights", "metric_loss=0", "classifier_loss=0", "--dry_run")

    class Own(torch.nn.Module):
        def __init__(self, opt, name):
            super().__init__()

    monkeypatch.setattr(architectures.REGISTRY.module("conv4"), "Network", Own)
    with tiny.refused("--freeze_backbone: conv4 does not say that its backbone rests"):
        select("conv4")
    select("conv4", freeze_backbone=False)
