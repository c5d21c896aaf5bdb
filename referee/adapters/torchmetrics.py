"""torchmetrics: its retrieval metrics on flat scores, targets and query numbers; mutual information of clusterings."""

import numpy as np

from referee.adapters._inputs import depth_of, grades_of, is_ranking, ranked_rows

PROGRAM = "torchmetrics"
PACKAGES = ("torchmetrics",)
CLASSES = {
    "recall": "RetrievalHitRate",
    "precision": "RetrievalPrecision",
    "map": "RetrievalMAP",
    "mrr": "RetrievalMRR",
    "r_precision": "RetrievalRPrecision",
    "ndcg": "RetrievalNormalizedDCG",
}
SETTINGS = {
    "recall@k": "RetrievalHitRate",
    "a query without relevant items": "`empty_target_action='skip'`",
    "scores below zero": "add a constant so that all scores are above zero",
}


def measure(case: dict) -> dict:
    """`recall@k` is RetrievalHitRate; where the question is what recall is, RetrievalRecall. Scores are shifted above
    zero, but where that is the question.
    """
    import torch
    from torchmetrics import clustering, retrieval

    if "clusters" in case:
        kinds = {"nmi": clustering.NormalizedMutualInfoScore, "ami": clustering.AdjustedMutualInfoScore}
        labels = np.unique(case["queries"]["labels"], return_inverse=True)[1]
        return {name: kinds[name]()(torch.tensor(case["clusters"]), torch.tensor(labels)) for name in case["measures"]}
    if not is_ranking(case):
        return {}
    rows = [ranked_rows(case, query) for query in range(len(case["relevant"]))]
    numbers = torch.tensor(np.repeat(np.arange(len(rows)), [len(row) for row in rows]))
    scores = np.concatenate([case["scores"][query, row] for query, row in enumerate(rows)])
    if case["kind"] != "scores below zero" and len(scores):
        scores = scores - np.nanmin(scores) + 1
    grades = torch.tensor(np.concatenate([grades_of(case, query)[row] for query, row in enumerate(rows)]))
    values = {}
    for name in case["measures"]:
        head, _, _ = name.partition("@")
        if head in CLASSES:
            flags = {"top_k": depth_of(name)} if head != "r_precision" else {}
            target = grades if head == "ndcg" else grades.bool()
            kind = "RetrievalRecall" if case["axis"] == "recall@k" else CLASSES[head]
            values[name] = getattr(retrieval, kind)(**flags)(torch.tensor(scores), target, indexes=numbers)
    return values
