"""sentence-transformers: InformationRetrievalEvaluator with cosine; its model is a table of the case's vectors."""

from referee.adapters._inputs import depth_of, is_ranking

PROGRAM = "sentence-transformers"
PACKAGES = ("sentence-transformers",)
NAMES = {"recall": "accuracy@k", "precision": "precision@k", "map": "map@k", "mrr": "mrr@k", "ndcg": "ndcg@k"}
SETTINGS = {
    "recall@k": "`accuracy@k`",
    "vectors of unequal length": "pass your own `score_functions`",
}


class Table:
    """A model whose sentences are the numbers of their vectors."""

    def __init__(self, vectors):
        self.vectors = vectors
        self.similarity_fn_name = "cosine"

    def encode_query(self, sentences, **_):
        """`(B, D)` vectors of row numbers."""
        import torch

        return torch.tensor(self.vectors[[int(sentence) for sentence in sentences]], dtype=torch.float32)

    def encode_document(self, sentences, **_):
        """As of queries."""
        return self.encode_query(sentences)


def measure(case: dict) -> dict:
    """Not for queries that search each other: the evaluator leaves nothing out."""
    import numpy as np
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
    from sentence_transformers.util import cos_sim

    by_angle = case["axis"] == "similarity" or case.get("similarity") == "cosine"
    by_scores = is_ranking(case) and case["given"] == "scores" and case["axis"] != "ndcg"
    if not (by_angle or by_scores) or case["ignored"].any():
        return {}
    n_queries, n_gallery = case["relevant"].shape
    relevant = {}
    for query in range(n_queries):
        relevant[f"q{query}"] = {f"{row:05d}" for row in np.flatnonzero(case["relevant"][query])}
    vectors = np.concatenate([case["query_features"], case["gallery_features"]])
    values = {}
    for name in case["measures"]:
        head, _, _ = name.partition("@")
        if head not in NAMES:
            continue
        k = [depth_of(name) or n_gallery]
        evaluator = InformationRetrievalEvaluator(
            queries={f"q{query}": str(query) for query in range(n_queries)},
            corpus={f"{row:05d}": str(n_queries + row) for row in range(n_gallery)},
            relevant_docs=relevant,
            accuracy_at_k=k,
            precision_recall_at_k=k,
            map_at_k=k,
            mrr_at_k=k,
            ndcg_at_k=k,
            score_functions={"cosine": cos_sim},
            main_score_function="cosine",
        )
        scores = evaluator.compute_all_metrics(Table(vectors))["cosine"]
        field = "recall@k" if case["axis"] == "recall@k" else NAMES[head]
        values[name] = scores[field][k[0]]
    return values
