"""What every folder may use: registry, runtime, checkpoints, records, small tensor helpers. Imports no other folder."""

from utilities.run import load_run

__all__ = ["load_run"]
