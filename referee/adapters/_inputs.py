"""What several adapters read from a case."""

import numpy as np

# Questions about labels, vectors, junk or the query itself: a program that takes ranked lists, with what is relevant
# in them, does not answer them. Its user does.
OF_LISTS = {
    "recall@k",
    "precision@k",
    "map@k",
    "map",
    "ndcg",
    "ties",
    "no relevant item",
    "no query",
    "exact",
    "not a number",
    "empty gallery",
    "zero vector",
}
OF_LABELS = ("labels", "lists of positives")


def is_ranking(case: dict) -> bool:
    """Whether a program that takes scores and relevance alone answers a case."""
    return case["axis"] in OF_LISTS and not case["kind"].startswith(OF_LABELS)


def depth_of(measure: str) -> int | None:
    """The k of `recall@k`."""
    _, _, parameter = measure.partition("@")
    return int(parameter) if parameter.isdigit() else None


def ranked_rows(case: dict, query: int) -> np.ndarray:
    """The rows of the gallery that a query ranks; the query itself and junk are no such rows."""
    return np.flatnonzero(~case["ignored"][query])


def qrels_and_run(case: dict) -> tuple[dict, dict]:
    """Relevant documents and scores, as TREC's programs take them: query -> {document: grade}, {document: score}.

    Grades are levels that labels share. Documents are named by their row, so that names sort as rows do.
    """
    qrels = {}
    run = {}
    for query in range(len(case["relevant"])):
        rows = ranked_rows(case, query)
        grades = grades_of(case, query)
        name = f"q{query}"
        qrels[name] = {f"{row:05d}": int(grades[row]) for row in rows}
        run[name] = {f"{row:05d}": float(case["scores"][query, row]) for row in rows}
    return qrels, run


def grades_of(case: dict, query: int) -> np.ndarray:
    """(M,) 0 or 1; where labels have levels, the number of levels shared."""
    if case["axis"] != "ndcg":
        return case["relevant"][query].astype(int)
    query_label = np.array(case["queries"]["labels"][query])
    return (np.array(case["gallery"]["labels"]) == query_label).sum(axis=1)


def gallery_labels(case: dict) -> list:
    return case.get("gallery", case["queries"])["labels"]


def codes_of(case: dict) -> tuple[np.ndarray, np.ndarray]:
    """Labels of queries and gallery as the program's users would write them: numbers as they are, texts and levels as
    whole numbers in the order of their first use. A distractor has -1.
    """
    queries = case["queries"]["labels"]
    gallery = gallery_labels(case)
    if all(isinstance(label, int) for label in [*queries, *gallery]):
        return np.array(queries), np.array(gallery)
    codes = {}
    for label in [*queries, *gallery]:
        if label is not None:
            codes.setdefault(str(label), len(codes))
    codes["None"] = -1
    return np.array([codes[str(label)] for label in queries]), np.array([codes[str(label)] for label in gallery])


def searches_itself(case: dict) -> bool:
    return "gallery" not in case


def vectors_of(case: dict, name: str) -> np.ndarray:
    """Vectors for a program without a cosine of its own: at unit length where the case wants the cosine."""
    return at_unit_length(case[name]) if case.get("similarity") == "cosine" else case[name]


def at_unit_length(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1; rows of zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
