"""What `python -m evaluation.overlap` compares: the images of a run or of a folder of data, and the networks that embed
them.
"""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import architectures
import datasets
import evaluation
import metrics
from datasets._image_set import ImageSet, Origin
from datasets._images import Image
from engine.loading import evaluation_loader
from engine.runtime import Runtime
from evaluation import ensemble, from_splits
from runs.folder import PARAMETERS, RunFolder, data_of
from utilities.errors import UserError
from utilities.evaltypes import BARE, MAIN

# the network for a folder of data, which names none itself
DEFAULT_ARCH = "resnet50"
# flags of a run's evaluation that have no effect here; what a run names as code is not executed
UNHEEDED = from_splits.OF_SEARCH | from_splits.OF_EMBEDDINGS | {"rerank_pairs": None}


@dataclass(frozen=True)
class EmbeddingSettings:
    """The flags that `Runtime` and `evaluation_loader` read, for embedding alone."""

    gpu: list[int]
    eval_bs: int
    eval_kernels: int
    seed: int = 1
    precision: str = "float32"
    clip_grad_norm: float | None = None


class Source:
    """What is compared: the images of a run, or of a folder of data, and the networks that embed them.

    Attributes:
        backbone: the network whose features are compared. splits: as `datasets.select` gives them, for `backbone`.
        measured_by: the arguments of `metrics.compute` that a run's flags set. unheeded: flags of a run's evaluation
        that have no effect here.
    """

    measured_by = {}
    unheeded = []

    def __init__(self, flags):
        self.flags = flags
        self.settings = EmbeddingSettings([flags.gpu], flags.eval_bs, flags.kernels)
        self.runtime = Runtime(self.settings)

    def copied_splits(self) -> dict:
        """split -> the images that a test image may be a copy of."""
        splits = {"train": self.splits["evaluation"], "val": self.splits["validation"]}
        if self.flags.pretraining is not None:
            splits["pretraining"] = images_below(Path(self.flags.pretraining), self.splits["testing"].transform)
        return {split: dataset for split, dataset in splits.items() if dataset is not None and len(dataset)}

    def features(self, dataset, split: str) -> np.ndarray:
        """The backbone's features `(N, F)` as they are, not at unit length."""
        return self._embed(self.backbone, dataset, f"features of {split}", bare=True)[BARE]

    def embeddings(self, features: np.ndarray) -> np.ndarray:
        """The embeddings `(N, D)` of the test images that are measured; `features` `(N, F)`: their features."""
        raise NotImplementedError

    def _embed(self, network, dataset, title: str, bare: bool) -> dict[str, np.ndarray]:
        self.runtime.place(network)
        loader = evaluation_loader(dataset, self.settings)
        settings = evaluation.EmbedSettings(bare, normalize=not bare)
        return evaluation.embed(network, loader, self.runtime, title, settings).features

    def _network_of_flags(self, arch: str) -> torch.nn.Module:
        architectures.check(arch)
        has_no_published_weights = self.flags.not_pretrained or self.flags.weights is not None
        network = architectures.select(arch, weights=self.flags.weights, not_pretrained=has_no_published_weights)
        return network.eval()


class Run(Source):
    """A run folder: its data, and the embeddings of its network. `--arch` may compare by another network."""

    def __init__(self, folder: Path, flags):
        super().__init__(flags)
        self.folder = folder
        run = RunFolder(folder)
        self.opt = Namespace(**{**run.flags, **data_of(folder), "label_level_train": 0})
        self.network = run.network()
        self.backbone = self.network if flags.arch is None else self._network_of_flags(flags.arch)
        self.features_of = flags.arch or self.opt.arch
        self.splits = self._splits_for(self.backbone)
        self.measured_by = metrics.measured_by(Namespace(**{**vars(self.opt), "rerank_pairs": None}))
        self.unheeded = from_splits.changed_flags(vars(self.opt), UNHEEDED)

    def _splits_for(self, network) -> dict:
        source_path = self.flags.source_path or self.opt.source_path
        return datasets.select(self.opt.dataset, self.opt, source_path, **datasets.shape_for(network))

    def embeddings(self, features: np.ndarray) -> np.ndarray:
        """The run's own, in all dimensions."""
        splits = self.splits if self.backbone is self.network else self._splits_for(self.network)
        embeddings = self._embed(self.network, splits["testing"], "embedding test", bare=False)
        evaltypes = vars(self.opt).get("evaltypes", [MAIN])
        return evaluation.of_type(embeddings, evaltypes[0])


class DataFolder(Source):
    """The folder of a data set, read as `--dataset`, and the features of `--arch`."""

    def __init__(self, folder: Path, flags):
        super().__init__(flags)
        self.features_of = flags.arch or DEFAULT_ARCH
        self.backbone = self._network_of_flags(self.features_of)
        shape = datasets.shape_for(self.backbone)
        if flags.dataset == "folder":
            self.splits = datasets.select("folder", dataset_folder_path=str(folder), **shape)
        else:
            place = {"source_path": str(folder), "allow_partial_dataset": True}
            self.splits = datasets.select(flags.dataset, **place, **shape)

    def embeddings(self, features: np.ndarray) -> np.ndarray:
        """The features, at unit length if the network normalises."""
        if not getattr(self.backbone, "normalizes", False):
            return features
        return ensemble.unit(features).astype(np.float32)


def is_run(place: Path) -> bool:
    """Whether a folder is that of a run."""
    return (place / PARAMETERS).exists()


def open_source(place: Path, flags) -> Source:
    """The run or the data of a folder. Raises UserError if there is no such folder, or its data cannot be read."""
    if not place.is_dir():
        raise UserError(f"{place}: no such folder; give a run folder or the folder of a data set")
    if is_run(place):
        return Run(place, flags)
    return DataFolder(place, flags)


def images_below(folder: Path, transform) -> ImageSet:
    """All images in and below a folder. Raises UserError if there is none."""
    files = sorted(datasets.below(folder))
    if not files:
        reason = "no images below it" if folder.is_dir() else "no such folder"
        raise UserError(f"--pretraining {folder}: {reason} ({' '.join(sorted(datasets.suffixes()))})")
    images = [Image(path, Path(path).parent.name) for path in files]
    return ImageSet(images, transform, origin=Origin("pretraining", root=folder))
