"""The scores of `--rerank_pairs` in a file: the first neighbours of each query before, and their scores.

They are a record. No evaluation reads them again, since what the user's file reads may have changed.
"""

import json
from pathlib import Path

import numpy as np

import metrics
from evaluation import from_splits, queries
from evaluation.task import Task
from utilities.files import write_npz


def dump(folder: Path, embedded: dict, opt, epoch: int, instead: Path | None = None) -> list[Path]:
    """Write `pairs_<split>.npz` of each split that is measured, with several evaltypes `pairs_<split>_<evaltype>.npz`.
    `instead`: as in `outputs.dump`. Returns the paths.
    """
    paths = []
    facts = {"flags": np.array(json.dumps(opt.measured())), "epoch": np.array(epoch)}
    for evaltype in opt.evaltypes:
        tasks = from_splits.tasks(embedded, opt, evaltype)
        for split in from_splits.scored(embedded, opt):
            name = queries.file_name(split, evaltype, opt.evaltypes, "pairs")
            place = folder
            if instead is not None and (folder / name).exists():
                place = instead
            paths.append(write(place / name, tasks[split], opt, **facts))
    return paths


def write(path: Path, task: Task, opt, **facts) -> Path:
    """Write `query_paths` `(N,)`, `gallery_paths` `(M,)`, `neighbours` `(N, T)`, rows of the gallery, -1 for none, and
    `scores` `(N, T)`, NaN for none, of a task's first protocol; and further arrays.
    """
    shape = len(task.queries), min(opt.rerank_pairs_top, len(task.searched))
    neighbours = np.full(shape, -1)
    scores = np.full(shape, np.nan)
    rerank = metrics.reranking(opt)
    for places, space, gallery_rows in queries.searches(task, np.arange(len(task.queries)), metrics.ball(opt)):
        search = rerank.search(space)
        first = search.neighbours
        width = first.shape[1]
        neighbours[places, :width] = np.where(first >= 0, gallery_rows[first], -1)
        scores[places, :width] = search.pair_scores
    arrays = {
        "query_paths": task.queries.paths.astype(str),
        "gallery_paths": task.searched.paths.astype(str),
        "neighbours": neighbours,
        "scores": scores,
    }
    write_npz(path, {**arrays, **facts}, np.savez_compressed)
    return path
