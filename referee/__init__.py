"""The referee: exact cases of retrieval evaluation, a judge that any project can copy, and who computes what.

`cases.json` and `judge.py` stand alone. `python -m referee` asks the programs of `adapters/` and writes
docs/referee.md. Nothing else of this project imports this folder; its adapters import the programs that they ask.
"""
