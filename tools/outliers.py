"""Training images far from the dominant centre of their class: `python -m evaluation RUN --outliers` (Deng et al.,
Sub-center ArcFace, ECCV 2020).

The paper drops them as label noise and trains again; here they are listed.
"""

from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

import torch

import criteria
from runs import checkpoint
from runs.folder import RunFolder
from utilities.errors import UserError

EMBEDDINGS = "embeddings_train.npz"
# method of a criterion with several centres per class
METHOD = "angles_to_dominant"


class Outlier(NamedTuple):
    """One training image: its index in the data set, its path (None if the file has none),
    its class, its angle in degrees.
    """

    index: int
    path: str | None
    class_name: str
    angle: float


def locate(path: str) -> tuple[Path, Path]:
    """(run folder, its file of embeddings), from the path of either.
    Raises UserError if the file is missing, or of other images.
    """
    file = Path(path)
    if file.suffix != ".npz":
        file = file / EMBEDDINGS
    folder = next((parent for parent in file.parents if (parent / "parameters.yaml").exists()), file.parent)
    if not file.name.startswith("embeddings_train"):
        raise UserError(f"--outliers {path}: outliers are training images, give the run or its {EMBEDDINGS}")
    if not file.exists():
        flags = "--splits_to_eval train test --dump_embeddings"
        raise UserError(f"--outliers: no {file}: python main.py --evaluate --resume_from {folder} {flags} writes it")
    return folder, file


def criterion(folder: Path) -> torch.nn.Module:
    """The criterion of the checkpoint that made the embeddings.
    Raises UserError if it does not have several centres per class.
    """
    run = RunFolder(folder)
    flags = Namespace(**run.flags)
    if not hasattr(criteria.REGISTRY.module(flags.loss).Criterion, METHOD):
        able = [name for name, module in criteria.REGISTRY.modules().items() if hasattr(module.Criterion, METHOD)]
        raise UserError(
            f"--outliers: {folder} was trained with --loss {flags.loss}; outliers are those of --loss "
            f"{' or '.join(able)}"
        )
    path = checkpoint.selected(folder, checkpoint.read(folder / checkpoint.LAST)["run"])
    state = checkpoint.read(path).get("criterion")
    try:
        rows, embed_dim = state["proxies"].shape
        of_one_class = criteria.select(flags.loss, flags, n_classes=1, embed_dim=embed_dim)
        n_classes = rows // of_one_class.per_class
        built = criteria.select(flags.loss, flags, n_classes=n_classes, embed_dim=embed_dim)
        built.load_state_dict(state)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise checkpoint.damaged(path, "its criterion is not that of parameters.yaml") from error
    return built


def find(path: str, read, threshold: float) -> tuple[list[Outlier], int]:
    """The outliers of a run, the farthest first, and the number of training images.

    Args:
        path: the run folder, or a file of its training images' embeddings.
        read: path of the file -> its arrays by name.
        threshold: degrees beyond which an image is an outlier.

    Raises UserError if the run has no such centres, or the embeddings do not fit them.
    """
    folder, file = locate(path)
    built = criterion(folder)
    arrays = read(str(file))
    features = torch.as_tensor(arrays["features"]).double()
    labels = torch.as_tensor(arrays["labels"]).long()
    n_classes = built.n_classes
    dimensions = built.proxies.shape[1]
    if features.ndim != 2 or features.shape[1] != dimensions or labels.shape != features.shape[:1]:
        raise UserError(
            f"{file}: features {tuple(features.shape)}; the run's centres have {dimensions} dimensions (without "
            "--eval_pca)"
        )
    if not len(labels) or int(labels.min()) < 0 or int(labels.max()) >= n_classes:
        raise UserError(
            f"{file}: the run trained on {n_classes} classes, 0 to {n_classes - 1}: its labels are not of these "
            "classes, give the labels of the training set"
        )
    angles = getattr(built, METHOD)(features, labels).tolist()
    paths = arrays.get("paths", [None] * len(angles))
    names = arrays.get("class_names", labels.tolist())
    outliers = []
    for index, angle in enumerate(angles):
        if angle > threshold:
            image_path = None if paths[index] is None else str(paths[index])
            outliers.append(Outlier(index, image_path, str(names[index]), angle))
    return sorted(outliers, key=lambda outlier: -outlier.angle), len(angles)


def table(outliers: list[Outlier]) -> str:
    """One line per image."""
    lines = []
    for outlier in outliers:
        image = f"image {outlier.index}" if outlier.path is None else outlier.path
        lines.append(f"{outlier.angle:6.1f}  {outlier.class_name}  {image}")
    return "\n".join(lines)
