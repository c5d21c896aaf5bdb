"""A run on disk: its folder, checkpoints, records, resume, folds, and what the console says of it."""

from runs.run import load_run

__all__ = ["load_run"]
