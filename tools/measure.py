"""Measure embeddings from a file of any program:
`python -m evaluation FILE.npz --evaluation_metrics e_recall@1 map_r nmi`.

The file holds `features` `(N, D)` and `labels` `(N,)`, or `(N, L)` of L levels, the finest first. With
`reference_features` `(M, D)` and `reference_labels` `(M,)`, the features are queries that search the reference;
`exclude` `(N,)` may give the row of the reference that is the query itself (-1: none). Instead of a reference,
`is_query` and `is_gallery` `(N,)` may mark the rows that search and those that are searched. Rows of one `sequence`
`(N,)` never find each other. `role_draws` `(D, N)` marks the gallery in each of D draws, whose other rows are the
queries: metrics that search are means over the draws. `groups` or `super_names` `(N,)`: super-classes, for metrics that
compare these. `domains` `(N,)`: names; every metric then comes for each domain's queries too, `<domain>/<metric>`, and
under its own name as the mean of the domains. `positive_indptr` `(Q + 1,)`, `positive_indices` `(P,)`, `junk_indptr`,
`junk_indices`: for the q-th query its positives and its junk, which is ignored, as positions among the gallery's
rows (`indices[indptr[q]:indptr[q + 1]]`). With them `labels` may be absent, and class-wise metrics are refused.
Further lists for the same queries, `positive_indptr_hard` …, are those of a protocol, `hard`: each metric then comes
once for each protocol. `certainty` `(N,)`: how certain the answer of each query is, for `r_auroc` and `aurc`; by
default the nearer, the more certain.

`python -m evaluation QUERIES.npz --gallery GALLERY.npz [GALLERY.npz …]`: the queries of one file search the gallery of
another. Both may be dumped by `--dump_embeddings`; a query does not find the image of its own path. Where both files
name their classes, the names are compared.

`python -m evaluation FEATURES.npy --labels LABELS.npy [--gallery GALLERY.npy --gallery_labels LABELS.npy]`: features
`(N, D)` of an .npy file are memory-mapped and read one block at a time, so that they may be larger than memory.

`torchrun --nproc_per_node N -m evaluation …` does any of these with N processes, each for a part of the queries.

`python -m evaluation models --dataset cub200 --archs NAME …` measures frozen networks on a data set,
in one table: `tools/models.py`.

`python -m evaluation pairs FEATURES.npz PAIRS` measures verification: `tools/pairs.py`. `python -m evaluation
whiten FEATURES.npz --out FILE` fits a whitening for `--eval_whiten FILE`: `tools/whiten.py`. `python -m evaluation
compress FEATURES.npz` measures codes of embeddings: `tools/compress.py`.

`python -m evaluation --trec RUN QRELS` measures the lists of another program: `tools/rankings.py`.

`python -m evaluation RUN --outliers` lists the training images of a run
with --loss subcenter_arcface that lie far from their class.
"""

import argparse
import functools
from pathlib import Path

import evaluation
import metrics
from engine.ranks import Ranks, starter
from evaluation import from_files, judgements, outputs, pair_scores, queries, trec, whitening
from evaluation.averages import divided
from evaluation.file_arrays import NAMES, read, read_gallery, read_queries, written_flags
from evaluation.judgements import has_lists
from evaluation.task import Task, take_rows
from options.flags import rules
from options.groups.evaluation import query_results
from tools import COMMANDS, outliers, rankings
from tools._command import new_parser, words_of
from utilities.console import propose, say
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.files import write_json
from utilities.numbers import number, whole

PROGRAM = "python -m evaluation"
# flags that --outliers does not read
OF_SEARCH = (
    "gallery",
    "labels",
    "gallery_labels",
    "ground_truth",
    "eval_relevance",
    "eval_whiten",
    "rerank",
    "rerank_dba",
    "rerank_pairs",
)
DEFAULT_METRICS = ["e_recall@1", "e_recall@2", "e_recall@4", "precision@1", "r_precision", "map_r", "nmi"]


