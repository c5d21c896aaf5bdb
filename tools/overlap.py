"""Near-duplicates between training and test images, and the metrics without them: `python -m evaluation.overlap
RUN_OR_DATA ...`.

RUN is a run folder: its data and network are taken, and the metrics are those of its embedding. DATA is the folder of a
data set (--dataset, by default one folder a class), measured by the features of --arch. The similarity of two images is
the cosine of their backbone's features after the training images' mean is subtracted: unrelated images are then around
0 with any network, resized or re-encoded copies near 1. For the metrics, test images search among test images (queries
in their gallery), by classes, in all dimensions of the embedding; the run's flags of `UNHEEDED` have no effect.
"""

import argparse
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

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
from evaluation import ensemble, from_files, from_splits, galleries, outputs
from evaluation.task import Rows
from evaluation.task import Task as RetrievalTask
from pictures.pairs import PairImage, draw_pairs
from runs import reports
from runs.folder import PARAMETERS, RunFolder, data_of
from utilities.console import propose, propose_view, say, without_flags
from utilities.errors import OneLineParser, UserError
from utilities.evaltypes import BARE, MAIN
from utilities.files import make_folder, write_csv, write_json
from utilities.numbers import number, whole

PROGRAM = "python -m evaluation.overlap"
THRESHOLD = 0.95
DEFAULT_METRICS = ["e_recall@1", "e_recall@2", "e_recall@4", "map_r"]
MOST_PAIRS = 1_000_000  # pairs; with more, the threshold is too low to be of use
# of a block of similarities
ROWS = 1024
COLUMNS = 65536
UNHEEDED = from_splits.OF_SEARCH | from_splits.OF_EMBEDDINGS  # flags of a run's evaluation that have no effect here


class Found(NamedTuple):
    """Pairs of a test image and another, the most similar first: similarity `(P,)`, test image `(P,)`, the other image
    `(P,)` of `split` `(P,)`.
    """

    similarity: np.ndarray
    test: np.ndarray
    other: np.ndarray
    split: np.ndarray


def parser() -> argparse.ArgumentParser:
    """The command's own flags."""
    about = (
        "Queries search among the test images alone, in their gallery where they have one, by classes, all domains "
        "together, and in all dimensions of the embedding: "
        f"a run's --eval_space and --rerank are applied, {', '.join(f'--{name}' for name in UNHEEDED)} are not."
    )
    parser = OneLineParser(prog=PROGRAM, description=f"{__doc__.partition(':')[0]}. {about}", allow_abbrev=False)
    add = parser.add_argument
    help_what = "run folders, whose data and network are taken, or folders of data sets"
    add("what", nargs="+", metavar="RUN_OR_DATA", help=help_what)
    help_threshold = (
        "similarity from which two images are near-duplicates: cosine of the backbone's features less their mean "
        f"(default: {THRESHOLD})"
    )
    add("--threshold", type=number(-1, 1), default=THRESHOLD, help=help_threshold)
    add(
        "--pretraining",
        default=None,
        metavar="FOLDER",
        help="also compare the test images with all images in and below this folder",
    )
    add(
        "--dataset",
        default="folder",
        help="how a folder of data is read and split, as main.py's --dataset; a run knows its own (default: folder)",
    )
    add("--source_path", default=None, metavar="FOLDER", help="where a run's data set lies now (default: where it lay)")
    help_arch = "compare by this network's features (default: a run's own network; of a folder of data resnet50)"
    add("--arch", default=None, help=help_arch)
    add("--weights", default=None, metavar="FILE", help="weights of --arch (default: the published ones)")
    add("--not_pretrained", action="store_true", help="--arch with random weights")
    add(
        "--evaluation_metrics",
        nargs="+",
        default=DEFAULT_METRICS,
        metavar="METRIC",
        help=f"what to measure (default: {' '.join(DEFAULT_METRICS)})",
    )
    add("--pictures", type=whole(0, 1000), default=24, metavar="N", help="draw the N most similar pairs (default: 24)")
    add("--eval_bs", type=whole(1, 10**6), default=64, help="images a batch (default: 64)")
    add("--kernels", type=whole(0), default=4, help="worker processes that load images (default: 4)")
    add("--gpu", type=whole(0), default=0, help="which GPU, where there is one (default: 0)")
    add(
        "--out",
        default=None,
        metavar="FOLDER",
        help="where files go, of several RUN_OR_DATA each in a folder of its own (default: RUN/overlap, DATA_overlap)",
    )
    parser.exits = False
    return parser


