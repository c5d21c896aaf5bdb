"""Missing labels: how programs write a value that is not there, the same for tables, shards and arrays."""

import numpy as np

# as programs write a missing value, in any case
MISSING = ("", "nan", "none", "null", "<na>")


def present(value) -> str:
    """A value of a table or JSON file as text without outer spaces; empty where it is missing, NaN or None."""
    text = str(value).strip()
    return "" if text.lower() in MISSING else text


def are_missing(labels: np.ndarray) -> np.ndarray:
    """Whether each label of an array is missing: NaN, or a text of which `present` leaves nothing.

    Shape of `labels`.
    """
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind not in "US":
        return np.zeros(labels.shape, dtype=bool)
    texts = np.char.decode(labels, "utf-8", "replace") if labels.dtype.kind == "S" else labels
    return np.isin(np.char.lower(np.char.strip(texts)), MISSING)
