"""Metrics of an embedding space: one file a family, whose `Metric.NAMES` are names for `--evaluation_metrics`.

A name is `<head>[@<parameter>[_<suffix>]]`, and `<name>@d<D>` on the first D dimensions of the features, which are
brought to unit length again where all features are. Retrieval and clustering metrics also come as `c_<name>` (on
features at unit length; `e_recall` becomes `c_recall`), retrieval metrics with the suffixes `_level<l>` (by column l of
labels `(N, L)`; 0, the finest, is the plain name) and, behind it, `_macro` (mean of the classes' means). `_metric.py`
describes such a file.
"""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from metrics._flags import add_arguments, ball, derived, measured_by, reranking
from metrics._hidden import as_numpy
from metrics._hyperbolic import space_of
from metrics._mapped import Stacked, is_mapped, prefix
from metrics._metric import Metric, RetrievalMetric
from metrics._space import EmbeddingSpace, as_array
from metrics._truth import Lists
from metrics.neighbours.rerank import AlphaExpansion, KReciprocal
from metrics.neighbours.search import Need, Neighbours
from utilities.errors import UserError
from utilities.registry import Registry, unknown

__all__ = [
    "REGISTRY",
    "AlphaExpansion",
    "EmbeddingSpace",
    "KReciprocal",
    "Lists",
    "Need",
    "Neighbours",
    "Stacked",
    "add_arguments",
    "at_prefixes",
    "ball",
    "check",
    "check_levels",
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
    "per_query",
    "prefix",
    "query_results",
    "refuse_class_wise",
    "reranking",
    "searches",
    "space_of",
]

REGISTRY = Registry("metrics", "metric")
LEVEL = re.compile(r"(.*)_level(0|[1-9][0-9]{0,8})")
FARTHEST = 2**62  # in place of a parameter of more than 18 digits: beyond any reference, within 64 bits


class Parameter(NamedTuple):
    """The parameter after the @ of a name declared as `<head>@<kind>`:
    pattern, rule as text, example, conversion to a number.
    """

    pattern: str
    rule: str
    example: str
    number: Callable = float


def _whole(text: str) -> int:
    return int(text) if len(text) <= 18 else int(math.copysign(FARTHEST, float(text)))


PARAMETERS = {
    "k": Parameter(r"[1-9][0-9]*", "k is a whole number of at least 1", "1", _whole),
    "m": Parameter(r"0|-?[1-9][0-9]*", "m is a whole number", "2", _whole),
    "fmr": Parameter(r"0?\.[0-9]*[1-9][0-9]*", "fmr is a number above 0 and below 1", ".01"),
}


class Parsed(NamedTuple):
    """A metric, on normalised features or not, averaged over classes or not, on a prefix of the features or all."""

    metric: Metric
    cosine: bool
    macro: bool
    prefix: int | None = None  # dimensions of the features that it sees; None: all


def _declared() -> dict[str, type]:
    """Name -> class, of all files. Read anew each time, so that a new file is seen; modules are imported once."""
    return {name: module.Metric for module in REGISTRY.modules().values() for name in module.Metric.NAMES}


def _cosine_name(name: str) -> str:
    """The name of the c_ variant."""
    return "c_" + name.removeprefix("e_")


def _kind(name: str) -> tuple[str, str, str] | None:
    """(head, kind of parameter, suffix) of a declared name that takes a parameter, as `e_recall@k_worst10`;
    None of any other.
    """
    head, _, parameter = name.partition("@")
    kind, underscore, suffix = parameter.partition("_")
    return (head, kind, underscore + suffix) if kind in PARAMETERS else None


