"""Roles of a split's images: which are queries, which are its gallery, and which never find each other (sequences).

A data set gives them as `is_query` and `is_gallery`, bool `(N,)`, and `sequences`, whole numbers `(N,)` with -1 for
none. Where it does not, every image is query and gallery, of no sequence. `sequence_names`, number -> name, identifies
a sequence across splits. `lists` may say what each query is to find: protocol -> the rows of the positives, and of the
junk, of each query.
"""

import copy
from typing import Any, NamedTuple

import numpy as np

from metrics import Lists
from utilities.errors import UserError

ROLES = (
    "is_query",
    "is_gallery",
    "sequence",
    "role_draws",
    "is_distractor",
)  # arrays of a file of embeddings that say who finds whom


class Images(NamedTuple):
    """Labels `(N,)` of a split's images, and its data set."""

    labels: np.ndarray
    dataset: Any


class Roles(NamedTuple):
    """Rows of a split, ascending: `queries`, `gallery`, and `either` of the two; None where that is all. `sequences`
    `(N,)` or None.

    `names`: of the sequences, number -> name, or None. `draws`: number of drawn galleries; the roles are those of the
    first. `distractors`: rows of no class; None where there are none. `lists`: as the data set has them, or None.
    """

    size: int
    queries: np.ndarray | None = None
    gallery: np.ndarray | None = None
    either: np.ndarray | None = None
    sequences: np.ndarray | None = None
    names: dict | None = None
    draws: int = 1
    distractors: np.ndarray | None = None
    lists: dict | None = None

    @property
    def differ(self) -> bool:
        """Whether any image is not both query and gallery."""
        return self.queries is not None or self.gallery is not None

    @property
    def restrict(self) -> bool:
        """Whether any query may not find all others: roles differ, or there are sequences or lists."""
        return self.differ or self.sequences is not None or self.lists is not None

    def listed(self) -> dict[str, Lists] | None:
        """Protocol -> the lists of the queries, as positions in the gallery; None where there are none."""
        if self.lists is None:
            return None
        places = places_in(taken(np.arange(self.size), self.gallery), self.size)
        return {
            protocol: Lists.of(*([places[one] for one in of] for of in both)) for protocol, both in self.lists.items()
        }

    @property
    def pool(self) -> np.ndarray | None:
        """The rows that class-wise numbers are of, queries and gallery together without distractors; None where that is
        every image.
        """
        without_classes = self.distractors is not None and len(self.distractors) == self.size  # lists say what is found
        none = None if without_classes else self.distractors
        if none is None and not self.differ:
            return None
        rows = np.arange(self.size) if self.either is None else self.either
        return rows if none is None else np.setdiff1d(rows, none)


def roles_of(dataset, size: int) -> Roles:
    """The roles of a data set of `size` images."""
    given = (getattr(dataset, name, None) for name in ("is_query", "is_gallery"))
    query, gallery = (np.ones(size, dtype=bool) if flags is None else np.asarray(flags, dtype=bool) for flags in given)
    rows = (None if flags.all() else np.flatnonzero(flags) for flags in (query, gallery, query | gallery))
    sequences, draws = (getattr(dataset, name, None) for name in ("sequences", "role_draws"))
    distractors = getattr(dataset, "is_distractor", None)
    distractors = None if distractors is None else np.flatnonzero(distractors)
    sequences = None if sequences is None or (np.asarray(sequences) < 0).all() else np.asarray(sequences)
    lists = getattr(dataset, "lists", None)
    return Roles(
        size,
        *rows,
        sequences,
        getattr(dataset, "sequence_names", None),
        1 if draws is None else len(draws),
        distractors,
        lists,
    )


def draws(dataset) -> list:
    """`[dataset]`, or a copy of it for each of its `role_draws`, bool `(D, N)`: metrics are means over them."""
    found = getattr(dataset, "role_draws", None)
    if found is None:
        return [dataset]
    copies = [copy.copy(dataset) for _ in found]
    for one, gallery in zip(copies, found, strict=True):
        one.is_gallery = gallery
        one.is_query = ~gallery
    return copies


def roles_of_all(images: dict) -> dict[str, Roles]:
    """Split -> roles, of split -> `Images`, or anything with `labels` and `dataset`."""
    return {split: roles_of(one.dataset, len(one.labels)) for split, one in images.items()}


def images_of(datasets: dict) -> dict[str, Images]:
    """Split -> `Images`, of split -> data set with `image_list`."""
    return {
        split: Images(np.array([label for _, label in dataset.image_list]), dataset)
        for split, dataset in datasets.items()
    }


def check(datasets: dict, measured: list[str]) -> None:
    """Raise UserError where a split to measure has no query, or a split no gallery."""
    for split, dataset in datasets.items():
        roles = roles_of(dataset, len(dataset))
        for rows, what in ((roles.queries if split in measured else None, "query"), (roles.gallery, "gallery")):
            if rows is not None and not len(rows):
                raise UserError(
                    f"{split}, of --dataset {dataset.name}: none of its {roles.size} images is a {what} image "
                    f"(is_{what})"
                )


