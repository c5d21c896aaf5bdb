"""Groups -> tables.

How good is it?
  ratings.py       groups x metrics, of one data set and of all; runs excluded from the means; runs.csv; settings
  space.py         the structure of the embedding space and its correlations with the metrics; rho_distance and distance
  folds.py         cross-validations
  progressions.py  out-of-distribution progressions

Is it different?
  seeds.py         how many seeds a difference needs; how stable the order of the groups is
  selection.py     the gain of choosing the epoch on test
  splits.py        the same methods on several splits of the classes

Is it the published one?
  beside.py        our values beside published ones

  notes.py         notes below tables, shared by several
"""

from results.tables.beside import comparison, from_ledger
from results.tables.folds import cross_validation
from results.tables.progressions import progressed
from results.tables.ratings import by_domain, left_out, reidentification, shared, single, values
from results.tables.ratings import conditions as settings
from results.tables.seeds import plan, power, ranks
from results.tables.selection import on_average, optimism
from results.tables.space import beside_twins, correlation, correlations, regularised, structure
from results.tables.splits import all_of as of_splits

__all__ = [
    "beside_twins",
    "by_domain",
    "comparison",
    "correlation",
    "correlations",
    "cross_validation",
    "from_ledger",
    "left_out",
    "of_splits",
    "on_average",
    "optimism",
    "plan",
    "power",
    "progressed",
    "ranks",
    "regularised",
    "reidentification",
    "settings",
    "shared",
    "single",
    "structure",
    "values",
]
