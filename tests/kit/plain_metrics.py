"""Retrieval metrics as plain float64 loops, one query at a time, and random spaces: what the tests of metrics/
share.
"""

import numpy as np
import pytest

import metrics

RETRIEVAL = ["e_recall@1", "e_recall@2", "e_recall@4", "e_recall@1000", "precision@1", "precision@5", "r_precision"]
RETRIEVAL += ["map_r", "mrr", "map@3", "map@1000", "mAP_c", "mAP_1000", "mAP_lim", "mAP", "ap", "inp"]
DISTS = ["dists@intra", "dists@inter", "dists@intra_over_inter"]


PARAMETERS = {"@k": "@2", "@m": "@1", "@fmr": "@.1", "@p": "@.9", "@far": "@.1"}


def every_name() -> list[str]:
    """The names of all metrics, each with a parameter if it takes one."""
    names = []
    for name, _ in metrics.listing():
        head, at, kind = name.partition("@")
        kind, underscore, suffix = kind.partition("_")
        names.append(head + PARAMETERS.get(at + kind, at + kind) + underscore + suffix)
    return names


def ranked(query, reference, left_out):
    """The reference's rows, nearest first; of equal distances the first row."""
    columns = np.asarray(reference, dtype=np.float64).T
    distances = sum((float(a) - column) ** 2 for a, column in zip(query, columns, strict=True))
    return [j for j in np.argsort(distances, kind="stable").tolist() if j != left_out]


def precision_sum(relevance, depth):
    total = 0.0
    hits = 0
    for i, hit in enumerate(relevance[: int(min(depth, len(relevance)))], start=1):
        hits += hit
        total += hit * hits / i
    return total


def plain_value(name, relevance, total, size):
    """One query's value, NaN where it is left out. `total` relevant samples, `size` of its class in the reference."""
    head, _, k = name.partition("@")
    k = int(k or 0)
    if head == "e_recall":
        return float(any(relevance[:k]))
    if head.startswith("mAP"):
        depth = {"mAP_c": size, "mAP_1000": 1000, "mAP_lim": 1023, "mAP": len(relevance)}[head]
        return precision_sum(relevance, depth) / size if size else 0.0
    if total == 0:
        return np.nan
    if head == "precision":
        return sum(relevance[:k]) / k
    if head == "r_precision":
        return sum(relevance[:total]) / total
    if head == "map_r":
        return precision_sum(relevance, total) / total
    if head == "ap":
        return precision_sum(relevance, len(relevance)) / total
    if head == "inp":
        return total / max(rank for rank, hit in enumerate(relevance, start=1) if hit)
    if head == "map":
        return precision_sum(relevance, k) / min(k, total)
    assert head == "mrr"
    return 1.0 / (relevance.index(True) + 1)


def orders(features, reference=None, exclude=None, query_sequences=None, reference_sequences=None):
    """Of each query its own row of the reference, -1 for none, and the rows that it may find, nearest first."""
    if reference is None:
        reference = features
        exclude = range(len(features))
        reference_sequences = query_sequences
    if exclude is None:
        exclude = [-1] * len(features)
    if query_sequences is None:
        query_sequences = [-1] * len(features)
    if reference_sequences is None:
        reference_sequences = [-1] * len(reference)
    for query, own_row, group in zip(features, exclude, query_sequences, strict=True):
        hidden = set()
        if group not in (-1, None, ""):
            hidden = {j for j, sequence in enumerate(reference_sequences) if sequence == group}
        yield own_row, [j for j in ranked(query, reference, own_row) if j not in hidden]


def plain_per_query(names, features, labels, reference=None, reference_labels=None, **options):
    """Name -> a value for each query, NaN where it is left out."""
    reference_labels = labels if reference is None else reference_labels
    values = {name: [] for name in names}
    for label, (own_row, order) in zip(labels, orders(features, reference, **options), strict=True):
        relevance = [bool(reference_labels[j] == label) for j in order]
        size = sum(relevance) + bool(own_row >= 0 and reference_labels[own_row] == label)
        for name in names:
            values[name].append(plain_value(name, relevance, sum(relevance), size))
    return values


