"""The parts of a backbone that train: LoRA, prompts, biases, --freeze_blocks, --freeze_backbone; and --head_init."""

import copy

import pytest
import torch
from torch.testing import assert_close

import architectures
import parameters
from architectures import _adaptation
from engine.optimisers import build_optimizer
from runs import load_run, start_up
from tests.architectures import networks
from tests.architectures.networks import saved
from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.runs import last_checkpoint

# six blocks of width 64
TINY = "timm:test_vit"


def select(name=TINY, **flags):
    crop_size = 64 if "resnet" in name else 32
    return networks.select(name, **{"crop_size": crop_size, **flags})


def images(size=32, count=3):
    return networks.images(size, count)


def stirred(network):
    """The same, its updates no longer 0."""
    for name, parameter in network.named_parameters():
        if name.endswith(".up"):
            torch.nn.init.normal_(parameter, std=0.05)
    return network


def test_updates_start_at_nothing_and_merge_into_equal_weights():
    torch.manual_seed(0)
    plain = select()
    torch.manual_seed(0)
    network = select(lora_rank=4, lora_alpha=6.0).eval()
    assert torch.equal(plain.eval()(images())[0], network(images())[0])
    expected = {key: value.double() for key, value in plain.backbone.state_dict().items()}
    updates = stirred(network).state_dict()
    for path in (f"blocks.{number}.attn.{layer}" for number in range(6) for layer in ("qkv", "proj")):
        up, down = (updates[f"backbone.{path}.parametrizations.weight.0.{part}"].double() for part in ("up", "down"))
        expected[f"{path}.weight"] += 6 / 4 * up @ down
    embeddings = network(images())[0]
    merged = copy.deepcopy(network).merge()
    state = merged.backbone.state_dict()
    assert state.keys() == expected.keys()
    for key, value in expected.items():
        assert_close(state[key].double(), value, atol=1e-6, rtol=1e-6, msg=key)
    assert torch.equal(merged(images())[0], embeddings) and all(p.requires_grad for p in merged.parameters())


def prompt_counts(backbone):
    """The number of prompts of each block that has some, in order."""
    return [parameter.shape[1] for name, parameter in backbone.named_parameters() if name.endswith(".prompts")]


def slow_pooled(network, pictures, counts):
    """The pooled features of one image at a time, block by block, with the block's prompts before its sequence."""
    backbone = network.backbone
    pooled = []
    for image in network.prepare(pictures).split(1):
        tokens = backbone._pos_embed(backbone.patch_embed(image))[0]
        for block, count in zip(backbone.blocks, counts, strict=True):
            rows = torch.cat([block.prompts[0], tokens]) if count else tokens
            # forward runs no hooks, which put the prompts in and take them out in a call
            tokens = block.forward(rows[None])[0][count:]
        pooled.append(backbone.norm(tokens)[0])
    return torch.stack(pooled)


@pytest.mark.parametrize(
    ("flags", "counts"),
    [
        ({"prompts": 5}, [5] * 6),
        ({"prompts": 5, "prompt_depth": 3}, [5] * 3 + [0] * 3),
        ({"prompts": 5, "prompt_step": 2}, [5, 3, 1] + [0] * 3),
        ({"prompts": 8, "prompt_step": 2, "prompt_depth": 2}, [8, 6] + [0] * 4),
    ],
)
def test_each_block_sees_its_own_prompts(flags, counts):
    network = select(**flags).double().eval()
    assert prompt_counts(network.backbone) == [count for count in counts if count]
    expected = slow_pooled(network, images(), counts)
    assert_close(network(images())[1]["pooled"], expected, rtol=1e-10, atol=1e-10)


def test_the_start_of_prompts_is_xaviers_normal_of_all_n():
    """Also of a block that has fewer; the layers behind the backbone start as without prompts."""
    torch.manual_seed(0)
    network = select("timm:vit_tiny_patch16_224", prompts=10, prompt_step=1)
    rows = torch.cat([block.prompts.flatten() for block in network.backbone.blocks[:10]])
    assert abs(rows.std().item() - 0.03077) < 0.0006 and abs(rows.mean().item()) < 0.0012
    torch.manual_seed(0)
    assert_equal_but_for_prompts(select("timm:vit_tiny_patch16_224").state_dict(), network.state_dict())


def assert_equal_but_for_prompts(plain, state):
    networks.assert_same(plain, {key: value for key, value in state.items() if not key.endswith("prompts")})


# network -> size of the images
LARGE = {
    "timm:vit_small_patch16_dinov3": 32,
    "timm:swin_tiny_patch4_window7_224": 64,
    "timm:vit_small_patch14_reg4_dinov2": 28,
    "vit_b_32": 224,
}


@pytest.mark.parametrize(
    ("name", "size", "flags"),
    [
        ("timm:deit_tiny_distilled_patch16_224", 32, {"prompts": 2}),
        ("timm:test_vit3", 32, {"prompts": 2}),
        (TINY, 32, {"prompts": 3, "lora_rank": 2}),
        *(pytest.param(name, size, {"lora_rank": 2}, marks=pytest.mark.long) for name, size in LARGE.items()),
    ],
)
def test_copies_have_their_own_updates_which_merge(name, size, flags):
    # double: of a small layer scale the difference is little
    network = select(name, crop_size=size, **flags).double().eval()
    before = network(images(size, 1))[0]
    changed = stirred(copy.deepcopy(network))
    n_weights = len(_adaptation.attention_weights(network.backbone))
    assert "lora_rank" not in flags or n_weights == (12 if name == TINY else 24)
    with torch.no_grad():
        for key, parameter in changed.named_parameters():
            if key.endswith("prompts"):
                parameter.normal_()
    after = changed(images(size, 1))[0]
    assert before.shape == (1, 8) and not torch.equal(before, after)
    assert torch.equal(network(images(size, 1))[0], before)
    assert_close(changed.merge()(images(size, 1))[0], after)


def test_an_orthogonal_head():
    network = select("conv4", embed_dim=16, head_init="orthogonal")
    weight = network.last_linear.weight.double()
    assert_close(weight @ weight.T, torch.eye(16, dtype=torch.float64), atol=1e-5, rtol=0)
    assert not network.last_linear.bias.any()


def all_but(*prefixes):
    return lambda name: not name.startswith(prefixes)


HEAD = ("last_linear.", "hidden.")
# network, flags, and what of the backbone trains, by its name
TRAINS = {
    "updates": (TINY, {"lora_rank": 4}, lambda name: name.endswith((".up", ".down"))),
    "prompts and all": (
        TINY,
        {"prompts": 3, "prompt_depth": 2, "train_biases": True, "lora_rank": 2},
        lambda name: name.endswith((".up", ".down", "bias")) or name in ("blocks.0.prompts", "blocks.1.prompts"),
    ),
    "biases": ("resnet18", {"train_biases": True}, lambda name: name.endswith("bias")),
    "no block": (TINY, {"freeze_blocks": 0}, all_but("patch_embed.")),
    "two blocks": (TINY, {"freeze_blocks": 2}, all_but("patch_embed.", "blocks.0.", "blocks.1.")),
    "all blocks": (TINY, {"freeze_blocks": 6}, all_but("patch_embed.", "blocks.")),
    "blocks of an OSNet": (
        "osnet_ain_x0_25",
        {"freeze_blocks": 3},
        all_but("conv1.", "conv2.", "pool2.", "conv3.0."),
    ),
    "blocks": ("resnet18", {"freeze_blocks": 3}, all_but("conv1.", "bn1.", "layer1.", "layer2.0.")),
    **{
        family: (family, {"freeze_backbone": True, "embed_hidden": [6]}, lambda name: False)
        for family in [*architectures.REGISTRY.names(), "osnet_x0_25"]
    },
}


@pytest.mark.parametrize(("name", "flags", "trains"), TRAINS.values(), ids=TRAINS)
def test_what_trains_has_gradients_and_the_rest_rests(name, flags, trains):
    network = stirred(select(name, **flags)).train()
    size = 32 if "vit" in name else 64
    pictures = images(size)
    before = {key: value.clone() for key, value in network.backbone.state_dict().items()}
    network(pictures)[0].square().sum().backward()
    for key, parameter in network.named_parameters():
        expected = key.startswith(HEAD) or trains(key.removeprefix("backbone."))
        assert parameter.requires_grad == (parameter.grad is not None) == expected, key
        assert not key.endswith("prompts") or not expected or parameter.grad.any()
    for path, module in network.backbone.named_modules():
        names = [f"{path}.{key}" for key, _ in module.named_parameters()]
        may_train = any(map(trains, names)) and "freeze_blocks" in flags
        assert module.training == may_train or not names or path in ("", "blocks"), path
    for key, value in network.backbone.state_dict().items():
        if key.endswith("running_mean"):
            rests = "freeze_blocks" not in flags or not trains(key)
            assert torch.equal(before[key], value) == rests, key
    assert network.training and network.last_linear.training
    free = {key for key, p in network.named_parameters() if p.requires_grad}
    # a phase of a trainer that freezes the network and frees it again
    network.requires_grad_(False).requires_grad_(True)
    assert {key for key, p in network.named_parameters() if p.requires_grad} == free
    opt = parameters.read(["--dataset", "glyphs", "--lr", ".01", "--fc_lr", ".1", "--decay", ".2"])
    groups = build_optimizer(network, torch.nn.Module(), opt).param_groups
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in network.parameters() if p.requires_grad)
    assert groups[-1]["lr"] == 0.1
    for group in groups:
        assert group["name"] != "backbone" or (group["lr"], group["weight_decay"]) == (0.01, 0.2)
    # recomputed, the gradients are the same
    if name == TINY and "freeze_blocks" not in flags:
        lean = select(name, **flags, grad_checkpointing=True).train()
        lean.load_state_dict(network.state_dict())
        lean(pictures)[0].square().sum().backward()
        for (key, parameter), lean_parameter in zip(network.named_parameters(), lean.parameters(), strict=True):
            assert (parameter.grad is None) == (lean_parameter.grad is None)
            if parameter.grad is not None:
                assert_close(parameter.grad, lean_parameter.grad, msg=key)


def test_prompts_and_updates_decay_with_their_block():
    network = select(prompts=4, prompt_depth=3, lora_rank=2)
    words = f"--dataset glyphs --arch {TINY} --prompts 4 --prompt_depth 3 --lora_rank 2"
    opt = parameters.read(f"{words} --lr .01 --fc_lr .1 --layer_decay .5".split())
    total = sum(p.numel() for p in network.parameters())
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    counts = f"{trained:,} of {total:,} parameters are trained, {trained / total:.2%}"
    assert start_up.partly_trained(opt, network) == [f"--lora_rank 2 --prompts 4: {counts}; the others are frozen"]
    groups = {group["name"]: group for group in network.param_groups(opt)}
    assert set(groups) == {*(f"backbone_{depth}" for depth in range(1, 7)), "last_linear"}
    assert groups["backbone_5"]["lr"] == 0.01 * 0.5**5
    assert any(p is network.backbone.blocks[1].prompts for p in groups["backbone_5"]["params"])
    network = select("conv4", freeze_backbone=True)
    reference = select("conv4")
    reference.load_state_dict(network.state_dict())
    assert torch.equal(network.train()(images())[0], reference.eval()(images())[0])


def test_files_with_updates_and_files_with_prompts(tmp_path):
    network = stirred(select(prompts=3, prompt_step=1, lora_rank=2)).eval()
    path = saved(network.state_dict(), tmp_path / "run.pth")
    for rank in (0, 3):
        loaded = select(weights=path, not_pretrained=False, prompts=3, prompt_step=1, lora_rank=rank).eval()
        assert_close(loaded(images())[0], network(images())[0])
        assert any("parametrizations" in key for key in loaded.state_dict()) == (rank > 0)
    shallow = saved(select(prompts=3, prompt_depth=1).state_dict(), tmp_path / "shallow.pth")
    for flags, says in (
        ({"weights": path}, "holds prompts: give the --prompts"),
        ({"weights": path, "prompts": 3, "prompt_depth": 1}, "holds prompts"),
        ({"weights": path, "prompts": 4}, "does not fit .*size mismatch for blocks.0.prompts"),
        # The file holds prompts of the first block alone: those of the others would start at random
        ({"weights": shallow, "prompts": 3}, "holds prompts"),
    ):
        with refused(says):
            select(not_pretrained=False, **flags)
    plain = select().backbone.state_dict()
    network = select(weights=saved(plain, tmp_path / "bare.pth"), not_pretrained=False, prompts=2)
    assert_equal_but_for_prompts(plain, network.backbone.state_dict())


def test_what_cannot_be_is_one_line():
    for name, flags, says in (
        (TINY, {"prompts": 2, "prompt_depth": 7}, "--prompt_depth 7: .* has 6 blocks"),
        ("resnet18", {"prompts": 2}, "has no prompts; timm's"),
        ("timm:swin_tiny_patch4_window7_224", {"prompts": 2, "crop_size": 64}, "has no prompts"),
        ("timm:vit_small_patch16_dinov3", {"prompts": 2}, "has no prompts"),
        (TINY, {"prompts": 2, "freeze_blocks": 1}, "both determine"),
        (TINY, {"train_biases": True, "freeze_backbone": True}, "--freeze_backbone and --train_biases both determine"),
        (TINY, {"freeze_backbone": True, "freeze_blocks": 1}, "both determine"),
        (TINY, {"lora_rank": 2, "freeze_blocks": 1}, "both determine"),
        (TINY, {"freeze_blocks": 7}, "--freeze_blocks 7: .* has 6 blocks"),
        (TINY, {"lora_rank": 65}, "has the rank 64"),
        ("conv4", {"lora_rank": 2}, "has no attention layers"),
        (TINY, {"embed_dim": 0, "head_init": "orthogonal"}, "--embed_dim 0 leaves out"),
    ):
        with refused(says), torch.device("meta"):
            select(name, **flags)


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(
            "--prompts 3 --prompt_step 1 --train_biases --lora_rank 2 --ema_decay .5 --chunk_size 3",
            marks=pytest.mark.long,
        ),
        pytest.param("--freeze_blocks 5 --warmup_head_epochs 1 --head_init orthogonal", marks=pytest.mark.long),
        "--freeze_backbone --trainer classifier",
    ],
)
def test_a_run_trains_a_part_says_so_and_comes_back(flags, data, tmp_path, capsys):
    vit = f"--arch {TINY}_layernorm_normalize --crop_size 16 --augmentation none --not_pretrained --lr 1e-3 {flags}"
    run = tiny.assert_resumes(data, tmp_path, *vit.split(), epochs=2)
    output = capsys.readouterr().out
    network, opt = load_run(run.folder, "last")
    state = last_checkpoint(run.folder)
    torch.manual_seed(opt.seed)
    start = architectures.select(opt.arch, run.opt).state_dict()
    end = state["state_dict"]
    moved = {name for name, value in end.items() if not torch.equal(value, start[name])}
    if "--freeze_backbone" in flags:
        assert "the backbone is frozen at its random initial weights" in output and network.backbone_rests
        assert moved == {"last_linear.weight", "last_linear.bias"}
        assert {group["name"] for group in state["optimizer"]["param_groups"]} == {"last_linear", "classifier"}
    else:
        total = sum(p.numel() for p in network.parameters())
        trained = total - sum(p.numel() for p in network.resting_parameters())
        assert f"{trained:,} of {total:,} parameters are trained, {trained / total:.2%}" in output
        assert flags.split()[0] in output
        assert moved == dict(network.named_parameters()).keys() - {
            f"backbone.{name}" for name in network.resting.parameters
        }
    assert tiny.measured(run)["test"]["map_r"] == pytest.approx(run.state["selected"]["values"]["test"]["map_r"])


def test_a_linear_probe_and_what_is_refused(data, tmp_path, capsys):
    probe = ["--freeze_backbone", "--embed_dim", "0", "--dry_run"]
    tiny.run(data, tmp_path, "--trainer", "classifier", *probe, "--loss_weights", "metric_loss=0")
    assert "dry run: one batch of" in capsys.readouterr().out
    with refused("there is nothing to train: with --freeze_backbone and --embed_dim 0"):
        tiny.run(data, tmp_path, "--trainer", "metric_only", *probe)
