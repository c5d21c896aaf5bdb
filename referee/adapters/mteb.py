"""mteb: `calculate_retrieval_scores`, which its retrieval tasks of texts and images call, on scores and qrels."""

import numpy as np

from referee.adapters._inputs import depth_of, is_ranking, qrels_and_run

PROGRAM = "mteb"
PACKAGES = ("mteb",)
NAMES = {
    "recall": ("hit_rate", "HitRate"),
    "precision": ("precision", "P"),
    "map": ("map", "MAP"),
    "mrr": ("mrr", "MRR"),
    "ndcg": ("ndcg", "NDCG"),
}
SETTINGS = {
    "recall@k": "`hit_rate`",
    "the query itself, among copies": "`ignore_identical_ids` with equal names, not `skip_first_result`",
}


def measure(case: dict) -> dict:
    """Where the question is the query itself, by the switch of its tasks, `skip_first_result`."""
    from mteb._evaluators.retrieval_metrics import calculate_retrieval_scores

    skips = case["axis"] == "self" and "gallery" not in case
    if not is_ranking(case) and not skips:
        return {}
    if skips:
        differences = case["query_features"][:, None] - case["gallery_features"][None]
        itself = np.eye(len(differences), dtype=bool)
        case = {**case, "scores": -(differences**2).sum(axis=2), "relevant": case["relevant"] | itself}
        case["ignored"] = np.zeros_like(itself)
    qrels, run = qrels_and_run(case)
    values = {}
    for name in case["measures"]:
        head, _, _ = name.partition("@")
        # what its qrels count as relevant there is the task's affair
        if head not in NAMES or (skips and head != "recall"):
            continue
        k = depth_of(name) or max(len(case["gallery_features"]), 1)
        results = calculate_retrieval_scores(run, qrels, [k], skip_first_result=skips)
        names = ("recall", "Recall") if case["axis"] == "recall@k" else NAMES[head]
        values[name] = getattr(results, names[0])[f"{names[1]}@{k}"]
    return values
