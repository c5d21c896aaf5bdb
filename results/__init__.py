"""From runs to tables, plots and a page: the rooms behind Result_Evaluations.py.

collect.py     run folders and W&B projects -> `Run`
groups.py      runs -> groups of seeds, what counts, what is left out and why, which settings are shared
columns.py     metric names -> columns with split, title, unit, direction; the value of a run by a selection rule
statistics.py  means, deviations, Welch's test with Holm's correction, correlations, z-scores
tables.py      groups -> tables
formats.py     a table -> .tex, .md, .csv, HTML
published.py   docs/published/*.csv -> the published values beside our own
plots.py       figures as PDF and PNG
page.py        one self-contained HTML page of it all
"""
