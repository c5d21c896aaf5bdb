"""Groups -> tables.

ratings.py    groups x metrics, of one data set and of all; runs that are in no mean; runs.csv; settings
space.py      the structure of the embedding space, its correlations with the metrics, rho_distance beside distance
folds.py      cross-validations
beside.py     our values beside published ones
notes.py      what several of them say below
"""

from results.tables.beside import comparison
from results.tables.folds import cross_validation
from results.tables.ratings import conditions as settings
from results.tables.ratings import left_out, shared, single, values
from results.tables.space import correlation, correlations, regularised, structure

__all__ = [
    "comparison", "correlation", "correlations", "cross_validation", "left_out", "regularised", "settings", "shared", "single", "structure",
    "values",
]  # fmt: skip
