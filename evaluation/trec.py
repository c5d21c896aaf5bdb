"""Results of queries for other programs: run and qrels files of TREC, as trec_eval, pytrec_eval and ranx read them.

A run has a line `query Q0 item rank score tag` for each of the nearest items of a query, qrels a line `query 0 item
relevance` for each item that is relevant to it. What is not ranked (the query itself, its sequence, junk) is in neither
file. These programs sort by the score, as float32, and equal scores by name: so the score is minus the rank, which has
no ties and is exact. `python -m evaluation --trec RUN QRELS` (tools/rankings.py) reads the two.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

import metrics
from evaluation import from_splits, queries
from evaluation.task import Task
from utilities.console import say
from utilities.counts import count_of
from utilities.files import replacing

SUFFIXES = (".run", ".qrels")
TAG = "dml"  # the last column of a run, its name
BLOCK = 1024  # queries whose relevant items are looked up at once


@dataclass(frozen=True)
class Names:
    """The identifiers of the queries, and of the items that they search: one word each."""

    queries: list[str]
    items: list[str]


@dataclass
class Counts:
    """Queries, those to which nothing is relevant, relevant items, and those among the lists of the run."""

    queries: int = 0
    unmatched: int = 0
    relevant: int = 0
    listed: int = 0


def escaped(name: str) -> str:
    """The name as one word: white space, `%` and bytes that are no text as %XX, which `urllib.parse.unquote` turns
    back.
    """
    return re.sub(r"[%\s\x00-\x1f\x7f\ud800-\udfff]", lambda match: quote(match[0], errors="surrogateescape"), name)


def identifiers(paths: np.ndarray | None, rows: np.ndarray) -> list[str]:
    """The names of the images `rows` of a file or split: their paths, or, if these are missing, empty or not distinct,
    the numbers of their rows.
    """
    if paths is not None:
        names = [escaped(str(path)) for path in paths[rows].tolist()]
        if "" not in names and len(set(names)) == len(names):
            return names
        say("paths that are empty or occur twice name no image: TREC files name images by their rows instead")
    return list(map(str, rows.tolist()))


def dump_query_results(folder: Path, embedded: dict, opt, epoch: int, instead: Path | None = None) -> list[Path]:
    """Write what `--dump_query_results` requests, in its format; arguments as of `queries.dump`. Returns the paths."""
    if opt.query_results_format == "trec":
        return dump(folder, embedded, opt, instead)
    return queries.dump(folder, embedded, opt, epoch, instead)


def dump(folder: Path, embedded: dict, opt, instead: Path | None = None) -> list[Path]:
    """Write `query_results_<split>.run` and `.qrels` of each split that is measured; further parts of the names, and
    `instead`, as in `queries.dump`. Returns the paths.
    """
    paths = []
    measured = from_splits.scored(embedded, opt)
    for evaltype in opt.evaltypes:
        tasks = from_splits.tasks(embedded, opt, evaltype)
        for split in measured:
            sources = [split]
            if tasks[split].gallery is not None:
                sources = from_splits.sources_of(split, measured, opt)
            image_paths = _paths([embedded[split]]), _paths([embedded[source] for source in sources])
            stem = folder / Path(queries.file_name(split, evaltype, opt.evaltypes)).stem
            paths += dump_task(stem, tasks[split], image_paths, opt, instead)
    return paths


def _paths(splits: list) -> np.ndarray | None:
    """The paths of the images of several splits, one split after the other; None if one of them has none."""
    paths = [queries.described(split).get("paths") for split in splits]
    if any(of_split is None for of_split in paths):
        return None
    return np.concatenate(paths)


def dump_file(flags, arrays: dict, task: Task) -> list[Path]:
    """Write run and qrels of a file of embeddings, with the name of `--dump_query_results`. Returns the paths.

    Args:
        arrays: of the file, and as `gallery_paths` the paths of its --gallery.
    """
    searched = "paths" if flags.gallery is None else "gallery_paths"
    item_paths = None if "reference_features" in arrays else arrays.get(searched)
    file = Path(flags.dump_query_results)
    if file.suffix in (".npz", *SUFFIXES):
        file = file.with_suffix("")
    return dump_task(file, task, (arrays.get("paths"), item_paths), flags)


def dump_task(stem: Path, task: Task, paths: tuple, opt, instead: Path | None = None) -> list[Path]:
    """Write `<stem>.run` and `<stem>.qrels` of a task, of each named protocol `<stem>_<protocol>.run`, and print a line
    on each pair. Returns the paths.

    Args:
        paths: of the images of the file or split of the queries, and of that of the gallery; None for unknown ones.
        opt: the flags. instead: the folder for files whose names are taken.
    """
    names = Names(*map(identifiers, paths, (task.queries.positions, task.searched.positions)))
    written = []
    for protocol in task.relevance or [""]:
        of_protocol = task
        name = stem.name
        if protocol:
            of_protocol = replace(task, relevance={"": task.relevance[protocol]})
            name += f"_{quote(protocol, safe='')}"
        files = [stem.with_name(name + suffix) for suffix in SUFFIXES]
        if instead is not None and files[0].exists():
            files = [instead / file.name for file in files]
        say(described(files, write(files, of_protocol, names, opt), opt.query_results_depth))
        written += files
    return written


def write(files: list[Path], task: Task, names: Names, opt) -> Counts:
    """Write run and qrels of a task. Relevance is 1, or, where `--evaluation_metrics` compare levels of classes, how
    many levels an item shares with the query.
    """
    counts = Counts()
    levels = any(map(metrics.needs_levels, opt.evaluation_metrics))
    rerank = metrics.reranking(opt)
    with replacing(files[0]) as run, replacing(files[1]) as qrels:
        for places, space, items in queries.searches(task, np.arange(len(task.queries)), metrics.ball(opt), levels):
            if rerank is not None:
                space.search = rerank.search(space, False)
            depth = min(opt.query_results_depth, int(space.visible.max(initial=0)))
            neighbours = space.neighbours(depth)
            _write_run(run, names, places, neighbours, items)
            for start in range(0, len(places), BLOCK):
                rows = np.arange(start, min(start + BLOCK, len(places)))
                _write_qrels(qrels, names, places, _relevant(space, rows), items)
                relevant = space.truth.at(None).relevant[rows]
                are_listed = (space.truth.are_relevant(rows, neighbours[rows]) > 0) & (neighbours[rows] >= 0)
                counts.queries += len(rows)
                counts.unmatched += int((relevant == 0).sum())
                counts.relevant += int(relevant.sum())
                counts.listed += int(are_listed.sum())
    return counts


def _write_run(file, names: Names, places: np.ndarray, neighbours: np.ndarray, items: np.ndarray) -> None:
    """The lines of the queries `places` `(Q,)`, whose `neighbours` `(Q, K)`, -1 for none, are positions in `items`."""
    for place, row in zip(places.tolist(), neighbours, strict=True):
        query = names.queries[place]
        for rank, item in enumerate(items[row[row >= 0]].tolist(), start=1):
            file.write(f"{query} Q0 {names.items[item]} {rank} {-rank} {TAG}\n")


def _relevant(space: metrics.EmbeddingSpace, rows: np.ndarray) -> Any:
    """Rows, columns and relevance `(P,)` of all items that are relevant to the queries `rows` `(R,)`."""
    row, columns = space.truth.at(None).first_relevant(rows, space.reference_size)
    levels = space.truth.are_relevant(rows[row], columns[:, None])[:, 0]
    return zip(rows[row].tolist(), columns.tolist(), levels.astype(int).tolist(), strict=True)


def _write_qrels(file, names: Names, places: np.ndarray, relevant, items: np.ndarray) -> None:
    for row, column, level in relevant:
        file.write(f"{names.queries[places[row]]} 0 {names.items[items[column]]} {level}\n")


def described(files: list[Path], counts: Counts, depth: int) -> str:
    """A line on a pair of files: what is in them, and what is not."""
    line = f"{files[0]}: {count_of(counts.queries, 'query', 'queries')}, the nearest {depth:,} items of each"
    deeper = counts.relevant - counts.listed
    if deeper:
        line += (
            f"; {deeper:,} of {counts.relevant:,} relevant items lie deeper (--query_results_depth): they are in "
            f"{files[1].name} alone"
        )
    if counts.unmatched:
        unmatched = count_of(counts.unmatched, "query", "queries")
        line += f"; {unmatched} without a relevant item: not in {files[1].name}"
    return line
