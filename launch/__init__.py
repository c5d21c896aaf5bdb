"""Executing a file of runs: its lines (`lines`), the words of them (`shell`), who works on which (`locks`), processes (`runner`), Slurm (`slurm`)."""
