"""The answers of `referee/cases.json` by loops over fractions: slow, obvious, without NumPy.

`answer(case, measure, variant)` is the value of a measure where the case's axis follows one of its variants; every
other axis is at its standard. A query's list is built once for each way in which its ties may fall, as a list of
`Item`s from the nearest to the farthest; a formula reads one such list.

`python -m tests.kit.referee_answers NAME …` prints the answers of cases.
"""

import itertools
import json
import math
import sys
from fractions import Fraction
from typing import NamedTuple

from referee import judge

STANDARD = {
    "ties": "index",
    "no relevant item": "left out",
    "no query": "nan",
    "self": "by place",
    "junk": "removed",
    "camera": "removed",
    "distractors": "ranked",
    "labels": "exact",
    "similarity": "euclidean",
    "numbers": "exact",
    "recall@k": "any",
    "precision@k": "of k",
    "map@k": "of min(k, R)",
    "map": "precisions",
    "ndcg": "exponential gain, ideal of k",
    "cmc@k": "all images",
    "tar@far": "below the next false match",
    "gap": "of known queries",
    "nmi": "arithmetic",
    "ami": "arithmetic",
}
ERROR = "error"
NAN = "nan"


class Item(NamedTuple):
    """A gallery row in a query's list. `relevant`: 0 or a grade. `score`: higher is nearer."""

    row: int
    label: object
    score: Fraction
    relevant: int


def answer(case: dict, measure: str, variant: str):
    """A Fraction, a float where the value is irrational, or "error" or "nan"."""
    ways = {**STANDARD, case["axis"]: variant}
    name, _, parameter = measure.partition("@")
    if name in ("nmi", "ami"):
        return agreement(name, case["queries"]["labels"], case["clusters"], ways)
    if name == "tar":
        return true_accepts(case, Fraction(parameter), ways)
    if name == "gap":
        return global_precision(case, ways)
    if variant in (ERROR, NAN, "0", "1") and case["axis"] in ("not a number", "empty gallery", "zero vector"):
        return variant
    values = [value_of_query(case, query, measure, ways) for query in range(n_queries(case))]
    counted = [value for value in values if value is not None]
    if len(counted) < len(values) and ways["no relevant item"] in (ERROR, NAN):
        return ways["no relevant item"]
    if not counted:
        return {"0": Fraction(0), ERROR: ERROR, NAN: NAN}[ways["no query"]]
    return sum(counted) / len(counted)


def n_queries(case: dict) -> int:
    return len(case["queries"]["labels"])


def value_of_query(case: dict, query: int, measure: str, ways: dict):
    """The mean over the ways in which ties may fall; None for a query that is left out."""
    items = ranked_items(case, query, ways)
    n_relevant = sum(item.relevant > 0 for item in items)
    if n_relevant == 0:
        fixed = {"left out": None, ERROR: None, NAN: None, "0": Fraction(0), "1": Fraction(1)}
        return fixed[ways["no relevant item"]]
    name, _, parameter = measure.partition("@")
    k = int(parameter) if parameter else None
    if name == "cmc" and ways["cmc@k"] == "one image an identity":
        return mean(found_within(order, k) for order in drawn_galleries(case, items))
    if ways["ties"] == "one step":
        return stepwise_precision(items)
    return mean(FORMULAS[name](order, k, ways) for order in orders(items, ways["ties"]))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


# the list of a query


def ranked_items(case: dict, query: int, ways: dict) -> list[Item]:
    """The items of a query from the nearest to the farthest, equally near ones by their row."""
    rows = gallery(case)
    items = []
    for row in range(len(rows["labels"])):
        item = Item(row, rows["labels"][row], score(case, query, row, ways), relevance(case, query, row, ways))
        shows_itself = row == own_row(case, query)
        if shows_itself and ways["self"] == "by place":
            continue
        kind = ignored_kind(case, query, row)
        if kind is not None and ways[kind] in ("removed", "left out"):
            continue
        if kind == "junk":
            item = item._replace(relevant=int(ways["junk"] == "relevant"))
        items.append(item)
    items.sort(key=lambda item: (-item.score, item.row))
    if ways["self"] == "by rank":
        del items[0]
    return items


def gallery(case: dict) -> dict:
    """The rows that are searched: the queries themselves where a case has no gallery."""
    return case.get("gallery") or case["queries"]


def own_row(case: dict, query: int):
    """The row of the gallery that shows the query itself; None or -1 if there is none."""
    if "gallery" in case:
        return case["self"][query] if "self" in case else None
    return query


