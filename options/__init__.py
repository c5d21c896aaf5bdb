"""Everything about flags: flags/ declares them; options.py, composition.py and their neighbours compose the options of
a run from defaults, files, a saved run and the command line, and refuse those that cannot work.
"""
