"""All drawing: curves, spectra, distances, maps, neighbours of queries, pairs, groups of runs, toy spaces.

A function here is given what it draws; what is drawn when is decided by who calls
(evaluation/outputs.py, results/, retrieval/, toy_experiments/).
"""