def ignored_kind(case: dict, query: int, row: int) -> str | None:
    """The axis by which a row may be left out of a query's list."""
    queries = case["queries"]
    rows = gallery(case)
    if row in case.get("junk", {}).get(str(query), []):
        return "junk"
    if "cameras" in queries:
        same_class = queries["labels"][query] == rows["labels"][row]
        if same_class and queries["cameras"][query] == rows["cameras"][row]:
            return "camera"
    if "sequences" in queries and queries["sequences"][query] == rows["sequences"][row]:
        return "camera"
    if rows["labels"][row] is None:
        return "distractors"
    return None


def relevance(case: dict, query: int, row: int, ways: dict) -> int:
    """0, or 1 for a relevant row; with labels of several levels the number of levels shared."""
    if "positives" in case:
        return int(row in case["positives"][query])
    query_label = case["queries"]["labels"][query]
    label = gallery(case)["labels"][row]
    if label is None:
        return 0
    if isinstance(query_label, list) and case["axis"] == "several labels":
        return int(bool(set(query_label) & set(label)))
    if isinstance(query_label, list):
        shared = sum(a == b for a, b in zip(query_label, label, strict=True))
        if case["axis"] == "ndcg":
            return shared
        level = {"by the finest": 0, "by the next": 1}[ways.get("levels", "by the finest")]
        return int(query_label[level] == label[level])
    return int(as_read(query_label, ways["labels"]) == as_read(label, ways["labels"]))


def as_read(label, how: str):
    """A label as a program holds it."""
    if how == "exact" or isinstance(label, str):
        return label
    if how == "as 32-bit whole numbers":
        return (label + 2**31) % 2**32 - 2**31
    if how == "as 64-bit floats":
        return float(label)
    return rounded_to_float32(float(label))


def score(case: dict, query: int, row: int, ways: dict) -> Fraction:
    """How near a gallery row is, exactly: of equal order with the similarity, not always equal to it."""
    if "scores" in case:
        return Fraction(case["scores"][query][row])
    if "NaN" in gallery(case)["features"][row]:
        # ranked last
        return Fraction(-(10**9))
    a = numbers(case["queries"]["features"][query], ways)
    b = numbers(gallery(case)["features"][row], ways)
    similarity = case.get("similarity", ways["similarity"])
    if case["axis"] == "similarity":
        similarity = ways["similarity"]
    if similarity == "euclidean":
        return -sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    product = sum(x * y for x, y in zip(a, b, strict=True))
    if similarity == "inner product":
        return product
    lengths = sum(x * x for x in a) * sum(y * y for y in b)
    if not lengths:
        # the cosine of unit vectors at distance 1 is 1/2
        return Fraction(1, 4) if ways.get("zero vector") == "distance 1" else Fraction(0)
    # the square of the cosine with its sign, which has the order of the cosine
    return product * abs(product) / lengths


def numbers(features: list, ways: dict) -> list[Fraction]:
    if ways["numbers"] == "rounded to float32":
        features = [rounded_to_float32(value) for value in features]
    return [Fraction(value) for value in features]


def rounded_to_float32(value: float) -> float:
    """The nearest number of 24 bits."""
    if value == 0:
        return 0.0
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * 2**24), exponent - 24)


# ties


def orders(items: list[Item], ties: str) -> list[list[Item]]:
    """The lists that ties allow: one, or with `expected` every order of equally near items."""
    if ties == "index":
        return [items]
    if ties == "class order":
        return [sorted(items, key=lambda item: (-item.score, item.label, item.row))]
    if ties == "reverse index":
        return [sorted(items, key=lambda item: (-item.score, -item.row))]
    groups = [list(group) for _, group in itertools.groupby(items, key=lambda item: item.score)]
    if ties in ("optimistic", "pessimistic"):
        groups = [sorted(group, key=lambda item: item.relevant, reverse=ties == "optimistic") for group in groups]
        return [list(itertools.chain(*groups))]
    permuted = [list(itertools.permutations(group)) for group in groups]
    return [list(itertools.chain(*choice)) for choice in itertools.product(*permuted)]


def stepwise_precision(items: list[Item]) -> Fraction:
    """Average precision where equally near items are one step: the precision behind the step counts for each hit."""
    total = Fraction(0)
    seen = hits = 0
    for _, group in itertools.groupby(items, key=lambda item: item.score):
        step = list(group)
        new_hits = sum(item.relevant > 0 for item in step)
        seen += len(step)
        hits += new_hits
        total += new_hits * Fraction(hits, seen)
    return total / hits


# formulas over one list


def hits_of(items: list[Item]) -> list[bool]:
    return [item.relevant > 0 for item in items]


def precision(hits: list[bool], depth: int) -> Fraction:
    return Fraction(sum(hits[:depth]), depth)


def sum_of_precisions(hits: list[bool], depth: int) -> Fraction:
    terms = [precision(hits, rank) for rank, hit in enumerate(hits[:depth], start=1) if hit]
    return sum(terms, Fraction(0))


