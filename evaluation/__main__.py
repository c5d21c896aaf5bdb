"""Measure embeddings from a file of any program: `python -m evaluation FILE.npz --evaluation_metrics e_recall@1 map_r nmi`.

The file holds `features` `(N, D)` and `labels` `(N,)`. With `reference_features` `(M, D)` and `reference_labels` `(M,)`, the features are
queries that search the reference; `exclude` `(N,)` may give the row of the reference that is the query itself (-1: none). Instead of a
reference, `is_query` and `is_gallery` `(N,)` may mark the rows that search and those that are searched. Rows of one `sequence` `(N,)` never
find each other. `role_draws` `(D, N)` marks the gallery in each of D draws, whose other rows are the queries: metrics that search are means
over the draws. `groups` or `super_names` `(N,)`: super-classes, for metrics that compare these.

`python -m evaluation QUERIES.npz --gallery GALLERY.npz`: the queries of one file search the gallery of another. Both may be dumped by
`--dump_embeddings`; a query does not find the image of its own path. Where both files name their classes, the names are compared.

`python -m evaluation FEATURES.npy --labels LABELS.npy [--gallery GALLERY.npy --gallery_labels LABELS.npy]`: features `(N, D)` of an .npy
file are memory-mapped and read one block at a time, so that they may be larger than memory.

`torchrun --nproc_per_node N -m evaluation …` does any of these with N processes, each for a part of the queries.

`python -m evaluation RUN --outliers` lists the training images of a run with --loss subcenter_arcface that lie far from their class.
"""

import argparse
import functools
import itertools
import json
import zipfile
from pathlib import Path

import numpy as np

import evaluation
import metrics
from evaluation import from_files, outliers, outputs, queries
from evaluation.from_files import GROUPS, NAMES, OF_REFERENCE
from evaluation.galleries import ROLES, taken
from training.ranks import Ranks, one_run
from utilities.errors import OneLineParser, UserError
from utilities.files import replacing
from utilities.numbers import number, whole

PROGRAM = "python -m evaluation"
DEFAULT_METRICS = ["e_recall@1", "e_recall@2", "e_recall@4", "precision@1", "r_precision", "map_r", "nmi"]
REQUIRED = ("features", "labels")


def parser() -> argparse.ArgumentParser:
    """The command's own flags."""
    parser = OneLineParser(prog=PROGRAM, description="Measure embeddings from an .npz or .npy file.", allow_abbrev=False)
    help_file = "an .npz file with features (N, D) and labels (N,); optional reference_features, reference_labels, exclude, or is_query, is_gallery, sequence"
    help_labels = "the .npy file with the labels (N,) of FILE, where that is an .npy file of features, which are read through a memory map"
    help_metrics = f"what to measure, names of `python main.py --list metrics` (default: {' '.join(DEFAULT_METRICS)})"
    parser.add_argument("file", help=f"{help_file}; with --outliers a run folder, or the embeddings of its training images")
    parser.add_argument("--labels", default=None, metavar="FILE", help=help_labels)
    help_gallery = "the file, .npz or .npy, in whose gallery the queries of the first file search; class-wise numbers are of both together"
    parser.add_argument("--gallery", default=None, metavar="FILE", help=help_gallery)
    parser.add_argument("--gallery_labels", default=None, metavar="FILE", help="the .npy file with the labels of an .npy --gallery")
    parser.add_argument("--evaluation_metrics", nargs="+", default=DEFAULT_METRICS, metavar="METRIC", help=help_metrics)
    parser.add_argument("--seed", type=whole(0), default=1, help="seed of k-means (default: 1)")
    help_starts = "nmi, ami and f1 are the mean over N k-means starts, with the seeds 0 to N-1 (default: one start, with --seed)"
    parser.add_argument("--eval_kmeans_starts", type=whole(1, 1000), default=None, metavar="N", help=help_starts)
    parser.add_argument("--evaluate_on_gpu", action="store_true", help="search and cluster on the GPU")
    help_queries = "also write to this .npz file what each query finds: hit, ap_at_r and first_hit, as main.py --dump_query_results does"
    parser.add_argument("--dump_query_results", default=None, metavar="FILE", help=help_queries)
    parser.add_argument("--out", default=None, metavar="FILE", help="also write the values to this JSON file")
    metrics.add_arguments(parser)
    help_outliers = (
        "list the training images of a run with --loss subcenter_arcface beyond --outlier_angle of their class's dominant centre"
    )
    parser.add_argument("--outliers", action="store_true", help=help_outliers)
    help_angle = "degrees beyond which an image is an outlier (from 0 to 180; default: 75, the paper's)"
    parser.add_argument("--outlier_angle", type=number(0, 180), default=75, metavar="DEGREES", help=help_angle)
    parser.exits = False
    return parser


