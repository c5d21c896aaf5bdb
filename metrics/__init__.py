"""Metrics of an embedding space: one file a family, whose `Metric.NAMES` are names for `--evaluation_metrics`.

A name is `<head>[@<parameter>[_<suffix>]]`, and `<name>@d<D>` on the first D dimensions of the features, which are
brought to unit length again where all features are. Retrieval and clustering metrics also come as `c_<name>` (on
features at unit length; `e_recall` becomes `c_recall`), retrieval metrics with the suffixes `_level<l>` (by column l of
labels `(N, L)`; 0, the finest, is the plain name) and, behind it, `_macro` (mean of the classes' means). `_metric.py`
describes such a file.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from metrics._flags import (
    add_arguments,
    ball,
    check_augmentation,
    check_reranking,
    derived,
    measured_by,
    read_pair_scorer,
    reranked_by,
    reranking,
)
from metrics._hidden import as_numpy
from metrics._hyperbolic import space_of
from metrics._inputs import SpaceSettings, as_array
from metrics._mapped import Stacked, is_mapped, prefix
from metrics._metric import RetrievalMetric
from metrics._names import (
    REGISTRY,
    Parsed,
    at_prefixes,
    check,
    check_levels,
    check_width,
    column_of,
    group,
    higher_is_better,
    is_array,
    is_mean_of_queries,
    is_share,
    listing,
    needs_groups,
    needs_levels,
    needs_unknown,
    parse,
    refuse_class_wise,
    refuse_reranked,
    searches,
    why_undefined,
)
from metrics._space import EmbeddingSpace
from metrics._truth import Lists
from metrics.neighbours.dba import DatabaseAugmentation
from metrics.neighbours.pair_scores import PairReranking
from metrics.neighbours.rerank import AlphaExpansion, KReciprocal
from metrics.neighbours.search import Need, Neighbours
from metrics.neighbours.superglobal import SuperGlobal
from utilities.annotations import Values
from utilities.errors import UserError
from utilities.hyperbolic import Ball

Reranking = KReciprocal | AlphaExpansion | SuperGlobal | DatabaseAugmentation | PairReranking

__all__ = [
    "REGISTRY",
    "AlphaExpansion",
    "DatabaseAugmentation",
    "EmbeddingSpace",
    "KReciprocal",
    "Lists",
    "Need",
    "Neighbours",
    "PairReranking",
    "SpaceSettings",
    "Stacked",
    "SuperGlobal",
    "add_arguments",
    "at_prefixes",
    "ball",
    "check",
    "check_augmentation",
    "check_levels",
    "check_reranking",
    "check_width",
    "column_of",
    "compute",
    "derived",
    "findable",
    "finest",
    "group",
    "higher_is_better",
    "is_array",
    "is_mapped",
    "is_mean_of_queries",
    "is_share",
    "listing",
    "measured_by",
    "needs_groups",
    "needs_levels",
    "needs_unknown",
    "per_query",
    "prefix",
    "query_results",
    "read_pair_scorer",
    "refuse_class_wise",
    "refuse_reranked",
    "reranked_by",
    "reranking",
    "searches",
    "space_of",
    "why_undefined",
]


def _usable(device) -> str:
    """The device, or, for a missing GPU, the CPU with one printed line.
    Raises UserError for anything that is not a device.
    """
    try:
        kind = torch.device(device).type
    except (RuntimeError, TypeError) as error:
        raise UserError(f"device {device!r}: cpu, cuda or cuda:0 is expected.") from error
    if kind == "cuda" and not torch.cuda.is_available():
        print(f"metrics: there is no CUDA device for {str(device)!r}, the CPU computes instead.")
        return "cpu"
    return str(device)


def compute(
    names: str | Iterable[str],
    features: Values,
    labels: Values | None = None,
    reference: Values | None = None,
    reference_labels: Values | None = None,
    clusters: Values | None = None,
    *,
    uncounted: float = math.nan,
    ball: Ball | None = None,
    rerank: Reranking | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Metrics of an embedding space. Work that several of them share is done once.

    Neighbours are in the order of their float64 distances; of equally distant ones the lower index comes first.

    Args:
        names: metric names, e.g. `["e_recall@1", "c_map_r", "nmi"]`; see `listing()`.
        features: `(N, D)` numpy or torch, any type of real numbers: the queries.
        labels: `(N,)` of any integer type, or names; they may be missing if `lists` are given, and class-wise metrics
            are then refused. `(N, L)`: of several levels, column 0 the finest, each class in one class of the next
            column; for metrics that compare levels, the others go by column 0.
        reference: `(M, D)` features to search in, with `reference_labels` `(M,)`. Default: the queries themselves, each
            left out of its own neighbours by its index. All but retrieval metrics
            (clusterings, pairs, spectra) use the queries alone.
        clusters: `(N,)` a clustering to measure instead of k-means with as many clusters as there are classes.
        uncounted: value of a retrieval metric if no query counts, since none has anything to find.
        ball: a `utilities.hyperbolic.Ball`: neighbours are found by its distances between the points that the features
            represent. Metrics that do not search, and the `c_` ones, stay Euclidean.
        rerank: a `KReciprocal`, `AlphaExpansion`, `SuperGlobal`, `DatabaseAugmentation` or `PairReranking`: retrieval
            metrics, the `c_` ones too, are computed on its re-ranked lists. Metrics that go by distances (open_set.py,
            certainty.py) are refused.
        settings: those of `metrics.SpaceSettings`: `seed`, `device`, `exclude`, `groups`, `progress`,
            `query_sequences`, `reference_sequences`, `ranks`, `skip_unmatched`, `lists`, `certainty`, `paths`,
            `reference_paths`.

    Returns:
        Name -> float, or an array for `rho_spectrum@0`, in the order of `names`. NaN where a metric is not defined: one
        that searches where no query counts (see `uncounted`), a clustering or distance where its own docstring says so.

    Raises:
        UnknownName, UserError: an unknown name, a wrong shape, an impossible value.
    """
    names = [names] if isinstance(names, str) else list(names)
    parsed = {name: parse(name) for name in names}
    if rerank is not None:
        refuse_reranked(names, "rerank")
    lists = settings.get("lists")
    if labels is None and lists is not None:
        refuse_class_wise(names)
    if not _of_levels(parsed):
        labels = finest(labels, _length(features))
        reference_labels = finest(reference_labels, _length(reference))
    settings["device"] = _usable(settings.get("device", SpaceSettings.device))
    arguments = {"labels": labels, "reference_labels": reference_labels, "clusters": clusters, **settings}
    spaces = _spaces(parsed, features, reference, ball, arguments)
    for space in {id(space): space for space in spaces.values()}.values():
        of_space = [of_name.metric for of_name in parsed.values() if spaces[of_name.prefix, of_name.cosine] is space]
        _search(space, of_space, rerank)
    results = {}
    for name, (metric, cosine, macro, width) in parsed.items():
        space = spaces[width, cosine]
        results[name] = metric.value(space, macro=True) if macro else metric.value(space)
        if isinstance(metric, RetrievalMetric) and math.isnan(results[name]):
            results[name] = uncounted
    return results