class Task:
    """One run, or one folder of data.

    Attributes:
        network: the run's network; None for a folder of data. backbone: the network whose features are compared.
        seen: what `datasets.select` gives, for `backbone`.
    """

    def __init__(self, place: Path, flags):
        self.place = place
        self.flags = flags
        self.is_run = (place / PARAMETERS).exists()
        if not place.is_dir():
            raise UserError(f"{place}: no such folder; give a run folder or the folder of a data set")
        own = RunFolder(place).flags if self.is_run else {}
        arch = flags.arch or (None if self.is_run else "resnet50")
        self.about = Namespace(
            **{
                "clip_grad_norm": None,
                "seed": 1,
                **own,
                "gpu": [flags.gpu],
                "precision": "float32",
                "eval_bs": flags.eval_bs,
                "eval_kernels": flags.kernels,
                "channels_last": False,
                "compile": False,
                "tf32": False,
                "sync_bn": False,
                "label_level_train": 0,
            }
        )
        self.runtime = Runtime(self.about)
        self.network = RunFolder(place).network() if self.is_run else None
        self.backbone = self.network if arch is None else self._chosen(arch)
        self.seen = self._data(self.backbone)

    def _chosen(self, arch: str) -> torch.nn.Module:
        architectures.check(arch)
        return architectures.select(
            arch, weights=self.flags.weights, not_pretrained=self.flags.not_pretrained or self.flags.weights is not None
        ).eval()

    def _data(self, network) -> dict:
        """The splits, with the transforms of a network. Raises UserError where the data set cannot be read."""
        shape = datasets.shape_for(network)
        if self.is_run:
            about = Namespace(**{**vars(self.about), **data_of(self.place)})
            return datasets.select(about.dataset, about, self.flags.source_path or about.source_path, **shape)
        if self.flags.dataset == "folder":
            return datasets.select("folder", dataset_folder_path=str(self.place), **shape)
        return datasets.select(self.flags.dataset, source_path=str(self.place), allow_partial_dataset=True, **shape)

    def others(self) -> dict:
        """split -> the images that a test image may be a copy of."""
        there = {"train": self.seen["evaluation"], "val": self.seen["validation"]}
        if self.flags.pretraining is not None:
            there["pretraining"] = images_below(Path(self.flags.pretraining), self.seen["testing"].transform)
        return {split: dataset for split, dataset in there.items() if dataset is not None and len(dataset)}

    def embed(self, network, dataset, title: str, bare: bool) -> dict[str, np.ndarray]:
        """Name -> features `(N, D)`: embeddings, or if `bare` the backbone's features as they are, whose mean
        duplicates are compared without.
        """
        self.runtime.place(network)
        loader = evaluation_loader(dataset, self.about)
        settings = evaluation.EmbedSettings(bare, normalize=not bare)
        return evaluation.embed(network, loader, self.runtime, title, settings).features

    def embeddings(self, features: np.ndarray) -> np.ndarray:
        """The embeddings that are measured: a run's, of the test images; without a run, their features, with
        `_normalize` at unit length.
        """
        if not self.is_run:
            return (
                ensemble.unit(features).astype(np.float32) if getattr(self.backbone, "normalizes", False) else features
            )
        images = (self.seen if self.backbone is self.network else self._data(self.network))["testing"]
        return evaluation.of_type(
            self.embed(self.network, images, "embedding test", False),
            getattr(self.about, "evaltypes", [MAIN])[0],
        )

    @property
    def measured_by(self) -> dict:
        """The run's `--eval_space`, `--rerank` and `--eval_skip_unmatched`."""
        return metrics.measured_by(self.about) if self.is_run else {}

    @property
    def unheeded(self) -> list[str]:
        """The flags of the run's evaluation that have no effect here, where they are set."""
        return from_splits.changed_flags(vars(self.about), UNHEEDED) if self.is_run else []

    @property
    def out(self) -> Path:
        """The folder of the files."""
        return folder_for(self.place, self.flags)


def folder_for(place: Path, flags) -> Path:
    """The folder of the files on a run folder or folder of data."""
    if flags.out is not None:
        return Path(flags.out) / place.resolve().name if len(flags.what) > 1 else Path(flags.out)
    is_run = (place / PARAMETERS).exists()
    return place / "overlap" if is_run else Path(f"{place.resolve().name}_overlap")


def images_below(folder: Path, transform) -> ImageSet:
    """All images in and below a folder. Raises UserError where there is none."""
    files = sorted(datasets.below(folder))
    if not files:
        what = "no images below it" if folder.is_dir() else "no such folder"
        raise UserError(f"--pretraining {folder}: {what} ({' '.join(sorted(datasets.suffixes()))})")
    images = [Image(path, Path(path).parent.name) for path in files]
    return ImageSet(images, transform, origin=Origin("pretraining", root=folder))


