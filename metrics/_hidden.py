"""What a query must not find: its own image, and the other images of its own sequence."""

import numpy as np
import torch

from utilities.errors import UserError


def as_numpy(values) -> np.ndarray:
    """A numpy array of a tensor on any device, or of anything that numpy takes."""
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().numpy()
    return np.asarray(values)


def as_exclude(exclude, size: int, reference_size: int) -> np.ndarray:
    """int64 `(N,)` of indices into the reference, -1 for none. Raises UserError for anything else."""
    exclude = as_numpy(exclude)
    fits = exclude.dtype.kind in "iu" and exclude.shape == (size,)
    if not fits or exclude.min() < -1 or exclude.max() >= reference_size:
        raise UserError(
            f"exclude must be ({size},) whole numbers, indices into the reference of {reference_size}, -1 for none."
        )
    return exclude.astype(np.int64)


def as_sequences(sequences, size: int, name: str) -> np.ndarray:
    """`(N,)` whole numbers, or names; a negative number, None or "" means no sequence.
    Raises UserError for anything else.
    """
    sequences = as_numpy(sequences)
    # None among numbers or names
    if sequences.dtype.kind == "O":
        values = sequences.reshape(-1)
        is_empty = np.array([value is None for value in values], dtype=bool)
        types = set(map(type, values[~is_empty]))
        of_names = all(issubclass(kind, str) for kind in types)
        if of_names or all(issubclass(kind, int) and kind is not bool for kind in types):
            values = values.copy()
            values[is_empty] = "" if of_names else -1
            sequences = np.array(values.tolist()).reshape(sequences.shape)
    if sequences.dtype.kind not in "iuU" or sequences.shape != (size,):
        raise UserError(
            f"{name} must be ({size},) whole numbers, -1 for none, or names; they are {sequences.shape} of type "
            f"{sequences.dtype}."
        )
    return sequences


def numbered(query_sequences: np.ndarray, reference_sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64 numbers `(N,)`, `(M,)`, equal where a query must not find a sample;
    no sequence is -1 among queries, -2 in the reference.
    """
    if (query_sequences.dtype.kind == "U") != (reference_sequences.dtype.kind == "U"):
        kinds = (
            f"query_sequences are of type {query_sequences.dtype}, reference_sequences of type "
            f"{reference_sequences.dtype}"
        )
        raise UserError(f"{kinds}: give numbers, or names.")
    size = len(query_sequences)
    if query_sequences.dtype.kind == "U":
        sequences = np.concatenate([query_sequences, reference_sequences])
        is_none = sequences == ""
    else:
        sequences = np.concatenate([query_sequences, reference_sequences], dtype=np.int64, casting="unsafe")
        is_none = sequences < 0
    numbers = np.unique(sequences, return_inverse=True)[1].reshape(-1)
    return np.where(is_none, -1, numbers)[:size], np.where(is_none, -2, numbers)[size:]


def findable(labels, reference_labels, exclude, sequences) -> tuple[np.ndarray, np.ndarray]:
    """`(N,)` each: how many samples of its class, and of any class, each query can find.

    Args:
        labels, reference_labels: `(N,)`, `(M,)` numbers from 0. exclude: `(N,)`, -1 for none. sequences: as `numbered`
        gives them, or None.
    """
    n_classes = int(max(labels.max(), reference_labels.max())) + 1
    # the query itself is in the reference
    is_there = exclude >= 0
    is_relevant = is_there & (reference_labels[exclude] == labels)
    relevant = np.bincount(reference_labels, minlength=n_classes)[labels]
    visible = np.full(len(labels), len(reference_labels))
    if sequences is not None:
        queries, reference = sequences
        relevant = relevant - _times(
            queries * n_classes + labels, reference * n_classes + reference_labels, queries >= 0
        )
        visible = visible - _times(queries, reference, queries >= 0)
        inside = reference[exclude] == queries
        is_there = is_there & ~inside
        is_relevant = is_relevant & ~inside
    return relevant - is_relevant, visible - is_there


def _times(keys: np.ndarray, among: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """How often each of the keys `(N,)` is `among` others `(M,)`; 0 where it is not `counted`."""
    among = np.sort(among)
    return np.where(counted, np.searchsorted(among, keys, side="right") - np.searchsorted(among, keys), 0)