def plain(names, features, labels, **options):
    """Name -> mean over the queries that count, name_macro -> mean over the classes' means; NaN where none counts."""
    results = {}
    for name, values in plain_per_query(names, features, labels, **options).items():
        of_class = {}
        for label, value in zip(labels, values, strict=True):
            if not np.isnan(value):
                of_class.setdefault(label, []).append(value)
        counted = [value for value in values if not np.isnan(value)]
        results[name] = float(np.mean(counted)) if counted else np.nan
        results[f"{name}_macro"] = float(np.mean([np.mean(v) for v in of_class.values()])) if counted else np.nan
    return results


def assert_retrieval(features, labels, names=tuple(RETRIEVAL), **options):
    names = list(names) + [f"{name}_macro" for name in names]
    expected = plain([name for name in names if not name.endswith("_macro")], features, labels, **options)
    measured = metrics.compute(names, np.asarray(features), np.asarray(labels), **options)
    assert list(measured) == names
    for name in names:
        assert measured[name] == pytest.approx(expected[name], abs=1e-12, nan_ok=True), name


def unit(features):
    """Rows at unit length; zeros stay."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(lengths > 0, lengths, 1)


def random_space(n=120, d=6, classes=11, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    return rng.standard_normal((classes, d))[labels] + spread * rng.standard_normal((n, d)), labels


def values_of(names, ranked_rows, of_queries, of_reference):
    """Name -> mean over the queries that count, of `ranked_rows`: each query's reference in order."""
    values = {name: [] for name in names}
    for label, row in zip(of_queries, ranked_rows, strict=True):
        relevance = [bool(of_reference[j] == label) for j in row]
        for name in names:
            values[name].append(plain_value(name, relevance, sum(relevance), int((of_reference == label).sum())))
    return {name: float(np.nanmean(query_values)) for name, query_values in values.items()}


def random_lists(seed, reference_size, queries, own_rows=None):
    """Positives and junk: some queries have no positives, some junk alone, one all of the reference as junk."""
    rng = np.random.default_rng(seed)
    positives = []
    junk = []
    for query in range(queries):
        order = rng.permutation([j for j in range(reference_size) if own_rows is None or j != own_rows[query]])
        n_positive = rng.integers(0, 8)
        n_junk = rng.integers(0, 10)
        of_query = order[:n_positive] if query % 5 else order[:0]
        positives.append(of_query.tolist())
        ignored = order[n_positive:] if query == 3 else order[n_positive : n_positive + n_junk]
        junk.append(ignored.tolist())
    return positives, junk


def plain_hierarchical(name, levels, n_levels, counts_query):
    """One query's value by the definition, of the levels in the order of its list; NaN where nothing is related."""
    related = sum(level > 0 for level in levels)
    if not related:
        return np.nan
    ideal = sorted(levels, reverse=True)
    if name == "ndcg":
        gain = [
            sum((2.0**level - 1) / np.log2(1 + rank) for rank, level in enumerate(order, start=1))
            for order in (levels, ideal)
        ]
        return gain[0] / gain[1]
    if name == "asi":
        shared = [
            sum(min(levels[:k].count(level), ideal[:k].count(level)) for level in range(1, n_levels + 1)) / k
            for k in range(1, related + 1)
        ]
        return sum(shared) / related
    count = {level: levels.count(level) + (level == n_levels and counts_query and name == "h_ap") for level in levels}
    relevances = [(level / (n_levels - 1)) / count[level] if level else 0.0 for level in levels]
    total = 0
    for k in range(len(levels)):
        if levels[k]:
            total += sum(min(relevances[j], relevances[k]) for j in range(k + 1)) / (k + 1)
    return total / sum(relevances)


def random_levels(seed, size, n_levels=3, classes=17):
    """Integer features with many ties and duplicates, and nested labels `(size, n_levels)`, some of one sample."""
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 3, (size, 3)).astype(float)
    features[size // 2] = features[0]
    above = [np.arange(classes)]
    for _ in range(n_levels - 1):
        groups = rng.integers(0, max(2, len(set(above[-1])) // 2), classes)
        above.append(groups[above[-1]])
    return features, np.stack(above, 1)[rng.integers(0, classes, size)]
