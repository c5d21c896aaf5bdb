"""The call that torchreid and FastReID share."""

import numpy as np

from referee.adapters._inputs import codes_of, depth_of, searches_itself, vectors_of

WITHOUT_MEANS = ("junk", "several labels", "levels", "similarity", "self")


def measure(case: dict, evaluate_rank) -> dict:
    """Queries that search each other have a camera each, so that the camera rule leaves each out of its own list."""
    if case["axis"] in WITHOUT_MEANS or "positives" in case or "junk" in case or "sequences" in case["queries"]:
        return {}
    labels, gallery_labels = codes_of(case)
    queries = np.arange(len(labels))
    cameras = np.array(case["queries"].get("cameras", queries))
    if searches_itself(case):
        gallery_cameras = queries
    else:
        gallery_cameras = np.array(case["gallery"].get("cameras", -1 - np.arange(len(gallery_labels))))
    distances = distances_of(case)
    curves = evaluate_rank(
        distances, labels, gallery_labels, cameras, gallery_cameras, max_rank=distances.shape[1], use_cython=False
    )
    values = {}
    for name in case["measures"]:
        head, _, _ = name.partition("@")
        if head in ("recall", "cmc"):
            values[name] = curves[0][depth_of(name) - 1]
        elif name in ("map", "inp") and len(curves) > ("map", "inp").index(name) + 1:
            values[name] = np.mean(curves[1 + ("map", "inp").index(name)])
    return values


def distances_of(case: dict) -> np.ndarray:
    """(Q, M), of all rows: squared Euclidean distances, or the negative of given scores."""
    if case["given"] == "scores":
        return -case["query_features"]
    differences = vectors_of(case, "query_features")[:, None] - vectors_of(case, "gallery_features")[None]
    return (differences**2).sum(axis=2)
