"""What each query finds: in a file by `--dump_query_results`, which results/paired.py compares;
and the queries that pictures show.

Pictures show the space that is evaluated: its reference, labels, super-classes, principal components and distances;
what is found is what the search finds, before `--rerank`.
"""

import json
from pathlib import Path

import numpy as np

import metrics
from evaluation import from_splits
from evaluation.task import Task, take_rows
from utilities.files import write_npz
from utilities.hyperbolic import Ball
from utilities.levels import n_levels

RIGHT, WRONG, JUNK = range(3)  # what an image of the reference is to a query
SHOWN = 8  # queries of a picture
CANDIDATES = 750  # queries among which the worst are looked for


def results(task: Task, ball: Ball | None = None, rerank=None) -> dict[str, np.ndarray]:
    """`metrics.query_results` of all queries of a task, each inside its super-class if they have such.

    Args:
        ball: in which distances are measured; None: Euclidean ones. rerank: as in `metrics.compute`.
    """
    results = {}
    for places, space, _ in searches(task, np.arange(len(task.queries)), ball):
        if rerank is not None:
            space.search = rerank.search(space, False)
        for name, values in metrics.query_results(space).items():
            results.setdefault(name, np.empty(len(task.queries), dtype=values.dtype))[places] = values
    return results


def write(path: Path, results: dict[str, np.ndarray], labels: np.ndarray | None, **facts) -> Path:
    """Write the results of queries, their labels `(N,)` (None: they have none) and further arrays. Compressed, names of
    60,000 images take 1 MB.
    """
    arrays = dict(results)
    if labels is not None:
        arrays["labels"] = labels
    write_npz(path, {**arrays, **facts}, np.savez_compressed)
    return path


def dump(folder: Path, embedded: dict, opt, epoch: int, instead: Path | None = None) -> list[Path]:
    """Write `query_results_<split>.npz` of each split that is measured,
    with several evaltypes `query_results_<split>_<evaltype>.npz`.

    A file holds `hit`, `ap_at_r` and `first_hit` (see `metrics.query_results`), `labels`, `paths` and `class_names`
    where the data set knows them, `(N,)` each; `epoch`; `flags`, the JSON of the evaluation's flags. `instead`: as in
    `outputs.dump`. Returns the paths.
    """
    paths = []
    flags = np.array(json.dumps(opt.measured()))
    for evaltype in opt.evaltypes:
        tasks = from_splits.tasks(embedded, opt, evaltype)
        for split in from_splits.scored(embedded, opt):
            queries = tasks[split].queries
            name = file_name(split, evaltype, opt.evaltypes)
            place = folder
            if instead is not None and (folder / name).exists():
                place = instead
            images = described(embedded[split])
            facts = {field: take_rows(values, queries.ids) for field, values in images.items()}
            facts |= {"flags": flags, "epoch": np.array(epoch)}
            labels = None
            if (queries.labels >= 0).any():
                labels = queries.labels
            values = results(tasks[split], metrics.ball(opt), metrics.reranking(opt))
            paths.append(write(place / name, values, labels, **facts))
    return paths


def file_name(split: str, evaltype: str, evaltypes: list[str], kind: str = "query_results") -> str:
    """The name of a split's file."""
    if len(evaltypes) == 1:
        return f"{kind}_{split}.npz"
    return f"{kind}_{split}_{evaltype}.npz"


def described(embedded) -> dict[str, np.ndarray]:
    """`paths` and `class_names` `(N,)` of a split's images, where its data set knows them."""
    dataset = embedded.dataset
    names = {}
    if hasattr(dataset, "paths"):
        names["paths"] = np.array([str(path) for path in dataset.paths])
    if hasattr(dataset, "class_names") and dataset.class_names:
        names["class_names"] = np.array([str(dataset.class_names.get(label, "")) for label in embedded.labels.tolist()])
    return names


def super_classes(embedded) -> np.ndarray | None:
    """`(N,)` names of the samples' super-classes; None where the data set knows none, or only one."""
    table = getattr(embedded.dataset, "super_labels", None) or {}
    names = np.array([str(table.get(label)) for label in embedded.labels.tolist()])
    if None in table.values() or len(set(names)) < 2:
        return None
    return names


def higher_names(embedded) -> dict[str, np.ndarray]:
    """`higher_names` `(N, L - 2)`: the samples' classes of the levels above the super-classes;
    empty without such levels.
    """
    tables = [from_splits.names_at(embedded.dataset, level) for level in range(2, n_levels(embedded.dataset))]
    names = [[str(table.get(label)) for label in embedded.labels.tolist()] for table in tables]
    return {"higher_names": np.array(names).T} if names else {}


def searches(task: Task, queries: np.ndarray, ball: Ball | None = None, levels: bool = False):
    """The searches of `queries` `(Q,)`: one for each super-class if they search inside these, else one.

    Yields for each the positions of its queries in `queries`, their `metrics.EmbeddingSpace`, and the indices of its
    gallery in the whole gallery. `levels`: by all levels of the labels, where there are several.
    """
    parents = np.zeros(len(task.queries), int)
    gallery_parents = np.zeros(len(task.searched), int)
    if task.queries.parents is not None:
        parents = task.queries.parents
        gallery_parents = task.searched.parents
    for parent in np.unique(parents[queries]):
        places = np.flatnonzero(parents[queries] == parent)
        gallery_rows = np.flatnonzero(gallery_parents == parent)
        part = task.part(queries[places], gallery_rows)
        yield places, metrics.space_of(ball, **part.arguments(levels)), gallery_rows


def nearest(task: Task, queries: np.ndarray, count: int, ball: Ball | None = None) -> list[np.ndarray]:
    """For each of `queries` the indices in the gallery of its `count` nearest samples, nearest first; fewer if need be.

    Without itself and its sequence; junk of lists is among them, see `judged`.
    """
    neighbours = [None] * len(queries)
    for places, space, gallery_rows in searches(task, queries, ball):
        unjudged = space.view(type(space), truth=space.truth.unjudged())
        for place, row in zip(places, unjudged.neighbours(count), strict=True):
            neighbours[place] = gallery_rows[row[row >= 0]]
    return neighbours


def judged(task: Task, queries: np.ndarray, neighbours: list[np.ndarray]) -> list[np.ndarray]:
    """For each of `queries` what its `neighbours`, indices in the gallery, are to it: `RIGHT`, `WRONG` or `JUNK`."""
    kinds = []
    if task.lists is None:
        labels = task.searched.labels
        further_labels = task.further_labels or {}
        for query, indices in zip(queries.tolist(), neighbours, strict=True):
            classes = (task.queries.labels[query], *further_labels.get(query, ()))
            kinds.append(np.where(np.isin(labels[indices], classes), RIGHT, WRONG))
        return kinds
    lists = task.lists.part(queries)
    for positives, junk, indices in zip(lists.each("positive"), lists.each("junk"), neighbours, strict=True):
        is_right = np.isin(indices, positives)
        kinds.append(np.select([is_right, np.isin(indices, junk)], [RIGHT, JUNK], WRONG))
    return kinds


def first_hits(task: Task, skips: bool, ball: Ball | None = None) -> np.ndarray:
    """`(Q,)` rank of the nearest image of its class of each query, infinite if there is none;
    with `skips` without such queries.
    """
    reciprocals = np.zeros(len(task.queries))
    for places, space, _ in searches(task, np.arange(len(reciprocals)), ball):
        reciprocals[places] = metrics.per_query(["mrr"], space)["mrr"]
    if skips:
        reciprocals = reciprocals[~np.isnan(reciprocals)]
    else:
        reciprocals = np.nan_to_num(reciprocals)
    return np.divide(1.0, reciprocals, out=np.full(len(reciprocals), np.inf), where=reciprocals > 0).round()


def sample_queries(labels: np.ndarray, seed: int) -> np.ndarray:
    """Indices of the queries that a picture shows, from as many classes as possible: the same in every epoch."""
    order = np.random.default_rng(seed).permutation(len(labels))
    # where in `order` each class comes first
    firsts = np.sort(np.unique(labels[order], return_index=True)[1])
    return np.sort(np.concatenate([order[firsts], np.delete(order, firsts)])[:SHOWN])


def worst_queries(task: Task, seed: int, ball: Ball | None = None) -> tuple[np.ndarray, list[str]]:
    """Queries with the lowest average precision, at most one per class, and a note on each;
    none if no query can find its class.

    Of `CANDIDATES` random queries. Average precision is AP@R, a query's term of `map_r`; of two equal ones, the query
    whose first hit comes later is worse. The note gives both.
    """
    candidates = np.flatnonzero(task.findable()[0])
    if len(candidates) > CANDIDATES:
        candidates = np.sort(np.random.default_rng(seed).choice(candidates, size=CANDIDATES, replace=False))
    precisions = np.empty(len(candidates))
    firsts = np.empty(len(candidates), dtype=np.int64)
    for places, space, _ in searches(task, candidates, ball):
        scores = metrics.per_query(["map_r", "mrr"], space)
        precisions[places] = scores["map_r"]
        firsts[places] = np.rint(1 / scores["mrr"])
    order = np.lexsort((-firsts, precisions))
    labels = task.queries.labels[candidates]
    # without classes each query stands for itself
    labels = np.where(labels < 0, -1 - np.arange(len(labels)), labels)
    # the worst of each class
    order = order[np.sort(np.unique(labels[order], return_index=True)[1])][:SHOWN]
    notes = [f"AP@R {precisions[place]:.2f}\nfirst hit at {firsts[place]:,}" for place in order]
    return candidates[order], notes
