"""Measure embeddings from a file of any program: `python -m evaluation FILE.npz --evaluation_metrics e_recall@1 map_r
nmi`.

The file holds `features` `(N, D)` and `labels` `(N,)`, or `(N, L)` of L levels, the finest first. With
`reference_features` `(M, D)` and `reference_labels` `(M,)`, the features are queries that search the reference;
`exclude` `(N,)` may give the row of the reference that is the query itself (-1: none). Instead of a reference,
`is_query` and `is_gallery` `(N,)` may mark the rows that search and those that are searched. Rows of one `sequence`
`(N,)` never find each other. `role_draws` `(D, N)` marks the gallery in each of D draws, whose other rows are the
queries: metrics that search are means over the draws. `groups` or `super_names` `(N,)`: super-classes, for metrics that
compare these. `domains` `(N,)`: names; every metric then comes for each domain's queries too, `<domain>/<metric>`, and
under its own name as the mean of the domains. `positive_indptr` `(Q + 1,)`, `positive_indices` `(P,)`, `junk_indptr`,
`junk_indices`: for the q-th query its positives and its junk, which takes no rank, as positions among the gallery's
rows (`indices[indptr[q]:indptr[q + 1]]`). With them `labels` may be absent, and class-wise metrics are refused. Further
lists for the same queries, `positive_indptr_hard` …, are those of a protocol, `hard`: each metric then comes once for
each protocol.

`python -m evaluation QUERIES.npz --gallery GALLERY.npz [GALLERY.npz …]`: the queries of one file search the gallery of
another. Both may be dumped by `--dump_embeddings`; a query does not find the image of its own path. Where both files
name their classes, the names are compared.

`python -m evaluation FEATURES.npy --labels LABELS.npy [--gallery GALLERY.npy --gallery_labels LABELS.npy]`: features
`(N, D)` of an .npy file are memory-mapped and read one block at a time, so that they may be larger than memory.

`torchrun --nproc_per_node N -m evaluation …` does any of these with N processes, each for a part of the queries.

`python -m evaluation models --dataset cub200 --archs NAME …` measures frozen networks on a data set, in one table:
`tools/models.py`.

`python -m evaluation pairs FEATURES.npz PAIRS` measures verification: `tools/pairs.py`. `python -m evaluation
whiten FEATURES.npz --out FILE` fits a whitening for `--eval_whiten FILE`: `tools/whiten.py`. `python -m evaluation
compress FEATURES.npz` measures codes of embeddings: `tools/compress.py`.

`python -m evaluation RUN --outliers` lists the training images of a run with --loss subcenter_arcface that lie far from
their class.
"""

import argparse
import functools
import itertools
import sys
from pathlib import Path

import numpy as np

import evaluation
import metrics
from engine.ranks import Ranks, starter
from evaluation import from_files, judgements, outputs, queries, whitening
from evaluation.from_files import NAMES, read, read_queries, written_flags
from evaluation.galleries import taken
from evaluation.judgements import has_lists
from evaluation.space import Space
from tools import COMMANDS, outliers
from utilities.console import propose, say
from utilities.counts import count_of
from utilities.errors import OneLineParser, UserError
from utilities.files import write_json
from utilities.numbers import number, whole

PROGRAM = "python -m evaluation"
DEFAULT_METRICS = ["e_recall@1", "e_recall@2", "e_recall@4", "precision@1", "r_precision", "map_r", "nmi"]


