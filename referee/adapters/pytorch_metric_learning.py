"""pytorch-metric-learning: `AccuracyCalculator.get_accuracy` with its default search."""

from referee.adapters._inputs import codes_of, depth_of, searches_itself, vectors_of

PROGRAM = "pytorch-metric-learning"
PACKAGES = ("pytorch-metric-learning",)
NAMES = {
    "precision@1": "precision_at_1",
    "r_precision": "r_precision",
    "map_r": "mean_average_precision_at_r",
    "map": "mean_average_precision",
    "mrr": "mean_reciprocal_rank",
    "nmi": "NMI",
    "ami": "AMI",
}
SETTINGS = {
    "mrr": "ask for another metric of neighbours too: alone it raises TypeError",
    "labels beyond 2^24": "number the classes from 0",
    "labels beyond 2^31": "number the classes from 0",
    "labels beyond 2^53": "number the classes from 0",
}
WITHOUT_MEANS = ("junk", "camera", "distractors", "several labels", "levels")


def measure(case: dict) -> dict:
    """`precision@1` is also what it has for recall at 1."""
    import torch
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    if case["axis"] in WITHOUT_MEANS or {"self", "junk"} & case.keys() or "cameras" in case["queries"]:
        return {}
    query_labels, labels = codes_of(case)
    arguments = [torch.tensor(vectors_of(case, "query_features")), torch.tensor(query_labels)]
    if not searches_itself(case):
        arguments += [torch.tensor(vectors_of(case, "gallery_features")), torch.tensor(labels)]
    clusters = torch.tensor(case.get("clusters", []))
    values = {}
    for name in case["measures"]:
        head = "map" if name.startswith("map@") else name.replace("recall@1", "precision@1")
        if head not in NAMES:
            continue
        k = depth_of(name) if head == "map" else None
        calculator = AccuracyCalculator(
            include=("precision_at_1", NAMES[head]),
            k=k,
            kmeans_func=lambda features, n_clusters: clusters,
            device=torch.device("cpu"),
        )
        values[name] = calculator.get_accuracy(*arguments)[NAMES[head]]
    return values
