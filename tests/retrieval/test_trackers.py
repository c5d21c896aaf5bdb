"""A run in the files of trackers: what each computes from its tracker's tensor, alone and in the tracker's own code."""

import json
import re
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import PIL.Image
import pytest
import torch

import architectures
import datasets
import parameters
from retrieval import __main__ as retrieval
from retrieval import export, trackers
from runs.embedder import Embeddings
from tests.kit.images import write_image
from tests.kit.refusals import refused

SIZE = (64, 32)
ONNX_TRACKERS = ("boxmot", "ultralytics", "fastreid")


class RandomEmbedder:
    """What `trackers.write` calls of an `Embedder`: a network of random weights, images squashed to `SIZE`."""

    def __init__(self, arch, **flags):
        torch.manual_seed(0)
        words = "--dataset folder --dataset_folder_path images --augmentation red --resize_mode squash --not_pretrained"
        self.opt = parameters.read([*words.split(), "--arch", arch, "--embed_dim", "0", "--crop_size", *map(str, SIZE)])
        vars(self.opt).update(flags)
        self.network = architectures.select(arch, self.opt).eval()
        for module in self.network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                torch.nn.init.normal_(module.running_mean, std=0.2)
        self.module = Embeddings(self.network, "discriminative").eval().requires_grad_(False)
        self.preparation = datasets.preparation(Namespace(**vars(self.opt)), self.network)

    def __call__(self, images):
        with torch.no_grad():
            return self.module(torch.stack([self.preparation(image) for image in images])).numpy()


@pytest.fixture
def images(tmp_path):
    """Three images of other sizes than the network's."""
    sizes = ((90, 150), (40, 44), (33, 70))
    return [str(write_image(tmp_path / f"{i}.png", i, size)) for i, size in enumerate(sizes)]


@pytest.mark.parametrize(("tracker", "white", "is_normalised"), [
    ("boxmot", 1, True), ("ultralytics", 1, False), ("fastreid", 255, False)
])  # fmt: skip
def test_a_graph_undoes_the_trackers_normalisation(tracker, white, is_normalised, images, monkeypatch, tmp_path):
    """Its tensor, computed here in float64: RGB / 255, of boxmot less ImageNet's mean, by its deviation."""
    network = RandomEmbedder("conv4_normalize")
    graphs = []

    def write(graph, example, path, flag, way_out):
        graphs.append((graph, example))
        return trackers.function_of(graph)

    monkeypatch.setattr(trackers.exporting, "write_onnx", write)
    (comparison,) = trackers.write(network, tmp_path, [tracker, tracker], images)
    assert comparison.file == f"{tracker}.onnx" and comparison.cosine > 0.999999
    assert all(0.5 < cosine < 1 for cosine in comparison.resized.values())
    ((graph, example),) = graphs
    assert example.shape == (2, 3, *SIZE) and example.dtype == torch.float32
    tensor = np.stack([network.preparation(image) for image in images]) / 255 * white
    if is_normalised:
        tensor = (tensor - np.reshape((0.485, 0.456, 0.406), (3, 1, 1))) / np.reshape((0.229, 0.224, 0.225), (3, 1, 1))
    actual = trackers.TRACKERS[tracker].tensor(np.stack([network.preparation(i) for i in images], dtype="f4"))
    np.testing.assert_allclose(actual, tensor, atol=1e-5)
    np.testing.assert_allclose(trackers.function_of(graph)(np.float32(tensor)), network(images), atol=1e-4)


