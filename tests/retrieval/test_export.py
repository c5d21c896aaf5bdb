"""A run for other programs: what is written gives what the run gives, and the card's lines load it."""

import ast
import json
import re
import subprocess
import sys
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torchvision.transforms import v2

import architectures
import parameters
from retrieval import __main__ as retrieval
from retrieval import card, coding, data, export, plain
from runs import Embedder, load_run
from runs.embedder import Embeddings
from tests.retrieval.conftest import train
from utilities.errors import UserError, one_line_errors

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
ALL = ["onnx", "torchscript", "torch_export", "safetensors"]


def card_blocks(folder):
    """The Python code of a card, in its order."""
    return re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def held_to_ten_lines(code):
    """Ten lines, imports included, none joined and none too wide."""
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 10 and max(map(len, lines)) <= 140 and ";" not in code, code
    assert "architectures" not in code and ast.parse(code).body[-1].name == "embed"


def by_card(code, folder, images):
    """What a block of the card makes of images, in a process of its own that knows nothing of this program."""
    np.save(folder.parent / "images.npy", images)
    program = f"import sys\nimport numpy\n{code}\nimages = torch.from_numpy(numpy.load('../images.npy'))\n"
    program += "numpy.save('../given.npy', embed(images).detach().numpy())\nassert 'architectures' not in sys.modules\n"
    subprocess.run([sys.executable, "-I", "-c", program], cwd=folder, check=True)
    return np.load(folder.parent / "given.npy")


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
    return out, retrieval.main(["export", str(run), "--out", str(out), "--format", *ALL])


def test_every_format_gives_what_the_run_gives_for_any_number_of_images(run, exported):
    import onnxruntime

    out, cosines = exported
    images, expected = prepared(run, 7)
    session = onnxruntime.InferenceSession(str(out / "model.onnx"), providers=["CPUExecutionProvider"])
    script, program = torch.jit.load(str(out / "model.pt")), torch.export.load(out / "model.pt2").module()
    for count in (1, 3, 7):
        batch = torch.from_numpy(images[:count])
        given = {
            "onnx": session.run(["embeddings"], {"images": images[:count]})[0], "torchscript": script(batch).detach().numpy(),
            "torch_export": program(batch).detach().numpy(),
        }  # fmt: skip
        for name, rows in given.items():
            np.testing.assert_allclose(rows, expected[:count], atol=1e-5, err_msg=name)
    assert set(cosines) == set(ALL) and min(cosines.values()) > 0.99999
    files = {"README.md", "preprocessing.json", "model.onnx", "model.pt", "model.pt2", "model.safetensors"}
    assert {path.name for path in out.iterdir()} == files and not list(out.parent.glob(".*"))


@pytest.mark.long
def test_the_cards_lines_load_the_weights_without_this_program(run, exported):
    images, expected = prepared(run)
    code = card_blocks(exported[0])[-1]
    held_to_ten_lines(code)
    np.testing.assert_allclose(by_card(code, exported[0], images), expected, atol=1e-5)


def test_the_other_blocks_of_the_card_run_as_they_stand(run, exported, monkeypatch):
    images, expected = prepared(run)
    monkeypatch.chdir(exported[0])
    for code, given in zip(card_blocks(exported[0]), (images, torch.from_numpy(images), torch.from_numpy(images)), strict=False):
        names = {"images": given}
        exec(code, names)
        found = names["embeddings"].detach().numpy() if torch.is_tensor(names["embeddings"]) else names["embeddings"]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_card_says_what_the_run_was(run, exported):
    text = (exported[0] / "README.md").read_text(encoding="utf-8")
    summary = json.loads((run / "summary.json").read_text())["selected"]
    assert yaml.safe_load(text.split("---")[1])["tags"] and summary["rule"] in text and f"Epoch {summary['epoch']}" in text
    for split, values in summary["values"].items():
        for metric, value in values.items():
            assert f"| {split} | {metric} | {value:.4f} |" in text
    assert "| testing | 24 | 4 |" in text and "random weights" in text and "`--loss` | margin" in text and "model.onnx | 1.000000" in text


