"""A run on disk: its folder, checkpoints, records, resume, folds, and what the console says of it."""

from runs.folder import RunFolder, load_run

__all__ = ["RunFolder", "load_run"]
