"""A run on disk: its folder, checkpoints, records, resume, folds, console output; and its embeddings of images."""

from runs.embedder import Embedder
from runs.folder import RunFolder, load_run

__all__ = ["Embedder", "RunFolder", "load_run"]
