"""From runs to tables, plots and a page: the modules behind Result_Evaluations.py.

collect.py      run folders (folders.py) and W&B projects (online.py) -> `RecordedRun` (recorded.py)
roles.py        how the tables treat a flag: compared, setting, method, published, printed
settings.py     the settings that runs and groups share, apart from their method
groups.py       runs -> groups of seeds: what counts, what is left out and why, which groups may be ranked with each other
columns.py      metric names -> columns with split, title, unit, direction; the value of a run by a selection rule
inference.py    means, deviations, who is shown to be worse than the best, intervals of differences, correlations, tests
tables/         groups -> tables
formats.py      a table -> .md, .csv, text for the console; latex.py: -> .tex that fits its page; page.html: its HTML
texts.py        texts made brief: names of files in place of absolute paths
ledger.py       docs/published/ledger.csv and the conditions of runs -> which numbers may be compared
published.py    our groups beside the published figures of their methods and of their conditions
progression.py  groups -> methods on the splits of an out-of-distribution progression
plots.py        what the figures show; pictures/groups.py draws them
page.py         one self-contained HTML page of it all
"""
