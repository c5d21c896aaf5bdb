"""Near-duplicates between training and test images, and the metrics without them:
`python -m evaluation.overlap RUN_OR_DATA ...`.

RUN is a run folder: its data and network are taken, and the metrics are those of its embedding. DATA is the folder of a
data set (--dataset, by default one folder a class), measured by the features of --arch. The similarity of two images is
the cosine of their backbone's features after the training images' mean is subtracted: unrelated images are then around
0 with any network, resized or re-encoded copies near 1. For the metrics, test images search among test images (queries
in their gallery), by classes, in all dimensions of the embedding; the run's flags of `UNHEEDED` have no effect.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import evaluation
import metrics
from evaluation import from_files, galleries, outputs
from evaluation.task import Rows, Task
from pictures.pairs import PairImage, draw_pairs
from runs import reports
from tools._command import new_parser, refuse_torchrun, words_of
from tools._overlap_sources import UNHEEDED, is_run, open_source
from utilities.console import propose, propose_view, say, without_flags
from utilities.errors import UserError
from utilities.files import make_folder, write_csv, write_json
from utilities.numbers import number, whole

PROGRAM = "python -m evaluation.overlap"
THRESHOLD = 0.95
DEFAULT_METRICS = ["e_recall@1", "e_recall@2", "e_recall@4", "map_r"]
# pairs; with more, the threshold is too low to be of use
MOST_PAIRS = 1_000_000
# of a block of similarities
ROWS = 1024
COLUMNS = 65536


class Duplicates(NamedTuple):
    """Pairs of a test image and a reference image, the most similar first: similarity `(P,)`, rows of the test images
    `(P,)`, rows `(P,)` of the reference images in their `split` `(P,)`.
    """

    similarity: np.ndarray
    test: np.ndarray
    reference: np.ndarray
    split: np.ndarray


def parser() -> argparse.ArgumentParser:
    """The command's own flags."""
    unheeded = ", ".join(f"--{name}" for name in UNHEEDED)
    rules = (
        "Queries search among the test images alone, in their gallery where they have one, by classes, all domains "
        f"together, and in all dimensions of the embedding: a run's --eval_space and --rerank are applied, {unheeded} "
        "are not."
    )
    parser = new_parser(PROGRAM, f"{__doc__.partition(':')[0]}. {rules}")
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
    help_all = (
        "also compare all images of training, validation and test with each other, and write near_duplicates.csv, "
        "which main.py's --split_groups keeps on one side of a split"
    )
    add("--all_pairs", action="store_true", help=help_all)
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
    add("--eval_bs", type=whole(1, 10**6), default=64, help="images per batch (default: 64)")
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


def output_folder(place: Path, flags) -> Path:
    """The folder of the files on a run folder or folder of data."""
    name = place.resolve().name
    if flags.out is not None and len(flags.what) > 1:
        return Path(flags.out) / name
    if flags.out is not None:
        return Path(flags.out)
    if is_run(place):
        return place / "overlap"
    return Path(f"{name}_overlap")


def near_duplicates(test: np.ndarray, references: dict[str, np.ndarray], threshold: float) -> Duplicates:
    """Pairs whose cosine is at least `threshold`, after the mean of the first of `references` is subtracted.

    Args:
        test: `(N, F)` features. references: split -> `(M, F)`; the first is the training images'.

    Raises UserError for more than a million of them.
    """
    mean = next(iter(references.values())).mean(0, dtype=np.float64)

    def unit_rows(features: np.ndarray) -> torch.Tensor:
        rows = torch.from_numpy(features.astype(np.float64) - mean)
        return torch.nn.functional.normalize(rows, dim=1).float()

    queries = unit_rows(test)
    blocks = []
    count = 0
    for split, features in references.items():
        for block in _similar_pairs(queries, unit_rows(features), threshold, split):
            blocks.append(block)
            count += len(block.test)
            if count > MOST_PAIRS:
                raise UserError(
                    f"--threshold {threshold:g}: more than {MOST_PAIRS:,} pairs are that similar: raise it, or take "
                    "another --arch"
                )
    pairs = Duplicates(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))
    order = np.lexsort((pairs.reference, pairs.test, -pairs.similarity))
    return Duplicates(
        np.minimum(pairs.similarity, 1.0)[order], pairs.test[order], pairs.reference[order], pairs.split[order]
    )


def _similar_pairs(queries: torch.Tensor, reference: torch.Tensor, threshold: float, split: str):
    """Yield the pairs of unit vectors from `threshold` on, block by block of the matrix of cosines."""
    for row in range(0, len(queries), ROWS):
        for column in range(0, len(reference), COLUMNS):
            cosines = queries[row : row + ROWS] @ reference[column : column + COLUMNS].T
            first, second = torch.nonzero(cosines >= threshold, as_tuple=True)
            similarity = cosines[first, second].numpy()
            yield Duplicates(similarity, first.numpy() + row, second.numpy() + column, np.full(len(first), split))