def test_an_osnet_is_written_under_torchreids_names_with_what_boxmot_and_roboflow_read(images, monkeypatch, tmp_path):
    from safetensors.torch import load_file

    network = RandomEmbedder("osnet_x0_25_normalize")
    monkeypatch.setattr(trackers.exporting, "write_onnx", lambda graph, *_: trackers.function_of(graph))
    comparisons = trackers.write(network, tmp_path, ["boxmot", "roboflow"], images)
    files = ["boxmot.onnx", "osnet_x0_25_boxmot.pt", "roboflow/weights.safetensors"]
    assert [comparison.file for comparison in comparisons] == files
    assert min(comparison.cosine for comparison in comparisons) > 0.999999
    metadata = {"model_name": "osnet_x0_25", "num_classes": 0, "preprocess": "resize", "img_size": list(SIZE)}
    assert json.loads((tmp_path / "boxmot.onnx.metadata.json").read_text()) == {"schema_version": 1, **metadata}
    checkpoint = torch.load(tmp_path / files[1], weights_only=True)
    state = checkpoint.pop("state_dict")
    assert checkpoint == metadata
    assert state.keys() == load_file(tmp_path / files[2]).keys() == network.network.backbone.state_dict().keys()
    config = json.loads((tmp_path / "roboflow" / "reid_config.json").read_text())
    assert config["architecture"] == "osnet_x0_25" and config["preprocessing"] == {
        "input_size": list(SIZE), "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
        "interpolation": "bilinear", "to_rgb": True, "resize_mode": "stretch", "pad_value": 114,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "flags", "words"),
    [
        ("conv4_normalize", {}, "--arch conv4_normalize with --embed_dim 0"),
        ("osnet_x0_25", {"embed_dim": 8}, "with --embed_dim 8"),
        ("osnet_x0_25", {"neck": "bn"}, "with --embed_dim 0 --neck bn"),
        ("osnet_ain_x0_25", {}, "osnet_x0_5"),
        ("timm:test_resnet", {"pool": "max"}, "--pool max"),
    ],
)
def test_what_roboflow_cannot_build_is_refused(arch, flags, words, images, tmp_path, capsys):
    network = RandomEmbedder(arch, **flags)
    with refused(words):
        trackers.write(network, tmp_path / "out", ["roboflow"], images)
    is_noted = "are not of unit length" in capsys.readouterr().err
    assert is_noted == (not network.network.normalizes)


def test_a_file_that_gives_something_else_is_refused(images, monkeypatch, tmp_path):
    network = RandomEmbedder("conv4_normalize")
    for graph, words in (
        (lambda tensor: network(images)[: len(tensor)] + np.float32(0.01), "cosine of 0.9.* below 0.9999"),
        (lambda tensor: network(images)[: len(tensor), :7], "it gives"),
    ):
        monkeypatch.setattr(trackers.exporting, "write_onnx", lambda *_, graph=graph: graph)
        with refused(f"--tracker fastreid: .*{words}"):
            trackers.write(network, tmp_path, ["fastreid"], images)