def parser() -> argparse.ArgumentParser:
    """The command's own flags."""
    parser = OneLineParser(
        prog=PROGRAM,
        description="Measure embeddings from an .npz or .npy file.",
        allow_abbrev=False,
        epilog=" ".join(f"{purpose}: {PROGRAM} {name} --help." for name, purpose in COMMANDS.items()),
    )
    help_file = (
        "an .npz file with features (N, D) and labels (N,) or (N, levels); optional reference_features, "
        "reference_labels, exclude, or is_query, is_gallery, sequence; "
        "positive_indptr, positive_indices, junk_indptr, junk_indices"
    )
    help_labels = (
        "the .npy file with the labels (N,) of FILE, where that is an .npy file of features, which are read through a "
        "memory map"
    )
    help_metrics = f"what to measure, names of `python main.py --list metrics` (default: {' '.join(DEFAULT_METRICS)})"
    parser.add_argument(
        "file", help=f"{help_file}; with --outliers a run folder, or the embeddings of its training images"
    )
    parser.add_argument("--labels", default=None, metavar="FILE", help=help_labels)
    help_gallery = (
        "the file, .npz or .npy, in whose gallery the queries of the first file search, or several that are one "
        "gallery, row after row; class-wise numbers are of both together"
    )
    parser.add_argument("--gallery", nargs="+", default=None, metavar="FILE", help=help_gallery)
    parser.add_argument(
        "--gallery_labels",
        nargs="+",
        default=None,
        metavar="FILE",
        help="the .npy file with the labels of each .npy --gallery",
    )
    help_keep = (
        "file with a name in each line: of the rows of --gallery that are is_distractor only those stay whose path, "
        "or file name with or without suffix, it lists"
    )
    parser.add_argument("--gallery_keep", default=None, metavar="FILE", help=help_keep)
    parser.add_argument("--evaluation_metrics", nargs="+", default=DEFAULT_METRICS, metavar="METRIC", help=help_metrics)
    parser.add_argument("--seed", type=whole(0), default=1, help="seed of k-means (default: 1)")
    help_starts = (
        "nmi, ami and f1 are the mean over N k-means starts, with the seeds 0 to N-1 (default: one start, with --seed)"
    )
    parser.add_argument("--eval_kmeans_starts", type=whole(1, 1000), default=None, metavar="N", help=help_starts)
    parser.add_argument("--evaluate_on_gpu", action="store_true", help="search and cluster on the GPU")
    help_queries = (
        "also write to this .npz file what each query finds: hit, ap_at_r and first_hit, as main.py "
        "--dump_query_results does"
    )
    parser.add_argument("--dump_query_results", default=None, metavar="FILE", help=help_queries)
    parser.add_argument("--out", default=None, metavar="FILE", help="also write the values to this JSON file")
    help_truth = (
        "published ground truth, by the names of the files in paths: gnd_….pkl of Revisited Oxford and Paris, "
        "retrieval_solution_….csv of Google Landmarks "
        "v2, or a table with the columns query, kind (positive, junk), path"
    )
    parser.add_argument("--ground_truth", default=None, metavar="FILE", help=help_truth)
    help_relevance = (
        "Python file with relevance(query_rows, gallery_rows) -> (q, g) from 0 to 1, of rows of the files: what is "
        "above 0 is to be found"
    )
    parser.add_argument("--eval_relevance", default=None, metavar="FILE", help=help_relevance)
    metrics.add_arguments(parser)
    whitening.add_arguments(parser)
    help_outliers = (
        "list the training images of a run with --loss subcenter_arcface beyond --outlier_angle of their class's "
        "dominant centre"
    )
    parser.add_argument("--outliers", action="store_true", help=help_outliers)
    help_angle = "degrees beyond which an image is an outlier (from 0 to 180; default: 75, the paper's)"
    parser.add_argument("--outlier_angle", type=number(0, 180), default=75, metavar="DEGREES", help=help_angle)
    parser.exits = False
    return parser


def list_outliers(flags) -> list[outliers.Outlier]:
    """Print the outliers of `--outliers`, and write them to `--out`. Returns them."""
    found, size = outliers.find(
        flags.file, functools.partial(read, optional=("paths", "class_names")), flags.outlier_angle
    )
    far = f"{len(found):,} of {size:,} training images lie more than {flags.outlier_angle:g} degrees"
    say(f"{flags.file}: {far} from their class's dominant centre")
    print(outliers.table(found))
    if flags.out is not None:
        write_json(
            flags.out, {"angle": flags.outlier_angle, "images": size, "outliers": [one._asdict() for one in found]}
        )
    source = Path(flags.file)
    split = ["--split", "train"] if source.is_dir() else []
    propose(
        "python", "-m", "retrieval", "explore", source, *split, "--out", source.with_name(f"{source.stem}_train.html")
    )
    return found


