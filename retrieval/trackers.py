"""A run's network as the appearance network of a tracker, in the file that the tracker loads.

Trackers cut boxes from frames and resize them in ways of their own, and their graphs expect different values. Every
file takes float32 images `(batch, 3, H, W)`, RGB, with H and W fixed, and is compared with the run on the tensor that
the tracker would make. The facts were read in boxmot 25.0.0, ultralytics 8.4.190, roboflow's reid 0.1.0rc1 and FastReID
(commit c9bc3ce); tests/retrieval/test_trackers.py loads the files in the first three, where they are installed.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL.Image
import torch
from torch.nn.functional import interpolate

from architectures import _osnet, _timm
from architectures._network import IMAGENET_MEAN, IMAGENET_STD
from retrieval import exporting, weights
from trainers._heads import Evaluated
from utilities.console import warn
from utilities.errors import UserError

NO_CHANGE = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
WHITE = 255
BOXMOT_SIDECAR = ".metadata.json"
ROBOFLOW_CONFIG = "reid_config.json"
ROBOFLOW_WEIGHTS = "weights.safetensors"
ROBOFLOW_OSNETS = ("osnet_x1_0", "osnet_x0_75", "osnet_x0_5", "osnet_x0_25")
OTHER_TRACKER = "leave it out"


class Graph(torch.nn.Module):
    """A network behind the inverse of a tracker's own normalisation.

    Args:
        module: images in [0, 1] `(B, 3, H, W)` -> embeddings `(B, D)`.
        mean, std: what the tracker subtracts from images in [0, 1], and divides by.
        white: the tracker's value of white before that.
    """

    def __init__(self, module: torch.nn.Module, mean, std, white: float = 1):
        super().__init__()
        self.module = module
        self.register_buffer("scale", torch.tensor(std).view(1, 3, 1, 1) / white)
        self.register_buffer("shift", torch.tensor(mean).view(1, 3, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Embeddings `(B, D)` of the tracker's tensors `(B, 3, H, W)`."""
        return self.module(images * self.scale + self.shift)


class Written(NamedTuple):
    """A written file: its name in the folder, and what it computes, tensors `(n, 3, H, W)` -> embeddings `(n, D)`."""

    name: str
    embed: Callable[[np.ndarray], np.ndarray]


class Tracker(NamedTuple):
    """How a tracker takes an appearance network.

    Attributes:
        write: `(embedder, folder)` -> its files. tensor: `(embedder, RGB float32 0 to 255)` -> what its files get.
        resizes: name -> how it resizes a crop, uint8 `(3, H, W)` and (height, width) -> float32 0 to 255.
        loading: Python lines of the model card, with `{file}` for the first file.
    """

    write: Callable
    tensor: Callable
    resizes: dict[str, Callable]
    loading: str


class Comparison(NamedTuple):
    """A file's least cosine to the run: on the run's own input, and by name of how the tracker resizes the image."""

    file: str
    tracker: str
    cosine: float
    resized: dict[str, float]


def write(embedder, folder: Path, names: list[str], images: list, expected: np.ndarray) -> list[Comparison]:
    """Write the files of the trackers `names`, each compared with the run.

    Args:
        embedder: an `Embedder` on the CPU. images: paths of `n` images, whole crops. expected: the run's embeddings
            `(n, D)` of them.

    Raises UserError if a tracker cannot take this network, or a file gives something else than the run.
    """
    if not getattr(embedder.network, "normalizes", False):
        warn(
            f"note: trackers compare by cosine, and the embeddings of {embedder.opt.arch} are not of unit length: "
            "measure the run by metrics that begin with c_"
        )
    size = embedder.preparation.size
    prepared = np.stack([embedder.preparation(image).numpy() for image in images]).astype(np.float32)
    comparisons = []
    for name in dict.fromkeys(names):
        tracker = TRACKERS[name]
        for file in tracker.write(embedder, folder):
            tensor = tracker.tensor(embedder, prepared)
            cosine = exporting.least_cosine(f"--tracker {name}", file.embed, tensor, expected, OTHER_TRACKER)
            resized = {}
            for how, resize in tracker.resizes.items():
                crops = np.stack([resize(embedder.preparation.original(image), size) for image in images])
                embeddings = file.embed(tracker.tensor(embedder, crops))
                resized[how] = float(exporting.cosines(embeddings, expected).min())
            comparisons.append(Comparison(file.name, name, cosine, resized))
    return comparisons


