"""`python -m evaluation.pseudo_labels`: the program is `tools/pseudo_labels.py`."""

from evaluation.__main__ import run

if __name__ == "__main__":
    run("pseudo_labels")