def parser() -> argparse.ArgumentParser:
    """The command's own flags."""
    other_commands = " ".join(f"{purpose}: {PROGRAM} {name} --help." for name, purpose in COMMANDS.items())
    parser = new_parser(PROGRAM, "Measure embeddings from an .npz or .npy file.", epilog=other_commands)
    help_file = (
        "an .npz file with features (N, D) and labels (N,) or (N, levels); optional reference_features, "
        "reference_labels, exclude, or is_query, is_gallery, sequence; positive_indptr, positive_indices, junk_indptr, "
        "junk_indices"
    )
    help_labels = (
        "the .npy file with the labels (N,) of FILE, where that is an .npy file of features, which are read through a "
        "memory map"
    )
    help_metrics = f"what to measure, names of `python main.py --list metrics` (default: {' '.join(DEFAULT_METRICS)})"
    parser.add_argument(
        "file", nargs="?", help=f"{help_file}; with --outliers a run folder, or the embeddings of its training images"
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
    query_results(parser)
    help_trec = "instead of FILE: measure the lists of a run by its qrels, files of TREC"
    parser.add_argument("--trec", nargs=2, default=None, metavar=("RUN", "QRELS"), help=help_trec)
    parser.add_argument("--out", default=None, metavar="FILE", help="also write the values to this JSON file")
    help_truth = (
        "published ground truth, by the names of the files in paths: gnd_….pkl of Revisited Oxford and Paris, "
        "retrieval_solution_….csv of Google Landmarks v2, or a table with the columns query, kind (positive, junk), "
        "path"
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
    read_embeddings = functools.partial(read, optional=("paths", "class_names"))
    far_images, size = outliers.find(flags.file, read_embeddings, flags.outlier_angle)
    say(
        f"{flags.file}: {len(far_images):,} of {size:,} training images lie more than {flags.outlier_angle:g} degrees "
        "from their class's dominant centre"
    )
    print(outliers.table(far_images))
    if flags.out is not None:
        records = [outlier._asdict() for outlier in far_images]
        write_json(flags.out, {"angle": flags.outlier_angle, "images": size, "outliers": records})
    source = Path(flags.file)
    split = ["--split", "train"] if source.is_dir() else []
    page = source.with_name(f"{source.stem}_train.html")
    propose("python", "-m", "retrieval", "explore", source, *split, "--out", page)
    return far_images


def propose_next(flags, arrays: dict, argv: list[str]) -> None:
    """Print the command after a measurement: the page of the file's embedding space, else what each query found, or a
    file of values.
    """
    file = Path(flags.file)
    lists_of_another = flags.gallery is not None and has_lists(arrays)
    if file.suffix == ".npz" and "labels" in arrays and arrays["labels"].ndim == 1 and not lists_of_another:
        propose("python", "-m", "retrieval", "explore", file, "--out", file.with_suffix(".html"))
        return
    outputs_of_flags = {"dump_query_results": f"{file.stem}_queries.npz", "out": f"{file.stem}_metrics.json"}
    for flag, name in outputs_of_flags.items():
        if getattr(flags, flag) is None:
            propose(*starter(), "-m", "evaluation", *argv, f"--{flag}", file.with_name(name))
            return


def take_written(flags, arrays: dict) -> None:
    """Set unset flags to the values with which the embeddings were written, if known: which queries count, and in
    hyperbolic space the ball.
    """
    written = written_flags(arrays)
    names = ["eval_skip_unmatched"]
    if flags.eval_space != "euclidean":
        names += ["eval_space_c", "eval_space_clip_r"]
    for name in names:
        if getattr(flags, name) is None and isinstance(written.get(name), int | float):
            setattr(flags, name, written[name])


def check(flags) -> None:
    """Raise UserError for flags that do not fit each other."""
    if flags.file is None:
        raise UserError("name the file of embeddings, or --trec RUN QRELS")
    if flags.outliers:
        for name in OF_SEARCH:
            if getattr(flags, name) is not None:
                raise UserError(f"--outliers searches nowhere: leave out --{name}")
    if flags.gallery_labels is not None and flags.gallery is None:
        raise UserError(
            f"--gallery_labels {' '.join(flags.gallery_labels)}: there is no --gallery that they belong to: name "
            "it or leave them out"
        )
    if flags.gallery_keep is not None and flags.gallery is None:
        raise UserError(f"--gallery_keep {flags.gallery_keep}: there is no --gallery: name it or leave this out")
    for name in flags.evaluation_metrics:
        metrics.check(name)
    metrics.check_reranking(flags, flags.evaluation_metrics)
    metrics.read_pair_scorer(flags)
    actions = parser()._actions
    rules.refuse(actions, flags, typed=rules.changed(actions, flags))


def task_of(flags) -> tuple[dict, Task, str]:
    """The arrays of the file, its task, and a line on what searches where.

    Flags that are unset take the values with which the embeddings were written.
    """
    truths = [name for name in ("ground_truth", "eval_relevance") if getattr(flags, name) is not None]
    with_names = any(value is not None for value in (flags.dump_query_results, flags.ground_truth, flags.rerank_pairs))
    arrays = read_queries(
        flags.file, flags.gallery is not None, with_names, labels=flags.labels, needs_labels=not truths
    )
    _refuse_two_truths(flags, truths, arrays)
    gallery = None
    gallery_path = None
    if flags.gallery is not None:
        gallery_path = flags.gallery[0]
        gallery = read_gallery(
            flags.gallery,
            flags.gallery_keep,
            labels=flags.gallery_labels,
            flag="--gallery_labels",
            needs_labels=not truths and not has_lists(arrays),
        )
        _refuse_gallery(flags, arrays)
        arrays["gallery_paths"] = gallery.get("paths")
    if flags.rerank_pairs is not None:
        _refuse_pathless(flags, {flags.file: arrays, gallery_path: gallery})
    take_written(flags, arrays)
    # labels of one side say nothing
    if gallery is not None and "labels" not in gallery:
        arrays = from_files.without_classes(arrays)
    if "labels" not in arrays:
        metrics.refuse_class_wise(flags.evaluation_metrics)
    task = from_files.task_of(flags.file, arrays, gallery_path, gallery, listed=bool(truths))
    if flags.eval_relevance is not None:
        task = judgements.by_function(task, flags.eval_relevance)
    elif flags.ground_truth is not None:
        gallery_arrays = arrays if gallery is None else gallery
        task = judgements.by_ground_truth(task, flags.ground_truth, arrays, gallery_arrays)
    line = from_files.described(task, arrays, gallery is not None, bool(flags.eval_skip_unmatched))
    if flags.eval_whiten is not None:
        task = whitened(task, flags)
    return arrays, task, line


def _refuse_two_truths(flags, truths: list[str], arrays: dict) -> None:
    """Raise UserError if more than one of flags and file says what queries are to find.
    `truths`: names of the flags.
    """
    sources = [f"--{name}" for name in truths]
    if has_lists(arrays):
        sources.append("lists")
    if len(sources) > 1:
        raise UserError(f"{flags.file}: what is relevant to the queries is given twice, by {' and by '.join(sources)}")
    if truths and "role_draws" in arrays and flags.gallery is None:
        raise UserError(
            f"{flags.file}: it has role_draws, but {sources[0]} defines what is relevant in a single gallery: leave "
            "one out"
        )


def _refuse_pathless(flags, files: dict) -> None:
    """Raise UserError for a file, path -> its arrays or None, without the paths by which pairs are scored."""
    for path, arrays in files.items():
        if arrays is not None and ("paths" not in arrays or "reference_features" in arrays):
            raise UserError(
                f"--rerank_pairs {flags.rerank_pairs}: pairs are scored by their files, and {path} has no paths (N,) "
                "of queries and gallery"
            )


def _refuse_gallery(flags, arrays: dict) -> None:
    """Raise UserError for a --gallery_keep, or an order of --gallery, that moves the rows of the gallery."""
    gallery = [Path(path).resolve() for path in flags.gallery]
    file = Path(flags.file).resolve()
    by_row = _indexed_by_row(flags, arrays, file in gallery)
    if flags.gallery_keep is not None and by_row is not None:
        raise UserError(
            f"--gallery_keep {flags.gallery_keep}: {by_row} goes by rows of the whole gallery: leave one out"
        )
    if file in gallery[1:] and gallery[0] != file and not {"exclude", "paths"} & arrays.keys():
        raise UserError(f"--gallery {' '.join(flags.gallery)}: name {flags.file} first, so that no image finds itself")


def _indexed_by_row(flags, arrays: dict, searches_itself: bool) -> str | None:
    """What refers to rows of the gallery by their number, if anything does."""
    if "exclude" in arrays:
        return "exclude"
    if has_lists(arrays):
        return "lists"
    if flags.eval_relevance:
        return "--eval_relevance"
    if searches_itself:
        return f"--gallery {flags.file}"
    return None


def whitened(task: Task, flags) -> Task:
    """The task of a file's embeddings, whitened as the flags request.
    Raises UserError if they request training images.
    """
    if whitening.needs_training(flags):
        raise UserError(
            f"--eval_whiten {flags.eval_whiten}: a file has no training images: fit on another one by "
            f"`{whitening.PROGRAM}`"
        )
    return task.with_features(whitening.of_flags(flags, None, task.searched.features))


def draws(flags, arrays: dict, task: Task):
    """Yield, for each draw of the file's gallery, the tasks of which a value is the mean; `task`: of the first draw."""
    yield divided(task)
    if flags.gallery is None:
        for further_task in from_files.draws(flags.file, arrays):
            if flags.eval_whiten is not None:
                further_task = whitened(further_task, flags)
            yield divided(further_task)


def dump_query_results(flags, arrays: dict, task: Task, ranks: Ranks) -> None:
    """Write what each query finds to the file of `--dump_query_results`."""
    if flags.query_results_format == "trec":
        ranks.first(lambda: trec.dump_file(flags, arrays, task))
        return
    space = metrics.space_of(metrics.ball(flags), **task.arguments(), ranks=ranks)
    rerank = metrics.reranking(flags)
    if rerank is not None:
        space.search = rerank.search(space, False)
    results = metrics.query_results(space)
    facts = {name: take_rows(arrays[name], task.queries.ids) for name in NAMES if name in arrays}
    if "flags" in arrays:
        facts["flags"] = arrays["flags"]
    if ranks.writes:
        labels = task.queries.labels if "labels" in arrays else None
        queries.write(Path(flags.dump_query_results), results, labels, **facts)


def settings_of(flags, ranks: Ranks) -> dict:
    """The arguments of `metrics.compute` that do not depend on the file."""
    return {
        "seed": range(flags.eval_kmeans_starts) if flags.eval_kmeans_starts else flags.seed,
        "device": ranks.gpu if flags.evaluate_on_gpu else "cpu",
        "progress": True,
        "ranks": ranks,
        **metrics.measured_by(flags),
    }


def describe(flags, arrays: dict, task: Task, line: str) -> None:
    """Print what the file holds and what searches where, and what to know of its numbers."""
    size, dimensions = arrays["features"].shape
    facts = [f"{flags.file}: {size:,} embeddings of {dimensions} dimensions"]
    if "labels" in arrays:
        facts.append(count_of(from_files.n_classes(arrays), "class", "classes"))
    if line:
        facts.append(line)
    say(f"{', '.join(facts)}\n")
    evaluation.say_few_samples(flags.file, flags.evaluation_metrics, len(task.classified.features), dimensions)
    copies = from_files.copies_described(flags.file, arrays, task, flags.gallery is not None)
    if copies is not None:
        say(f"note: {copies}\n")


def main(argv: list[str] | None = None) -> dict | list:
    """Print the table of one file's metrics, or a run's outliers. Returns name -> value, or the outliers."""
    argv = words_of(argv)
    flags = parser().parse_args(argv)
    ranks = Ranks()
    if flags.trec is not None:
        typed = rules.changed(parser()._actions, flags)
        return ranks.first(lambda: rankings.main(flags, typed, DEFAULT_METRICS))
    check(flags)
    if flags.outliers:
        return ranks.first(lambda: list_outliers(flags))
    arrays, task, line = task_of(flags)
    for note in (*evaluation.unaffected_metrics(flags.evaluation_metrics, flags), *whitening.mark(flags)):
        say(note)
    notes = []
    tasks = draws(flags, arrays, task)
    values = evaluation.over_draws(tasks, flags.evaluation_metrics, settings_of(flags, ranks), notes)
    scores = {Path(flags.file).stem: ranks.share(values)}
    describe(flags, arrays, task, line)
    print(outputs.table(scores))
    for note in notes:
        say(note)
    if flags.dump_query_results is not None:
        dump_query_results(flags, arrays, task, ranks)
    if flags.rerank_pairs is not None and ranks.writes:
        source = Path(flags.file)
        say(f"written  {pair_scores.write(source.with_name(f'pairs_{source.stem}.npz'), task, flags)}")
    if flags.out is not None and ranks.writes:
        write_json(flags.out, outputs.jsonable(scores)[Path(flags.file).stem])
    propose_next(flags, arrays, argv)
    return scores[Path(flags.file).stem]
