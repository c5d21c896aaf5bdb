"""Levels of classes, such as species, genus, family: rows `(N, L)`, column 0 the finest; a class belongs to one class of the next level."""

import numpy as np

from utilities.errors import UserError


def refuse_unnested(levels: np.ndarray, of: str) -> None:
    """Raise UserError, naming `of`, for levels `(N, L)` that do not nest, or that are missing.

    A row without a class, a negative number or no name in column 0, is of no level either.
    """
    none = levels == "" if levels.dtype.kind == "U" else levels < 0
    missing = np.argwhere(none & ~none[:, :1])
    if len(missing):
        row, column = missing[0]
        raise UserError(f"{of}: {levels[row, 0]} has no class of level {column}: every class needs one of each level")
    for column in range(levels.shape[1] - 1):
        _, first, places = np.unique(levels[:, column], return_index=True, return_inverse=True)
        above = levels[first[places.reshape(-1)], column + 1]
        apart = np.flatnonzero(above != levels[:, column + 1])
        if len(apart):
            row = apart[0]
            both = f"{above[row]} and {levels[row, column + 1]}"
            raise UserError(f"{of}: levels do not nest: {levels[row, column]} of level {column} is in {both} of level {column + 1}, it must be in one")
