"""Levels of classes, such as species, genus, family: rows `(N, L)`, column 0 the finest; a class belongs to one class
of the next level.
"""

import numpy as np
import torch

from utilities.errors import UserError


def names_of(datasets) -> np.ndarray:
    """The names `(K, L)` of all classes of some data sets at each level, "" for none;
    a class in two super-classes has two rows.
    """
    rows = set()
    for dataset in datasets:
        for names in dataset.lineages:
            rows.add(tuple(name or "" for name in names))
    return np.array(sorted(rows))


def n_levels(dataset) -> int:
    """The levels that a data set knows; 1 without super-classes."""
    has_super_classes = set(dataset.super_labels.values()) != {None}
    return len(next(iter(dataset.lineages))) if has_super_classes else 1


def of_classes(dataset, user: str) -> np.ndarray:
    """The numbers `(C, L)` of a data set's classes at each level, by label.

    Raises UserError, naming `user`, if there are no levels or these do not nest.
    """
    if n_levels(dataset) < 2:
        raise UserError(
            f"{user} compares levels of classes, and --dataset {dataset.name} has no super-classes; "
            "online_products, inaturalist2018 and glyphs do"
        )
    names = names_of([dataset])
    refuse_unnested(names, f"{user}: --dataset {dataset.name}")
    codes = np.stack([np.unique(column, return_inverse=True)[1] for column in names.T], 1)
    rows = {name: row for row, name in enumerate(names[:, 0].tolist())}
    return codes[[rows[dataset.class_names[label]] for label in range(dataset.n_classes)]]


def domains_of(dataset, user: str) -> torch.Tensor:
    """The numbers `(C,)` of the domains of a data set's classes, by label.

    Raises UserError, naming `user`, for a data set without domains.
    """
    if not dataset.by_domain:
        raise UserError(f"{user}: --dataset {dataset.name} has no domains; union and uned have some")
    names = [dataset.super_labels[label] for label in range(dataset.n_classes)]
    return torch.from_numpy(np.unique(names, return_inverse=True)[1])


def refuse_unnested(levels: np.ndarray, user: str) -> None:
    """Raise UserError, naming `user`, for levels `(N, L)` that do not nest, or that are missing.

    A row without a class, a negative number or no name in column 0, is of no level either.
    """
    is_missing = levels == "" if levels.dtype.kind == "U" else levels < 0
    missing_cells = np.argwhere(is_missing & ~is_missing[:, :1])
    if len(missing_cells):
        row, column = missing_cells[0]
        raise UserError(f"{user}: {levels[row, 0]} has no class of level {column}: every class needs one of each level")
    for column in range(levels.shape[1] - 1):
        _, first, places = np.unique(levels[:, column], return_index=True, return_inverse=True)
        above = levels[first[places.reshape(-1)], column + 1]
        unnested_rows = np.flatnonzero(above != levels[:, column + 1])
        if len(unnested_rows):
            row = unnested_rows[0]
            parents = f"{above[row]} and {levels[row, column + 1]}"
            raise UserError(
                f"{user}: levels do not nest: {levels[row, column]} of level {column} is in {parents} of level "
                f"{column + 1}, it must be in one"
            )
