"""Composes the options of a run from defaults, files, a saved run and the command line,
and refuses those that cannot work.
"""

from options.options import Options

__all__ = ["Options"]
