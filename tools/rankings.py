"""Ranking metrics of a run and its qrels, files of TREC: `python -m evaluation --trec RUN QRELS`.

As trec_eval does, the score (as float32) decides the order, whatever the column of ranks says, and of equal scores the
name that comes last in the order of bytes is first. A relevance of 0 or less is irrelevant. A query that the qrels lack
is left out; one that the run lacks found nothing (trec_eval counts it with -c).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import metrics
from evaluation import outputs
from metrics._metric import Hits, RetrievalMetric, mean
from utilities.console import say
from utilities.errors import UserError
from utilities.files import write_json
from utilities.reading import parsing, printable

RUN_LINE = ("query", "Q0", "item", "rank", "score", "tag")
QRELS_LINE = ("query", "0", "item", "relevance")
HIGHEST = 100  # relevance; each is a level of its own
FLAGS = {"trec", "evaluation_metrics", "out"}  # that act on the files


@dataclass(frozen=True)
class Run:
    """The items of each query, best first; queries with equal scores; and those whose ranks say another order."""

    items: dict[bytes, list[bytes]]
    tied: int
    reordered: int


def check(flags, typed: set[str], names: list[str]) -> None:
    """Raise UserError for a metric, or another flag among `typed`, that run and qrels cannot serve."""
    for name in sorted(typed - FLAGS):
        word = "FILE" if name == "file" else f"--{name}"
        raise UserError(f"--trec measures the lists of {flags.trec[0]} as they are: leave out {word}")
    for name in names:
        parsed = metrics.parse(name)
        metric = parsed.metric
        needs_more = parsed.cosine or parsed.macro or parsed.prefix is not None or metric.CLASS_WISE
        if needs_more or not isinstance(metric, RetrievalMetric):
            raise UserError(f"metric {name!r} needs features or classes, which --trec does not read: leave it out")
        if metric.counts_query:
            raise UserError(
                f"metric {name!r} counts the query into its class, and TREC files do not have it: take ap, map_r or "
                "h_ap_others"
            )


def _rows(path: str, columns: tuple[str, ...]) -> Iterator[tuple[str, list[bytes]]]:
    """Place (`file:line`) and words of each line that is not empty. Raises UserError for another number of words."""
    is_empty = True
    with parsing(path), open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            words = line.split()
            if words and len(words) != len(columns):
                raise UserError(f"{path}:{number}: {len(words)} columns; expected {' '.join(columns)}")
            if words:
                is_empty = False
                yield f"{path}:{number}", words
    if is_empty:
        raise UserError(f"{path}: the file is empty; expected lines {' '.join(columns)}")


def _number(place: str, name: str, word: bytes, kind: type) -> int | float:
    """The number of a column. Raises UserError for other words and for NaN."""
    try:
        number = kind(word.decode("ascii"))
    except ValueError:
        number = math.nan
    if math.isnan(number) or b"_" in word:
        rule = "a number" if kind is float else "a whole number"
        raise UserError(f"{place}: {name} {_text(word)} is not {rule}")
    return number


def _text(word: bytes) -> str:
    return printable(word.decode("utf-8", "backslashreplace"))


def read_run(path: str) -> Run:
    """The lists of a run. Raises UserError, with the line, for an item that a query lists twice, and for a score that
    is no number.
    """
    of_queries = {}
    for place, (query, _, item, rank, score, _) in _rows(path, RUN_LINE):
        items = of_queries.setdefault(query, {})
        if item in items:
            raise UserError(f"{place}: query {_text(query)} lists {_text(item)} twice")
        items[item] = (_number(place, "score", score, float), _number(place, "rank", rank, int))
    lists = {}
    tied = 0
    reordered = 0
    for query, items in of_queries.items():
        with np.errstate(over="ignore"):
            scores = np.array([score for score, _ in items.values()]).astype(np.float32).tolist()
        ordered = sorted(zip(scores, items, strict=True), reverse=True)
        lists[query] = [item for _, item in ordered]
        ranks = [items[item][1] for item in lists[query]]
        tied += len(set(scores)) < len(scores)
        reordered += ranks != sorted(ranks)
    return Run(lists, tied, reordered)


def read_qrels(path: str) -> dict[bytes, dict[bytes, int]]:
    """Query -> its relevant items -> relevance, for queries that have such. Raises UserError, with the line, for an
    item that is judged twice, and for a relevance that is no whole number up to 100.
    """
    judged = {}
    for place, (query, _, item, word) in _rows(path, QRELS_LINE):
        items = judged.setdefault(query, {})
        if item in items:
            raise UserError(f"{place}: query {_text(query)} judges {_text(item)} twice")
        items[item] = _number(place, "relevance", word, int)
        if items[item] > HIGHEST:
            raise UserError(f"{place}: relevance {items[item]} is above {HIGHEST}")
    qrels = {}
    for query, items in judged.items():
        relevant = {item: relevance for item, relevance in items.items() if relevance > 0}
        if relevant:
            qrels[query] = relevant
    return qrels


def hits(run: Run, qrels: dict) -> Hits:
    """The hits of the queries of the qrels, with their levels: 1 to the highest relevance."""
    n_levels = max(max(relevant.values()) for relevant in qrels.values())
    of_level = np.zeros((len(qrels), n_levels), dtype=np.int64)
    rows = []
    for number, (query, relevant) in enumerate(qrels.items()):
        of_level[number] = np.bincount(list(relevant.values()), minlength=n_levels + 1)[1:]
        order = 0
        for rank, item in enumerate(run.items.get(query, ()), start=1):
            if item in relevant:
                order += 1
                rows.append((number, rank, order, relevant[item]))
    queries, ranks, orders, levels = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    total = of_level.sum(1)
    return Hits(queries, ranks, orders, total, total, levels, of_level)


def of_column(all_hits: Hits, column: int | None) -> Hits:
    """The hits by one column of labels, 0 the finest, which is the highest relevance; None: by all."""
    if column is None:
        return all_hits
    least = all_hits.of_level.shape[1] - column
    is_hit = all_hits.levels >= least
    queries = all_hits.queries[is_hit]
    relevant = all_hits.of_level[:, least - 1 :].sum(1)
    starts = np.searchsorted(queries, np.arange(len(relevant)))
    orders = np.arange(len(queries)) - starts[queries] + 1
    return Hits(queries, all_hits.ranks[is_hit], orders, relevant, relevant)


def measure(names: list[str], all_hits: Hits) -> dict[str, float]:
    """Metric -> mean over the queries to which something is relevant; NaN where there is none. Raises UserError for
    levels that the relevance does not have, and for `inp` of lists that end before the last relevant item.
    """
    metrics.check_levels(names, all_hits.of_level.shape[1], "relevances")
    values = {}
    for name in names:
        metric = metrics.parse(name).metric
        of_metric = of_column(all_hits, metric.column)
        missing = int(of_metric.relevant.sum()) - len(of_metric.queries)
        if metric.name == "inp" and missing:
            raise UserError(
                f"metric {name!r} is of the last relevant item, and the run lacks {missing:,}: leave it out, or write "
                "the run with a larger --query_results_depth"
            )
        scores = metric.score(of_metric)
        scores = scores[(of_metric.relevant > 0) & ~np.isnan(scores)]
        values[name] = mean(scores) if len(scores) else math.nan
    return values


def notes(run: Run, qrels: dict, all_hits: Hits) -> Iterator[str]:
    """Lines on what is left out, counts as 0, or is ordered otherwise than it seems."""
    unjudged = len(run.items.keys() - qrels.keys())
    if unjudged:
        yield f"{unjudged:,} of {len(run.items):,} queries of the run have no relevant item in the qrels: left out"
    absent = len(qrels.keys() - run.items.keys())
    if absent:
        yield f"{absent:,} of {len(qrels):,} queries of the qrels are not in the run: they found nothing"
    missing = int(all_hits.relevant.sum()) - len(all_hits.queries)
    if missing:
        yield f"{missing:,} of {int(all_hits.relevant.sum()):,} relevant items are not in the run: they are not found"
    if run.tied:
        yield f"{run.tied:,} queries have equal scores (as float32): the last name comes first, as in trec_eval"
    if run.reordered:
        yield f"{run.reordered:,} queries have ranks that do not follow the scores: the scores decide, as in trec_eval"
    highest = all_hits.of_level.shape[1]
    if highest > 1:
        yield (
            f"relevance has {highest} levels: a metric that does not compare them is of level {highest} alone; "
            f"<metric>_level{highest - 1} is of all from 1 on, as in trec_eval"
        )


def main(flags, typed: set[str], default_metrics: list[str]) -> dict[str, float]:
    """Print the table of the metrics of `--trec`, and write them to `--out`. Returns name -> value.

    Args:
        typed: flags that have another value than their default. default_metrics: those of lists are the default.
    """
    names = flags.evaluation_metrics
    if "evaluation_metrics" not in typed:
        names = list(filter(metrics.searches, default_metrics))
    check(flags, typed, names)
    run = read_run(flags.trec[0])
    qrels = read_qrels(flags.trec[1])
    if run.items.keys().isdisjoint(qrels):
        raise UserError(f"--trec {' '.join(flags.trec)}: no query of the run has a relevant item in the qrels")
    all_hits = hits(run, qrels)
    values = measure(names, all_hits)
    lines = sum(map(len, run.items.values()))
    say(f"{flags.trec[0]}: {len(run.items):,} queries, {lines:,} items; {flags.trec[1]}: {len(qrels):,} queries\n")
    name = Path(flags.trec[0]).stem
    print(outputs.table({name: values}))
    for note in notes(run, qrels, all_hits):
        say(note)
    if flags.out is not None:
        write_json(flags.out, outputs.jsonable({name: values})[name])
    return values
