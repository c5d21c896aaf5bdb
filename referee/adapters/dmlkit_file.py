"""dmlkit, a file: `python -m evaluation FILE.npz`: a file of embeddings, and a second one for a gallery."""

import json
import tempfile
from pathlib import Path

import numpy as np

from referee.adapters import _dmlkit
from referee.adapters._inputs import searches_itself

PROGRAM = "dmlkit: a file"
PACKAGES = ()
SETTINGS = {}


def measure(case: dict) -> dict:
    """In this process, by the program's own arguments; nmi and ami of its own k-means."""
    from tools import measure as program

    names = _dmlkit.names_of(case)
    if not names or _dmlkit.needs_given_clusters(case):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        queries, gallery = write(case, Path(folder))
        out = Path(folder) / "values.json"
        words = [str(queries), "--evaluation_metrics", *names.values(), "--out", str(out)]
        if gallery is not None:
            words += ["--gallery", str(gallery)]
        program.main(words)
        values = json.loads(out.read_text())
    values = values.get("metrics", values)
    return _dmlkit.results(case, names, {name: number_of(values[name]) for name in names.values()})


def number_of(value) -> float:
    """JSON has null for NaN."""
    return float("nan") if value is None else float(value)


def write(case: dict, folder: Path) -> tuple[Path, Path | None]:
    """The files of queries and gallery."""
    query_sequences, reference_sequences = _dmlkit.sequences_of(case)
    queries = {"features": case["query_features"]}
    gallery = {"features": case["gallery_features"]}
    if query_sequences is not None:
        queries["sequence"] = query_sequences
        gallery["sequence"] = reference_sequences
    if (case["own_row"] >= 0).any() and not searches_itself(case):
        queries["exclude"] = case["own_row"]
    if _dmlkit.is_by_lists(case):
        for kind, lists in zip(("positive", "junk"), _dmlkit.lists_of(case), strict=True):
            queries[f"{kind}_indptr"] = np.cumsum([0, *map(len, lists)])
            queries[f"{kind}_indices"] = np.concatenate([*lists, np.zeros(0, np.int64)]).astype(np.int64)
    else:
        queries["labels"], gallery["labels"] = _dmlkit.labels_of(case, distractor="")
    np.savez(folder / "queries.npz", **queries)
    if searches_itself(case):
        return folder / "queries.npz", None
    np.savez(folder / "gallery.npz", **gallery)
    return folder / "queries.npz", folder / "gallery.npz"
