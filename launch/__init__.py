"""Executing a file of runs: its lines (`lines`), who works on which (`locks`), processes (`runner`), Slurm (`slurm`)."""