def opened(path: str, optional: tuple[str, ...]) -> tuple[dict, list[str]] | np.ndarray:
    """The wanted arrays of an .npz file, by name, and the names of all; or the memory map of an .npy file. Raises UserError where it is neither."""
    if Path(path).is_dir():
        raise UserError(
            f"{path}: a folder, expected a file of embeddings; a run is measured by `python main.py --evaluate --resume_from {path}`"
        )
    try:
        content = np.load(path, allow_pickle=False, mmap_mode="r")
        if isinstance(content, np.ndarray):
            return content
        with content as file:
            return {name: file[name] for name in (*REQUIRED, *optional) if name in file.files}, file.files
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path}: not an .npz file of plain arrays, nor an .npy file ({str(error).partition('. If you trust')[0].splitlines()[0]})"
        ) from error


def read(path: str, optional: tuple[str, ...] = OF_REFERENCE + ROLES, labels: str | None = None, flag: str = "--labels") -> dict:
    """The arrays of the file, by name. Raises UserError where it cannot be read, or lacks a required array.

    Args:
        labels: the file of the labels of an .npy file, which `flag` names.
    """
    content = opened(path, optional)
    if isinstance(content, np.ndarray):
        found = None if labels is None else opened(labels, ())
        if not isinstance(found, np.ndarray):
            raise UserError(
                f"{path}: one array, the features: name the .npy file of their labels by {flag}" + f", not {labels}" * bool(labels)
            )
        return {"features": content, "labels": np.array(found)}
    if labels is not None:
        raise UserError(f"{flag} {labels}: the .npz file {path} holds its labels itself, leave it out")
    arrays, found = content
    missing = [name for name in REQUIRED if name not in arrays]
    if "reference_features" in arrays and "reference_labels" not in arrays:
        missing.append("reference_labels")
    if missing:
        raise UserError(f"{path} has no {' and no '.join(missing)}; it holds {', '.join(found) or 'nothing'}")
    return arrays


def read_queries(path: str, has_gallery: bool, with_names: bool = False, **labels: str | None) -> dict:
    """See `read`, also for `labels`. Raises UserError also where an array needs a reference and there is none."""
    arrays = read(path, (*OF_REFERENCE, *ROLES, *GROUPS, "flags", *NAMES * (has_gallery or with_names)), **labels)
    extra = next((name for name in arrays if name in OF_REFERENCE and not (has_gallery and name == "exclude")), None)
    if "reference_features" not in arrays and extra is not None:
        raise UserError(f"{path}: {extra} needs reference_features" + ", or --gallery" * (extra == "exclude"))
    return arrays


def list_outliers(flags) -> list[outliers.Outlier]:
    """Print the outliers of `--outliers`, and write them to `--out`. Returns them."""
    found, size = outliers.find(flags.file, functools.partial(read, optional=("paths", "class_names")), flags.outlier_angle)
    print(
        f"{flags.file}: {len(found):,} of {size:,} training images lie more than {flags.outlier_angle:g} degrees from their class's dominant centre"
    )
    print(outliers.table(found))
    if flags.out is not None:
        with replacing(flags.out) as file:
            json.dump({"angle": flags.outlier_angle, "images": size, "outliers": [one._asdict() for one in found]}, file, indent=1)
    return found


