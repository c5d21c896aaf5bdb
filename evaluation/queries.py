"""What each query found, in a file: `--dump_query_results`, and `python -m evaluation FILE --dump_query_results`. results/paired.py compares them."""

import json
from pathlib import Path

import numpy as np

import metrics
from evaluation import pictures, spaces
from evaluation.galleries import taken
from utilities.files import replacing


def results(compared: spaces.Compared, rerank=None) -> dict[str, np.ndarray]:
    """`metrics.query_results` of all queries of a split, each inside its super-class under `--tester same_parent_label`."""
    found = {}
    for here, space, _ in pictures.searches(compared, np.arange(len(compared.space.features))):
        if rerank is not None:
            space.search = rerank.search(space, False)
        for name, values in metrics.query_results(space).items():
            found.setdefault(name, np.empty(len(compared.space.features), dtype=values.dtype))[here] = values
    return found


def write(path: Path, found: dict[str, np.ndarray], labels: np.ndarray, **about) -> Path:
    """Write what was found, the labels `(N,)` and what is known `about` the queries. Compressed, names of 60,000 images take 1 MB."""
    with replacing(path, "wb") as file:
        np.savez_compressed(file, **found, labels=labels, **about)
    return path


def dump(folder: Path, embedded: dict, opt, epoch: int, instead: Path | None = None) -> list[Path]:
    """Write `query_results_<split>.npz` of each split that is measured, with several evaltypes `query_results_<split>_<evaltype>.npz`.

    A file holds `hit`, `ap_at_r` and `first_hit` (see `metrics.query_results`), `labels`, `paths` and `class_names` where the data set knows
    them, `(N,)` each; `epoch`; `flags`, the JSON of the evaluation's flags. `instead`: as in `outputs.dump`. Returns the paths.
    """
    paths, flags = [], np.array(json.dumps(opt.measured()))
    for evaltype in opt.evaltypes:
        compared = spaces.compare(embedded, evaltype, opt)
        for split in spaces.scored(embedded, opt):
            name = file_name(split, evaltype, opt.evaltypes)
            place = instead if instead is not None and (folder / name).exists() else folder
            found = results(compared[split], metrics.reranking(opt))
            of_queries = {known: taken(values, compared[split].rows) for known, values in described(embedded[split]).items()}
            paths.append(write(place / name, found, compared[split].space.labels, **of_queries, flags=flags, epoch=np.array(epoch)))
    return paths


def file_name(split: str, evaltype: str, evaltypes: list[str], kind: str = "query_results") -> str:
    """The name of a split's file."""
    return f"{kind}_{split}.npz" if len(evaltypes) == 1 else f"{kind}_{split}_{evaltype}.npz"


def described(embedded) -> dict[str, np.ndarray]:
    """`paths` and `class_names` `(N,)` of a split's images, where its data set knows them."""
    dataset, about = embedded.dataset, {}
    if hasattr(dataset, "paths"):
        about["paths"] = np.array([str(path) for path in dataset.paths])
    if hasattr(dataset, "class_names"):
        about["class_names"] = np.array([str(dataset.class_names[label]) for label in embedded.labels.tolist()])
    return about
