"""From runs to tables, figures and a page: the modules behind Result_Evaluations.py.

flags.py          the command line

Read the runs
  collect.py      run folders (folders.py) and W&B projects (online.py) -> `RecordedRun` (recorded.py)
  roles.py        which flags count for which purpose: compared, setting, method, published, printed
  settings.py     the settings that runs and groups share, apart from their method
  groups.py       runs -> groups of seeds: what counts, what is left out and why, which groups may be ranked together
  untrained.py    networks before training, over the seeds
  columns.py      metric names -> columns: split, title, unit, direction; the value of a run by a selection rule

How good is it?
  tables/         groups -> tables (its `__init__.py` lists them)
  frozen_networks.py  the table of `python -m evaluation models`

Is it different?
  inference.py    means, deviations, which groups are shown to be worse than the best, intervals, correlations, tests
  paired.py       two groups compared query by query, by the bootstrap of bootstrap.py
  splits.py       the same methods on several splits of the classes: variance by source, does a ranking survive
  progression.py  the same methods on the splits of an out-of-distribution progression
  planning.py     how many draws, classes and seeds a difference needs, from variance components

Is it the published one?
  ledger.py       docs/published/ledger.csv and the conditions of runs -> which numbers may be compared
  published.py    our groups beside the published figures of their methods and of their conditions

Write it
  formats.py      a table -> .md, .csv, text for the console; latex.py: -> .tex that fits its page; tex_text.py: escapes
  plots.py        what the figures show; pictures/groups.py draws them
  page.py         one self-contained HTML page of everything (page.html, page.css, page.js)
  texts.py        shorter texts: names of files instead of absolute paths
"""
