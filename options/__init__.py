"""Everything about flags: flags/ says how they are declared, groups/ declares those of the run as a whole; options.py,
composition.py and their neighbours compose the options of a run from defaults, files, a saved run and the command line,
and refuse those that cannot work.
"""
