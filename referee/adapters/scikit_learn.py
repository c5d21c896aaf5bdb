"""scikit-learn: `average_precision_score`, `ndcg_score` a query, and mutual information of clusterings."""

import numpy as np

from referee.adapters._inputs import depth_of, grades_of, is_ranking, ranked_rows

PROGRAM = "scikit-learn"
PACKAGES = ("scikit-learn",)
SETTINGS = {
    "ndcg: gain and ideal": "pass 2^grade - 1 as `y_true`",
    "a query without relevant items": "leave such queries out before the mean",
}


def measure(case: dict) -> dict:
    """`map` is the mean of the queries' average precisions."""
    from sklearn import metrics

    if "clusters" in case:
        scores = {"nmi": metrics.normalized_mutual_info_score, "ami": metrics.adjusted_mutual_info_score}
        return {name: scores[name](case["queries"]["labels"], case["clusters"]) for name in case["measures"]}
    if not is_ranking(case):
        return {}
    values = {}
    for name in case["measures"]:
        if name != "map" and not name.startswith("ndcg"):
            continue
        of_queries = []
        for query in range(len(case["relevant"])):
            rows = ranked_rows(case, query)
            grades = grades_of(case, query)[rows]
            scores = case["scores"][query, rows]
            if name == "map":
                of_queries.append(metrics.average_precision_score(grades, scores))
            else:
                of_queries.append(metrics.ndcg_score([grades], [scores], k=depth_of(name), ignore_ties=False))
        values[name] = np.mean(of_queries)
    return values
