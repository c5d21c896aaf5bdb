"""What each query finds: in a file by `--dump_query_results`, which results/paired.py compares; and the queries that
pictures show.

Pictures show the space that is evaluated: its reference, labels, super-classes, principal components and distances;
what is found is what the search finds, before `--rerank`.
"""

import json
from pathlib import Path

import numpy as np

import metrics
from evaluation import spaces
from evaluation.galleries import taken
from utilities.files import write_npz
from utilities.levels import n_levels

RIGHT, WRONG, JUNK = range(3)  # what an image of the reference is to a query
SHOWN = 8  # queries of a picture
CANDIDATES = 750  # queries among which the worst are looked for


def results(compared: spaces.Compared, rerank=None) -> dict[str, np.ndarray]:
    """`metrics.query_results` of all queries of a split, each inside its super-class under `--tester
    same_parent_label`.
    """
    found = {}
    for here, space, _ in searches(compared, np.arange(len(compared.space.features))):
        if rerank is not None:
            space.search = rerank.search(space, False)
        for name, values in metrics.query_results(space).items():
            found.setdefault(name, np.empty(len(compared.space.features), dtype=values.dtype))[here] = values
    return found


def write(path: Path, found: dict[str, np.ndarray], labels: np.ndarray | None, **about) -> Path:
    """Write what was found, the labels `(N,)` (None: there are none) and what is known `about` the queries. Compressed,
    names of 60,000 images take 1 MB.
    """
    write_npz(path, {**found, **({} if labels is None else {"labels": labels}), **about}, np.savez_compressed)
    return path


def dump(folder: Path, embedded: dict, opt, epoch: int, instead: Path | None = None) -> list[Path]:
    """Write `query_results_<split>.npz` of each split that is measured, with several evaltypes
    `query_results_<split>_<evaltype>.npz`.

    A file holds `hit`, `ap_at_r` and `first_hit` (see `metrics.query_results`), `labels`, `paths` and `class_names`
    where the data set knows them, `(N,)` each; `epoch`; `flags`, the JSON of the evaluation's flags. `instead`: as in
    `outputs.dump`. Returns the paths.
    """
    paths = []
    flags = np.array(json.dumps(opt.measured()))
    for evaltype in opt.evaltypes:
        compared = spaces.compare(embedded, evaltype, opt)
        for split in spaces.scored(embedded, opt):
            name = file_name(split, evaltype, opt.evaltypes)
            place = instead if instead is not None and (folder / name).exists() else folder
            found = results(compared[split], metrics.reranking(opt))
            of_queries = {
                known: taken(values, compared[split].rows) for known, values in described(embedded[split]).items()
            }
            labels = compared[split].space.labels
            paths.append(
                write(
                    place / name,
                    found,
                    labels if (labels >= 0).any() else None,
                    **of_queries,
                    flags=flags,
                    epoch=np.array(epoch),
                )
            )
    return paths


def file_name(split: str, evaltype: str, evaltypes: list[str], kind: str = "query_results") -> str:
    """The name of a split's file."""
    return f"{kind}_{split}.npz" if len(evaltypes) == 1 else f"{kind}_{split}_{evaltype}.npz"


def described(embedded) -> dict[str, np.ndarray]:
    """`paths` and `class_names` `(N,)` of a split's images, where its data set knows them."""
    dataset = embedded.dataset
    about = {}
    if hasattr(dataset, "paths"):
        about["paths"] = np.array([str(path) for path in dataset.paths])
    if hasattr(dataset, "class_names") and dataset.class_names:
        about["class_names"] = np.array([str(dataset.class_names.get(label, "")) for label in embedded.labels.tolist()])
    return about


def super_classes(embedded) -> np.ndarray | None:
    """`(N,)` names of the samples' super-classes; None where the data set knows none, or only one."""
    table = getattr(embedded.dataset, "super_labels", None) or {}
    names = np.array([str(table.get(label)) for label in embedded.labels.tolist()])
    return names if None not in table.values() and len(set(names)) > 1 else None


def higher_names(embedded) -> dict[str, np.ndarray]:
    """`higher_names` `(N, L - 2)`: the samples' classes of the levels above the super-classes; empty without such
    levels.
    """
    tables = [spaces.names_at(embedded.dataset, level) for level in range(2, n_levels(embedded.dataset))]
    names = [[str(table.get(label)) for label in embedded.labels.tolist()] for table in tables]
    return {"higher_names": np.array(names).T} if names else {}