def near_duplicates(test: np.ndarray, others: dict[str, np.ndarray], threshold: float) -> Found:
    """Pairs whose cosine is at least `threshold`, after the mean of the first of `others` is subtracted.

    Args:
        test: `(N, F)` features. others: split -> `(M, F)`; the first is the training images'.

    Raises UserError for more than a million of them.
    """
    mean = next(iter(others.values())).mean(0, dtype=np.float64)

    def units(features):
        rows = torch.from_numpy(features.astype(np.float64) - mean)
        return torch.nn.functional.normalize(rows, dim=1).float()

    queries = units(test)
    found = []
    count = 0
    for split, features in others.items():
        reference = units(features)
        for row in range(0, len(queries), ROWS):
            for column in range(0, len(reference), COLUMNS):
                similarity = queries[row : row + ROWS] @ reference[column : column + COLUMNS].T
                first, second = torch.nonzero(similarity >= threshold, as_tuple=True)
                found.append(
                    (
                        similarity[first, second].numpy(),
                        first.numpy() + row,
                        second.numpy() + column,
                        np.full(len(first), split),
                    )
                )
                count += len(first)
                if count > MOST_PAIRS:
                    raise UserError(
                        f"--threshold {threshold:g}: more than {MOST_PAIRS:,} pairs are that similar: raise it, "
                        "or take another --arch"
                    )
    similarity, first, second, split = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((second, first, -similarity))
    return Found(np.minimum(similarity, 1.0)[order], first[order], second[order], split[order])


def without(
    names: list[str], features: np.ndarray, dataset, concerned: np.ndarray, **measured_by
) -> tuple[dict, dict, int]:
    """The metrics of all test images, those without the concerned images, and how many queries then have no image of
    their class left.

    Args:
        dataset: the test images, whose queries search in their gallery. concerned: `(N,)` whether an image is left out,
        as query and as
            reference. measured_by: `ball` and `rerank` of `metrics.compute`.

    A query whose class has no other image left is no query any more, but others can still find it. Where the gallery is
    drawn, values are means over the draws, and the count is of the first.
    """
    draws = [_both(names, features, drawn, concerned) for drawn in galleries.draws(dataset)]
    complete, reduced = (evaluation.over_draws(([draw[k]] for draw in draws), names, measured_by) for k in range(2))
    return complete, reduced, draws[0][2]


def _both(
    names: list[str], features: np.ndarray, dataset, concerned: np.ndarray
) -> tuple[RetrievalTask, RetrievalTask, int]:
    """The task of all test images, that without the concerned ones, and how many queries are then alone in their
    class; see `without`.
    """
    labels = np.array([label for _, label in dataset.image_list])
    roles = galleries.roles_of(dataset, len(labels))
    arrays = {"features": features, "labels": labels, "sequence": roles.sequences}
    if any(map(metrics.needs_groups, names)):
        arrays["groups"] = np.array([str(dataset.super_labels[label]) for label in labels.tolist()])
    complete = from_files.in_itself(from_files.EmbeddingFile("test", arrays, roles))
    asking = np.flatnonzero(~concerned[roles.rows("queries")])
    kept = np.flatnonzero(~concerned[roles.rows("gallery")])
    alone = np.ones(len(asking), dtype=bool)
    if len(asking) and len(kept):
        alone = (complete.part(asking, kept).findable()[0] == 0) & (complete.findable()[0][asking] > 0)
    if alone.all():
        raise UserError(
            f"{int(concerned.sum())} of {len(labels)} test images have near-duplicates, no query is left: raise "
            "--threshold"
        )
    reduced = complete.part(asking[~alone], kept)
    if complete.pool is not None:
        left = roles.pool[~concerned[roles.pool]]
        reduced = replace(reduced, pool=Rows(features[left], labels[left]))
    return complete, reduced, int(alone.sum())


def write_pairs(path: Path, found: Found, test, others: dict) -> None:
    """The pairs as a table, a line each."""
    pairs = zip(*(column.tolist() for column in found), strict=True)
    rows = (
        [f"{cosine:.5f}", *_named(test, first), split, *_named(others[split], second)]
        for cosine, first, second, split in pairs
    )
    write_csv(path, ["similarity", "test_image", "test_class", "split", "image", "class"], rows)


def _named(dataset, index: int) -> tuple[str, str]:
    path, label = dataset.image_list[index]
    return str(path), str(dataset.class_names.get(label, ""))


