"""What of a backbone trains: --lora_rank, --freeze_blocks; and --head_init."""

import copy

import pytest
import torch

import architectures
import parameters
from architectures import _adaptation
from runs import checkpoint, load_run
from tests.architectures import made
from tests.architectures.made import refused, saved
from tests.trainers import tiny
from training.optimisers import build_optimizer

VIT = "timm:vit_tiny_patch16_224"
ADAPTED = [f"blocks.{number}.attn.{layer}" for number in range(12) for layer in ("qkv", "proj")]


def select(name=VIT, **flags):
    return made.select(name, **{"crop_size": 32, **flags})


def images(size=32, count=3):
    return made.images(size, count)


def stirred(network):
    """The same, its updates no longer 0."""
    for name, parameter in network.named_parameters():
        if name.endswith(".up"):
            torch.nn.init.normal_(parameter, std=0.05)
    return network


def opt_of(name=VIT, *flags):
    return parameters.read(["--dataset", "glyphs", "--arch", name, "--lr", ".01", "--fc_lr", ".1", *flags])


def test_updates_start_at_nothing_and_merge_into_equal_weights():
    torch.manual_seed(0)
    plain = select()
    torch.manual_seed(0)
    network = select(lora_rank=4, lora_alpha=6.0).eval()
    assert torch.equal(plain.eval()(images())[0], network(images())[0])
    expected = {key: value.double() for key, value in plain.backbone.state_dict().items()}
    stirred(network)
    updates = network.state_dict()
    for path in ADAPTED:
        up, down = (updates[f"backbone.{path}.parametrizations.weight.0.{part}"].double() for part in ("up", "down"))
        for row in range(0, len(up), 61):
            for column in range(0, down.shape[1], 37):
                expected[f"{path}.weight"][row, column] += 6 / 4 * sum(up[row, r] * down[r, column] for r in range(4))
    embeddings = network(images())[0]
    merged = copy.deepcopy(network).merge()
    state = merged.backbone.state_dict()
    assert state.keys() == plain.backbone.state_dict().keys()
    for key in (f"{path}.weight" for path in ADAPTED):
        torch.testing.assert_close(state[key][::61, ::37].double(), expected.pop(key)[::61, ::37], atol=1e-6, rtol=1e-6)
    assert all(torch.equal(state[key].double(), value) for key, value in expected.items())
    assert torch.equal(merged(images())[0], embeddings) and all(p.requires_grad for p in merged.parameters())
    read = _adaptation.merged({key.removeprefix("backbone."): value for key, value in updates.items()})
    assert all(torch.equal(read[key], value) for key, value in state.items())


def test_a_file_with_updates_is_read_merged(tmp_path):
    network = stirred(select(lora_rank=2)).eval()
    path = saved(network.state_dict(), tmp_path / "lora.pth")
    for rank in (0, 3):
        other = select(weights=path, not_pretrained=False, lora_rank=rank).eval()
        torch.testing.assert_close(other(images())[0], network(images())[0])
        assert any("parametrizations" in key for key in other.state_dict()) == (rank > 0)


def test_gradients_reach_the_updates_and_the_head_alone():
    network = stirred(select(lora_rank=4, grad_checkpointing=True)).train()
    assert not any(module.training for module in network.backbone.modules())
    network(images())[0].square().sum().backward()
    names = {name for name, p in network.named_parameters() if p.grad is not None and bool((p.grad != 0).any())}
    updates = {name for name in dict(network.named_parameters()) if name.endswith((".up", ".down"))}
    assert names == updates | {"last_linear.weight", "last_linear.bias"} and len(updates) == 12 * 2 * 2
    assert sum(p.numel() for name, p in network.named_parameters() if name in updates) == 12 * 4 * ((192 + 576) + (192 + 192))
    network.requires_grad_(False).requires_grad_(True)  # a phase of a trainer
    assert {name for name, p in network.named_parameters() if p.requires_grad} == names
    kept = stirred(select(lora_rank=4))
    kept.load_state_dict(network.state_dict())
    kept(images())[0].square().sum().backward()
    for (name, one), other in zip(network.named_parameters(), kept.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, msg=name)


@pytest.mark.parametrize(("name", "size"), [
    pytest.param("timm:vit_small_patch14_reg4_dinov2", 28, marks=pytest.mark.long), ("timm:swin_tiny_patch4_window7_224", 64),
    ("timm:vit_small_patch16_dinov3", 32), pytest.param("vit_b_32", 224, marks=pytest.mark.long),
])  # fmt: skip
def test_other_attention_layers(name, size):
    network = select(name, crop_size=size, lora_rank=2).eval()
    before = network(images(size, 1))[0]
    assert len(_adaptation.attention_weights(network.backbone)) == 24
    moved = stirred(network)(images(size, 1))[0]
    assert not torch.equal(before, moved)  # in networks with a small layer scale it is little
    torch.testing.assert_close(network.merge()(images(size, 1))[0], moved)


