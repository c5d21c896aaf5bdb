"""wildlife-datasets: `mean_average_precision` of the classes of each query's ranked items."""

import numpy as np

from referee.adapters._inputs import codes_of, depth_of, is_ranking

PROGRAM = "wildlife-datasets"
PACKAGES = ("wildlife-datasets",)
SETTINGS = {}


def measure(case: dict) -> dict:
    """The ranks are those of the scores, the lower row first; it takes no scores."""
    from wildlife_datasets.metrics import mean_average_precision

    if not is_ranking(case) or case["axis"] == "ties" or case["ignored"].any():
        return {}
    labels, gallery_labels = codes_of(case)
    order = np.argsort(-case["scores"], axis=1, kind="stable")
    values = {}
    for name in case["measures"]:
        if name.partition("@")[0] == "map":
            ranked = gallery_labels[order][:, : depth_of(name)]
            values[name] = mean_average_precision(labels.tolist(), ranked.tolist())
    return values