class Reduced(NamedTuple):
    """The task of all test images, that without the near-duplicates,
    and how many queries then have no image of their class left.
    """

    complete: Task
    reduced: Task
    left_alone: int


def metrics_without(
    names: list[str], features: np.ndarray, dataset, is_duplicate: np.ndarray, **measured_by
) -> tuple[dict, dict, int]:
    """The metrics of all test images, those without the near-duplicates, and how many queries then have no image of
    their class left.

    Args:
        features: `(N, D)` embeddings of the test images. dataset: the test images, whose queries search in their
        gallery. is_duplicate: `(N,)` whether an image is left out, as query and as reference. measured_by: `ball` and
        `rerank` of `metrics.compute`.

    A query whose class has no other image left is no query any more, but others can still find it. If the gallery is
    drawn, values are means over the draws, and the count is of the first.
    """
    draws = [reduce(names, features, images, is_duplicate) for images in galleries.draws(dataset)]
    complete = evaluation.over_draws(([draw.complete] for draw in draws), names, measured_by)
    reduced = evaluation.over_draws(([draw.reduced] for draw in draws), names, measured_by)
    return complete, reduced, draws[0].left_alone


def reduce(names: list[str], features: np.ndarray, dataset, is_duplicate: np.ndarray) -> Reduced:
    """The tasks of one gallery, see `metrics_without`. Raises UserError if no query is left."""
    labels = np.array([label for _, label in dataset.image_list])
    roles = galleries.roles_of(dataset, len(labels))
    arrays = {"features": features, "labels": labels, "sequence": roles.sequences}
    if any(map(metrics.needs_groups, names)):
        arrays["groups"] = np.array([str(dataset.super_labels[label]) for label in labels.tolist()])
    complete = from_files.in_itself(from_files.EmbeddingFile("test", arrays, roles))
    query_positions = np.flatnonzero(~is_duplicate[roles.rows("queries")])
    gallery_positions = np.flatnonzero(~is_duplicate[roles.rows("gallery")])
    is_alone = np.ones(len(query_positions), dtype=bool)
    if len(query_positions) and len(gallery_positions):
        relevant_before, _ = complete.findable()
        relevant_after, _ = complete.part(query_positions, gallery_positions).findable()
        is_alone = (relevant_after == 0) & (relevant_before[query_positions] > 0)
    if is_alone.all():
        raise UserError(
            f"{int(is_duplicate.sum())} of {len(labels)} test images have near-duplicates, no query is left: raise "
            "--threshold"
        )
    reduced = complete.part(query_positions[~is_alone], gallery_positions)
    if complete.pool is not None:
        pool = roles.pool[~is_duplicate[roles.pool]]
        reduced = replace(reduced, pool=Rows(features[pool], labels[pool]))
    return Reduced(complete, reduced, int(is_alone.sum()))


def pairs_within(features: dict[str, np.ndarray], threshold: float) -> list[tuple[float, str, int, str, int]]:
    """Each pair of images of the data whose similarity is at least `threshold`, once, the most similar first.

    Args:
        features: split -> `(N, F)`; the first is the training images'.

    Returns:
        (similarity, split of the first image, its row, split of the second image, its row).
    """
    order = {split: number for number, split in enumerate(features)}
    rows = []
    for split in features:
        pairs = near_duplicates(features[split], features, threshold)
        for similarity, first, second, second_split in zip(*(column.tolist() for column in pairs), strict=True):
            if (order[split], first) < (order[second_split], second):
                rows.append((similarity, split, first, second_split, second))
    return sorted(rows, key=lambda row: (-row[0], order[row[1]], row[2], order[row[3]], row[4]))


def write_near_duplicates(path: Path, pairs: list[tuple], data_sets: dict) -> None:
    """The pairs of `pairs_within` as a table, a line each; `data_sets`: split -> its images."""
    rows = []
    for similarity, split, first, second_split, second in pairs:
        row = [*_named(data_sets[split], first), split, *_named(data_sets[second_split], second), second_split]
        rows.append([f"{similarity:.5f}", *row])
    header = ["similarity", "image", "class", "split", "other_image", "other_class", "other_split"]
    write_csv(path, header, rows)
    say(f"{len(pairs):,} pairs of near-duplicates among all images of training, validation and test")
    if pairs:
        say(f"to keep them on one side of a split: main.py --split_groups {path}")


def write_pairs(path: Path, pairs: Duplicates, test, references: dict) -> None:
    """The pairs as a table, a line each."""
    rows = []
    for similarity, first, second, split in zip(*(column.tolist() for column in pairs), strict=True):
        rows.append([f"{similarity:.5f}", *_named(test, first), split, *_named(references[split], second)])
    write_csv(path, ["similarity", "test_image", "test_class", "split", "image", "class"], rows)


