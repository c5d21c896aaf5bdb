"""faiss: the exact search of IndexFlatL2 (IndexFlatIP on unit vectors for cosine) alone; hits are counted here."""

import numpy as np

from referee.adapters._inputs import searches_itself

PROGRAM = "faiss (search alone)"
PACKAGES = ("faiss-cpu", "faiss-gpu")
SETTINGS = {
    "a vector of zeros, by cosine": "leave such vectors out",
}
ABOUT_SEARCH = ("ties", "similarity", "numbers", "not a number", "empty gallery")
KINDS = ("order of the gallery", "a gallery in two blocks", "5,000 images", "vectors", "a vector", "one class")


def measure(case: dict) -> dict:
    """`recall@1`, and `map` of the whole list, if all rows are in it: the search returns none that holds NaN."""
    import faiss

    by_search = case["axis"] in ABOUT_SEARCH or case["kind"].startswith(KINDS)
    if not by_search or searches_itself(case):
        return {}
    queries = case["query_features"].astype(np.float32)
    gallery = case["gallery_features"].astype(np.float32)
    index = faiss.IndexFlatL2(gallery.shape[1])
    if case.get("similarity") == "cosine":
        index = faiss.IndexFlatIP(gallery.shape[1])
        faiss.normalize_L2(queries)
        faiss.normalize_L2(gallery)
    start = case.get("cut", 0)
    index.add(gallery[:start])
    index.add(gallery[start:])
    _, rows = index.search(queries, len(gallery))
    hits = np.take_along_axis(case["relevant"], rows, axis=1)
    recall = {"recall@1": hits[:, 0].mean()}
    if (rows < 0).any():
        return recall
    ranks = np.arange(1, hits.shape[1] + 1)
    precisions = hits.cumsum(axis=1) / ranks
    return {**recall, "map": ((precisions * hits).sum(axis=1) / hits.sum(axis=1)).mean()}