def test_the_card_names_boxes_alone_where_there_are_some():
    opt = SimpleNamespace(dataset="csv")
    told = {box: card._data({"data": {"name": "csv", "transforms": {"testing": f"{box}Resize(size=40)"}}}, opt) for box in ("", "Box; ")}
    assert "boxes" in told["Box; "] and "boxes" not in told[""]


def test_preprocessing_json_is_enough_to_prepare_an_image(run, exported):
    told = json.loads((exported[0] / "preprocessing.json").read_text())
    dataset = data.split(Embedder(run), "test")
    decode, resize, crop = told["before"]
    assert "RGB" in decode["decode"] and (resize["resize_short_side"], resize["interpolation"], crop) == (
        40,
        "bilinear",
        {"center_crop": [36, 36]},
    )
    image = torch.from_numpy(np.array(Image.open(dataset.paths[3]))).permute(2, 0, 1)
    image = v2.functional.center_crop(v2.functional.resize(image, [resize["resize_short_side"]], antialias=True), crop["center_crop"])
    assert (image.int() - dataset[3][1].int()).abs().max() <= 2 and told["input"]["shape"] == ["batch", 3, *image.shape[1:]]
    assert told["output"]["shape"] == ["batch", 8] and told["output"]["unit_length"] is True


NETWORKS = {
    "torchvision": ("resnet18_layernorm", "--embed_hidden", "16"),
    "bare": ("resnet18", "--embed_dim", "0"),
    "timm, low-rank updates": ("timm:vit_tiny_patch16_224.augreg_in21k_normalize", "--lora_rank", "2", "--lr", "0.5", "--crop_size", "32"),
    "timm, prompts": ("timm:test_vit_normalize", "--prompts", "3", "--prompt_step", "1", "--train_biases", "--lr", "0.5", "--crop_size", "32"),
    "timm, pooled otherwise": ("timm:test_resnet_normalize", "--pool", "avgmax", "--crop_size", "64", "--resize_size", "64"),
}


