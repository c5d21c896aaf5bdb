"""Networks of timm from a repository of the hub or a local folder, and exports of this program that come back."""

import json
import socket
import urllib.error
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch
from torch.testing import assert_close

import architectures
from architectures import _timm
from retrieval import weights
from tests.architectures.networks import select
from tests.kit.refusals import refused
from utilities.shapes import pair

HALVES = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}


def written(folder, content, network=None):
    """The name of a folder with this config and the weights of a network of timm."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    if network is not None:
        safetensors.torch.save_file(network.state_dict(), str(folder / "model.safetensors"))
    return f"timm:local-dir:{folder}"


def exported(network, opt, folder):
    """The name of a folder with a network as `retrieval export --format safetensors` writes it."""
    embedder = SimpleNamespace(network=network, opt=opt, preparation=SimpleNamespace(size=pair(network.input_size)))
    form = weights.package_form(embedder)
    folder.mkdir()
    weights.write(folder / weights.FILE, form.state, opt.arch, network.grid)
    return written(folder, form.config)


def timms(**arguments):
    """A small network of timm as it is published."""
    import timm

    torch.manual_seed(5)
    return timm.create_model("test_vit", num_classes=4, **arguments)


def cosines(first, second):
    return torch.nn.functional.cosine_similarity(first.double(), second.double())


@pytest.mark.parametrize(
    ("name", "size"),
    [("timm:test_vit_normalize", [64, 32]), ("timm:test_vit", 32), ("timm:test_resnet_normalize", 64)],
)
def test_an_export_comes_back_with_its_embedding(name, size, tmp_path, capsys):
    torch.manual_seed(0)
    opt = architectures.REGISTRY.options(arch=name, embed_dim=8, not_pretrained=True)
    network = architectures.select(name, opt, crop_size=size).eval()
    place = exported(network, opt, tmp_path / "run_normalize")
    # Without the slash, _normalize would be read as a trait of an architecture
    place = place.replace("run_normalize", "run_normalize/")
    restored = architectures.select(place, embed_dim=8).eval()
    height, width = (size, size) if isinstance(size, int) else size
    images = torch.randint(0, 256, (3, 3, height, width), dtype=torch.uint8)
    with torch.no_grad():
        expected = network(images)[0]
        embeddings = restored(images)[0]
    assert_close(cosines(embeddings, expected), torch.ones(3, dtype=torch.float64), atol=1e-6, rtol=0)
    assert_close(embeddings, expected)
    assert restored.normalizes == network.normalizes and restored.grid == network.grid
    assert ("unit length, as exported" in capsys.readouterr().out) == network.normalizes
    assert (restored.mean, restored.std, restored.interpolation) == (network.mean, network.std, network.interpolation)
    if isinstance(size, list):
        assert restored.input_size == (64, 32)
    # another width of the embedding: the backbone alone
    wider = architectures.select(place, embed_dim=6)
    assert "only the backbone fits" in capsys.readouterr().out
    assert all(
        torch.equal(value, network.backbone.state_dict()[key]) for key, value in wider.backbone.state_dict().items()
    )


def test_an_export_is_a_network_of_timm_too(tmp_path):
    import timm

    opt = architectures.REGISTRY.options(arch="timm:test_vit", embed_dim=8, not_pretrained=True)
    network = architectures.select("timm:test_vit", opt, crop_size=[64, 32]).eval()
    place = exported(network, opt, tmp_path / "run")
    content = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert content["model_args"]["img_size"] == [64, 32] and content["num_classes"] == 8
    assert content["pipeline"] == {"traits": [], "head": "head", "grid": [4, 2]}
    loaded = timm.create_model(place.removeprefix("timm:"), pretrained=True).eval()
    images = torch.rand(2, 3, 64, 32)
    with torch.no_grad():
        assert_close(loaded(network.prepare(images)), network(images)[0])
    with safetensors.safe_open(tmp_path / "run" / weights.FILE, framework="pt") as file:
        assert file.metadata()["grid"] == "4 2"


def test_a_folder_of_timm(tmp_path, capsys):
    fields = {"input_size": [3, 160, 160], "fixed_input_size": True, "classifier": "head", **HALVES}
    content = {"architecture": "test_vit", "num_classes": 4, "pretrained_cfg": fields}
    published = timms(img_size=(64, 32), global_pool="avg")
    content["model_args"] = {"img_size": [64, 32], "num_classes": 4, "global_pool": "avg"}
    place = written(tmp_path / "theirs", content, published)
    architecture, config, arguments, fetch = _timm.source(place.removeprefix("timm:"))
    assert architecture == "test_vit" and config.input_size == (3, 64, 32) and "num_classes" not in arguments
    assert fetch(None).keys() == published.state_dict().keys()
    network = architectures.select(f"{place}_normalize", embed_dim=8).eval()
    assert network.input_size == (64, 32) and network.mean == (0.5, 0.5, 0.5) and network.normalizes
    images = torch.rand(2, 3, 64, 32)
    with torch.no_grad():
        features = published.eval().forward_features((images - 0.5) / 0.5)
        assert_close(network(images)[1]["pooled"], published.forward_head(features, pre_logits=True))
    assert network.weights_name.startswith(f"local-dir:{tmp_path}/theirs@") and network.weights_file
    assert architectures.published_weights(place) == network.weights_name
    # positions at another shape, from the size that the config names
    taller = architectures.select(place, embed_dim=8, crop_size=[128, 32]).backbone.pos_embed
    grid = published.pos_embed[:, 1:].reshape(1, 4, 2, -1).permute(0, 3, 1, 2)
    grid = torch.nn.functional.interpolate(grid, size=(8, 2), mode="bicubic", antialias=True)
    assert_close(taller[:, 1:], grid.flatten(2).mT)
    capsys.readouterr()
    bare = written(tmp_path / "bare", {"architecture": "test_vit"}, timms())
    network = select(bare)
    assert network.mean == (0.485, 0.456, 0.406) and network.input_size == 160
    assert "names no mean and std: ImageNet's are taken" in capsys.readouterr().out


def test_what_a_folder_lacks_or_may_not_say(tmp_path):
    missing = f"timm:local-dir:{tmp_path}/none"
    with refused(f"^{missing}: no config.json in it$"):
        select(missing)
    (tmp_path / "clip").mkdir()
    vision = {"model_cfg": {"vision_cfg": {"width": 768, "patch_size": 16, "image_size": 224}}}
    (tmp_path / "clip" / "open_clip_config.json").write_text(json.dumps(vision), encoding="utf-8")
    hint = "--arch timm:vit_base_patch16_clip_224 --weights open_clip_pytorch_model.bin"
    with refused("has only open_clip_config.json: take ", hint):
        select(f"timm:local-dir:{tmp_path}/clip")
    for content, words in (
        ([], "its config.json names no architecture"),
        ({"architecture": "unheard_of"}, "names the architecture 'unheard_of'"),
        ({"architecture": "test_vit", "model_args": {"checkpoint_path": "/etc/passwd"}}, "gives checkpoint_path among"),
        ({"architecture": "test_vit", "model_args": {"no_such": 1}}, "cannot be built"),
    ):
        with refused(words):
            select(written(tmp_path / "wrong", content))
    (tmp_path / "wrong" / "config.json").write_text("{", encoding="utf-8")
    with refused("its config.json cannot be read"):
        select(f"timm:local-dir:{tmp_path}/wrong")
    with refused("no model.safetensors or pytorch_model.bin in it"):
        architectures.select(written(tmp_path / "empty", {"architecture": "test_vit"}), embed_dim=8)


def test_a_repository_comes_from_the_cache_without_network(monkeypatch, tmp_path):
    def silent(*args, **kwargs):
        raise urllib.error.URLError(socket.gaierror(-2, "Name or service not known"))

    monkeypatch.setattr("urllib.request.urlopen", silent)
    cache = tmp_path / "cache"
    with refused("^timm:hf-hub:me/run: its config.json is not in the cache and cannot be had .*not known"):
        select("timm:hf-hub:me/run", weights_cache=str(cache))
    assert architectures.published_weights("timm:hf-hub:me/run") is None
    folder = cache / "models--me--run_normalize"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc", encoding="utf-8")
    published = timms()
    content = {"architecture": "test_vit", "num_classes": 4, "pretrained_cfg": {"num_classes": 4, **HALVES}}
    written(folder / "snapshots" / "abc", content, published)
    name = "timm:hf-hub:me/run_normalize@main_normalize"
    parsed = architectures.parse(name)
    assert parsed.constructor == "hf-hub:me/run_normalize@main" and parsed.traits == {"normalize"}
    network = architectures.select(name, embed_dim=8, weights_cache=str(cache))
    assert torch.equal(network.backbone.blocks[3].attn.qkv.weight, published.blocks[3].attn.qkv.weight)
    assert network.weights_name == "hf-hub:me/run_normalize@abc" and network.data_config["revision"] == "abc"
    assert network.weights_file.endswith("snapshots/abc/model.safetensors")
