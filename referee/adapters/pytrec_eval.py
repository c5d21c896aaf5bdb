"""pytrec_eval: TREC's own program, `RelevanceEvaluator.evaluate`, and the mean over the queries that it returns."""

from referee.adapters._inputs import is_ranking, qrels_and_run

PROGRAM = "pytrec_eval"
PACKAGES = ("pytrec-eval-terrier",)
NAMES = {
    "recall": "success",
    "precision": "P",
    "map": "map",
    "map@": "map_cut",
    "mrr": "recip_rank",
    "r_precision": "Rprec",
    "ndcg": "ndcg",
    "ndcg@": "ndcg_cut",
}
SETTINGS = {
    "recall@k": "`success`",
    "ties at the first rank": "make scores unequal in the order that you want before the call",
    "ndcg: gain and ideal": "write 2^grade - 1 into the qrels",
}


def measure(case: dict) -> dict:
    """`recall@k` is `success`; where the question is what recall is, `recall`."""
    import pytrec_eval

    if not is_ranking(case):
        return {}
    qrels, run = qrels_and_run(case)
    values = {}
    for name in case["measures"]:
        head, at, k = name.partition("@")
        if f"{head}{at}" in NAMES or head in ("recall", "precision"):
            field = NAMES.get(f"{head}{at}", NAMES[head])
            if case["axis"] == "recall@k":
                field = "recall"
            quantity = f"{field}.{k}" if k else field
            results = pytrec_eval.RelevanceEvaluator(qrels, {quantity}).evaluate(run)
            of_queries = [scores[quantity.replace(".", "_")] for scores in results.values()]
            values[name] = sum(of_queries) / len(of_queries)
    return values