def test_crops_of_boxes_are_compared_not_whole_frames(monkeypatch):
    crops = torch.arange(20)
    dataset = SimpleNamespace(paths=list("abcdefghijklmnopqrst"), boxes=np.zeros((20, 4)), original=crops.__getitem__)
    dataset.width = None
    monkeypatch.setattr(export.data, "split", lambda embedder, name: dataset)
    images, boxes = export._images_to_compare(None, None)
    assert images == ["a", "c", "f", "i", "k", "n", "q", "t"] and boxes == [0, 2, 5, 8, 10, 13, 16, 19]
    dataset.boxes = None
    assert export._images_to_compare(None, None) == (images, images)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "--format, --tracker or both"),
        ("--tracker roboflow --code int8", "--code int8 is not used by trackers"),
        ("--tracker roboflow", "--tracker roboflow: it builds osnet_x1_0"),
        ("--tracker deepsort", "invalid choice: 'deepsort'"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(words, message, run, tmp_path, capsys):
    argv = ["export", str(run), "--out", str(tmp_path / "out"), *words.split()]
    if "invalid" in message:
        with pytest.raises(SystemExit) as stop:
            retrieval.main(argv)
        assert stop.value.code == 2 and message in capsys.readouterr().err
    else:
        with refused(message):
            retrieval.main(argv)
    assert not list(tmp_path.iterdir())


def slow_linear(image, size):
    """Resize `(C, H, W)` by the two nearest pixels of each axis, centres at halves, borders repeated."""
    for axis, count in ((1, size[0]), (2, size[1])):
        length = image.shape[axis]
        rows = []
        for i in range(count):
            place = min(max((i + 0.5) * length / count - 0.5, 0), length - 1)
            low = int(place)
            high = min(low + 1, length - 1)
            rows.append(image.take(low, axis) * (low + 1 - place) + image.take(high, axis) * (place - low))
        image = np.stack(rows, axis)
    return image


def test_resizes_are_those_of_opencv_and_pillow():
    """Cubic: of 1 pixel to 4 the value itself; the four weights at a distance of .25 with a = -.75, by hand."""
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 13, 9), dtype=np.uint8))
    expected = slow_linear(image.numpy().astype(float), (6, 17))
    np.testing.assert_allclose(trackers.linear(image, (6, 17)), expected, atol=1e-3)
    assert np.abs(trackers.opencv(image, (6, 17)) - expected).max() <= 0.501
    ramp = torch.tensor([[[0, 0, 100, 0, 0]]], dtype=torch.uint8)
    # 5 to 10: the sixth centre lies at 2.25, .25 beyond the middle
    weight = (-0.75 + 2) * 0.25**3 - (-0.75 + 3) * 0.25**2 + 1
    assert trackers.CUBIC(ramp, (1, 10))[0, 0, 5] == round(100 * weight) == 88
    assert trackers.CUBIC(ramp, (1, 10)).min() == 0
    picture = PIL.Image.fromarray(image.permute(1, 2, 0).numpy()).resize((17, 6), PIL.Image.Resampling.BILINEAR)
    assert (trackers.pillow(image, (6, 17)).transpose(1, 2, 0) == np.asarray(picture)).all()


