"""Prompts and biases that train while the backbone rests: --prompts, --prompt_depth, --prompt_step, --train_biases."""

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

VIT = "timm:test_vit"  # six blocks of width 64


def select(name=VIT, **flags):
    return made.select(name, **{"crop_size": 32, **flags})


def images(count=3):
    return made.images(32, count)


def slow_pooled(network, given, counts):
    """The pooled features of one image at a time, block by block, its prompts before the sequence and cut off behind it."""
    backbone, found = network.backbone, []
    for image in network.prepare(given).split(1):
        tokens = backbone._pos_embed(backbone.patch_embed(image))[0]
        for block, count in zip(backbone.blocks, counts, strict=True):
            rows = [*([block.prompts[0, place] for place in range(count)] if count else []), *tokens]
            tokens = block.forward(torch.stack(rows)[None])[0][count:]  # forward: without the hooks of a call
        found.append(backbone.norm(tokens)[0])
    return torch.stack(found)


@pytest.mark.parametrize(("flags", "counts"), [
    ({"prompts": 5}, [5] * 6), ({"prompts": 5, "prompt_depth": 3}, [5] * 3 + [0] * 3), ({"prompts": 5, "prompt_step": 2}, [5, 3, 1] + [0] * 3),
    ({"prompts": 8, "prompt_step": 2, "prompt_depth": 2}, [8, 6] + [0] * 4), ({"prompts": 1, "prompt_depth": 6}, [1] * 6),
])  # fmt: skip
def test_each_block_sees_its_own_prompts(flags, counts):
    network = select(**flags).double().eval()
    assert _adaptation.prompt_counts(network.backbone) == [count for count in counts if count]
    torch.testing.assert_close(network(images())[1]["pooled"], slow_pooled(network, images(), counts), rtol=1e-10, atol=1e-10)


def test_the_start_is_xaviers_normal_of_all_n():
    """Also of a block that has fewer; the layers behind the backbone start as without prompts."""
    torch.manual_seed(0)
    network = select("timm:vit_small_patch16_224", prompts=10, prompt_step=1)
    rows = torch.cat([block.prompts.flatten() for block in network.backbone.blocks[:10]])
    assert abs(rows.std().item() - 0.02176) < 0.0002 and abs(rows.mean().item()) < 0.0005
    torch.manual_seed(0)
    plain = select("timm:vit_small_patch16_224")
    assert torch.equal(plain.last_linear.weight, network.last_linear.weight)
    made.same(plain.backbone.state_dict(), {key: value for key, value in network.backbone.state_dict().items() if not key.endswith("prompts")})


@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_reach_prompts_biases_and_the_head_alone(recompute):
    network = select(prompts=3, prompt_depth=2, train_biases=True, lora_rank=2, grad_checkpointing=recompute).train()
    assert not any(module.training for module in network.backbone.modules())
    network(images())[0].square().sum().backward()
    reached = {name for name, p in network.named_parameters() if p.grad is not None}
    added = {f"backbone.blocks.{number}.prompts" for number in range(2)}
    biases = {name for name in dict(network.named_parameters()) if "bias" in name}
    updates = {name for name in dict(network.named_parameters()) if name.endswith((".up", ".down"))}
    assert reached == added | biases | updates | {"last_linear.weight"} and "backbone.patch_embed.proj.bias" in biases and "backbone.norm.bias" in biases
    assert len(updates) == 24 and all(bool((network.get_parameter(name).grad != 0).any()) for name in added)
    network.requires_grad_(False).requires_grad_(True)  # a phase of a trainer
    assert {name for name, p in network.named_parameters() if p.requires_grad} == reached


def test_the_gradient_of_prompts_and_biases():
    network = select(prompts=2, prompt_depth=1, train_biases=True, embed_dim=3).double().eval()
    prepared, block = images(1), network.backbone.blocks[0]
    bias = block.norm1.bias

    def embeddings(prompts, values):
        given = {"backbone.blocks.0.prompts": prompts, "backbone.blocks.0.norm1.bias": values}
        return torch.func.functional_call(network, given, (prepared,))[0]

    torch.autograd.gradcheck(embeddings, (block.prompts.detach().requires_grad_(), bias.detach().requires_grad_()), fast_mode=True)


def test_biases_of_a_resnet_train_while_its_statistics_rest():
    network = select("resnet18", crop_size=64, train_biases=True).train()
    before = {name: value.clone() for name, value in network.backbone.state_dict().items() if "running" in name}
    network(made.images(64))[0].square().sum().backward()
    assert all(torch.equal(value, network.backbone.state_dict()[name]) for name, value in before.items())
    trained = {name for name, p in network.backbone.named_parameters() if p.grad is not None}
    assert trained == {name for name, _ in network.backbone.named_parameters() if name.endswith(".bias")} and len(trained) == 20


def test_groups_of_the_optimiser():
    """One group of the backbone, at its rate and decay, as in the authors' code; with --layer_decay prompts have their block's rate."""
    network = select(prompts=4, prompt_depth=3, train_biases=True)
    words = ["--dataset", "glyphs", "--arch", VIT, "--lr", ".01", "--decay", ".1", "--prompts", "4", "--prompt_depth", "3", "--train_biases"]
    opt = parameters.read(words)
    groups = {group["name"]: group for group in build_optimizer(network, torch.nn.Module(), opt).param_groups}
    assert set(groups) == {"backbone", "last_linear"} and (groups["backbone"]["lr"], groups["backbone"]["weight_decay"]) == (0.01, 0.1)
    assert {id(p) for group in groups.values() for p in group["params"]} == {id(p) for p in network.parameters() if p.requires_grad}
    assert all(any(p is block.prompts for p in groups["backbone"]["params"]) for block in network.backbone.blocks[:3])
    groups = {group["name"]: group for group in network.param_groups(parameters.read([*words, "--layer_decay", ".5"]))}
    assert groups["backbone_5"]["lr"] == 0.01 * 0.5**5 and any(p is network.backbone.blocks[1].prompts for p in groups["backbone_5"]["params"])


