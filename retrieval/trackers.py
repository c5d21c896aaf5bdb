"""A run's network as the appearance network of a tracker, in the file that the tracker loads.

Trackers cut boxes from frames and resize them in ways of their own, and their graphs expect different values. Every
file takes float32 images `(batch, 3, H, W)`, RGB, with H and W fixed, and is compared with the run on the tensor that
the tracker would make. The facts were read in boxmot 25.0.0, ultralytics 8.4.190, roboflow's reid 0.1.0rc1 and FastReID
(commit c9bc3ce); tests/retrieval/test_trackers.py loads the files in the first three, where they are installed.
"""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL.Image
import torch
from torch.nn.functional import interpolate

from architectures import _osnet, _timm
from architectures._input import IMAGENET_MEAN, IMAGENET_STD
from retrieval import exporting, weights
from utilities.console import warn
from utilities.errors import UserError

ROBOFLOW_OSNETS = ("osnet_x1_0", "osnet_x0_75", "osnet_x0_5", "osnet_x0_25")
WAY_OUT = "leave it out"


class Written(NamedTuple):
    """A written file: its name in the folder, and what it computes, tensors `(n, 3, H, W)` -> embeddings `(n, D)`."""

    name: str
    embed: Callable[[np.ndarray], np.ndarray]


class Tracker(NamedTuple):
    """How a tracker takes an appearance network.

    Attributes:
        write: `(embedder, folder)` -> its files.
        resizes: name -> how it resizes a crop, uint8 `(3, H, W)` and (height, width) -> float32 0 to 255.
        white, mean, std: its tensor is RGB with this value of white, less the mean, divided by the deviation.
    """

    write: Callable
    resizes: dict[str, Callable]
    white: float = 1
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def tensor(self, images: np.ndarray) -> np.ndarray:
        """What its files get, float32, of images `(n, 3, H, W)` from 0 to 255."""
        mean, std = (np.float32(values).reshape(1, 3, 1, 1) for values in (self.mean, self.std))
        return (images * np.float32(self.white / 255) - mean) / std


class Graph(torch.nn.Module):
    """A network `module`, images in [0, 1] -> embeddings `(B, D)`, behind the inverse of a tracker's normalisation."""

    def __init__(self, module: torch.nn.Module, tracker: Tracker):
        super().__init__()
        self.module = module
        self.register_buffer("scale", torch.tensor(tracker.std).view(1, 3, 1, 1) / tracker.white)
        self.register_buffer("shift", torch.tensor(tracker.mean).view(1, 3, 1, 1) / tracker.white)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Embeddings `(B, D)` of the tracker's tensors `(B, 3, H, W)`."""
        return self.module(images * self.scale + self.shift)


class Comparison(NamedTuple):
    """A file's least cosine to the run: on the run's own input, and by name of how the tracker resizes the image."""

    file: str
    tracker: str
    cosine: float
    resized: dict[str, float]

    def text(self, count: int) -> str:
        """One line of the console; `count`: of images."""
        resized = ", ".join(f"{how} {cosine:.4f}" for how, cosine in self.resized.items())
        start = f"{self.file}: least cosine to the run on {count} images {self.cosine:.6f}"
        return f"{start}; resized by the tracker: {resized}"


def write(embedder, folder: Path, names: list[str], images: list) -> list[Comparison]:
    """Write the files of the trackers `names`, each compared with the run on `images`, whole crops: paths, or pixels.

    `embedder`: an `Embedder` on the CPU.

    Raises UserError if a tracker cannot take this network, or a file gives something else than the run.
    """
    if not getattr(embedder.network, "normalizes", False):
        warn(
            f"note: trackers compare by cosine, and the embeddings of {embedder.opt.arch} are not of unit length: "
            "measure the run by metrics that begin with c_"
        )
    size = embedder.preparation.size
    expected = embedder(images)
    prepared = np.stack([embedder.preparation(image).numpy() for image in images])
    comparisons = []
    for name in dict.fromkeys(names):
        tracker = TRACKERS[name]
        for file in tracker.write(embedder, folder):
            tensor = tracker.tensor(prepared)
            cosine = exporting.least_cosine(f"--tracker {name}", file.embed, tensor, expected, WAY_OUT)
            resized = {}
            for how, resize in tracker.resizes.items():
                crops = np.stack([resize(embedder.preparation.original(image), size) for image in images])
                resized[how] = float(exporting.cosines(file.embed(tracker.tensor(crops)), expected).min())
            comparisons.append(Comparison(file.name, name, cosine, resized))
    return comparisons


def linear(image: torch.Tensor, size: tuple[int, int], mode: str = "bilinear") -> np.ndarray:
    """Resized without antialias, as float."""
    resized = interpolate(image[None].float(), size, mode=mode, align_corners=False, antialias=False)
    return resized[0].clamp(0, 255).numpy()


def opencv(image: torch.Tensor, size: tuple[int, int], mode: str = "bilinear") -> np.ndarray:
    """Resized as by OpenCV's INTER_LINEAR or, `bicubic`, INTER_CUBIC: torch's filters, rounded to 8 bits."""
    return linear(image, size, mode).round()


