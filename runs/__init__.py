"""A run on disk: its folder, checkpoints, records, resume, folds, what the console says of it; and what it makes of images."""

from runs.embedder import Embedder
from runs.folder import RunFolder, load_run

__all__ = ["Embedder", "RunFolder", "load_run"]