def test_the_pages_encoder_gives_the_runs_embeddings_of_boxes(run):
    page = (Path(__file__).resolve().parents[2] / "docs" / "trackers.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    names = {}
    exec(code.replace('"RUN"', repr(str(run))), names)
    frame = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    boxes = np.float32([[-5, 10, 25, 40], [70.2, 0, 30, 61], [3, 4, 0.2, 9]])
    crops = [frame[10:50, 0:20], frame[0:61, 70:100], frame[4:13, 3:4]]
    expected = names["embedder"]([np.ascontiguousarray(crop[:, :, ::-1]) for crop in crops])
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(names["encoder"](frame, boxes), expected, atol=1e-6)


# In the trackers' own code


@pytest.fixture(scope="module", params=["osnet_x0_25_normalize", "timm:test_resnet_normalize", "conv4"])
def files(request, tmp_path_factory):
    """A folder with the files of all trackers that take the network, and how one crop embeds by each of its resizes."""
    folder = tmp_path_factory.mktemp("trackers")
    network = RandomEmbedder(request.param)
    sizes = ((90, 150), (40, 44))
    images = [str(write_image(folder / f"{i}.png", i, size)) for i, size in enumerate(sizes)]
    names = [*ONNX_TRACKERS, *(["roboflow"] if request.param != "conv4" else [])]
    comparisons = trackers.write(network, folder, names, images)
    assert min(comparison.cosine for comparison in comparisons) > export.exporting.COSINE
    crop = network.preparation.original(images[0])

    def expected(resize):
        return network.module(torch.from_numpy(resize(crop, SIZE)[None] / 255)).numpy()[0]

    return folder, crop.permute(1, 2, 0).numpy(), expected


def assert_near(vector, expected):
    vector, expected = (np.float64(values).ravel() for values in (vector, expected))
    cosine = vector @ expected / np.linalg.norm(vector) / np.linalg.norm(expected)
    assert cosine > export.exporting.COSINE, cosine


def box_of(crop):
    height, width = crop.shape[:2]
    return np.float32([[0, 0, width, height]])


@pytest.mark.long
def test_boxmots_own_code_loads_its_files(files, monkeypatch):
    pytest.importorskip("boxmot")
    from boxmot.reid.backends.onnx_backend import ONNXBackend
    from boxmot.reid.core.runtime import ReID

    # it would install a version of its own with pip
    monkeypatch.setattr(ONNXBackend, "_ensure_onnxruntime_installed", lambda self: None)
    folder, crop, expected = files
    paths = [folder / "boxmot.onnx", *folder.glob("*.pt")]
    for path in paths:
        encoder = ReID(Path(path))
        assert tuple(encoder.model.input_shape) == SIZE
        bgr = np.ascontiguousarray(crop[:, :, ::-1])
        assert_near(encoder(bgr, box_of(crop)), expected(trackers.opencv))
        assert encoder(bgr, np.repeat(box_of(crop), 3, 0)).shape[0] == 3


@pytest.mark.long
def test_ultralytics_own_code_loads_its_file(files):
    pytest.importorskip("ultralytics")
    from ultralytics.trackers.utils.reid import ReID

    folder, crop, expected = files
    encoder = ReID(str(folder / "ultralytics.onnx"), device="cpu")
    assert encoder.imgsz == SIZE and encoder.batch_size is None
    height, width = crop.shape[:2]
    # The encoder enlarges these boxes, and clips them to the frame, which is the crop
    boxes = np.float32([[width / 2, height / 2, width, height]] * 2)
    for vector in encoder(np.ascontiguousarray(crop[:, :, ::-1]), boxes):
        assert_near(vector, expected(trackers.linear))


@pytest.mark.long
def test_roboflows_own_code_loads_its_folder(files):
    reid = pytest.importorskip("reid")
    supervision = pytest.importorskip("supervision")
    folder, crop, expected = files
    if not (folder / "roboflow").exists():
        pytest.skip("it builds no such network")
    model = reid.ReIDModel.from_pretrained(str(folder / "roboflow"), device="cpu")
    bgr = np.ascontiguousarray(crop[:, :, ::-1])
    vectors = model.extract_embeddings(supervision.Detections(xyxy=box_of(crop)), bgr)
    assert_near(vectors, expected(trackers.pillow))


@pytest.mark.long
def test_opencvs_resizes_are_ours():
    cv2 = pytest.importorskip("cv2")
    image = np.random.default_rng(1).integers(0, 256, (50, 41, 3), dtype=np.uint8)
    for ours, theirs, limit in (
        # OpenCV rounds the weights of INTER_LINEAR to 11 bits
        (trackers.opencv, cv2.INTER_LINEAR, 1),
        (trackers.CUBIC, cv2.INTER_CUBIC, 1),
    ):
        resized = ours(torch.from_numpy(image).permute(2, 0, 1), SIZE)
        expected = cv2.resize(image, SIZE[::-1], interpolation=theirs).transpose(2, 0, 1)
        assert np.abs(resized - expected).max() <= limit


@pytest.mark.long
def test_the_command_writes_all_files_and_the_card_names_them(run, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--tracker", "ultralytics", "fastreid", "--format", "onnx"]
    cosines = retrieval.main(["export", str(run), "--out", str(out), *words])
    assert set(cosines) == {"onnx", "ultralytics.onnx", "fastreid.onnx"} and min(cosines.values()) > 0.9999
    card = (out / "README.md").read_text()
    assert "OpenCV linear (BoT-SORT)" in card and "tracker.yaml" in card and "fastreid.onnx | 1.000000" in card
    assert "ultralytics.onnx: least cosine to the run on 8 images" in capsys.readouterr().out
    files = {"README.md", "preprocessing.json", "model.onnx", "ultralytics.onnx", "fastreid.onnx"}
    assert {path.name for path in out.iterdir()} == files