def draw_found(path: Path, found: Found, test, others: dict, count: int) -> None:
    """Draw the `count` most similar pairs: the test image left, the other right, with their classes, the split and the
    similarity.
    """
    pairs = []
    for first, second, split, similarity in zip(
        found.test, found.other, found.split.tolist(), found.similarity, strict=True
    ):
        both = (test, int(first), "test"), (others[split], int(second), f"{split}, {similarity:.4f}")
        pairs.append(tuple(PairImage(*one, _named(*one[:2])[1]) for one in both))
        if len(pairs) == count:
            break
    draw_pairs(path, pairs)


def measure(place: str, flags) -> dict:
    """Compare the images of one run or folder, write the files, print the numbers. Returns what overlap.json holds."""
    task = Task(Path(place), flags)
    test = task.seen["testing"]
    others = task.others()
    if test.lists is not None:
        raise UserError(f"{place}: lists say what its queries are to find; overlap measures by classes alone")
    features = task.embed(task.backbone, test, "features of test", True)[BARE]
    theirs = {
        split: task.embed(task.backbone, dataset, f"features of {split}", True)[BARE]
        for split, dataset in others.items()
    }
    if "train" not in theirs:
        raise UserError(f"{place}: there are no training images to compare with")
    found = near_duplicates(features, theirs, flags.threshold)
    concerned = np.zeros(len(test), dtype=bool)
    concerned[found.test] = True
    scores, reduced, alone = without(
        flags.evaluation_metrics, task.embeddings(features), test, concerned, **task.measured_by
    )
    make_folder(task.out, f"--out {task.out}")
    write_pairs(task.out / "pairs.csv", found, test, others)
    (task.out / "pairs.png").unlink(missing_ok=True)
    if len(found.test) and flags.pictures:
        draw_found(task.out / "pairs.png", found, test, others, flags.pictures)
    counts = {split: int((found.split == split).sum()) for split in others}
    content = {
        "threshold": flags.threshold,
        "pairs": counts,
        "test_images": len(test),
        "with_near_duplicates": int(concerned.sum()),
        "left_alone": alone,
        "features": flags.arch or (task.about.arch if task.is_run else "resnet50"),
        "all": scores,
        "without": reduced,
        "not_heeded": task.unheeded,
    }
    write_json(
        task.out / "overlap.json", content | outputs.jsonable({name: content[name] for name in ("all", "without")})
    )
    _say(place, task.out, content)
    return content


def propose_next(contents: list[dict], flags, argv: list[str]) -> None:
    """Print the command that opens the first picture of pairs, else one that draws them, or looks for less similar
    ones.
    """
    pictures = [folder_for(Path(place), flags) / "pairs.png" for place in flags.what]
    drawn = next((path for path in pictures if path.exists()), None)
    if drawn is not None:
        propose_view(drawn)
    elif any(content["with_near_duplicates"] for content in contents):
        propose(*PROGRAM.split(), *without_flags(argv, {"--pictures": 1}))
    else:
        lower = max(flags.threshold - 0.05, -1)
        propose(*PROGRAM.split(), *without_flags(argv, {"--threshold": 1}), "--threshold", f"{lower:g}")


def _say(place: str, out: Path, content: dict) -> None:
    pairs = ", ".join(f"{count:,} with {split}" for split, count in content["pairs"].items())
    say(
        f"{place}: {content['with_near_duplicates']:,} of {content['test_images']:,} test images have a near-duplicate "
        "(similarity of "
        f"{content['features']} from {content['threshold']:g} on); pairs: {pairs}"
    )
    if content["left_alone"]:
        say(
            f"{content['left_alone']:,} further test images are alone in their class without them, and are no "
            "queries then"
        )
    if content["not_heeded"]:
        say(
            f"test images search among test images alone, in all dimensions: {', '.join(content['not_heeded'])} "
            "of the run: not heeded here"
        )
    columns = {
        title: {"test": {k: v for k, v in content[title].items() if not np.ndim(v)}} for title in ("all", "without")
    }
    print(
        f"\n{reports.table(columns)}\n\nwritten  {out / 'pairs.csv'}"
        + f"\nwritten  {out / 'pairs.png'}" * (out / "pairs.png").exists()
    )


def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command. Returns the content of each overlap.json."""
    argv = sys.argv[1:] if argv is None else argv
    flags = parser().parse_args(argv)
    for name in flags.evaluation_metrics:
        metrics.check(name)
    if (
        flags.arch is None
        and (flags.weights or flags.not_pretrained)
        and any((Path(place) / PARAMETERS).exists() for place in flags.what)
    ):
        raise UserError("--weights and --not_pretrained belong to --arch; a run's own network has its own weights")
    contents = [measure(place, flags) for place in flags.what]
    propose_next(contents, flags, argv)
    return contents