def _named(dataset, index: int) -> tuple[str, str]:
    """The path and the class of an image."""
    path, label = dataset.image_list[index]
    return str(path), str(dataset.class_names.get(label, ""))


def draw_most_similar(path: Path, pairs: Duplicates, test, references: dict, count: int) -> None:
    """Draw the `count` most similar pairs: the test image left, the other right,
    with their classes, the split and the similarity.
    """
    tiles = []
    for similarity, first, second, split in zip(*(column[:count].tolist() for column in pairs), strict=True):
        reference = references[split]
        test_tile = PairImage(test, first, "test", _named(test, first)[1])
        reference_tile = PairImage(reference, second, f"{split}, {similarity:.4f}", _named(reference, second)[1])
        tiles.append((test_tile, reference_tile))
    draw_pairs(path, tiles)


def measure(place: str, flags) -> dict:
    """Compare the images of one run or folder, write the files, print the numbers. Returns what overlap.json holds."""
    source = open_source(Path(place), flags)
    test = source.splits["testing"]
    references = source.copied_splits()
    if test.lists is not None:
        raise UserError(f"{place}: lists say what its queries are to find; overlap measures by classes alone")
    features = source.features(test, "test")
    reference_features = {split: source.features(dataset, split) for split, dataset in references.items()}
    if "train" not in reference_features:
        raise UserError(f"{place}: there are no training images to compare with")
    pairs = near_duplicates(features, reference_features, flags.threshold)
    is_duplicate = np.zeros(len(test), dtype=bool)
    is_duplicate[pairs.test] = True
    embeddings = source.embeddings(features)
    complete, reduced, left_alone = metrics_without(
        flags.evaluation_metrics, embeddings, test, is_duplicate, **source.measured_by
    )
    folder = output_folder(Path(place), flags)
    make_folder(folder, f"--out {folder}")
    write_pairs(folder / "pairs.csv", pairs, test, references)
    (folder / "near_duplicates.csv").unlink(missing_ok=True)
    if flags.all_pairs:
        of_data = {split: rows for split, rows in reference_features.items() if split != "pretraining"}
        within = pairs_within(of_data | {"test": features}, flags.threshold)
        write_near_duplicates(folder / "near_duplicates.csv", within, references | {"test": test})
    (folder / "pairs.png").unlink(missing_ok=True)
    if len(pairs.test) and flags.pictures:
        draw_most_similar(folder / "pairs.png", pairs, test, references, flags.pictures)
    content = {
        "threshold": flags.threshold,
        "pairs": {split: int((pairs.split == split).sum()) for split in references},
        "test_images": len(test),
        "with_near_duplicates": int(is_duplicate.sum()),
        "left_alone": left_alone,
        "features": source.features_of,
        "all": complete,
        "without": reduced,
        "not_heeded": source.unheeded,
    }
    write_json(folder / "overlap.json", content | outputs.jsonable({"all": complete, "without": reduced}))
    _say(place, folder, content)
    return content


def propose_next(contents: list[dict], flags, argv: list[str]) -> None:
    """Print the command that opens the first picture of pairs, else one that draws them,
    or looks for less similar ones.
    """
    for place in flags.what:
        picture = output_folder(Path(place), flags) / "pairs.png"
        if picture.exists():
            propose_view(picture)
            return
    if any(content["with_near_duplicates"] for content in contents):
        propose(*PROGRAM.split(), *without_flags(argv, {"--pictures": 1}))
        return
    lower = max(flags.threshold - 0.05, -1)
    propose(*PROGRAM.split(), *without_flags(argv, {"--threshold": 1}), "--threshold", f"{lower:g}")


def _say(place: str, folder: Path, content: dict) -> None:
    pairs = ", ".join(f"{count:,} with {split}" for split, count in content["pairs"].items())
    say(
        f"{place}: {content['with_near_duplicates']:,} of {content['test_images']:,} test images have a near-duplicate "
        f"(similarity of {content['features']} from {content['threshold']:g} on); pairs: {pairs}"
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
    columns = {}
    for title in ("all", "without"):
        columns[title] = {"test": {name: value for name, value in content[title].items() if not np.ndim(value)}}
    print(f"\n{reports.table(columns)}\n")
    for file in (folder / "pairs.csv", folder / "near_duplicates.csv", folder / "pairs.png"):
        if file.exists():
            print(f"written  {file}")


def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command. Returns the content of each overlap.json."""
    words = words_of(argv)
    flags = parser().parse_args(words)
    refuse_torchrun(PROGRAM)
    for name in flags.evaluation_metrics:
        metrics.check(name)
    has_weights = flags.weights or flags.not_pretrained
    if has_weights and flags.arch is None and any(is_run(Path(place)) for place in flags.what):
        raise UserError("--weights and --not_pretrained belong to --arch; a run's own network has its own weights")
    contents = [measure(place, flags) for place in flags.what]
    propose_next(contents, flags, words)
    return contents
