"""Roles of a split's images: which are queries, which are its gallery, and which never find each other (sequences).

A data set gives them as `is_query` and `is_gallery`, bool `(N,)`, and `sequences`, whole numbers `(N,)` with -1 for
none. If it does not, every image is query and gallery, of no sequence. `sequence_names`, number -> name, identifies a
sequence across splits. `lists` may give what is relevant to each query: protocol -> the rows of the positives, and of
the junk, of each query.
"""

import copy
from typing import NamedTuple

import numpy as np

from evaluation.task import Embedded, Task, places_in, take_rows
from metrics import Lists
from utilities.errors import UserError

# arrays of a file of embeddings that say which rows search, and which are searched
ROLES = ("is_query", "is_gallery", "sequence", "role_draws", "is_distractor")


class Roles(NamedTuple):
    """Rows of a split of `size` images, ascending.

    queries, gallery: rows; None: all. either: rows that are one of the two; None: all.
    sequences: `(N,)`, or None. names: of the sequences, number -> name, or None.
    draws: number of drawn galleries; the roles are those of the first.
    distractors: rows without a class, or None.
    lists: as the data set has them, or None.
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

    def rows(self, role: str) -> np.ndarray:
        """The rows of the `queries`, or of the `gallery`."""
        return take_rows(np.arange(self.size), getattr(self, role))

    def relevance(self) -> dict[str, Lists] | None:
        """Protocol -> the lists of the queries, as positions in the gallery; None without lists."""
        if self.lists is None:
            return None
        places = places_in(self.rows("gallery"), self.size)
        relevance = {}
        for protocol, (positives, junk) in self.lists.items():
            relevance[protocol] = Lists.of([places[rows] for rows in positives], [places[rows] for rows in junk])
        return relevance

    @property
    def pool(self) -> np.ndarray | None:
        """The rows of class-wise numbers, queries and gallery together without distractors; None: every image."""
        distractors = self.distractors
        # without classes: lists say what is relevant
        if distractors is not None and len(distractors) == self.size:
            distractors = None
        if distractors is None and not self.differ:
            return None
        rows = take_rows(np.arange(self.size), self.either)
        if distractors is not None:
            rows = np.setdiff1d(rows, distractors)
        return rows


def roles_of(dataset, size: int) -> Roles:
    """The roles of a data set of `size` images."""
    query = _flags(dataset, "is_query", size)
    gallery = _flags(dataset, "is_gallery", size)
    sequences = getattr(dataset, "sequences", None)
    if sequences is not None:
        sequences = np.asarray(sequences)
        if (sequences < 0).all():
            sequences = None
    distractors = getattr(dataset, "is_distractor", None)
    if distractors is not None:
        distractors = np.flatnonzero(distractors)
    n_draws = 1
    if getattr(dataset, "role_draws", None) is not None:
        n_draws = len(dataset.role_draws)
    return Roles(
        size,
        _rows(query),
        _rows(gallery),
        _rows(query | gallery),
        sequences,
        getattr(dataset, "sequence_names", None),
        draws=n_draws,
        distractors=distractors,
        lists=getattr(dataset, "lists", None),
    )


def _flags(dataset, name: str, size: int) -> np.ndarray:
    """bool `(N,)`, an attribute of the data set; all true without it."""
    flags = getattr(dataset, name, None)
    if flags is None:
        return np.ones(size, dtype=bool)
    return np.asarray(flags, dtype=bool)


def _rows(flags: np.ndarray) -> np.ndarray | None:
    """The rows where flags `(N,)` are true; None: all."""
    return None if flags.all() else np.flatnonzero(flags)


def draws(dataset) -> list:
    """`[dataset]`, or a copy of it for each of its `role_draws`, bool `(D, N)`: metrics are means over them."""
    role_draws = getattr(dataset, "role_draws", None)
    if role_draws is None:
        return [dataset]
    copies = [copy.copy(dataset) for _ in role_draws]
    for of_draw, gallery in zip(copies, role_draws, strict=True):
        of_draw.is_gallery = gallery
        of_draw.is_query = ~gallery
    return copies


def roles_of_all(images: dict[str, Embedded]) -> dict[str, Roles]:
    """Split -> roles."""
    return {split: roles_of(embedded.dataset, len(embedded.labels)) for split, embedded in images.items()}


def check(datasets: dict, measured: list[str]) -> None:
    """Raise UserError for a split to measure without queries, or a split without a gallery."""
    for split, dataset in datasets.items():
        roles = roles_of(dataset, len(dataset))
        missing = None
        if split in measured and not len(roles.rows("queries")):
            missing = "query"
        elif not len(roles.rows("gallery")):
            missing = "gallery"
        if missing and roles.size:
            raise UserError(
                f"{split}, of --dataset {dataset.name}: none of its {roles.size} images is a {missing} image "
                f"(is_{missing})"
            )


def numbers(roles: dict[str, Roles]) -> dict[str, np.ndarray | None]:
    """Split -> `(N,)` numbers of sequences, unique over all splits, -1 for none;
    None for every split without any sequence.
    """
    if all(of_split.sequences is None for of_split in roles.values()):
        return dict.fromkeys(roles)
    number_of = {}  # (split, number) or name -> number over all splits
    numbered = {}
    for split, of_split in roles.items():
        numbered[split] = np.full(of_split.size, -1)
        if of_split.sequences is None:
            continue
        distinct, places = np.unique(of_split.sequences, return_inverse=True)
        table = np.full(len(distinct), -1)
        for place, number in enumerate(distinct.tolist()):
            if number >= 0:
                key = (split, number)
                if of_split.names is not None:
                    key = str(of_split.names.get(number))
                table[place] = number_of.setdefault(key, len(number_of))
        numbered[split] = table[places.reshape(-1)]
    return numbered


def described(task: Task, roles: Roles, gallery: str, skips: bool, draws: int) -> str:
    """One line: how many queries search how many images, and what class-wise numbers are of.

    Args:
        roles: of the queries' split. gallery: the gallery's name. skips: whether queries without anything relevant are
            left out of all metrics. draws: number of drawn galleries.
    """
    phrases = []
    if roles.pool is not None:
        n_both = len(np.intersect1d(roles.rows("queries"), roles.rows("gallery")))
        phrases += searching(len(task.queries), len(task.searched), gallery, n_both, len(roles.pool))
    if draws > 1:
        phrases.append(
            f"the first of {draws} drawn galleries, over which retrieval metrics are means; pictures and query "
            "results are of the first"
        )
    if roles.sequences is not None:
        n_sequences = len(np.unique(roles.sequences[roles.sequences >= 0]))
        phrases.append(f"images of one sequence, of {n_sequences:,}, never find each other")
    return "; ".join(phrases + unmatched(task, skips))


def searching(n_queries: int, n_searched: int, gallery: str, n_both: int, n_pool: int) -> list[str]:
    """What searches the gallery of that name. n_both: images that are query and gallery.
    n_pool: those of class-wise numbers.
    """
    roles = "no image is query and gallery"
    if n_both:
        roles = f"{n_both:,} images are query and gallery, none finds itself"
    return [
        f"{n_queries:,} queries search in {n_searched:,} images, {gallery}",
        roles,
        f"k-means, pairs, distances and spectra are of queries and gallery together, {n_pool:,} images",
    ]


def unmatched(task: Task, skips: bool) -> list[str]:
    """How many queries have no image of their class to find, and how these count."""
    n_unmatched = int((task.findable()[0] == 0).sum())
    if not n_unmatched and not skips:
        return []
    counted = "0 for e_recall and mAP, left out by the others"
    if skips:
        counted = "left out of all ranking metrics (--eval_skip_unmatched)"
    return [f"{n_unmatched:,} of {len(task.queries):,} queries have no image of their class to find: {counted}"]


def lists_described(task: Task) -> str:
    """One line on the lists of what queries are to find."""
    phrases = [f"{len(task.lists):,} queries search in {len(task.searched):,} images"]
    for protocol, lists in task.relevance.items():
        n_junk = 0 if lists.junk_indices is None else len(lists.junk_indices)
        n_unmatched = int((np.diff(lists.positive_indptr) == 0).sum())
        phrase = (
            f"{protocol or 'lists'}: {len(lists.positive_indices):,} positives, {n_junk:,} junk, which is not ranked"
        )
        if n_unmatched:
            phrase += f"; {n_unmatched:,} of {len(lists):,} queries have no positive: left out of all ranking metrics"
        phrases.append(phrase)
    return "; ".join(phrases)


def dumped(roles: Roles) -> dict[str, np.ndarray]:
    """The roles as arrays for an .npz file of embeddings, name -> `(N,)`; empty if every image is both, has a class
    and is of no sequence.
    """
    arrays = {}
    if roles.pool is not None:
        rows = np.arange(roles.size)
        arrays["is_query"] = np.isin(rows, roles.rows("queries"))
        arrays["is_gallery"] = np.isin(rows, roles.rows("gallery"))
        if roles.distractors is not None and len(roles.distractors) < roles.size:
            arrays["is_distractor"] = np.isin(rows, roles.distractors)
    for protocol, lists in (roles.relevance() or {}).items():
        for name, array in lists._asdict().items():
            arrays[f"{name}_{protocol}" if protocol else name] = array
    if roles.sequences is not None:
        arrays["sequence"] = roles.sequences
        if roles.names is not None:
            names = ["" if number < 0 else str(roles.names.get(number)) for number in roles.sequences.tolist()]
            arrays["sequence"] = np.array(names)
    return arrays