def found_within(items, k, ways=None) -> Fraction:
    return Fraction(int(any(hits_of(items)[:k])))


def recall(items, k, ways):
    hits = hits_of(items)
    n_found = sum(hits[:k])
    if ways["recall@k"] == "any":
        return Fraction(int(n_found > 0))
    if ways["recall@k"] == "share of R":
        return Fraction(n_found, sum(hits))
    return Fraction(n_found, min(k, sum(hits)))


def precision_at(items, k, ways):
    hits = hits_of(items)
    if ways["precision@k"] == "of the items there are":
        return Fraction(sum(hits[:k]), min(k, len(hits)))
    if ways["precision@k"] == "of min(k, R)":
        return Fraction(sum(hits[:k]), min(k, sum(hits)))
    return Fraction(sum(hits[:k]), k)


def map_at(items, k, ways):
    hits = hits_of(items)
    if k is None:
        return average_precision(items, k, ways)
    total = sum_of_precisions(hits, k)
    n_found = sum(hits[:k])
    divisors = {"of k": k, "of R": sum(hits), "of min(k, R)": min(k, sum(hits)), "of those found": n_found}
    divisor = divisors[ways["map@k"]]
    return total / divisor if divisor else Fraction(0)


def average_precision(items, _, ways):
    hits = hits_of(items)
    n_relevant = sum(hits)
    if ways["map"] == "precisions":
        return sum_of_precisions(hits, len(hits)) / n_relevant
    if ways["map"] == "trapezoids":
        return trapezoids(items, None, ways)
    levels = {"11 points": [Fraction(i, 10) for i in range(11)]}.get(ways["map"])
    # Without fixed levels the recall of each hit is one
    if levels is None:
        levels = [Fraction(i, n_relevant) for i in range(1, n_relevant + 1)]
    best = [max(precision(hits, rank) for rank in ranks_of_recall(hits, level)) for level in levels]
    return sum(best) / len(best)


def ranks_of_recall(hits: list[bool], level: Fraction) -> list[int]:
    """The ranks from which on a share `level` of the relevant items has been found."""
    n_relevant = sum(hits)
    return [rank for rank in range(1, len(hits) + 1) if Fraction(sum(hits[:rank]), n_relevant) >= level]


def trapezoids(items, _, ways):
    hits = hits_of(items)
    total = Fraction(0)
    for rank, hit in enumerate(hits, start=1):
        if hit:
            before = precision(hits, rank - 1) if rank > 1 else Fraction(1)
            total += (before + precision(hits, rank)) / 2
    return total / sum(hits)


def map_r(items, _, ways):
    hits = hits_of(items)
    return sum_of_precisions(hits, sum(hits)) / sum(hits)


def r_precision(items, _, ways):
    hits = hits_of(items)
    return precision(hits, sum(hits))


def reciprocal_rank(items, k, ways):
    hits = hits_of(items)
    first = hits.index(True) + 1
    return Fraction(0) if k is not None and first > k else Fraction(1, first)


def inverse_penalty(items, _, ways):
    hits = hits_of(items)
    last = max(rank for rank, hit in enumerate(hits, start=1) if hit)
    return Fraction(sum(hits), last)


def oxford_precision(items, k, ways):
    hits = hits_of(items)
    last = max(rank for rank, hit in enumerate(hits, start=1) if hit)
    return precision(hits, min(k, last))


def capped_precision(items, k, ways):
    hits = hits_of(items)
    return precision(hits, min(k, sum(hits)))


def gain(items, k, ways):
    gain_name, ideal_name = ways["ndcg"].split(", ")[:2]
    grades = [item.relevant for item in items]
    depth = len(grades) if k is None else k
    best = sorted(grades, reverse=True)
    if ideal_name == "ideal of k":
        best = best[:depth]
    log_of_rank = ways["ndcg"].endswith("log2(rank)")
    return discounted(grades[:depth], gain_name, log_of_rank) / discounted(best, gain_name, log_of_rank)


def discounted(grades: list[int], gain_name: str, log_of_rank: bool) -> float:
    total = 0.0
    for rank, grade in enumerate(grades, start=1):
        value = grade if gain_name == "linear gain" else 2**grade - 1
        discount = max(1.0, math.log2(rank)) if log_of_rank else math.log2(1 + rank)
        total += value / discount
    return total


def drawn_galleries(case: dict, items: list[Item]):
    """The list for each way to draw one image of every identity."""
    by_identity = {}
    for item in items:
        by_identity.setdefault(gallery(case)["labels"][item.row], []).append(item)
    for choice in itertools.product(*by_identity.values()):
        yield sorted(choice, key=lambda item: (-item.score, item.row))