def written_flags(arrays: dict) -> dict:
    """The flags of the evaluation that wrote the file; empty where the file does not hold them."""
    try:
        written = json.loads(str(arrays.get("flags", "{}")))
    except ValueError:
        return {}
    return written if isinstance(written, dict) else {}


def take_written(flags, arrays: dict) -> None:
    """Set unset flags to the values with which the embeddings were written, if known: which queries count, and the ball where there is one."""
    written, of_ball = written_flags(arrays), ("eval_space_c", "eval_space_clip_r")
    for name in ("eval_skip_unmatched", *of_ball) if flags.eval_space != "euclidean" else ("eval_skip_unmatched",):
        if getattr(flags, name) is None and isinstance(written.get(name), int | float):
            setattr(flags, name, written[name])


def main(argv: list[str] | None = None) -> dict | list:
    """Print the table of one file's metrics, or a run's outliers. Returns name -> value, or the outliers."""
    flags, ranks = parser().parse_args(argv), Ranks()
    for name in ("gallery", "labels", "gallery_labels") if flags.outliers else ():
        if getattr(flags, name) is not None:
            raise UserError(f"--outliers searches nowhere: leave out --{name}")
    if flags.gallery_labels is not None and flags.gallery is None:
        raise UserError(f"--gallery_labels {flags.gallery_labels}: there is no --gallery of which they could be, name it or leave them out")
    if flags.outliers:
        return ranks.first(lambda: list_outliers(flags))
    for name in flags.evaluation_metrics:
        metrics.check(name)
    seeds = range(flags.eval_kmeans_starts) if flags.eval_kmeans_starts else flags.seed
    metrics.check_flags(flags)
    arrays = read_queries(flags.file, flags.gallery is not None, flags.dump_query_results is not None, labels=flags.labels)
    other = None if flags.gallery is None else read_queries(flags.gallery, True, labels=flags.gallery_labels, flag="--gallery_labels")
    take_written(flags, arrays)
    space, searched, rows = from_files.space(flags.file, arrays, flags.gallery, other, bool(flags.eval_skip_unmatched))
    for line in evaluation.unaffected_metrics(flags.evaluation_metrics, flags):
        print(line)
    device = ranks.gpu if flags.evaluate_on_gpu else "cpu"
    about = {"seed": seeds, "device": device, "progress": True, "ranks": ranks, **metrics.measured_by(flags)}
    further = from_files.draws(flags.file, arrays) if flags.gallery is None else ()
    values = evaluation.over_draws(([one] for one in itertools.chain([space], further)), flags.evaluation_metrics, about)
    scores = {Path(flags.file).stem: ranks.share(values)}
    size, dimensions = arrays["features"].shape
    classes = f"{len(np.unique(arrays['labels'])):,} classes"
    print(f"{flags.file}: {size:,} embeddings of {dimensions} dimensions, {classes}{', ' * bool(searched)}{searched}\n")
    evaluation.say_few_samples(flags.file, flags.evaluation_metrics, len((space.pool or space).features), dimensions)
    print(outputs.table(scores))
    if flags.dump_query_results is not None:
        queries_space = metrics.space_of(metrics.ball(flags), **space.arguments(), ranks=ranks)
        if flags.rerank is not None:
            queries_space.search = metrics.reranking(flags).search(queries_space, False)
        about = {name: taken(arrays[name], rows) for name in NAMES if name in arrays}
        about |= {"flags": arrays["flags"]} if "flags" in arrays else {}
        found = metrics.query_results(queries_space)
        if ranks.writes:
            queries.write(Path(flags.dump_query_results), found, space.labels, **about)
    if flags.out is not None and ranks.writes:
        with replacing(flags.out) as file:
            json.dump(outputs.jsonable(scores)[Path(flags.file).stem], file, indent=1)
    return scores[Path(flags.file).stem]


if __name__ == "__main__":
    with one_run(PROGRAM):
        main()