def numbers(roles: dict[str, Roles]) -> dict[str, np.ndarray | None]:
    """Split -> `(N,)` numbers of sequences, unique over all splits, -1 for none; None for every split where none has
    sequences.
    """
    if all(one.sequences is None for one in roles.values()):
        return dict.fromkeys(roles)
    known = {}
    found = {}
    for split, one in roles.items():
        found[split] = np.full(one.size, -1)
        if one.sequences is not None:
            own, places = np.unique(one.sequences, return_inverse=True)
            keys = [(split, number) if one.names is None else str(one.names.get(number)) for number in own.tolist()]
            table = np.array(
                [-1 if number < 0 else known.setdefault(key, len(known)) for number, key in zip(own, keys, strict=True)]
            )
            found[split] = table[places.reshape(-1)]
    return found


def taken(values, rows: np.ndarray | None):
    """`values[rows]`; all of them where `rows` is None."""
    return values if rows is None or values is None else values[rows]


def places_in(kept: np.ndarray, size: int) -> np.ndarray:
    """`(size + 1,)`: the position in `kept` of each of `size` rows, -1 for none. The extra last entry, -1, is for
    queries of index -1.
    """
    places = np.full(size + 1, -1)
    places[kept] = np.arange(len(kept))
    return places


def described(roles: Roles, searched: int, where: str, lone: int, skips: bool) -> str:
    """One line: how many queries search in how many images, and what class-wise numbers are of.

    Args:
        searched: images of the reference. where: what it is. lone: queries with no image of their class to find. skips:
        these are left out.
    """
    of_query, of_gallery = (taken(np.arange(roles.size), rows) for rows in (roles.queries, roles.gallery))
    sequences = None if roles.sequences is None else len(np.unique(roles.sequences[roles.sequences >= 0]))
    pool = None if roles.pool is None else len(roles.pool)
    return roles_in_words(
        len(of_query),
        searched,
        where,
        len(np.intersect1d(of_query, of_gallery)),
        pool,
        sequences,
        lone,
        skips,
        roles.draws,
    )


def roles_in_words(
    queries: int,
    searched: int,
    where: str,
    both: int,
    pool: int | None,
    sequences: int | None,
    lone: int,
    skips: bool,
    draws: int = 1,
) -> str:
    """See `described`. both: images that are query and gallery. pool: those of class-wise numbers, None where roles do
    not differ.
    """
    said = []
    if pool is not None:
        said.append(f"{queries:,} queries search in {searched:,} images, {where}")
        said.append(
            f"{both:,} images are query and gallery, none finds itself" if both else "no image is query and gallery"
        )
        said.append(f"k-means, pairs, distances and spectra are of queries and gallery together, {pool:,} images")
    if draws > 1:
        said.append(
            f"the first of {draws} drawn galleries, over which retrieval metrics are means; pictures and query "
            "results are of the first"
        )
    if sequences is not None:
        said.append(f"images of one sequence, of {sequences:,}, never find each other")
    if lone or skips:
        counted = (
            "left out of all ranking metrics (--eval_skip_unmatched)"
            if skips
            else "0 for e_recall and mAP, left out by the others"
        )
        said.append(f"{lone:,} of {queries:,} queries have no image of their class to find: {counted}")
    return "; ".join(said)


def lists_in_words(lists: dict[str, Lists], searched: int) -> str:
    """One line on the lists of queries that search in `searched` images."""
    one = next(iter(lists.values()))
    said = []
    for protocol, of in lists.items():
        junk = 0 if of.junk_indices is None else len(of.junk_indices)
        lone = int((np.diff(of.positive_indptr) == 0).sum())
        left_out = f"{lone:,} of {len(of):,} queries have no positive: left out of all ranking metrics"
        said.append(
            f"{protocol or 'lists'}: {len(of.positive_indices):,} positives, {junk:,} junk, which takes no rank; "
            f"{left_out}"
        )
    return "; ".join([f"{len(one):,} queries search in {searched:,} images", *said])


def dumped(roles: Roles) -> dict[str, np.ndarray]:
    """The roles as arrays for an .npz file of embeddings, name -> `(N,)`; empty where every image is both, has a class
    and is of no sequence.
    """
    found = {}
    if roles.pool is not None:
        rows = np.arange(roles.size)
        found = {
            name: np.isin(rows, taken(rows, which))
            for name, which in (("is_query", roles.queries), ("is_gallery", roles.gallery))
        }
        if roles.distractors is not None and len(roles.distractors) < roles.size:
            found["is_distractor"] = np.isin(rows, roles.distractors)
    for protocol, lists in (roles.listed() or {}).items():
        found |= {f"{name}{'_' * bool(protocol)}{protocol}": array for name, array in lists._asdict().items()}
    if roles.sequences is not None:
        found["sequence"] = roles.sequences
        if roles.names is not None:
            found["sequence"] = np.array(
                ["" if number < 0 else str(roles.names.get(number)) for number in roles.sequences.tolist()]
            )
    return found