def _search(space: EmbeddingSpace, of_space: list, rerank) -> None:
    """Search once for all that the metrics of a space read."""
    retrieval = []
    n_nearest = 0
    for metric in of_space:
        if isinstance(metric, RetrievalMetric):
            retrieval.append(metric)
        elif metric.SEARCHES:
            n_nearest = max(n_nearest, metric.n_nearest(space))
    if rerank is not None and retrieval:
        space.search = rerank.search(space, space.progress)
    space.scores(retrieval, n_nearest)


def _spaces(parsed: dict[str, Parsed], features, reference, ball, arguments: dict) -> dict:
    """(dimensions of the prefix, None for all; whether features are at unit length) -> the space of such metrics."""
    names = list(parsed)
    truth = "labels" if arguments.get("lists") is None else "lists"
    spaces = {}
    for width in dict.fromkeys(of_name.prefix for of_name in parsed.values()):
        space = space_of(ball, _cut(names, features, width), reference=_cut(names, reference, width), **arguments)
        check_levels(_of_levels(parsed), space.truth.n_levels, truth)
        spaces[width, False] = space
        if any(of_name.cosine for of_name in parsed.values() if of_name.prefix == width):
            spaces[width, True] = space.normalised()
    return spaces


def _of_levels(parsed: dict[str, Parsed]) -> list[str]:
    """The names of metrics that need labels `(N, L)`."""
    return [name for name, of_name in parsed.items() if of_name.metric.needs_levels]