def pillow(image: torch.Tensor, size: tuple[int, int]) -> np.ndarray:
    """Resized as by Pillow's bilinear filter, with antialias."""
    height, width = size
    picture = PIL.Image.fromarray(image.permute(1, 2, 0).numpy())
    resized = picture.resize((width, height), PIL.Image.Resampling.BILINEAR)
    return np.asarray(resized, dtype=np.float32).transpose(2, 0, 1)


def _graph(tracker: str, embedder, folder: Path) -> list[Written]:
    """<tracker>.onnx."""
    graph = Graph(embedder.module, TRACKERS[tracker]).eval()
    name = f"{tracker}.onnx"
    example = exporting.example(embedder.preparation.size).float()
    return [Written(name, exporting.write_onnx(graph, example, folder / name, f"--tracker {tracker}", WAY_OUT))]


def _boxmot(embedder, folder: Path) -> list[Written]:
    """boxmot.onnx with its sidecar; of an OSNet also the weights under torchreid's names, `<arch>_boxmot.pt`."""
    files = _graph("boxmot", embedder, folder)
    name = getattr(embedder.network, "constructor", str(embedder.opt.arch))
    size = list(embedder.preparation.size)
    metadata = {"model_name": name, "num_classes": 0, "preprocess": "resize", "img_size": size}
    sidecar = json.dumps({"schema_version": 1, **metadata}, indent=1)
    (folder / "boxmot.onnx.metadata.json").write_text(sidecar, encoding="utf-8")
    if _is_bare(embedder, _osnet.Network):
        file = f"{name}_boxmot.pt"
        torch.save({**metadata, "state_dict": embedder.network.backbone.state_dict()}, folder / file)
        backbone = _osnet.OSNet(_osnet.VARIANTS[name])
        backbone.load_state_dict(torch.load(folder / file, weights_only=True)["state_dict"])
        files.append(Written(file, function_of(backbone.eval())))
    return files


def _roboflow(embedder, folder: Path) -> list[Written]:
    """The folder roboflow/ with reid_config.json and weights.safetensors, which `ReIDModel.from_pretrained` loads."""
    network = embedder.network
    is_osnet = _is_bare(embedder, _osnet.Network) and network.constructor in ROBOFLOW_OSNETS
    if not is_osnet and not _is_bare(embedder, _timm.Network):
        flags = {"embed_dim": embedder.opt.embed_dim, **weights.flags_of_network(embedder.opt)}
        words = " ".join(f"--{name} {value}" for name, value in flags.items())
        raise UserError(
            f"--tracker roboflow: it builds {', '.join(ROBOFLOW_OSNETS)} and timm:NAME by itself, all without layers "
            f"behind the backbone (--embed_dim 0) and other changes, not --arch {embedder.opt.arch} with "
            f"{words}: leave it out"
        )
    normalisation = {"mean": list(network.mean), "std": list(network.std), "to_rgb": True}
    resizing = {"input_size": list(embedder.preparation.size), "interpolation": "bilinear"}
    preprocessing = {**resizing, **normalisation, "resize_mode": "stretch", "pad_value": 114}
    name = network.constructor if is_osnet else f"timm:{network.constructor}"
    place = folder / "roboflow"
    place.mkdir()
    config = json.dumps({"architecture": name, "preprocessing": preprocessing}, indent=1)
    (place / "reid_config.json").write_text(config, encoding="utf-8")
    grid = getattr(network, "grid", None)
    weights.write(place / "weights.safetensors", network.backbone.state_dict(), name, grid)
    with exporting.guarded("--tracker roboflow", WAY_OUT):
        if is_osnet:
            backbone = _osnet.OSNet(_osnet.VARIANTS[name])
        else:
            backbone = _timm.package().create_model(network.constructor, num_classes=0)
        weights.read_into(place / "weights.safetensors", backbone)
    normalising = Tracker(_roboflow, {}, mean=network.mean, std=network.std)
    embed = function_of(backbone.eval())
    return [Written("roboflow/weights.safetensors", lambda images: embed(normalising.tensor(images * np.float32(255))))]


def function_of(module: torch.nn.Module) -> Callable[[np.ndarray], np.ndarray]:
    """A module as a function of arrays."""

    @torch.no_grad()
    def embed(images: np.ndarray) -> np.ndarray:
        return module(torch.from_numpy(images)).numpy()

    return embed


def _is_bare(embedder, kind: type) -> bool:
    """Whether the embeddings are the pooled features of an unchanged backbone of this class, perhaps at unit length."""
    network = embedder.network
    if not isinstance(network, kind) or weights.flags_of_network(embedder.opt):
        return False
    return all(map(weights.does_nothing, network.embedding_layers.values()))


CUBIC = functools.partial(opencv, mode="bicubic")
TRACKERS = {
    "boxmot": Tracker(_boxmot, {"OpenCV linear": opencv}, mean=IMAGENET_MEAN, std=IMAGENET_STD),
    "ultralytics": Tracker(functools.partial(_graph, "ultralytics"), {"torch linear": linear}),
    "fastreid": Tracker(
        functools.partial(_graph, "fastreid"),
        {"OpenCV cubic (FastReID)": CUBIC, "OpenCV linear (BoT-SORT)": opencv},
        white=255,
    ),
    "roboflow": Tracker(_roboflow, {"Pillow bilinear": pillow}),
}