def _parse(name: str) -> Parsed:
    """The metric that a name means. Raises UnknownName or UserError; see `check`."""
    of_prefix = re.fullmatch(r"([^@]+(?:@[^@d][^@]*)?)@d([1-9][0-9]{0,8})", str(name))
    if of_prefix:
        return _parse(of_prefix[1])._replace(prefix=int(of_prefix[2]))
    declared = _declared()
    plain = {
        _cosine_name(declared_name): declared_name
        for declared_name in declared
        if "cosine" in declared[declared_name].VARIANTS
    }
    # name with or without c_ -> the declared name
    plain |= {declared_name: declared_name for declared_name in declared}
    macro = str(name).endswith("_macro")
    base = str(name).removesuffix("_macro")
    of_level = LEVEL.fullmatch(base)
    level = None
    if of_level:
        base, level = of_level.groups()
    declared_name, number = _known(name, base, plain)
    metric_class = declared[plain[declared_name]]
    if macro and "macro" not in metric_class.VARIANTS:
        raise UserError(f"metric {name!r}: only retrieval metrics have a _macro variant; use {base!r}.")
    metric = metric_class(plain[declared_name], number)
    if level is not None:
        if "level" not in metric.VARIANTS:
            raise UserError(f"metric {name!r} has no variant for one level; use {base!r}.")
        metric.column = int(level)
    return Parsed(metric, declared_name not in declared, macro)


def _known(name: str, base: str, names: dict) -> tuple[str, float | None]:
    """Which of the names `base` is, and its parameter, None if it takes none.
    Raises UnknownName or UserError, which show `name`.
    """
    head, at, parameter = base.partition("@")
    if base in names and _kind(base) is None:
        return base, None
    declared_name = _taking(head, parameter, names)
    if declared_name is not None:
        return declared_name, _parameter_of(name, declared_name, parameter)
    if at and head in names:
        raise UserError(f"metric {name!r} is ill-formed: {head} has no parameter; use {head!r}.")
    raise unknown("metric", name, names)


def _taking(head: str, parameter: str, names) -> str | None:
    """Which of the names, as `e_recall@k_worst10`, a head with a parameter means: that of the longest suffix."""
    suffixes = {}
    for declared_name in names:
        kind = _kind(declared_name)
        if kind and kind[0] == head and parameter.endswith(kind[2]):
            suffixes[declared_name] = kind[2]
    return max(suffixes, key=lambda declared_name: len(suffixes[declared_name]), default=None)


def _parameter_of(name: str, declared_name: str, text: str):
    """The number that the text after the @ is to the name `known`. Raises UserError for anything else."""
    head, kind, suffix = _kind(declared_name)
    allowed = PARAMETERS[kind]
    text = text.removesuffix(suffix)
    if not re.fullmatch(allowed.pattern, text):
        example = f"{head}@{allowed.example}{suffix}"
        raise UserError(f"metric {name!r} is ill-formed: in {declared_name}, {allowed.rule}, for example {example}.")
    return allowed.number(text)


def check(name: str) -> None:
    """Raise UnknownName for a metric that does not exist (the nearest one is named),
    UserError for an ill-formed name.
    """
    _parse(name)


def at_prefixes(names: list[str], prefixes) -> list[str]:
    """The names, and each of them on each of the prefixes, whole numbers of dimensions."""
    full_width = [name for name in names if _parse(name).prefix is None]
    of_prefixes = [f"{name}@d{width}" for width in prefixes for name in full_width]
    return list(dict.fromkeys([*names, *of_prefixes]))


def check_width(names, width: int) -> None:
    """Raise UserError for the first of the names that is of more dimensions than features of `width` have."""
    for name in names:
        if (_parse(name).prefix or 0) > width:
            raise UserError(f"metric {name!r}: the embeddings have {width} dimensions, take at most @d{width}")


def higher_is_better(name: str) -> bool:
    """Direction of a metric, which selects the best epoch."""
    return _parse(name).metric.higher_is_better


def is_share(name: str) -> bool:
    """Whether all values of a metric lie between 0 and 1, so that it can be printed in percent."""
    low, high = _parse(name).metric.range
    return low >= 0 and high <= 1


def is_array(name: str) -> bool:
    """Whether a metric is an array (`rho_spectrum@0`) and not one number."""
    return _parse(name).metric.is_array


def searches(name: str) -> bool:
    """Whether a metric looks at neighbours in the reference; the others look at the queries alone."""
    return isinstance(_parse(name).metric, RetrievalMetric)