def text(comparison: Comparison, count: int) -> str:
    """A comparison on one line of the console."""
    resized = ", ".join(f"{how} {cosine:.4f}" for how, cosine in comparison.resized.items())
    return (
        f"{comparison.file}: least cosine to the run on {count} images {comparison.cosine:.6f}; resized by the "
        f"tracker: {resized}"
    )


# Resizing: OpenCV's linear and cubic filters are torch's without antialias, rounded to 8 bits


def _interpolated(image: torch.Tensor, size: tuple[int, int], mode: str) -> np.ndarray:
    resized = interpolate(image[None].float(), size, mode=mode, align_corners=False, antialias=False)
    return resized[0].clamp(0, WHITE).numpy()


def linear(image: torch.Tensor, size: tuple[int, int]) -> np.ndarray:
    """Resized without antialias, as float."""
    return _interpolated(image, size, "bilinear")


def opencv_linear(image: torch.Tensor, size: tuple[int, int]) -> np.ndarray:
    """Resized as by OpenCV's INTER_LINEAR."""
    return _interpolated(image, size, "bilinear").round()


def opencv_cubic(image: torch.Tensor, size: tuple[int, int]) -> np.ndarray:
    """Resized as by OpenCV's INTER_CUBIC."""
    return _interpolated(image, size, "bicubic").round()


def pillow_linear(image: torch.Tensor, size: tuple[int, int]) -> np.ndarray:
    """Resized as by Pillow's bilinear filter, with antialias."""
    height, width = size
    picture = PIL.Image.fromarray(image.permute(1, 2, 0).numpy())
    resized = picture.resize((width, height), PIL.Image.Resampling.BILINEAR)
    return np.asarray(resized, dtype=np.float32).transpose(2, 0, 1)


# Tensors of the trackers


def _normalised(images: np.ndarray, mean, std) -> np.ndarray:
    mean, std = (np.float32(values).reshape(1, 3, 1, 1) for values in (mean, std))
    return (images / np.float32(WHITE) - mean) / std


def _imagenet(embedder, images: np.ndarray) -> np.ndarray:
    return _normalised(images, IMAGENET_MEAN, IMAGENET_STD)


def _unit(embedder, images: np.ndarray) -> np.ndarray:
    return _normalised(images, *NO_CHANGE)


def _unchanged(embedder, images: np.ndarray) -> np.ndarray:
    return images


def _own(embedder, images: np.ndarray) -> np.ndarray:
    return _normalised(images, embedder.network.mean, embedder.network.std)


# Files of the trackers


def _graph(embedder, folder: Path, tracker: str, mean_and_std=NO_CHANGE, white: float = 1) -> Written:
    graph = Graph(embedder.module, *mean_and_std, white=white).eval()
    name = f"{tracker}.onnx"
    example = exporting.example(embedder.preparation.size).float()
    embed = exporting.write_onnx(graph, example, folder / name, f"--tracker {tracker}", OTHER_TRACKER)
    return Written(name, embed)


def boxmot(embedder, folder: Path) -> list[Written]:
    """boxmot.onnx with its sidecar; of an OSNet also the weights under torchreid's names, `<arch>_boxmot.pt`."""
    graph = _graph(embedder, folder, "boxmot", (IMAGENET_MEAN, IMAGENET_STD))
    name = getattr(embedder.network, "constructor", str(embedder.opt.arch))
    about = {
        "model_name": name,
        "num_classes": 0,
        "preprocess": "resize",
        "img_size": list(embedder.preparation.size),
    }
    sidecar = json.dumps({"schema_version": 1, **about}, indent=1)
    (folder / f"{graph.name}{BOXMOT_SIDECAR}").write_text(sidecar, encoding="utf-8")
    if not _is_bare(embedder, _osnet.Network):
        return [graph]
    file = f"{name}_boxmot.pt"
    torch.save({**about, "state_dict": embedder.network.backbone.state_dict()}, folder / file)
    backbone = _osnet.OSNet(_osnet.VARIANTS[name]).eval()
    backbone.load_state_dict(torch.load(folder / file, weights_only=True)["state_dict"])
    return [graph, Written(file, _run(backbone))]


def ultralytics(embedder, folder: Path) -> list[Written]:
    """ultralytics.onnx, of images in [0, 1]."""
    return [_graph(embedder, folder, "ultralytics")]


def fastreid(embedder, folder: Path) -> list[Written]:
    """fastreid.onnx, of images from 0 to 255."""
    return [_graph(embedder, folder, "fastreid", white=WHITE)]