def propose_next(flags, arrays: dict, argv: list[str]) -> None:
    """Print the command after a measurement: the page of the file's embedding space, else what each query found, or a
    file of values.
    """
    file = Path(flags.file)
    lists_of_another = flags.gallery is not None and has_lists(arrays)
    if file.suffix == ".npz" and "labels" in arrays and arrays["labels"].ndim == 1 and not lists_of_another:
        propose("python", "-m", "retrieval", "explore", file, "--out", file.with_suffix(".html"))
        return
    further = {"dump_query_results": f"{file.stem}_queries.npz", "out": f"{file.stem}_metrics.json"}
    for flag, name in further.items():
        if getattr(flags, flag) is None:
            propose(*starter(), "-m", "evaluation", *argv, f"--{flag}", file.with_name(name))
            return


def take_written(flags, arrays: dict) -> None:
    """Set unset flags to the values with which the embeddings were written, if known: which queries count, and the ball
    where there is one.
    """
    written = written_flags(arrays)
    of_ball = ("eval_space_c", "eval_space_clip_r")
    for name in ("eval_skip_unmatched", *of_ball) if flags.eval_space != "euclidean" else ("eval_skip_unmatched",):
        if getattr(flags, name) is None and isinstance(written.get(name), int | float):
            setattr(flags, name, written[name])


def check(flags) -> None:
    """Raise UserError for flags that do not fit each other."""
    for name in (
        ("gallery", "labels", "gallery_labels", "ground_truth", "eval_relevance", "eval_whiten")
        if flags.outliers
        else ()
    ):
        if getattr(flags, name) is not None:
            raise UserError(f"--outliers searches nowhere: leave out --{name}")
    if flags.gallery_labels is not None and flags.gallery is None:
        raise UserError(
            f"--gallery_labels {' '.join(flags.gallery_labels)}: there is no --gallery that they belong to: name "
            "it or leave them out"
        )
    if flags.gallery_keep is not None and flags.gallery is None:
        raise UserError(f"--gallery_keep {flags.gallery_keep}: there is no --gallery: name it or leave this out")
    if flags.eval_whiten_dims is not None and flags.eval_whiten is None:
        raise UserError(f"--eval_whiten_dims {flags.eval_whiten_dims} has no effect: add --eval_whiten")
    for name in flags.evaluation_metrics:
        metrics.check(name)
    metrics.check_flags(flags)


def space_of(flags) -> tuple[dict, Space, str, np.ndarray | None]:
    """The arrays of the file, the space to measure, a line on it, and the rows of the file that are queries (None:
    all).

    Flags that are unset take the values with which the embeddings were written.
    """
    truths = [name for name in ("ground_truth", "eval_relevance") if getattr(flags, name) is not None]
    names = flags.dump_query_results is not None or flags.ground_truth is not None
    arrays = read_queries(flags.file, flags.gallery is not None, names, labels=flags.labels, needs_labels=not truths)
    if len(truths + ["lists"] * has_lists(arrays)) > 1:
        raise UserError(
            f"{flags.file}: what queries are to find is said twice, by "
            f"{' and by '.join([*(f'--{name}' for name in truths), *['lists'] * has_lists(arrays)])}"
        )
    of_gallery = {
        "labels": flags.gallery_labels,
        "flag": "--gallery_labels",
        "needs_labels": not truths and not has_lists(arrays),
    }
    other = None if flags.gallery is None else from_files.read_gallery(flags.gallery, flags.gallery_keep, **of_gallery)
    own = [Path(path).resolve() for path in flags.gallery or ()].count(Path(flags.file).resolve())
    by_row = [
        what
        for what, asked in (
            ("exclude", "exclude" in arrays),
            ("lists", has_lists(arrays)),
            ("--eval_relevance", flags.eval_relevance),
            (f"--gallery {flags.file}", own),
        )
        if asked
    ]
    if flags.gallery_keep is not None and by_row:
        raise UserError(
            f"--gallery_keep {flags.gallery_keep}: {by_row[0]} goes by rows of the whole gallery: leave one out"
        )
    if (
        own
        and Path(flags.gallery[0]).resolve() != Path(flags.file).resolve()
        and not {"exclude", "paths"} & arrays.keys()
    ):
        raise UserError(f"--gallery {' '.join(flags.gallery)}: name {flags.file} first, so that no image finds itself")
    take_written(flags, arrays)
    if other is not None and "labels" not in other:  # labels of one side say nothing
        arrays = {name: array for name, array in arrays.items() if name not in ("labels", "class_names")}
    if "labels" not in arrays:
        metrics.refuse_class_wise(flags.evaluation_metrics)
    gallery = flags.gallery and flags.gallery[0]
    space, searched, rows = from_files.space(
        flags.file, arrays, gallery, other, bool(flags.eval_skip_unmatched), listed=bool(truths)
    )
    if truths:
        space, searched = judgements.judged_by(flags, space, rows, arrays, other)
    return arrays, space if flags.eval_whiten is None else whitened(space, flags), searched, rows