FORMULAS = {
    "recall": recall,
    "cmc": found_within,
    "precision": precision_at,
    "map": map_at,
    "ap_trapezoid": trapezoids,
    "map_r": map_r,
    "r_precision": r_precision,
    "mrr": reciprocal_rank,
    "inp": inverse_penalty,
    "mp": oxford_precision,
    "mmp": capped_precision,
    "ndcg": gain,
}


# measures that are no means over queries


def true_accepts(case: dict, far: Fraction, ways: dict) -> Fraction:
    """Share of same-class pairs that match where a share `far` of the others does. Each pair of queries counts once.

    With n others, m = floor(far n) of them may match. `below the next false match`: pairs nearer than the (m + 1)-th
    other. `at the last false match`: pairs as near as the m-th other, or nearer. `interpolated`: on the straight lines
    between the corners of the curve.
    """
    labels = case["queries"]["labels"]
    pairs = list(itertools.combinations(range(len(labels)), 2))
    same_class = [-score(case, a, b, ways) for a, b in pairs if labels[a] == labels[b]]
    two_classes = sorted(-score(case, a, b, ways) for a, b in pairs if labels[a] != labels[b])
    allowed = math.floor(far * len(two_classes))
    if ways["tar@far"] == "below the next false match":
        return Fraction(sum(d < two_classes[allowed] for d in same_class), len(same_class))
    if ways["tar@far"] == "at the last false match":
        return Fraction(sum(allowed > 0 and d <= two_classes[allowed - 1] for d in same_class), len(same_class))
    corners = [(Fraction(0), Fraction(0))]
    for threshold in sorted({*same_class, *two_classes}):
        rates = [Fraction(sum(d <= threshold for d in group), len(group)) for group in (two_classes, same_class)]
        corners.append(tuple(rates))
    return interpolated(corners, far)


def interpolated(corners: list[tuple], x: Fraction) -> Fraction:
    """The highest value at x of the line through corners that ascend."""
    best = Fraction(0)
    for (near, low), (far, high) in itertools.pairwise(corners):
        if near <= x <= far:
            share = (x - near) / (far - near) if far > near else Fraction(1)
            best = max(best, low + share * (high - low))
    return best


def global_precision(case: dict, ways: dict) -> Fraction:
    """Global average precision of the nearest item of each query, the queries from the surest to the least sure."""
    answers = []
    n_known = 0
    for query in range(n_queries(case)):
        items = ranked_items(case, query, ways)
        is_known = any(item.relevant for item in items)
        n_known += is_known
        if is_known or ways["gap"] != "known queries alone":
            answers.append(items[0])
    # of equal scores the wrong answers come first
    answers.sort(key=lambda item: (-item.score, item.relevant))
    divisor = len(answers) if ways["gap"] == "of all queries" else n_known
    return sum_of_precisions([item.relevant > 0 for item in answers], len(answers)) / divisor


def agreement(name: str, classes: list, clusters: list, ways: dict) -> float:
    """Normalised or adjusted mutual information of two partitions, in bits."""
    size = len(classes)
    entropies = [entropy(classes), entropy(clusters)]
    together = entropy(list(zip(classes, clusters, strict=True)))
    information = sum(entropies) - together
    average = {
        "arithmetic": sum(entropies) / 2,
        "geometric": math.sqrt(entropies[0] * entropies[1]),
        "max": max(entropies),
        "min": min(entropies),
    }[ways[name]]
    if name == "nmi":
        return information / average
    expected = expected_information(classes, clusters, size)
    return (information - expected) / (average - expected)


def entropy(values: list) -> float:
    shares = [values.count(value) / len(values) for value in sorted(set(values))]
    return -sum(share * math.log2(share) for share in shares)


def expected_information(classes: list, clusters: list, size: int) -> float:
    """Mean of the mutual information over all permutations, by the hypergeometric law of each cell."""
    total = 0.0
    for a in (classes.count(value) for value in sorted(set(classes))):
        for b in (clusters.count(value) for value in sorted(set(clusters))):
            for n in range(max(1, a + b - size), min(a, b) + 1):
                chance = Fraction(math.comb(a, n) * math.comb(size - a, b - n), math.comb(size, b))
                total += float(chance) * n / size * math.log2(size * n / (a * b))
    return total


def main(names: list[str]):
    """Print the answers of cases, as `cases.json` has them."""
    for case in judge.read():
        if case["name"] not in names:
            continue
        computed = {}
        for measure, answers in case["answers"].items():
            computed[measure] = {variant: as_text(answer(case, measure, variant)) for variant in answers}
        print(json.dumps({"name": case["name"], "answers": computed}))


def as_text(value) -> str:
    """A value as the file has it: a fraction, 15 digits, `nan` or `error`."""
    return repr(round(value, 15)) if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main(sys.argv[1:])