def is_mean_of_queries(name: str) -> bool:
    """Whether a metric is the mean over queries of values from 0 to 1, not over classes or a part of them."""
    parsed = _parse(name)
    plain_mean = type(parsed.metric).value is RetrievalMetric.value and not parsed.macro
    return searches(name) and plain_mean and parsed.metric.range == (0.0, 1.0)


def needs_groups(name: str) -> bool:
    """Whether a metric compares super-classes, and so needs `groups`."""
    return _parse(name).metric.NEEDS_GROUPS


def column_of(name: str) -> int | None:
    """The column of labels `(N, L)` by which a metric goes, 0 the finest; None: all of them."""
    return _parse(name).metric.column


def needs_levels(name: str) -> bool:
    """Whether a metric compares classes of other levels than the finest, and so needs labels `(N, L)`."""
    return column_of(name) != 0


def check_levels(names, n_levels: int, subject: str = "labels") -> None:
    """Raise UserError for the first of the names that needs more than `n_levels` levels.
    `subject`: what has these, in the message.
    """
    for name in filter(needs_levels, names):
        column = column_of(name)
        if n_levels < 2 or (column or 0) >= n_levels:
            levels = f"the levels 0 to {n_levels - 1}" if n_levels > 1 else "a single level"
            raise UserError(
                f"metric {name!r} compares levels of classes, and {subject} have {levels}: leave it out, or give "
                "labels of more"
            )


def refuse_class_wise(names) -> None:
    """Raise UserError for the first of the names that needs the classes of samples: there are lists of what queries are
    to find, and no labels.
    """
    for name in names:
        parsed = _parse(name)
        if parsed.metric.CLASS_WISE or parsed.macro:
            raise UserError(
                f"metric {name!r} is of classes, and there are lists without labels: leave it out, or give labels."
            )


def group(name: str) -> str:
    """The group in which a metric is logged: its name before the `@`."""
    return name.partition("@")[0]