def whitened(space: Space, flags) -> Space:
    """The space of a file's embeddings, whitened as its flags ask. Raises UserError where they ask for training
    images.
    """
    if whitening.needs_training(flags):
        raise UserError(
            f"--eval_whiten {flags.eval_whiten}: a file has no training images: fit on another one by "
            f"`{whitening.PROGRAM}`"
        )
    by = whitening.of_flags(flags, None, space.gallery()[0])
    pool = space.pool and space.pool._replace(features=by(space.pool.features))
    return space._replace(
        features=by(space.features), reference=None if space.reference is None else by(space.reference), pool=pool
    )


def dump_query_results(flags, arrays: dict, space: Space, rows: np.ndarray | None, ranks: Ranks) -> None:
    """Write what each query finds to the file of `--dump_query_results`."""
    searched = metrics.space_of(metrics.ball(flags), **space.arguments(), ranks=ranks)
    if flags.rerank is not None:
        searched.search = metrics.reranking(flags).search(searched, False)
    found = metrics.query_results(searched)
    about = {name: taken(arrays[name], rows) for name in NAMES if name in arrays}
    about |= {"flags": arrays["flags"]} if "flags" in arrays else {}
    if ranks.writes:
        queries.write(Path(flags.dump_query_results), found, space.labels if "labels" in arrays else None, **about)


def main(argv: list[str] | None = None) -> dict | list:
    """Print the table of one file's metrics, or a run's outliers. Returns name -> value, or the outliers."""
    argv = sys.argv[1:] if argv is None else argv
    flags = parser().parse_args(argv)
    ranks = Ranks()
    check(flags)
    if flags.outliers:
        return ranks.first(lambda: list_outliers(flags))
    arrays, space, searched, rows = space_of(flags)
    for line in (*evaluation.unaffected_metrics(flags.evaluation_metrics, flags), *whitening.mark(flags)):
        say(line)
    seeds = range(flags.eval_kmeans_starts) if flags.eval_kmeans_starts else flags.seed
    about = {
        "seed": seeds,
        "device": ranks.gpu if flags.evaluate_on_gpu else "cpu",
        "progress": True,
        "ranks": ranks,
        **metrics.measured_by(flags),
    }
    further = from_files.draws(flags.file, arrays) if flags.gallery is None else ()
    further = further if flags.eval_whiten is None else (whitened(one, flags) for one in further)
    notes = []
    draws = (one.parts() for one in itertools.chain([space], further))
    values = evaluation.over_draws(draws, flags.evaluation_metrics, about, notes)
    scores = {Path(flags.file).stem: ranks.share(values)}
    size, dimensions = arrays["features"].shape
    classes = [count_of(from_files.n_classes(arrays), "class", "classes")] if "labels" in arrays else []
    facts = [f"{flags.file}: {size:,} embeddings of {dimensions} dimensions", *classes, searched]
    say(f"{', '.join(filter(None, facts))}\n")
    evaluation.say_few_samples(flags.file, flags.evaluation_metrics, len((space.pool or space).features), dimensions)
    copies = from_files.copies_told(flags.file, arrays, space, rows, flags.gallery is not None)
    if copies is not None:
        say(f"note: {copies}\n")
    print(outputs.table(scores))
    for note in notes:
        say(note)
    if flags.dump_query_results is not None:
        dump_query_results(flags, arrays, space, rows, ranks)
    if flags.out is not None and ranks.writes:
        write_json(flags.out, outputs.jsonable(scores)[Path(flags.file).stem])
    propose_next(flags, arrays, argv)
    return scores[Path(flags.file).stem]
