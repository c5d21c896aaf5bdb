"""What queries are to find by a function of the user's: `--eval_relevance FILE`, a Python file that defines

    relevance(query_rows, gallery_rows) -> array (q, g) of numbers from 0 to 1

of rows of the split, or of the file of embeddings, `(q,)` and `(g,)`, in their order there. A gallery image is to be
found where it is above 0.
"""

import functools
import runpy
from pathlib import Path

import numpy as np

from metrics import Lists
from utilities.errors import UserError, reason_of

# entries of the function's result that are asked for at once
ENTRIES = 2**24


def lists(path: str, queries: np.ndarray, gallery: np.ndarray, exclude: np.ndarray) -> Lists:
    """The positives of the rows `queries` `(Q,)`, as positions in the rows `gallery` `(M,)`, without the query itself
    at `exclude` `(Q,)` there.

    Found once for the same file and rows. Raises UserError where the file defines no such function,
    or what it gives is no relevance.
    """
    if not Path(path).is_file():
        raise UserError(f"--eval_relevance {path}: no such file")
    rows = [numbers.astype(np.int64).tobytes() for numbers in (queries, gallery, exclude)]
    return _lists(str(path), Path(path).stat().st_mtime_ns, *rows)


# Each evaluation asks several times for the lists of each split of a run.
@functools.lru_cache(maxsize=8)
def _lists(path: str, changed: int, *rows: bytes) -> Lists:
    queries, gallery, exclude = (np.frombuffer(numbers, np.int64) for numbers in rows)
    try:
        function = runpy.run_path(path).get("relevance")
    except (Exception, SystemExit) as error:
        # the file may raise anything; sys.exit() must not end the program
        raise UserError(f"--eval_relevance {path}: {reason_of(error)}") from error
    if not callable(function):
        raise UserError(f"--eval_relevance {path}: it defines no function relevance(query_rows, gallery_rows)")
    positives = []
    block = max(1, ENTRIES // len(gallery))
    for start in range(0, len(queries), block):
        rows_of_block = queries[start : start + block]
        try:
            values = np.asarray(function(rows_of_block, gallery), dtype=np.float64)
        except (Exception, SystemExit) as error:
            raise UserError(f"--eval_relevance {path}: relevance() raised {reason_of(error)}") from error
        if values.shape != (len(rows_of_block), len(gallery)) or not ((values >= 0) & (values <= 1)).all():
            extremes = f" from {values.min():g} to {values.max():g}" if values.size else ""
            raise UserError(
                f"--eval_relevance {path}: relevance() gave {values.shape}{extremes}; expected "
                f"{(len(rows_of_block), len(gallery))} from 0 to 1"
            )
        for is_relevant, place in zip(values > 0, exclude[start : start + block], strict=True):
            positives.append(np.setdiff1d(np.flatnonzero(is_relevant), place))
    return Lists.of(positives)