def test_groups_of_the_optimiser():
    network = select(lora_rank=4)
    opt = opt_of(VIT, "--lora_rank", "4", "--layer_decay", ".5")
    groups = {group["name"]: group for group in build_optimizer(network, torch.nn.Module(), opt).param_groups}
    assert {id(p) for group in groups.values() for p in group["params"]} == {id(p) for p in network.parameters() if p.requires_grad}
    assert set(groups) == {*(f"backbone_{depth}" for depth in range(1, 13)), "last_linear"}
    assert groups["backbone_2"]["lr"] == 0.01 * 0.25 and groups["last_linear"]["lr"] == 0.1
    (backbone, _) = network.param_groups(opt_of())
    assert backbone["name"] == "backbone" and len(backbone["params"]) == 48


@pytest.mark.parametrize("count", [0, 2, 12])
def test_the_first_blocks_of_a_vit_rest(count):
    network = select(freeze_blocks=count).train()
    network(images())[0].square().sum().backward()
    starts = tuple(["patch_embed.", *(f"blocks.{number}." for number in range(count))])
    for name, parameter in network.backbone.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None) == (not name.startswith(starts)), name
    for name, module in network.backbone.named_modules():
        assert name == "blocks" or module.training == (not f"{name}.".startswith(starts)), name
    rests = {id(p) for p in network.at_rest()}
    grouped = [id(p) for group in network.param_groups(opt_of()) for p in group["params"]]
    assert set(grouped) == {id(p) for p in network.parameters()} - rests and len(grouped) == len(set(grouped))


def test_the_first_blocks_of_a_resnet_rest_with_their_statistics():
    network = select("resnet18", freeze_blocks=3).train()
    before = {name: value.clone() for name, value in network.backbone.state_dict().items()}
    network(images(64))[0].square().sum().backward()
    still = ("conv1.", "bn1.", "layer1.", "layer2.0.")
    for name, value in network.backbone.state_dict().items():
        if name.endswith(("running_mean", "running_var")):
            assert torch.equal(before[name], value) == name.startswith(still), name
    assert all(p.requires_grad != name.startswith(still) for name, p in network.backbone.named_parameters())


def test_an_orthogonal_head():
    network = select("conv4", embed_dim=16, head_init="orthogonal")
    weight = network.last_linear.weight.double()
    torch.testing.assert_close(weight @ weight.T, torch.eye(16, dtype=torch.float64), atol=1e-5, rtol=0)
    assert not network.last_linear.bias.any()
    torch.manual_seed(4)
    one = select("conv4").last_linear.weight
    torch.manual_seed(4)
    assert torch.equal(one, select("conv4", head_init="default").last_linear.weight)


def test_what_cannot_be_is_one_line():
    for name, flags, says in (
        (VIT, {"lora_rank": 2, "freeze_blocks": 1}, "--freeze_blocks 1 and --lora_rank 2 both say"),
        (VIT, {"lora_rank": 2, "freeze_backbone": True}, "--freeze_backbone and --lora_rank 2 both say"),
        (VIT, {"freeze_blocks": 13}, "--freeze_blocks 13: .* has 12 blocks"), (VIT, {"lora_rank": 193}, "has the rank 192"),
        ("conv4", {"lora_rank": 2}, "has no attention layers"), ("squeezenet1_1_normalize", {"lora_rank": 2}, "has no attention layers"),
        (VIT, {"embed_dim": 0, "head_init": "orthogonal"}, "--embed_dim 0 leaves out"),
    ):  # fmt: skip
        with refused(says):
            select(name, **flags)


@pytest.mark.parametrize("flags", [["--lora_rank", "2", "--lora_alpha", "4"], ["--freeze_blocks", "11"]])
def test_a_run_trains_a_part_says_so_and_comes_back(flags, data, tmp_path, capsys):
    vit = ["--arch", f"{VIT}_normalize", "--crop_size", "16", "--augmentation", "none", "--not_pretrained", "--head_init", "orthogonal"]
    run = tiny.assert_resumes(data, tmp_path, *vit, *flags, "--warmup_head_epochs", "1", "--lr", "1e-3", epochs=2)
    said = next(line for line in capsys.readouterr().out.splitlines() if " parameters train, " in line)
    network, opt = load_run(run.folder, "last")
    total, rests = (sum(p.numel() for p in parameters) for parameters in (network.parameters(), network.at_rest()))
    assert f"{total - rests:,} of {total:,} parameters train, {(total - rests) / total:.2%}" in said
    torch.manual_seed(opt.seed)
    start, end = architectures.select(opt.arch, run.opt).state_dict(), checkpoint.read(run.folder / checkpoint.LAST)["state_dict"]
    at_rest = {f"backbone.{name}" for name in network.resting.parameters}
    moved = {name for name, value in end.items() if not torch.equal(value, start[name])}
    assert moved == dict(network.named_parameters()).keys() - at_rest
    assert all(torch.equal(value, end[name]) for name, value in network.state_dict().items())