def test_merging_updates_leaves_prompts_and_copies_have_their_own():
    network = select(prompts=3, lora_rank=2).eval()
    for name, parameter in network.named_parameters():
        if name.endswith(".up"):
            torch.nn.init.normal_(parameter, std=0.05)
    embeddings, other = network(images())[0], copy.deepcopy(network)
    with torch.no_grad():
        other.backbone.blocks[0].prompts.normal_()
    assert torch.equal(network(images())[0], embeddings) and not torch.equal(other(images())[0], embeddings)
    torch.testing.assert_close(network.merge()(images())[0], embeddings)


def test_a_file_with_prompts_needs_their_flags(tmp_path):
    network = select(prompts=3, prompt_step=1, lora_rank=2).eval()
    path = saved(network.state_dict(), tmp_path / "run.pth")
    other = select(weights=path, not_pretrained=False, prompts=3, prompt_step=1).eval()
    torch.testing.assert_close(other(images())[0], network(images())[0])
    for flags in ({}, {"prompts": 3, "prompt_depth": 1}):
        with refused("holds prompts: give the --prompts, --prompt_depth and --prompt_step that"):
            select(weights=path, not_pretrained=False, **flags)
    with refused("does not fit .*size mismatch for blocks.0.prompts"):
        select(weights=path, not_pretrained=False, prompts=4)
    shallow = saved(select(prompts=3, prompt_depth=1).state_dict(), tmp_path / "shallow.pth")
    with refused("holds prompts"):  # other blocks' prompts would start at random
        select(weights=shallow, not_pretrained=False, prompts=3)
    plain = select().eval()
    path = saved(plain.backbone.state_dict(), tmp_path / "bare.pth")  # without prompts, as published files
    made.same(plain.backbone.blocks[0].state_dict(), {
        key: value for key, value in select(weights=path, not_pretrained=False, prompts=2).backbone.blocks[0].state_dict().items() if key != "prompts"
    })  # fmt: skip


@pytest.mark.parametrize(("name", "size"), [("timm:deit_tiny_distilled_patch16_224", 32), ("timm:test_vit3", 32)])
def test_other_vits_of_timm(name, size):
    network = select(name, crop_size=size, prompts=2).double().eval()  # a small layer scale
    before = network(made.images(size, 1))[0]
    with torch.no_grad():
        network.backbone.blocks[3].prompts.normal_()  # not + 1, which a LayerNorm takes away
    assert before.shape == (1, 8) and not torch.equal(network(made.images(size, 1))[0], before)


def test_an_export_takes_any_number_of_images():
    network = select(prompts=2, prompt_depth=3).eval().requires_grad_(False)
    dimensions = {"images": {0: torch.export.Dim("batch")}}
    program = torch.export.export(network, (images(2),), dynamic_shapes=dimensions).module()
    for count in (1, 3):
        torch.testing.assert_close(program(images(count))[0], network(images(count))[0])


def test_what_cannot_be_is_one_line():
    for name, flags, says in (
        (VIT, {"prompts": 2, "prompt_depth": 7}, "--prompt_depth 7: .* has 6 blocks: give at most as many"),
        ("resnet18", {"prompts": 2, "crop_size": 64}, "--prompts 2: --arch resnet18 takes no prompts; timm's VisionTransformers do"),
        ("timm:swin_tiny_patch4_window7_224", {"prompts": 2, "crop_size": 64}, "takes no prompts"),
        ("timm:vit_small_patch16_dinov3", {"prompts": 2}, "takes no prompts"),
        (VIT, {"prompts": 2, "freeze_blocks": 1}, "--freeze_blocks 1 and --prompts 2 both say"),
        (VIT, {"train_biases": True, "freeze_backbone": True}, "--freeze_backbone and --train_biases both say"),
        (VIT, {"freeze_backbone": True, "freeze_blocks": 1}, "--freeze_backbone and --freeze_blocks 1 both say"),
    ):  # fmt: skip
        with refused(says):
            select(name, **flags)


@pytest.mark.parametrize("flags", [["--prompts", "3", "--prompt_step", "1", "--train_biases"], ["--train_biases"]], ids=len)
def test_a_run_trains_a_part_says_so_and_comes_back(flags, data, tmp_path, capsys):
    vit = ["--arch", f"{VIT}_layernorm_normalize", "--crop_size", "16", "--augmentation", "none", "--not_pretrained"]
    run = tiny.assert_resumes(data, tmp_path, *vit, *flags, "--lr", "1e-3", "--ema_decay", ".5", "--chunk_size", "3", epochs=2)
    said = next(line for line in capsys.readouterr().out.splitlines() if " parameters train, " in line)
    network, opt = load_run(run.folder, "last")
    total, rests = (sum(p.numel() for p in parameters) for parameters in (network.parameters(), network.at_rest()))
    assert f"{total - rests:,} of {total:,} parameters train, {(total - rests) / total:.2%}" in said and flags[0] in said
    torch.manual_seed(opt.seed)
    start, end = architectures.select(opt.arch, run.opt).state_dict(), checkpoint.read(run.folder / checkpoint.LAST)["state_dict"]
    at_rest = {f"backbone.{name}" for name in network.resting.parameters}
    moved = {name for name, value in end.items() if not torch.equal(value, start[name])}
    assert moved == dict(network.named_parameters()).keys() - at_rest