@pytest.mark.parametrize(
    ("arch", "flags"),
    [
        ("resnet50_frozen_normalize", {}),
        ("resnet18_layernorm", {"embed_hidden": [1024, 512]}),
        ("resnet18_normalize", {"embed_dim": 0}),
        ("squeezenet1_1", {}),
        ("googlenet_normalize", {}),
        ("conv4", {}),
        ("conv4_layernorm_normalize", {"embed_hidden": [16]}),
        ("conv4", {"embed_hidden": [512, 128]}),
        ("conv4_normalize", {"embed_dim": 0}),
        ("bninception_normalize", {}),
        ("bninception_layernorm", {"embed_hidden": [16, 12]}),
        ("ptm:resnet18", {}),
        ("timm:vit_tiny_patch16_224_normalize", {"lora_rank": 2, "crop_size": 32}),
        ("timm:test_vit_layernorm_normalize", {"prompts": 7, "prompt_step": 3, "lora_rank": 2, "train_biases": True, "crop_size": 32}),
        ("timm:vit_tiny_patch16_224", {"prompts": 80, "prompt_step": 2, "prompt_depth": 11, "crop_size": 32}),
        ("timm:vit_tiny_patch16_224", {"pool": "avg", "crop_size": 32, "embed_hidden": [16]}),
        ("timm:deit_tiny_distilled_patch16_224", {"crop_size": 32}),
        ("timm:convnext_atto_normalize", {"pool": "gem"}),
        ("timm:efficientnet_b0", {}),
        ("timm:test_resnet", {"pool": "avgmax"}),
        ("resnet18_normalize", {"pool": "gem_learned", "neck": "bn"}),
        ("resnet18", {"last_stride": 1, "neck": "bn", "embed_dim": 0}),
        ("resnet18", {"pool": "max", "neck": "layernorm", "embed_dim": 0}),
        ("bninception", {"pool": "avgmax"}),
        ("ptm:resnet18", {"last_stride": 1}),
        ("googlenet", {"pool": "gem", "last_stride": 1}),
        ("timm:test_resnet_layernorm", {"pool": "gem", "embed_hidden": [16, 12]}),
    ],
)
def test_ten_plain_lines_of_a_network_give_what_it_gives(arch, flags, tmp_path):
    torch.manual_seed(0)
    opt = parameters.read(["--dataset", "glyphs", "--arch", arch, "--not_pretrained"])
    vars(opt).update({"embed_dim": 8, **flags})
    network = architectures.select(arch, opt).eval()
    for name, value in network.named_parameters():
        if name.endswith((".up", ".prompts")):
            torch.nn.init.normal_(value, std=0.05)
    side = flags.get("crop_size", 64)
    images = torch.randint(0, 256, (3, 3, side, side), dtype=torch.uint8)
    made = SimpleNamespace(opt=opt, network=network, preparation=SimpleNamespace(size=(side, side)))
    made.module = Embeddings(network, "discriminative")
    with torch.no_grad():
        expected = network(images)[0].numpy()
    export._merge(made)
    lines, given = export.safetensors(made, tmp_path)
    held_to_ten_lines(lines)
    assert given(images.numpy()).shape == expected.shape
    np.testing.assert_allclose(given(images.numpy()), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
    cosines = (given(images.numpy()) * expected).sum(1) / np.linalg.norm(given(images.numpy()), axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() >= export.COSINE


def test_a_plain_network_has_the_names_of_its_package(tmp_path):
    from safetensors.torch import load_file

    opt = parameters.read(["--dataset", "glyphs", "--arch", "resnet18_normalize", "--not_pretrained", "--embed_dim", "8"])
    network = architectures.select(opt.arch, opt).eval()
    made = SimpleNamespace(
        opt=opt, network=network, preparation=SimpleNamespace(size=(64, 64)), module=Embeddings(network, "discriminative")
    )
    export.safetensors(made, tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    assert state["fc.weight"].shape == (8, 512) and torch.equal(state["conv1.weight"], network.backbone.conv1.weight)


def test_a_network_that_no_lines_load_is_written_under_its_own_names(tmp_path, monkeypatch):
    opt = parameters.read(["--dataset", "glyphs", "--arch", "conv4", "--embed_dim", "8"])
    network = architectures.select(opt.arch, opt).eval()
    made = SimpleNamespace(
        opt=opt, network=network, preparation=SimpleNamespace(size=(48, 48)), module=Embeddings(network, "discriminative")
    )
    wrong = [plain._stacked(network, [], plain._conv4(), "")]
    wrong = [
        wrong[0]._replace(code="1 / 0"),
        wrong[0]._replace(code=wrong[0].code.replace("embed(images):", "embed(images):\n    images = 255 - images")),
    ]
    monkeypatch.setattr(plain, "forms", lambda embedder: wrong)
    lines, given = export.safetensors(made, tmp_path)
    images = torch.randint(0, 256, (2, 3, 48, 48), dtype=torch.uint8)
    assert lines is None and np.allclose(given(images.numpy()), network(images)[0].detach().numpy())
    from safetensors.torch import load_file

    assert set(load_file(tmp_path / "model.safetensors")) == set(network.state_dict())


@pytest.mark.long
@pytest.mark.parametrize("name", NETWORKS)
def test_backbones_of_packages_load_in_plain_code(name, folder_data, tmp_path):
    arch, *more = NETWORKS[name]
    train(folder_data, tmp_path, "--arch", arch, "--not_pretrained", "--savename", "R", *more)
    run, out = tmp_path / "folder" / "R", tmp_path / "out"
    cosines = retrieval.main(["export", str(run), "--out", str(out), "--format", "safetensors"])
    assert min(cosines.values()) >= export.COSINE
    images, expected = prepared(run)
    held_to_ten_lines(card_blocks(out)[0])
    np.testing.assert_allclose(by_card(card_blocks(out)[0], out, images), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
    if "--lora_rank" in more:
        from safetensors import safe_open

        with safe_open(out / "model.safetensors", "pt") as file:
            assert not [key for key in file.keys() if "parametrizations" in key]  # noqa: SIM118  no mapping
        updates = [v for k, v in load_run(run)[0].state_dict().items() if k.endswith(".up")]
        assert max(float(update.abs().max()) for update in updates) > 0.01  # there was something to merge


@pytest.mark.long
@pytest.mark.parametrize("arch", ["resnet50_frozen_normalize", "googlenet_normalize", "densenet121", "timm:vit_tiny_patch16_224_normalize"])
def test_onnx_and_plain_code_of_larger_networks(arch, folder_data, tmp_path):
    size = ["--crop_size", "64", "--resize_size", "72"]
    train(folder_data, tmp_path, "--arch", arch, "--not_pretrained", "--savename", "R", *size)
    run, out = tmp_path / "folder" / "R", tmp_path / "out"
    assert min(retrieval.main(["export", str(run), "--out", str(out), "--format", "safetensors", "onnx"]).values()) >= export.COSINE
    images, expected = prepared(run)
    given = by_card(card_blocks(out)[0], out, images)
    np.testing.assert_allclose(given, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.long
def test_bninception_loads_in_plain_code_and_heads_of_a_trainer_say_that_they_do_not(folder_data, tmp_path):
    size = ["--crop_size", "64", "--resize_size", "64", "--not_pretrained"]
    train(folder_data, tmp_path, "--arch", "bninception_normalize", "--savename", "R", *size)
    run, out = tmp_path / "folder" / "R", tmp_path / "out"
    retrieval.main(["export", str(run), "--out", str(out), "--format", "safetensors"])
    (code,) = card_blocks(out)
    held_to_ten_lines(code)
    images, expected = prepared(run)
    np.testing.assert_allclose(by_card(code, out, images), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
    told = json.loads((out / "preprocessing.json").read_text())["inside"]
    assert (told["colours"], told["white"]) == ("BGR", 255)
    train(folder_data, tmp_path, "--arch", "resnet18_normalize", "--trainer", "cascaded", "--savename", "C", *size)
    retrieval.main(["export", str(tmp_path / "folder" / "C"), "--out", str(tmp_path / "c"), "--format", "safetensors", "torch_export"])
    text = (tmp_path / "c" / "README.md").read_text(encoding="utf-8")
    assert len(card_blocks(tmp_path / "c")) == 1 and "training program's own" in text and "torch_export" in text


def test_an_export_that_gives_something_else_is_not_said_to_be_done(run, tmp_path, monkeypatch, capsys):
    images, _ = prepared(run)

    def wrong(embedder, folder):
        (folder / "model.pt").write_bytes(b"0")
        network = embedder.module
        return lambda images: network(torch.from_numpy(images)).numpy() + np.float32([0.05, *[0] * 7])

    monkeypatch.setitem(export.FORMATS, "torchscript", wrong)
    with pytest.raises(UserError, match=r"cosine of 0\.99.*below 0\.9999"):
        retrieval.main(["export", str(run), "--out", str(tmp_path / "out"), "--format", "torchscript"])
    assert list(tmp_path.iterdir()) == [] and "written" not in capsys.readouterr().out
    monkeypatch.setitem(export.FORMATS, "torchscript", lambda *_: lambda images: np.zeros((2, 8)))  # the number of images is fixed
    with pytest.raises(UserError, match=r"gives \(2, 8\)"):
        retrieval.main(["export", str(run), "--out", str(tmp_path / "out"), "--format", "torchscript"])


class Hub:
    """Stands in for the client of the hub."""

    def __init__(self, error=None):
        self.calls, self.error = [], error

    def create_repo(self, repository, exist_ok):
        self.calls.append((repository, exist_ok))
        if self.error:
            raise self.error

    def upload_folder(self, repo_id, folder_path):
        from pathlib import Path

        self.calls.append((repo_id, sorted(path.name for path in Path(folder_path).iterdir())))


def test_the_whole_folder_is_pushed_once_it_is_checked(run, tmp_path, monkeypatch, capsys):
    words = ["export", str(run), "--format", "safetensors", "--push_to_hub", "me/model", "--out"]
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    retrieval.main([*words, str(tmp_path / "a")])
    assert hub.calls == [("me/model", True), ("me/model", ["README.md", "model.safetensors", "preprocessing.json"])]
    assert "uploaded to me/model" in capsys.readouterr().out
    hub.error = ConnectionError("no\nroute")
    with pytest.raises(UserError, match="me/model: not uploaded .no route") as error:
        retrieval.main([*words, str(tmp_path / "b")])
    assert "\n" not in str(error.value) and (tmp_path / "b" / "model.safetensors").exists()
    monkeypatch.setitem(export.FORMATS, "safetensors", lambda *_: (None, lambda images: images * 0.0))
    hub.calls.clear()
    with pytest.raises(UserError):
        retrieval.main([*words, str(tmp_path / "c")])
    assert not hub.calls


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["{run}", "--out", "{there}", "--format", "onnx"], "exists"),
        (["{run}", "--out", "{new}", "--format", "tflite"], "invalid choice"),
        (["{run}", "--out", "{new}"], "--format"),
        (["{there}", "--out", "{new}", "--format", "onnx"], "parameters.yaml is missing"),
        (["{run}", "--out", "{new}", "--format", "safetensors", "--images", "{there}/none.jpg"], "no such file"),
        (["{lost}", "--out", "{new}", "--format", "safetensors"], "--images"),
    ],
)
def test_mistakes_are_one_line_and_status_2(words, told, run, tmp_path, capsys):
    import shutil

    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("")
    shutil.copytree(run, tmp_path / "lost")
    flags = yaml.safe_load((run / "parameters.yaml").read_text())
    (tmp_path / "lost" / "parameters.yaml").write_text(yaml.safe_dump({**flags, "dataset_folder_path": str(tmp_path / "moved")}))
    place = {"run": run, "there": tmp_path / "there", "new": tmp_path / "new", "lost": tmp_path / "lost"}
    with pytest.raises(SystemExit) as stop, one_line_errors(retrieval.PROGRAM):
        retrieval.main(["export", *(word.format(**place) for word in words)])
    line = capsys.readouterr().err
    assert stop.value.code == 2 and line.count("\n") == 1 and told in line, line
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("name", "file"), [("int8", True), ("binary", False), ("float16", False)])
def test_an_export_carries_its_code(name, file, run, tmp_path):
    import faiss

    retrieval.main(["export", str(run), "--out", str(tmp_path / "out"), "--format", "safetensors", "--code", name])
    about = json.loads((tmp_path / "out" / "preprocessing.json").read_text())["output"]
    expected = coding.learned(Embedder(run, device="cpu"), Namespace(code=name, calibration=None))
    assert (about["code"]["name"], about["code"]["bytes_a_vector"]) == (name, expected.bytes_a_vector)
    assert (tmp_path / "out" / "code.faiss").exists() == file and f"the code {name}" in (tmp_path / "out" / "README.md").read_text()
    if file:
        vectors = Embedder(run, device="cpu")(data.split(Embedder(run), "test").paths[:5])
        index = faiss.read_index(str(tmp_path / "out" / "code.faiss"))
        expected.add(vectors)
        assert index.ntotal == 0 and (index.sa_decode(index.sa_encode(vectors)) == expected.decoded(np.arange(5))).all()


def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match="pip install onnx onnxscript onnxruntime"):
        retrieval.main(["export", str(run), "--out", str(tmp_path / "out"), "--format", "onnx"])
    monkeypatch.delattr(torch.jit, "trace")
    with pytest.raises(UserError, match="has dropped it: take torch_export"):
        retrieval.main(["export", str(run), "--out", str(tmp_path / "out"), "--format", "torchscript"])
    assert list(tmp_path.iterdir()) == []


def test_the_card_says_what_is_known_of_weights_and_flags(tmp_path):
    environment = {"weights": "my.pth", "weights_sha256": "ab" * 32, "data_config": {"license": "apache-2.0"}}
    ours = SimpleNamespace(weights=str(tmp_path / "my.pth"))
    assert card._licence(environment, ours) == f"Training began from the file `my.pth` (SHA-256 {'ab' * 32}). Its licence is not stated."
    assert "apache-2.0" in card._licence(environment, SimpleNamespace(weights=None))
    shown = dict(card._flags(parameters.resolve(["--dataset", "glyphs", "--loss", "softmax"])))
    assert "`--loss_softmax_lr`" in shown and not {"`--batch_mining`", "`--miner_distance_lower_cutoff`", "`--lora_alpha`"} & set(shown)
