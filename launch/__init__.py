"""Executing a file of runs: its lines (`lines`), processes (`runner`), Slurm (`slurm`)."""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported
