"""Networks of timm at any shape: rectangles, position embeddings of other grids, images in their own shape."""

import pytest
import torch
from torch.testing import assert_close

import architectures
from architectures import _timm
from datasets._steps import Multiple
from evaluation import scales
from retrieval import __main__ as retrieval
from runs import Embedder, checkpoint, load_run
from tests.architectures.networks import assert_same, saved, select
from tests.conftest import train
from tests.kit.refusals import refused
from tests.kit.runs import resolve
from trainers import s2sd

TINY = "timm:test_vit"
EVA = "timm:eva02_tiny_patch14_224"
SWIN = "timm:swin_tiny_patch4_window7_224"
# (1 2; 3 4) at 4 x 2, by the formula of Keys (a = -0.75), antialiased
PIN = (0.823529, 1.823529, 1.414286, 2.414286, 2.585714, 3.585714, 3.176471, 4.176471)
# name -> height, width, grid of its patches
RECTANGLES = {
    TINY: (64, 32, (4, 2)),
    EVA: (56, 28, (4, 2)),
    "timm:pit_ti_224": (64, 32, (7, 3)),
    "timm:vit_small_patch16_dinov3": (64, 32, (4, 2)),
}
LONG_RECTANGLES = {
    **{
        f"timm:{name}": (256, 128, (16, 8))
        for name in (
            "vit_tiny_patch16_224",
            "vit_base_patch16_clip_224",
            "vit_base_patch16_siglip_224",
            "deit3_small_patch16_224",
            "vit_relpos_small_patch16_224",
            "beit_base_patch16_224",
            "vit_small_patch16_rope_224",
            "cait_xxs24_224",
        )
    },
    **{
        f"timm:{name}": (256, 128, (64, 32))
        for name in (
            "swin_tiny_patch4_window7_224",
            "swinv2_tiny_window8_256",
            "swinv2_cr_tiny_ns_224",
            "hiera_tiny_224",
        )
    },
    # one grid, resampled for every image
    "timm:naflexvit_base_patch16_gap": (256, 128, (16, 16)),
    "timm:vit_small_patch14_reg4_dinov2": (252, 126, (18, 9)),
    "timm:maxvit_tiny_tf_224": (256, 128, None),
    "timm:mixer_s32_224": (256, 128, (8, 4)),
    "timm:xcit_nano_12_p16_224": (256, 128, None),
    "timm:pit_ti_224": (256, 128, (31, 15)),
    "timm:tnt_s_legacy_patch16_224": (256, 128, (16, 8)),
    "timm:levit_128s": (256, 128, None),
    "timm:volo_d1_224": (256, 128, None),
}
NATIVE = {TINY: 16, EVA: 14, "timm:vit_small_patch16_dinov3": 16}


def pictures(height, width, count=1):
    generator = torch.Generator().manual_seed(height)
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=generator)


def with_positions(network, values):
    """The backbone's state with these positions, each in all channels, behind a class token's of 9."""
    state = network.backbone.state_dict()
    rows = torch.tensor([9.0, *values]).view(1, -1, 1)
    return {**state, "pos_embed": rows.expand(-1, -1, state["pos_embed"].shape[2]).clone()}


def checkpoint_of(network, path):
    """The file of a network's backbone as another program writes it, without its grid."""
    return saved(network.backbone.state_dict(), path)


def check_rectangle(name, case, tmp_path):
    """One forward of a rectangle, and a resume: the weights that a run keeps, in a network made anew."""
    height, width, grid = case
    torch.manual_seed(1)
    network = select(f"{name}_normalize", crop_size=[height, width]).eval()
    assert network.grid == grid
    with torch.no_grad():
        embeddings, features = network(pictures(height, width))
    assert embeddings.shape == (1, 8) and torch.isfinite(embeddings).all()
    restored = select(f"{name}_normalize", crop_size=[height, width]).eval()
    restored.load_state_dict(network.state_dict())
    with torch.no_grad():
        assert_close(restored(pictures(height, width))[0], embeddings, atol=0, rtol=0)
    content = {"state_dict": network.state_dict(), **({} if grid is None else {"grid": list(grid)})}
    begun = select(f"{name}_normalize", crop_size=[height, width], weights=saved(content, tmp_path / "run.pth.tar"))
    assert_same(begun.state_dict(), network.state_dict())
    return network


@pytest.mark.parametrize("name", RECTANGLES)
def test_a_rectangle_embeds_and_resumes(name, tmp_path):
    height, width, _ = RECTANGLES[name]
    network = check_rectangle(name, RECTANGLES[name], tmp_path)
    assert network.input_size == (height, width)
    with refused(f"takes images of {height} x {width} pixels, not {width} x {height}: --crop_size {height} {width}"):
        network(pictures(width, height))


@pytest.mark.long
@pytest.mark.parametrize("name", LONG_RECTANGLES)
def test_each_family_embeds_and_resumes(name, tmp_path):
    check_rectangle(name, LONG_RECTANGLES[name], tmp_path)


def test_a_side_of_a_square_stays_a_number():
    assert select(TINY, crop_size=[32, 32]).input_size == 32
    network = select(TINY, crop_size=[64, 32])
    assert network.input_size == (64, 32) and network.give_stages(["blocks.0"]) == [64]
    with refused("--crop_size 60 30: .* patches of 16 x 16: take multiples, 64 32"):
        select(TINY, crop_size=[60, 30])


@pytest.mark.parametrize("name", ["convit_tiny", "crossvit_tiny_240", "nest_tiny"])
def test_what_fails_in_timm_is_refused_before_weights_are_loaded(name, tmp_path):
    with refused(f"timm:{name} cannot be built at --crop_size 256 128: take 2[24][04] "):
        select(f"timm:{name}", crop_size=[256, 128], weights=str(tmp_path / "absent.pth"))


def test_positions_are_resampled_as_pinned(tmp_path):
    square = select(TINY, crop_size=32)
    path = saved(with_positions(square, (1, 2, 3, 4)), tmp_path / "two.pth")
    upright = select(TINY, crop_size=[64, 32], weights=path).backbone
    assert_close(upright.pos_embed[0, 1:, 0], torch.tensor(PIN), atol=2e-6, rtol=0)
    assert (upright.pos_embed[0, 0] == 9).all() and (upright.pos_embed == upright.pos_embed[..., :1]).all()
    # timm's own change of the size, and positions resampled for each image
    loaded = select(TINY, crop_size=32, weights=path).backbone
    loaded.set_input_size((64, 32))
    assert torch.equal(loaded.pos_embed, upright.pos_embed)
    native = select(TINY, crop_size=32, weights=path, eval_long_side=64).eval()
    upright = select(TINY, crop_size=[64, 32], weights=path).eval()
    images = pictures(64, 32)
    with torch.no_grad():
        assert torch.equal(native(images)[1]["pooled"], upright(images)[1]["pooled"])


def test_as_many_patches_in_another_grid_are_resampled(tmp_path):
    """10 x 10 into 20 x 5: timm alone takes such positions as they are where it does not know their size."""
    values = [float(row) for row in range(10) for _ in range(10)]
    path = saved(with_positions(select(TINY), values), tmp_path / "ten.pth")
    loaded = select(TINY, crop_size=[320, 80], weights=path).backbone.pos_embed[0, 1:, 0].view(20, 5)
    assert_close(loaded, loaded[:, :1].expand(20, 5), atol=1e-5, rtol=0)
    assert (loaded[1:, 0] > loaded[:-1, 0]).all()


def test_a_checkpoint_names_its_grid_and_other_files_need_a_flag(tmp_path):
    network = select(TINY, crop_size=[256, 128])
    foreign = checkpoint_of(network, tmp_path / "foreign.pth")
    named = saved({"state_dict": network.state_dict(), "grid": [16, 8]}, tmp_path / "checkpoint_last.pth.tar")
    assert_same(select(TINY, crop_size=[256, 128], weights=named).state_dict(), network.state_dict())
    for height, width in ((256, 128), (384, 128)):
        with refused("foreign.pth: positions of 128 tokens: add --weights_grid 16 8"):
            select(TINY, crop_size=[height, width], weights=foreign)
    taller = select(TINY, crop_size=[384, 128], weights=named).backbone.pos_embed
    by_flag = select(TINY, crop_size=[384, 128], weights=foreign, weights_grid=[16, 8]).backbone.pos_embed
    assert torch.equal(taller, by_flag) and taller.shape[1] == 1 + 24 * 8
    grid = network.backbone.pos_embed[:, 1:].reshape(1, 16, 8, -1).permute(0, 3, 1, 2)
    expected = torch.nn.functional.interpolate(grid, size=(24, 8), mode="bicubic", antialias=True)
    assert_close(taller[:, 1:], expected.flatten(2).mT)
    with refused("foreign.pth: positions of 128 tokens, not of a grid of 16 x 9"):
        select(TINY, crop_size=[384, 128], weights=foreign, weights_grid=[16, 9])
    with refused("--weights_grid 8 16: .* names its own grid, 16 8: leave it out"):
        select(TINY, crop_size=[384, 128], weights=named, weights_grid=[8, 16])
    convolutions = saved(select("conv4").state_dict(), tmp_path / "conv4.pth")
    with refused("--weights_grid 2 2: conv4 has no position embeddings to resample"):
        select("conv4", weights=convolutions, weights_grid=[2, 2])


@pytest.mark.long
def test_tables_of_relative_positions_and_networks_that_timm_does_not_resample(tmp_path):
    beit = "timm:beit_base_patch16_224"
    network = select(beit, crop_size=[64, 32])
    table = "blocks.0.attn.relative_position_bias_table"
    torch.nn.init.normal_(network.backbone.get_parameter(table))
    named = saved({"state_dict": network.state_dict(), "grid": [4, 2]}, tmp_path / "beit.pth.tar")
    lying = select(beit, crop_size=[32, 64], weights=named).backbone
    turned = lying.get_parameter(table)
    original = network.backbone.get_parameter(table)
    assert turned.shape == original.shape and not torch.equal(turned, original)
    # The last three rows are of the class token, which has no place
    assert torch.equal(turned[-3:], original[-3:])
    swin = select(SWIN, crop_size=[256, 128])
    named = saved({"state_dict": swin.state_dict(), "grid": [64, 32]}, tmp_path / "swin.pth.tar")
    with refused("weights of 64 x 32 patches, which timm does not resample to 32 x 64"):
        select(SWIN, crop_size=[128, 256], weights=named)
    cait = "timm:cait_xxs24_224"
    path = checkpoint_of(select(cait), tmp_path / "cait.pth")
    with refused("weights of 14 x 14 patches, which timm does not resample to 28 x 7"):
        select(cait, crop_size=[448, 112], weights=path)


def test_patches_overlap(tmp_path):
    network = select(TINY, crop_size=[256, 128], patch_stride=12)
    assert network.grid == (21, 10) and network.backbone.pos_embed.shape[1] == 1 + 210
    assert network.backbone.patch_embed.proj.stride == (12, 12)
    with torch.no_grad():
        assert network.eval()(pictures(256, 128))[0].shape == (1, 8)
    square = select(TINY, crop_size=32)
    path = saved(with_positions(square, (1, 2, 3, 4)), tmp_path / "two.pth")
    loaded = select(TINY, crop_size=[40 + 8, 32], patch_stride=8, weights=path).backbone.pos_embed
    grid = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    expected = torch.nn.functional.interpolate(grid, size=(5, 3), mode="bicubic", antialias=True)
    assert_close(loaded[0, 1:, 0], expected.flatten())
    for name, flags, words in (
        (TINY, {"patch_stride": 16}, "--patch_stride 16: the patches of timm:test_vit are 16 wide: take less"),
        (TINY, {"patch_stride": 8, "eval_long_side": 64}, "--patch_stride 8 needs images of one shape"),
        (EVA, {"patch_stride": 8}, "--patch_stride 8: timm:eva02.* is no VisionTransformer"),
        ("resnet18", {"patch_stride": 8}, "--patch_stride 8: resnet18 is no VisionTransformer"),
    ):
        with refused(words):
            select(name, **flags)


@pytest.mark.parametrize("name", NATIVE)
@torch.no_grad()
def test_images_keep_their_shapes(name):
    patch = NATIVE[name]
    size = 4 * patch
    torch.manual_seed(2)
    native = select(name, crop_size=size, eval_long_side=100).eval()
    fixed = select(name, crop_size=size).eval()
    assert native.native_shapes and not fixed.native_shapes and native.patch == (patch, patch)
    fixed.load_state_dict(native.state_dict())
    assert_close(native(pictures(size, size))[0], fixed(pictures(size, size))[0], atol=0, rtol=0)
    assert native(pictures(3 * patch, 5 * patch))[0].shape == (1, 8)
    with refused(f"patches of {patch} x {patch}, and 50 x {size} pixels are no multiples: --crop_size "):
        native(pictures(50, size))


def test_what_takes_one_shape_is_refused_by_name(tmp_path):
    absent = str(tmp_path / "absent.pth")
    for name in (SWIN, "timm:beit_base_patch16_224", "vit_b_16"):
        with refused(f"--eval_long_side 1024: {name} takes images of one shape: take --eval_long_side 0"):
            select(name, eval_long_side=1024, weights=absent)
    with refused("--eval_scales 1 0.7: .*swin.* takes images of one shape: take --eval_scales 1"):
        select(SWIN, eval_scales=[1, 0.7], weights=absent)
    assert select("resnet18", eval_long_side=1024).native_shapes and select("timm:test_resnet").native_shapes


def test_sides_become_multiples_of_the_patch():
    step = Multiple(14)
    for sides, expected in {(100, 75): (98, 70), (5, 28): (14, 28), (21, 35): (28, 28)}.items():
        image = pictures(*sides)[0]
        assert step(image).shape == (3, *expected) and step(image).dtype == torch.uint8
    image = pictures(28, 42)[0]
    assert step(image) is image and str(step) == "Multiple(14)"
    ramp = torch.arange(30, dtype=torch.uint8).mul(8).expand(3, 28, 30)
    assert (step(ramp)[:, :, 1:] >= step(ramp)[:, :, :-1]).all()
    images = pictures(28, 42)
    assert scales.resized(images, 0.7, (14, 14)).shape == (1, 3, 14, 28)
    assert scales.resized(images, 1, 14) is images and scales.resized(images, 0.5).shape == (1, 3, 14, 21)


def test_lora_prompts_and_biases_do_not_depend_on_the_shape():
    for flags in ({"lora_rank": 2}, {"prompts": 3}, {"train_biases": True}):
        torch.manual_seed(4)
        square = select(TINY, crop_size=32, **flags)
        torch.manual_seed(4)
        upright = select(TINY, crop_size=[64, 32], **flags)
        trained = {key: value.shape for key, value in square.named_parameters() if value.requires_grad}
        assert trained == {key: value.shape for key, value in upright.named_parameters() if value.requires_grad}
        state = {key: value for key, value in square.state_dict().items() if "pos_embed" not in key}
        missing = upright.load_state_dict(state, strict=False)
        assert missing.missing_keys == ["backbone.pos_embed"] and not missing.unexpected_keys
        assert upright(pictures(64, 32))[0].requires_grad


@pytest.mark.long
@pytest.mark.parametrize("name", [TINY, "timm:vit_small_patch16_rope_224", SWIN])
def test_a_run_of_rectangles_resumes_is_exported_and_comes_back(name, folder_data, tmp_path):
    size = (256, 128) if name == SWIN else (64, 32)
    words = f"--arch {name}_normalize --not_pretrained --resize_mode squash --resize_size {size[0]}"
    words += f" --crop_size {size[0]} {size[1]} --augmentation red"
    folder = train(folder_data, tmp_path, words, "--n_epochs 1")
    train(folder_data, tmp_path, words, "--resume --resume_allow_changes --n_epochs 2")
    content = checkpoint.read(folder / checkpoint.LAST)
    assert content["epoch"] == 2 and content["grid"] == ([64, 32] if name == SWIN else [4, 2])
    out = tmp_path / "out"
    cosines = retrieval.main(["export", str(folder), "--out", str(out), "--format", "onnx", "safetensors"])
    assert min(cosines.values()) > 1 - 1e-6
    restored = architectures.select(f"timm:local-dir:{out}", embed_dim=8).eval()
    images = pictures(*size, 3)
    with torch.no_grad():
        expected = load_run(folder)[0](images)[0].double()
        embeddings = restored(images)[0].double()
    cosine = torch.nn.functional.cosine_similarity(embeddings, expected)
    assert_close(cosine, torch.ones(3, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.long
def test_a_run_is_evaluated_in_the_images_own_shapes(folder_data, tmp_path, capsys):
    """Each embedding is that of the image as `Limit` and `Multiple` leave it."""
    words = f"--arch {TINY}_normalize --not_pretrained --crop_size 64 32 --augmentation red"
    words += " --resize_mode squash --resize_size 64"
    folder = train(folder_data, tmp_path, words, "--n_epochs 1 --eval_long_side 50")
    embedder = Embedder(folder, device="cpu")
    assert embedder.network.native_shapes and embedder.preparation.text.endswith("Limit(side=50); Multiple(16)")
    image = pictures(100, 70)[0]
    prepared = embedder.preparation(image)
    # Limit leaves 50 x 35 pixels, which are rounded to multiples of 16
    assert prepared.shape == (3, 48, 32)
    with torch.no_grad():
        expected = embedder.network(prepared[None])[0]
    assert_close(torch.from_numpy(embedder([image])), expected)
    scaled = train(folder_data, tmp_path / "scales", words, "--n_epochs 1 --eval_scales 1 0.7")
    assert load_run(scaled)[0].native_shapes


def test_maps_of_rectangles_are_read_by_trainers():
    name = "timm:test_resnet"
    opt = resolve("--dataset cub200 --trainer s2sd --s2sd_pool_both --crop_size 64 32 --arch", name)
    network = select(name, crop_size=[64, 32])
    width = s2sd.Trainer._map_width(type("Holder", (), {"network": network}), opt)
    assert width == network.feature_dim
    assert _timm.source("test_vit")[0] == "test_vit"
