"""open-metric-learning: RetrievalResults of embeddings with labels and sequences, and `calc_retrieval_metrics`."""

import numpy as np

from referee.adapters._inputs import codes_of, depth_of, searches_itself, vectors_of

PROGRAM = "open-metric-learning"
PACKAGES = ("open-metric-learning",)
HEADS = {"recall": "cmc", "cmc": "cmc", "precision": "precision", "map": "map"}
SETTINGS = {}
WITHOUT_MEANS = ("junk", "several labels", "levels", "similarity")


def dataset_of(labels: np.ndarray, queries: np.ndarray, gallery: np.ndarray, sequences: list | None):
    """Rows with labels, some of them queries and some of them gallery."""
    import torch
    from oml.interfaces.datasets import IQueryGalleryLabeledDataset

    class Rows(IQueryGalleryLabeledDataset):
        extra_data = {} if sequences is None else {"sequence": sequences}

        def __len__(self):
            return len(labels)

        def __getitem__(self, item):
            return {}

        def get_labels(self):
            return torch.tensor(labels)

        def get_query_ids(self):
            return torch.tensor(queries)

        def get_gallery_ids(self):
            return torch.tensor(gallery)

    return Rows()


def measure(case: dict) -> dict:
    """Its sequences are those of the case, or identity and camera; queries and gallery are rows of one table."""
    import torch
    from oml.functional.metrics import calc_retrieval_metrics
    from oml.retrieval import RetrievalResults

    if case["axis"] in WITHOUT_MEANS or "self" in case or "positives" in case or "junk" in case:
        return {}
    query_labels, gallery_labels = codes_of(case)
    queries = np.arange(len(query_labels))
    if searches_itself(case):
        features = vectors_of(case, "query_features")
        labels = query_labels
        gallery = queries
    else:
        features = np.concatenate([vectors_of(case, "query_features"), vectors_of(case, "gallery_features")])
        labels = np.concatenate([query_labels, gallery_labels])
        gallery = np.arange(len(query_labels), len(labels))
    dataset = dataset_of(labels, queries, gallery, sequences_of(case))
    results = RetrievalResults.from_embeddings(torch.tensor(features).float(), dataset, n_items=max(len(gallery), 1))
    values = {}
    for name in case["measures"]:
        head, _, _ = name.partition("@")
        if head in HEADS:
            k = (depth_of(name) or max(len(gallery), 1),)
            flags = {f"{kind}_top_k": k if kind == HEADS[head] else () for kind in ("cmc", "precision", "map")}
            metrics = calc_retrieval_metrics(results.retrieved_ids, results.gt_ids, **flags, verbose=False)
            values[name] = metrics[HEADS[head]][k[0]]
    return values


def sequences_of(case: dict) -> list | None:
    """Of queries and gallery, one after the other; None without any."""
    parts = [case["queries"], case.get("gallery", {"labels": []})]
    if "sequences" in case["queries"]:
        return [str(name) for rows in parts for name in rows.get("sequences", [])]
    if "cameras" in case["queries"]:
        return [f"{a} {b}" for rows in parts for a, b in zip(rows["labels"], rows.get("cameras", []), strict=False)]
    return None
