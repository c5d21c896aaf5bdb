"""What the four doors of this project share: names of metrics, the definitions claimed, labels and lists of a case."""

import numpy as np

from referee.adapters._inputs import gallery_labels

NAMES = {
    "recall": "e_recall",
    "cmc": "e_recall",
    "map": "ap",
    "map@": "map",
    "tar": "fnmr",
}
MEASURES = "recall precision map ap_trapezoid map_r r_precision mrr inp mp mmp ndcg cmc tar gap nmi ami".split()
CLAIMS = {
    "recall@k": "any",
    "precision@k": "of k",
    "map@k": "of min(k, R)",
    "map": "precisions",
    "ndcg": "exponential gain, ideal of all",
    "cmc@k": "all images",
    "tar@far": "below the next false match",
    "gap": "of known queries",
    "nmi": "arithmetic",
    "ami": "arithmetic",
    "ties": "index",
    "no relevant item": "left out",
    "no query": "nan",
    "self": "by place",
    "junk": "removed",
    "camera": "removed",
    "distractors": "ranked",
    "labels": "exact",
    "several labels": "any shared",
    "levels": "by the finest",
    "similarity": "euclidean",
    "numbers": "exact",
    "exact": "exact",
    "empty gallery": "error",
    "not a number": "error",
    "zero vector": "distance 1",
}


def metric_of(case: dict, measure: str) -> str | None:
    """The name of a measure in this program; None if it has none: mrr and ndcg have no cut-off here."""
    head, at, parameter = measure.partition("@")
    if head not in MEASURES or (head in ("mrr", "ndcg") and at):
        return None
    name = NAMES.get(f"{head}{at}", NAMES.get(head, head))
    name = f"{name}{at}{parameter}"
    if case.get("similarity") == "cosine":
        return f"c_{name}".replace("c_e_", "c_")
    return name


def claimed(case: dict, measure: str, by_lists: bool) -> str:
    """The measure with the definition that the documentation claims for it.

    Recall counts queries without relevant items as 0; by lists they are left out.
    """
    claim = CLAIMS[case["axis"]]
    if measure.startswith("recall") and case["axis"] in ("no relevant item", "no query") and not by_lists:
        claim = "0"
    return f"{measure}: {claim}"


def names_of(case: dict) -> dict[str, str]:
    """The measures of a case that this project has -> their names here."""
    names = {measure: metric_of(case, measure) for measure in case["measures"]}
    return {measure: name for measure, name in names.items() if name is not None}


def results(case: dict, names: dict[str, str], values: dict[str, float], by_lists: bool | None = None) -> dict:
    """What the referee gets: claims and values. tar is 1 - fnmr."""
    if by_lists is None:
        by_lists = is_by_lists(case)
    values_of_claims = {}
    for measure, name in names.items():
        value = values[name]
        values_of_claims[claimed(case, measure, by_lists)] = 1 - value if measure.startswith("tar") else value
    return values_of_claims


def labels_of(case: dict, distractor) -> tuple[np.ndarray, np.ndarray]:
    """Labels as they are given, (N, L) of several levels; `distractor` in place of None."""
    gallery = [distractor if label is None else label for label in gallery_labels(case)]
    return np.array(case["queries"]["labels"]), np.array(gallery)


def sequences_of(case: dict) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    """Names of sequences of queries and gallery: those given, or identity and camera."""
    rows = (case["queries"], case.get("gallery", case["queries"]))
    if "sequences" in case["queries"]:
        names = [[str(name) for name in part["sequences"]] for part in rows]
    elif "cameras" in case["queries"]:
        names = [[f"{a} {b}" for a, b in zip(part["labels"], part["cameras"], strict=True)] for part in rows]
    else:
        return None, None
    return np.array(names[0]), np.array(names[1])


def is_by_lists(case: dict) -> bool:
    """Whether a case needs lists: positives, junk, or several labels an image."""
    return "positives" in case or "junk" in case or case["axis"] == "several labels"


def lists_of(case: dict) -> tuple[list, list]:
    """Positives and junk of each query; its own row is no junk."""
    junk = case["ignored"].copy()
    inside = np.flatnonzero(case["own_row"] >= 0)
    junk[inside, case["own_row"][inside]] = False
    return [np.flatnonzero(row) for row in case["relevant"]], [np.flatnonzero(row) for row in junk]


def needs_given_clusters(case: dict) -> bool:
    """Whether a clustering has another number of clusters than there are classes, which k-means here has."""
    return "clusters" in case and len(set(case["clusters"])) != len(set(case["queries"]["labels"]))


def own_rows_of(case: dict) -> dict:
    """`exclude` of `metrics.compute`, if a gallery shows queries."""
    return {"exclude": case["own_row"]} if (case["own_row"] >= 0).any() else {}
