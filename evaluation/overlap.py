"""`python -m evaluation.overlap`: the program is `tools/overlap.py`."""

from evaluation.__main__ import run

if __name__ == "__main__":
    run("overlap")
