"""All drawing: curves, spectra, distances, maps, neighbours of queries, pairs, groups of runs, toy spaces.

A function here is given what it draws; what is drawn when is decided by who calls
(evaluation/outputs.py, results/, retrieval/, toy_experiments/).
"""

from utilities import extras


def can_draw() -> bool:
    """Whether matplotlib is installed. A note says once in a process that there are no pictures without it."""
    return extras.is_installed("matplotlib", otherwise="no pictures are drawn")