def listing() -> list[tuple[str, str]]:
    """(name, caption with range and direction) of all metrics, for `--list metrics`."""
    rows = []
    for name, metric_class in sorted(_declared().items()):
        parameter = 1 if _kind(name) else None
        metric = metric_class(name, parameter)
        low, high = metric.range
        direction = "higher is better" if metric.higher_is_better else "lower is better"
        caption = f"{metric.NAMES[name]} [{low:g}, {high:g}], {direction}"
        variants = []
        if "cosine" in metric.VARIANTS:
            variants.append(_cosine_name(name))
        if "macro" in metric.VARIANTS:
            variants.append(f"{name}_macro")
        if "level" in metric.VARIANTS:
            variants.append(f"{name}_level1")
        if variants:
            caption += f"; also {', '.join(variants)}"
        rows.append((name, caption))
    return rows


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
    names,
    features,
    labels=None,
    reference=None,
    reference_labels=None,
    clusters=None,
    *,
    seed=0,
    device="cpu",
    exclude=None,
    groups=None,
    progress=False,
    uncounted=math.nan,
    ball=None,
    rerank=None,
    query_sequences=None,
    reference_sequences=None,
    ranks=None,
    skip_unmatched=False,
    lists: Lists | None = None,
) -> dict:
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
        seed: of k-means; a list of seeds makes nmi, ami and f1 the mean over as many clusterings.
        device: of the search and of k-means; a missing GPU is replaced by the CPU, with one printed line.
        exclude: `(N,)` index of each query in the reference, -1 where it is not there. Default: its own, or none in a
            reference.
        groups: `(N,)` super-class of each query, integers or names; for metrics that compare super-classes.
        progress: show a bar on long searches.
        uncounted: value of a retrieval metric if no query counts, since none has anything to find.
        ball: a `utilities.hyperbolic.Ball`: neighbours are found by its distances between the points that the features
            represent. Metrics that do not search, and the `c_` ones, stay Euclidean.
        rerank: a `KReciprocal` or an `AlphaExpansion`: retrieval metrics, the `c_` ones too, are computed on its
            re-ranked lists.
        query_sequences: `(N,)` whole numbers, -1 for none, or names: a query does not find the samples of its own
            sequence. With a reference, `reference_sequences` `(M,)` beside it.
        ranks: an `engine.ranks.Ranks` whose processes all call this with the same arguments: each searches and clusters
            its part of the queries on its own device, and all return the values that one process would.
        skip_unmatched: leave queries with nothing to find out of every retrieval metric, also of `e_recall` and `mAP`,
            where they count as 0.
        lists: the positives and the junk of each query, in place of classes and sequences. Junk is ignored, and
            queries without positives are left out as under `skip_unmatched`.

    Returns:
        Name -> float, or an array for `rho_spectrum@0`, in the order of `names`. NaN where a metric is not defined: one
        that searches where no query counts (see `uncounted`), a clustering or distance where its own docstring says so.

    Raises:
        UnknownName, UserError: an unknown name, a wrong shape, an impossible value.
    """
    names = [names] if isinstance(names, str) else list(names)
    parsed = {name: _parse(name) for name in names}
    if labels is None and lists is not None:
        refuse_class_wise(names)
    if not any(map(needs_levels, names)):
        labels = finest(labels, _length(features))
        reference_labels = finest(reference_labels, _length(reference))
    arguments = {
        "labels": labels,
        "reference_labels": reference_labels,
        "clusters": clusters,
        "exclude": exclude,
        "seed": seed,
        "device": _usable(device),
        "progress": progress,
        "groups": groups,
        "query_sequences": query_sequences,
        "reference_sequences": reference_sequences,
        "ranks": ranks,
        "skip_unmatched": skip_unmatched,
        "lists": lists,
    }
    spaces = _spaces(parsed, features, reference, ball, arguments)
    retrieval = {}  # space, by its identity, -> its retrieval metrics
    for of_name in parsed.values():
        if isinstance(of_name.metric, RetrievalMetric):
            retrieval.setdefault(id(spaces[of_name.prefix, of_name.cosine]), []).append(of_name.metric)
    for space in {id(space): space for space in spaces.values()}.values():
        of_space = retrieval.get(id(space), [])
        if rerank is not None and of_space:
            space.search = rerank.search(space, progress)
        space.scores(of_space)
    results = {}
    for name, (metric, cosine, macro, width) in parsed.items():
        space = spaces[width, cosine]
        results[name] = metric.value(space, macro=True) if macro else metric.value(space)
        if isinstance(metric, RetrievalMetric) and math.isnan(results[name]):
            results[name] = uncounted
    return results


def _spaces(parsed: dict[str, Parsed], features, reference, ball, arguments: dict) -> dict:
    """(dimensions of the prefix, None for all; whether features are at unit length) -> the space of such metrics."""
    names = list(parsed)
    truth = "labels" if arguments["lists"] is None else "lists"
    spaces = {}
    for width in dict.fromkeys(of_name.prefix for of_name in parsed.values()):
        space = space_of(ball, _cut(names, features, width), reference=_cut(names, reference, width), **arguments)
        check_levels(names, space.truth.n_levels, truth)
        spaces[width, False] = space
        if any(of_name.cosine for of_name in parsed.values() if of_name.prefix == width):
            spaces[width, True] = space.normalised()
    return spaces


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
    shape = () if values is None else np.shape(values)
    return shape[0] if shape else 0


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
    of_names = {name: _parse(name).metric for name in names}
    check_levels(names, space.truth.n_levels)
    scores = space.scores(of_names.values())
    return {name: scores[metric.key] for name, metric in of_names.items()}


def findable(
    labels, reference_labels=None, exclude=None, query_sequences=None, reference_sequences=None, lists=None
) -> tuple[np.ndarray, np.ndarray]:
    """`(N,)` each: how many samples are relevant to each query, and how many are ranked;
    arguments as in `compute`, labels are needed.
    """
    reference = None if reference_labels is None else np.zeros((len(reference_labels), 1), np.float32)
    space = EmbeddingSpace(
        np.zeros((len(labels), 1), np.float32),
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
    hit = np.nan_to_num(scores["e_recall@1"]).astype(np.uint8)  # 0 for queries that are left out
    return {"hit": hit, "ap_at_r": scores["map_r"], "first_hit": np.rint(first).astype(np.int32)}