def roboflow(embedder, folder: Path) -> list[Written]:
    """The folder roboflow/ with reid_config.json and weights.safetensors, which `ReIDModel.from_pretrained` loads."""
    network = embedder.network
    if not (_is_bare(embedder, _osnet.Network) and network.constructor in ROBOFLOW_OSNETS) and not _is_bare(
        embedder, _timm.Network
    ):
        raise UserError(
            f"--tracker roboflow: it builds {', '.join(ROBOFLOW_OSNETS)} and timm:NAME by itself, all without layers "
            f"behind the backbone (--embed_dim 0) and other changes, not --arch {embedder.opt.arch} with "
            f"{_changes(embedder)}: leave it out"
        )
    name = network.constructor
    if isinstance(network, _timm.Network):
        name = f"timm:{name}"
    preprocessing = {
        "input_size": list(embedder.preparation.size),
        "mean": list(network.mean),
        "std": list(network.std),
        "interpolation": "bilinear",
        "to_rgb": True,
        "resize_mode": "stretch",
        "pad_value": 114,
    }
    place = folder / "roboflow"
    place.mkdir()
    config = json.dumps({"architecture": name, "preprocessing": preprocessing}, indent=1)
    (place / ROBOFLOW_CONFIG).write_text(config, encoding="utf-8")
    weights.write(place / ROBOFLOW_WEIGHTS, network.backbone.state_dict(), name)
    with exporting.guarded("--tracker roboflow", OTHER_TRACKER):
        if isinstance(network, _timm.Network):
            backbone = _timm.package().create_model(network.constructor, num_classes=0)
        else:
            backbone = _osnet.OSNet(_osnet.VARIANTS[name])
        weights.read_into(place / ROBOFLOW_WEIGHTS, backbone)
    return [Written(f"roboflow/{ROBOFLOW_WEIGHTS}", _run(backbone.eval()))]


def _run(backbone: torch.nn.Module) -> Callable[[np.ndarray], np.ndarray]:
    @torch.no_grad()
    def embed(images: np.ndarray) -> np.ndarray:
        return backbone(torch.from_numpy(images)).numpy()

    return embed


def _is_bare(embedder, kind: type) -> bool:
    """Whether the embeddings are the pooled features of an unchanged backbone of this class, perhaps at unit length."""
    network = embedder.network
    if not isinstance(network, kind) or isinstance(network, Evaluated):
        return False
    is_changed = bool(weights.flags_of_network(embedder.opt))
    return not is_changed and all(map(weights.does_nothing, network.embedding_layers.values()))


def _changes(embedder) -> str:
    flags = {"embed_dim": embedder.opt.embed_dim, **weights.flags_of_network(embedder.opt)}
    return " ".join(f"--{name} {value}" for name, value in flags.items())


TRACKERS = {
    "boxmot": Tracker(
        boxmot,
        _imagenet,
        {"OpenCV linear": opencv_linear},
        "from pathlib import Path\n\n"
        "from boxmot.reid.core.runtime import ReID\n\n"
        'encoder = ReID(Path("{file}"))\n'
        "embeddings = encoder(frame, boxes)  # BGR uint8 (H, W, 3); boxes (n, 4): x1, y1, x2, y2",
    ),
    "ultralytics": Tracker(
        ultralytics,
        _unit,
        {"torch linear": linear},
        "from ultralytics import YOLO\n\n"
        "# tracker.yaml: ultralytics' botsort.yaml with `with_reid: True` and `model: {file}`\n"
        'results = YOLO("yolo26n.pt").track("video.mp4", tracker="tracker.yaml")',
    ),
    "fastreid": Tracker(
        fastreid,
        _unchanged,
        {"OpenCV cubic (FastReID)": opencv_cubic, "OpenCV linear (BoT-SORT)": opencv_linear},
        "import onnxruntime\n\n"
        'session = onnxruntime.InferenceSession("{file}")\n'
        "# crops: numpy float32 (B, 3, H, W), RGB, 0 to 255\n"
        'embeddings = session.run(["embeddings"], {{"images": crops}})[0]',
    ),
    "roboflow": Tracker(
        roboflow,
        _own,
        {"Pillow bilinear": pillow_linear},
        "from reid import ReIDModel\n\n"
        'model = ReIDModel.from_pretrained("roboflow")\n'
        "embeddings = model.extract_embeddings(detections, frame)  # supervision's Detections; BGR uint8 (H, W, 3)",
    ),
}
