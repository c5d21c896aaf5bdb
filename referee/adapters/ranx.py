"""ranx: `evaluate` of a Run by Qrels."""

from referee.adapters._inputs import is_ranking, qrels_and_run

PROGRAM = "ranx"
PACKAGES = ("ranx",)
NAMES = {
    "recall": "hit_rate",
    "precision": "precision",
    "map": "map",
    "mrr": "mrr",
    "r_precision": "r-precision",
    "ndcg": "ndcg",
}
SETTINGS = {
    "recall@k": "`hit_rate@k`",
    "ndcg: gain and ideal": "`ndcg_burges`",
    "a query without relevant items": "leave such queries out of the run",
}


def measure(case: dict) -> dict:
    """`recall@k` is `hit_rate`; where the question is what recall is, `recall`."""
    import ranx

    if not is_ranking(case):
        return {}
    qrels, run = qrels_and_run(case)
    for query, grades in qrels.items():
        qrels[query] = {name: grade for name, grade in grades.items() if grade}
    values = {}
    for name in case["measures"]:
        head, at, k = name.partition("@")
        if head in NAMES:
            field = "recall" if case["axis"] == "recall@k" else NAMES[head]
            values[name] = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), f"{field}{at}{k}")
    return values
