"""What queries are to find by a function of the user's: `--eval_relevance FILE`, a Python file that defines

    relevance(query_rows, gallery_rows) -> array (q, g) of numbers from 0 to 1

of rows of the split, or of the file of embeddings, `(q,)` and `(g,)`, in their order there. A gallery image is to be found where it is above 0.
"""

import functools
import runpy
from pathlib import Path

import numpy as np

from metrics import Lists
from utilities.errors import UserError

ENTRIES = 2**24  # of the function's result at once


@functools.cache
def _function(path: str, changed: int):
    try:
        found = runpy.run_path(path).get("relevance")
    except Exception as error:  # the user's file may raise anything
        raise UserError(f"--eval_relevance {path}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise UserError(f"--eval_relevance {path}: it defines no function relevance(query_rows, gallery_rows)")
    return found


def lists(path: str, queries: np.ndarray, gallery: np.ndarray, exclude: np.ndarray) -> Lists:
    """The positives of the rows `queries` `(Q,)`, as positions in the rows `gallery` `(M,)`, without the query itself at `exclude` `(Q,)` there.

    Raises UserError where the file defines no such function, or what it gives is no relevance.
    """
    if not Path(path).is_file():
        raise UserError(f"--eval_relevance {path}: no such file")
    function, found, block = _function(str(path), Path(path).stat().st_mtime_ns), [], max(1, ENTRIES // len(gallery))
    for start in range(0, len(queries), block):
        rows = queries[start : start + block]
        try:
            values = np.asarray(function(rows, gallery), dtype=np.float64)
        except Exception as error:
            raise UserError(f"--eval_relevance {path}: relevance() raised {type(error).__name__}: {error}") from error
        if values.shape != (len(rows), len(gallery)) or not ((values >= 0) & (values <= 1)).all():
            raise UserError(f"--eval_relevance {path}: relevance() gave {values.shape} from {values.min():g} to {values.max():g}; expected {(len(rows), len(gallery))} from 0 to 1")
        found += [np.setdiff1d(np.flatnonzero(of), own) for of, own in zip(values > 0, exclude[start : start + block], strict=True)]
    return Lists.of(found)
