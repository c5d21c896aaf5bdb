"""How one namespace comes from defaults, files, a saved run and the command line; roles of flags; what cannot work."""

from options.options import Options

__all__ = ["Options"]
