"""The splits of a run by their names: in flags and tables, among data sets, and as text."""

SPLITS = ("train", "val", "test")
# split -> its key in `datasets.select`
DATA_SETS = {"train": "evaluation", "val": "validation", "test": "testing"}
WORDS = {"train": "training", "val": "validation", "test": "test"}


def evaluated(data_sets: dict) -> dict:
    """Split -> its data set with the test transform, None if there is none; `data_sets`: of `datasets.select`."""
    return {split: data_sets[name] for split, name in DATA_SETS.items()}
