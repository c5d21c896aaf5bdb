"""lightly: `knn_predict` with one neighbour, the accuracy of a k-NN classifier."""

import numpy as np

from referee.adapters._inputs import at_unit_length, codes_of

PROGRAM = "lightly"
PACKAGES = ("lightly",)
SETTINGS = {"vectors of unequal length": "normalise features yourself: it ranks by inner products"}
WITHOUT_MEANS = ("junk", "camera", "self", "several labels", "levels", "labels", "distractors")


def measure(case: dict) -> dict:
    """`recall@1`, in float64, of vectors at unit length, as its documentation recommends, and classes from 0."""
    import torch
    from lightly.utils.benchmarking import knn_predict

    if "recall@1" not in case["measures"] or case["axis"] in WITHOUT_MEANS or case["ignored"].any():
        return {}
    by_angle = case["axis"] == "similarity" or case.get("similarity") == "cosine"
    if "positives" in case or not (by_angle or case["given"] == "scores"):
        return {}
    labels, gallery_labels = codes_of(case)
    classes, codes = np.unique(np.concatenate([labels, gallery_labels]), return_inverse=True)
    predicted = knn_predict(
        torch.tensor(at_unit_length(case["query_features"])),
        torch.tensor(at_unit_length(case["gallery_features"])).T,
        torch.tensor(codes[len(labels) :]),
        num_classes=len(classes),
        knn_k=1,
    )
    right = predicted[:, 0] == torch.tensor(codes[: len(labels)])
    return {"recall@1": right.double().mean()}