def finest(labels, size: int):
    """Column 0 of labels `(size, L)`; others as they are. Raises UserError if there is no column."""
    if labels is not None and np.ndim(labels) == 2 and np.shape(labels)[1] == 0:
        raise UserError(
            f"labels {tuple(np.shape(labels))} have no column: (N,), or (N, L) with the finest level in column 0, "
            "is expected"
        )
    if labels is not None and np.ndim(labels) == 2 and np.shape(labels)[0] == size:
        return as_numpy(labels)[:, 0]
    return labels


def _length(values) -> int:
    """The number of rows; 0 without any, and of a single number, which `as_array` refuses."""
    if values is None or not np.ndim(values):
        return 0
    return np.shape(values)[0]


def _cut(names: list[str], features, width: int | None):
    """The first `width` dimensions of features; None: all of them, as they are."""
    if width is None or features is None:
        return features
    features = as_array(features, "features")
    check_width(names, features.shape[1])
    return prefix(features, width)


def per_query(names: list[str], space: EmbeddingSpace) -> dict[str, np.ndarray]:
    """Name -> `(N,)` values of retrieval metrics for each query of a space, NaN where one does not count.
    Not for `c_` and `_macro`.
    """
    of_names = {name: parse(name).metric for name in names}
    check_levels(names, space.truth.n_levels)
    scores = space.scores(of_names.values())
    return {name: scores[metric.key] for name, metric in of_names.items()}


def findable(
    labels, reference_labels=None, exclude=None, query_sequences=None, reference_sequences=None, lists=None
) -> tuple[np.ndarray, np.ndarray]:
    """`(N,)` each: how many samples are relevant to each query, and how many are ranked;
    arguments as in `compute`, labels are needed.
    """
    features = np.zeros((len(labels), 1), np.float32)
    reference = None
    if reference_labels is not None:
        reference = np.zeros((len(reference_labels), 1), np.float32)
    space = EmbeddingSpace(
        features,
        labels,
        reference,
        reference_labels,
        exclude=exclude,
        query_sequences=query_sequences,
        reference_sequences=reference_sequences,
        lists=lists,
    )
    return space.relevant, space.visible


def query_results(space: EmbeddingSpace) -> dict[str, np.ndarray]:
    """Results of each query of a space, `(N,)` each.

    hit: whether its nearest neighbour is of its class (uint8). ap_at_r: its term of `map_r`, NaN where it is alone in
    its class (float64).
    first_hit: rank of the nearest sample of its class, 0 if there is none (int32).
    """
    scores = per_query(["e_recall@1", "map_r", "mrr"], space)
    first = np.divide(1.0, scores["mrr"], out=np.zeros(space.size), where=scores["mrr"] > 0)
    # 0 for queries that are left out
    hit = np.nan_to_num(scores["e_recall@1"]).astype(np.uint8)
    return {"hit": hit, "ap_at_r": scores["map_r"], "first_hit": np.rint(first).astype(np.int32)}
