"""A run for other programs: every written file gives the run's embeddings, and the card's code loads it."""

import json
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torchvision.transforms import v2

import architectures
import parameters
from retrieval import __main__ as retrieval
from retrieval import card, coding, data, export, weights
from runs import Embedder, load_run
from runs.embedder import Embeddings
from runs.folder import RunFolder
from tests.conftest import train
from tests.kit.refusals import refused
from utilities.errors import UserError, one_line_errors
from utilities.shapes import pair

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
ALL = ["onnx", "torchscript", "torch_export", "safetensors"]
ROOT = Path(__file__).resolve().parents[2]


def exporting(run, out, *words):
    """Format -> cosine of an export."""
    return retrieval.main(["export", str(run), "--out", str(out), "--format", *words])


def preprocessing_of(folder):
    return json.loads((folder / "preprocessing.json").read_text())


def card_of(folder):
    return (folder / "README.md").read_text(encoding="utf-8")


def card_blocks(folder):
    """The Python code of a card, in its order."""
    return re.findall(r"```python\n(.*?)```", card_of(folder), re.DOTALL)


def assert_card_loads(run, folder):
    """The card's code gives the run's embeddings in a process of its own, without this program if it can."""
    images, expected = prepared(run)
    (code,) = [block for block in card_blocks(folder) if "load_file" in block]
    np.save(folder.parent / "images.npy", images)
    search_path = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n" if "architectures" in code else ""
    program = f"{search_path}import numpy, torch\nimages = torch.from_numpy(numpy.load('../images.npy'))\n{code}\n"
    program += "numpy.save('../embeddings.npy', embeddings.detach().numpy())\n"
    subprocess.run([sys.executable, "-I", "-c", program], cwd=folder, check=True)
    embeddings = np.load(folder.parent / "embeddings.npy")
    np.testing.assert_allclose(embeddings, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def prepared(run, count=5):
    """Test images of a run as its network takes them, and what it makes of them."""
    network, opt = load_run(run)
    dataset = data.split(Embedder(run), "test")
    images = torch.stack([dataset[i][1] for i in range(count)])
    with torch.no_grad():
        return images.numpy(), network(images)[0].numpy()


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """All formats of the small run."""
    out = tmp_path_factory.mktemp("exports") / "all"
    return out, exporting(run, out, *ALL)


def test_every_format_gives_what_the_run_gives_for_any_number_of_images_by_the_cards_lines(run, exported, monkeypatch):
    out, cosines = exported
    images, expected = prepared(run, 7)
    _, *blocks, _ = card_blocks(out)
    monkeypatch.chdir(out)
    for code, wrapped in zip(blocks, (np.asarray, torch.from_numpy, torch.from_numpy), strict=True):
        for count in (1, 3, 7):
            names = {"images": wrapped(images[:count])}
            exec(code, names)
            embeddings = torch.as_tensor(names["embeddings"]).detach()
            np.testing.assert_allclose(embeddings, expected[:count], atol=1e-5, err_msg=code)
    assert set(cosines) == set(ALL) and min(cosines.values()) > 0.99999
    files = {"README.md", "preprocessing.json", "model.onnx", "model.pt", "model.pt2", "model.safetensors"}
    assert {path.name for path in out.iterdir()} == files and not list(out.parent.glob(".*"))


def test_the_cards_lines_lead_from_a_photograph_to_its_embedding_without_torch(run, exported, monkeypatch, tmp_path):
    embedder = Embedder(run, device="cpu")
    preparing, onnx, *_ = card_blocks(exported[0])
    assert "onnxruntime" in onnx and "import torch" not in preparing + onnx
    assert "On the 8 images of the check these lines give the run's input exactly" in card_of(exported[0])
    shutil.copy(exported[0] / "model.onnx", tmp_path)
    monkeypatch.chdir(tmp_path)
    for path in data.split(embedder, "test").paths[:3]:
        shutil.copy(path, "photo.jpg")
        names = {}
        exec(f"{preparing}{onnx}", names)
        assert np.array_equal(names["images"][0], embedder.preparation(path).numpy())
        np.testing.assert_allclose(names["embeddings"], embedder(path), atol=1e-5)


def test_the_card_says_what_the_run_was(run, exported):
    text = card_of(exported[0])
    summary = json.loads((run / "summary.json").read_text())["selected"]
    assert yaml.safe_load(text.split("---")[1])["tags"] and summary["rule"] in text
    assert f"Epoch {summary['epoch']}" in text
    for split, values in summary["values"].items():
        assert all(f"| {split} | {metric} | {value:.4f} |" in text for metric, value in values.items())
    flags = SimpleNamespace(eval_pca=3, rerank="alpha_qe", tester="global")
    results_text = card._results(RunFolder(run), "best", flags)
    assert "Measured with `--eval_pca 3 --rerank alpha_qe`, which" in results_text and "Measured with" not in text
    assert "| testing | 24 | 4 |" in text and "random weights" in text and "`--loss` | margin" in text
    assert "model.onnx | 1.000000" in text


def test_the_card_says_what_is_known_of_boxes_weights_and_flags():
    for box in ("Box; ", ""):
        environment = {"data": {"name": "csv", "transforms": {"testing": f"{box}Resize(size=40)"}}}
        assert ("boxes" in card._data(environment, None)) == bool(box)
    environment = {"weights": "my.pth", "weights_sha256": "ab" * 32, "data_config": {"license": "apache-2.0"}}
    licence = card._licence(environment, SimpleNamespace(weights="/there/my.pth"))
    assert licence == f"Training began from the file `my.pth` (SHA-256 {'ab' * 32}). Its licence is not stated."
    assert "apache-2.0" in card._licence(environment, SimpleNamespace(weights=None))
    flags = dict(card._flags(parameters.resolve(["--dataset", "glyphs", "--loss", "softmax"])))
    assert "`--loss_softmax_lr`" in flags
    assert not {"`--batch_mining`", "`--miner_distance_lower_cutoff`", "`--lora_alpha`"} & set(flags)


def test_preprocessing_json_is_enough_to_prepare_an_image(run, exported):
    preprocessing = preprocessing_of(exported[0])
    dataset = data.split(Embedder(run), "test")
    decode, resize, crop = preprocessing["before"]
    assert (resize["resize_short_side"], resize["interpolation"], crop) == (18, "bilinear", {"center_crop": [16, 16]})
    assert "RGB" in decode["decode"]
    image = torch.from_numpy(np.array(Image.open(dataset.paths[3]))).permute(2, 0, 1)
    image = v2.functional.resize(image, [resize["resize_short_side"]], antialias=True)
    image = v2.functional.center_crop(image, crop["center_crop"])
    assert (image.int() - dataset[3][1].int()).abs().max() <= 2
    assert preprocessing["input"]["shape"] == ["batch", 3, *image.shape[1:]]
    assert preprocessing["output"]["shape"] == ["batch", 8] and preprocessing["output"]["unit_length"] is True


def random_embedder(arch, side=64, **flags):
    """What `export.safetensors` reads of an `Embedder`, of random weights; learned updates and prompts are not zero."""
    torch.manual_seed(0)
    opt = parameters.read(["--dataset", "glyphs", "--arch", arch, "--not_pretrained"])
    vars(opt).update({"embed_dim": 8, **flags})
    network = architectures.select(arch, opt).eval()
    for name, value in network.named_parameters():
        if name.endswith((".up", ".prompts")):
            torch.nn.init.normal_(value, std=0.05)
    preparation = SimpleNamespace(size=pair(side))
    module = Embeddings(network, "discriminative")
    return SimpleNamespace(opt=opt, network=network, preparation=preparation, module=module)


SMALL = {"crop_size": 32}


PROMPTS = {"prompts": 7, "prompt_step": 3, "lora_rank": 2, "train_biases": True}


@pytest.mark.parametrize(
    ("module", "arch", "flags"),
    [
        ("torchvision", "googlenet_normalize", {}),
        ("torchvision", "resnet18", {}),
        ("timm", "timm:test_vit_normalize", {"lora_rank": 2, **SMALL}),
        ("timm", "timm:test_resnet", {}),
        ("timm", "timm:test_vit_normalize", {"crop_size": [64, 32]}),
        ("architectures", "timm:test_vit", {"crop_size": [64, 32], "patch_stride": 12}),
        ("architectures", "squeezenet1_1", {}),  # its classifier is a convolution
        ("architectures", "timm:deit_tiny_distilled_patch16_224", SMALL),  # two classifiers
        ("architectures", "googlenet", {"pool": "gem", "last_stride": 1}),
        ("architectures", "conv4", {"embed_dim": 0}),
        ("architectures", "conv4_layernorm_normalize", {"embed_hidden": [16]}),
        ("architectures", "bninception_normalize", {"pool": "avgmax"}),
        ("architectures", "bninception_layernorm", {"embed_hidden": [16, 12]}),
        ("architectures", "resnet18_normalize", {"pool": "gem_learned", "neck": "bn"}),
        ("architectures", "resnet18", {"last_stride": 1, "neck": "bn", "embed_dim": 0}),
        ("architectures", "resnet18", {"pool": "max", "neck": "layernorm", "embed_dim": 0}),
        ("architectures", "timm:test_vit", {"prompts": 80, "prompt_step": 2, "prompt_depth": 5, **SMALL}),
        ("architectures", "timm:test_vit", {"pool": "avg", "embed_hidden": [16], **SMALL}),
        ("architectures", "timm:test_vit_layernorm_normalize", PROMPTS | SMALL),
        ("architectures", "timm:test_convnext_normalize", {"pool": "gem"}),
    ],
)
def test_the_code_for_the_weights_gives_what_the_network_gives(module, arch, flags, tmp_path, monkeypatch):
    embedder = random_embedder(arch, flags.get("crop_size", 64), **flags)
    images = torch.randint(0, 256, (3, 3, *embedder.preparation.size), dtype=torch.uint8)
    with torch.no_grad():
        expected = embedder.network(images)[0].numpy()
    export._merge(embedder)
    code, embed = export.safetensors(embedder, tmp_path)
    assert f"import {module}" in code and code.count("\n") <= 10 and max(map(len, code.splitlines())) <= 200
    tolerance = {"rtol": 1e-3, "atol": 1e-4 * np.abs(expected).max()}
    np.testing.assert_allclose(embed(images.numpy()), expected, **tolerance)
    monkeypatch.chdir(tmp_path)
    names = {"images": images}
    exec(code, names)
    np.testing.assert_allclose(names["embeddings"].detach(), expected, **tolerance)


def test_weights_have_the_names_of_their_package_or_of_this_program(tmp_path, monkeypatch):
    from safetensors.torch import load_file

    embedder = random_embedder("resnet18_normalize")
    export.safetensors(embedder, tmp_path)
    state = load_file(tmp_path / weights.FILE)
    assert state["fc.weight"].shape == (8, 512)
    assert torch.equal(state["conv1.weight"], embedder.network.backbone.conv1.weight)
    embedder = random_embedder("conv4", 48)
    form = weights.program_form(embedder)

    def refuse():
        raise OSError

    def invert(network, images):
        return network(255 - images)[0]

    monkeypatch.setattr(weights, "forms", lambda _: [form._replace(build=refuse), form._replace(embed=invert)])
    code, embed = export.safetensors(embedder, tmp_path)
    images = torch.randint(0, 256, (2, 3, 48, 48), dtype=torch.uint8)
    assert code is None and np.allclose(embed(images.numpy()), embedder.network(images)[0].detach().numpy())
    assert set(load_file(tmp_path / weights.FILE)) == set(embedder.network.state_dict())


@pytest.mark.long
@pytest.mark.parametrize(
    ("arch", "flags"),
    [
        ("conv4_normalize", ""),
        ("googlenet_normalize", "--crop_size 64 --resize_size 72"),
        ("bninception_normalize", "--crop_size 64 --resize_size 64"),
        (
            "timm:vit_tiny_patch16_224.augreg_in21k_normalize",
            "--lora_rank 2 --lr 0.5 --crop_size 32 --resize_size 40",
        ),
        ("timm:test_vit_normalize", "--prompts 3 --train_biases --lr 0.5 --crop_size 32 --resize_size 40"),
    ],
)
def test_a_trained_network_is_loaded_by_its_card(arch, flags, folder_data, tmp_path):
    run = train(folder_data, tmp_path, "--n_epochs", "1", "--arch", arch, "--not_pretrained", *flags.split())
    out = tmp_path / "out"
    formats = ["safetensors", *(["onnx"] if arch.startswith(("googlenet", "timm:vit_tiny")) else [])]
    assert min(exporting(run, out, *formats).values()) >= export.exporting.COSINE
    assert_card_loads(run, out)
    inside = preprocessing_of(out)["inside"]
    assert (inside["colours"], inside["white"]) == (("BGR", 255) if "bninception" in arch else ("RGB", 1))
    if "--lora_rank" in flags:
        updates = [value for key, value in load_run(run)[0].state_dict().items() if key.endswith(".up")]
        # there was something to merge
        assert max(float(update.abs().max()) for update in updates) > 0.01


@pytest.mark.long
def test_heads_of_a_trainer_are_loaded_by_no_code(folder_data, tmp_path):
    words = "--n_epochs 1 --arch resnet18_normalize --not_pretrained --trainer cascaded --crop_size 32 --resize_size 32"
    out = tmp_path / "c"
    exporting(train(folder_data, tmp_path, *words.split()), out, "safetensors", "torch_export")
    assert len(card_blocks(out)) == 2 and "utilities.load_run" in card_of(out) and "torch_export" in card_of(out)


def test_an_export_that_gives_something_else_is_not_said_to_be_done(run, tmp_path, monkeypatch, capsys):
    def wrong(embedder, folder):
        (folder / "model.pt").write_bytes(b"0")
        network = embedder.module
        return lambda images: network(torch.from_numpy(images)).numpy() + np.float32([0.05, *[0] * 7])

    for exporter, message in (
        (wrong, r"cosine of 0\.99.*below 0\.9999"),
        (lambda *_: lambda images: np.zeros((2, 8)), r"gives \(2, 8\)"),
    ):
        monkeypatch.setitem(export.FORMATS, "torchscript", exporter)
        with refused(message):
            exporting(run, tmp_path / "out", "torchscript")
        assert list(tmp_path.iterdir()) == [] and "written" not in capsys.readouterr().out


def test_the_whole_folder_is_pushed_once_it_is_checked(run, tmp_path, monkeypatch, capsys):
    hub = mock.Mock()
    words = ["safetensors", "--push_to_hub", "me/model"]
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    exporting(run, tmp_path / "a", *words)
    hub.create_repo.assert_called_once_with("me/model", exist_ok=True)
    hub.upload_folder.assert_called_once_with(repo_id="me/model", folder_path=str(tmp_path / "a"))
    *_, uploaded, proposed = capsys.readouterr().out.splitlines()
    assert (uploaded, proposed) == ("uploaded to me/model", f"next: cat {tmp_path / 'a' / 'README.md'}")
    hub.create_repo.side_effect = ConnectionError("no\nroute")
    with refused("me/model: not uploaded .no route"):
        exporting(run, tmp_path / "b", *words)
    files = {path.name for path in (tmp_path / "b").iterdir()}
    assert files == {"README.md", "model.safetensors", "preprocessing.json"}
    monkeypatch.setitem(export.FORMATS, "safetensors", lambda *_: (None, lambda images: images * 0.0))
    hub.reset_mock()
    with pytest.raises(UserError):
        exporting(run, tmp_path / "c", *words)
    assert not hub.mock_calls


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{run} --out {there} --format onnx", "exists"),
        ("{run} --out {new} --format plain", "safetensors"),
        ("{there} --out {new} --format onnx", "parameters.yaml is missing"),
        ("{run} --out {new} --format safetensors --images {there}/none.jpg", "no such file"),
        ("{lost} --out {new} --format safetensors", "--images"),
    ],
)
def test_mistakes_are_one_line_and_status_2(words, message, run, trained_run, tmp_path, capsys):
    place = {"run": run, "there": tmp_path / "there", "new": tmp_path / "new", "lost": trained_run}
    place["there"].mkdir()
    (place["there"] / "file").touch()
    flags = yaml.safe_load((run / "parameters.yaml").read_text()) | {"dataset_folder_path": str(tmp_path / "moved")}
    (trained_run / "parameters.yaml").write_text(yaml.safe_dump(flags))
    with pytest.raises(SystemExit) as stop, one_line_errors(retrieval.PROGRAM):
        retrieval.main(["export", *words.format(**place).split()])
    line = capsys.readouterr().err
    assert stop.value.code == 2 and line.count("\n") == 1 and message in line, line
    assert not place["new"].exists()


@pytest.mark.parametrize(("name", "file"), [("int8", True), ("binary", False)])
def test_an_export_carries_its_code(name, file, run, tmp_path):
    import faiss

    out = tmp_path / "out"
    exporting(run, out, "safetensors", "--code", name)
    code = preprocessing_of(out)["output"]["code"]
    expected = coding.learned(Embedder(run, device="cpu"), Namespace(code=name, calibration=None))
    assert (code["name"], code["bytes_a_vector"]) == (name, expected.bytes_a_vector)
    assert (out / "code.faiss").exists() == file and f"the code {name}" in card_of(out)
    if file:
        vectors = Embedder(run, device="cpu")(data.split(Embedder(run), "test").paths[:5])
        index = faiss.read_index(str(out / "code.faiss"))
        expected.add(vectors)
        assert index.ntotal == 0 and (index.sa_decode(index.sa_encode(vectors)) == expected.decoded(np.arange(5))).all()


def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with refused("pip install onnx onnxscript onnxruntime"):
        exporting(run, tmp_path / "out", "onnx")
    monkeypatch.delattr(torch.jit, "trace")
    with refused("has dropped it: take torch_export"):
        exporting(run, tmp_path / "out", "torchscript")
    assert list(tmp_path.iterdir()) == []
