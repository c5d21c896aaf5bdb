"""A neighbour's float32 score and its index in the reference packed into one int64, which sorts as neighbours do."""

import numpy as np

COLUMN_BITS = 31
COLUMN = (1 << COLUMN_BITS) - 1  # the bits of a key that hold the column
AFTER_ALL = np.iinfo(np.int64).max  # key of an empty slot
LOWEST = float(np.finfo(np.float32).min)


def as_keys(scores: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """int64 keys that ascend as float32 `scores` descend, then as `columns` ascend."""
    bits = (-scores).view(np.int32).astype(np.int64)
    # read as whole numbers, the bits of negative floats run backwards
    bits ^= (bits >> 63) & 0x7FFFFFFF
    return ((bits + (1 << 31)) << COLUMN_BITS) | columns


def scores_of(keys: np.ndarray) -> np.ndarray:
    """The scores in keys; NaN for `AFTER_ALL`."""
    bits = (keys >> COLUMN_BITS) - (1 << 31)
    bits ^= (bits >> 63) & 0x7FFFFFFF
    return -bits.astype(np.int32).view(np.float32)
