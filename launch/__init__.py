"""Executing a file of runs: its lines (`lines`), processes (`runner`), Slurm (`slurm`)."""