def searches(compared: spaces.Compared, queries: np.ndarray):
    """The searches of `queries` `(Q,)`: one for each super-class where they search inside these, else one.

    Yields for each the positions of its queries in `queries`, their `metrics.EmbeddingSpace`, and the indices of its
    reference in the whole reference.
    """
    space = compared.space
    size = len(space.gallery()[0])
    parents = np.zeros(len(space.features), int) if space.parents is None else space.parents
    reference_parents = np.zeros(size, int) if space.parents is None else space.reference_parents
    for parent in np.unique(parents[queries]):
        here = np.flatnonzero(parents[queries] == parent)
        kept = np.flatnonzero(reference_parents == parent)
        yield here, metrics.space_of(compared.ball, **space.part(queries[here], kept).arguments()), kept


def nearest(compared: spaces.Compared, queries: np.ndarray, count: int) -> list[np.ndarray]:
    """For each of `queries` the indices in the reference of its `count` nearest samples, nearest first; fewer if need
    be.

    Without itself and its sequence; junk of lists is among them, see `judged`.
    """
    found = [None] * len(queries)
    for here, space, kept in searches(compared, queries):
        shown = space.view(type(space), truth=space.truth.unjudged())
        for place, row in zip(here, shown.neighbours(count), strict=True):
            found[place] = kept[row[row >= 0]]
    return found


def judged(compared: spaces.Compared, queries: np.ndarray, found: list[np.ndarray]) -> list[np.ndarray]:
    """For each of `queries` what the indices `found` in the reference are to it: `RIGHT`, `WRONG` or `JUNK`."""
    labels = compared.space.gallery()[1]
    lists = compared.space.lists_of()
    if lists is None:
        further = compared.space.further or {}
        wanted = [(compared.space.labels[query], *further.get(query, ())) for query in queries.tolist()]
        return [
            np.where(np.isin(labels[few], classes), RIGHT, WRONG) for classes, few in zip(wanted, found, strict=True)
        ]
    of_query = lists.part(queries)
    kinds = zip(of_query.each("positive"), of_query.each("junk"), found, strict=True)
    return [
        np.where(np.isin(few, positives), RIGHT, np.where(np.isin(few, junk), JUNK, WRONG))
        for positives, junk, few in kinds
    ]


def first_hits(compared: spaces.Compared, skips: bool) -> np.ndarray:
    """`(Q,)` rank of the nearest image of its class of each query, infinite where there is none; with `skips` without
    such queries.
    """
    reciprocals = np.zeros(len(compared.space.features))
    for here, space, _ in searches(compared, np.arange(len(reciprocals))):
        reciprocals[here] = metrics.per_query(["mrr"], space)["mrr"]
    reciprocals = reciprocals[~np.isnan(reciprocals)] if skips else np.nan_to_num(reciprocals)
    return np.divide(1.0, reciprocals, out=np.full(len(reciprocals), np.inf), where=reciprocals > 0).round()


def sample_queries(labels: np.ndarray, seed: int) -> np.ndarray:
    """Indices of the queries shown, from as many classes as possible: the same in every epoch."""
    order = np.random.default_rng(seed).permutation(len(labels))
    firsts = np.sort(np.unique(labels[order], return_index=True)[1])  # where in `order` each class comes first
    return np.sort(np.concatenate([order[firsts], np.delete(order, firsts)])[:SHOWN])


def worst_queries(compared: spaces.Compared, seed: int) -> tuple[np.ndarray, list[str]]:
    """Queries with the lowest average precision, at most one a class, and a note on each; none where no query can find
    its class.

    Of `CANDIDATES` random queries. Average precision is AP@R, a query's term of `map_r`; of two equal ones, the query
    whose first hit comes later is worse. The note gives both.
    """
    candidates = np.flatnonzero(compared.space.findable()[0])
    if len(candidates) > CANDIDATES:
        candidates = np.sort(np.random.default_rng(seed).choice(candidates, size=CANDIDATES, replace=False))
    precisions = np.empty(len(candidates))
    firsts = np.empty(len(candidates), dtype=np.int64)
    for here, space, _ in searches(compared, candidates):
        scores = metrics.per_query(["map_r", "mrr"], space)
        precisions[here], firsts[here] = scores["map_r"], np.rint(1 / scores["mrr"])
    order = np.lexsort((-firsts, precisions))
    labels = compared.space.labels[candidates]
    labels = np.where(labels < 0, -1 - np.arange(len(labels)), labels)  # without classes each query stands for itself
    order = order[np.sort(np.unique(labels[order], return_index=True)[1])][:SHOWN]  # the worst of each class
    return candidates[order], [f"AP@R {precisions[i]:.2f}\nfirst hit at {firsts[i]:,}" for i in order]
