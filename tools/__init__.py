"""Command-line programs around embeddings, one module each; `evaluation/__main__.py` starts them.

`evaluation/__main__.py`, whose documented commands these programs are, and `appraise/` import them, no other folder.
"""

# `python -m evaluation NAME …`, and what the program is for
COMMANDS = {
    "pairs": "Verification by pairs of embeddings",
    "upgrade": "A new network on the index of an old one",
    "tracks": "Re-association of tracks in films",
    "decide": "Thresholds for known and new classes",
    "compress": "Codes of embeddings",
    "whiten": "A whitening for --eval_whiten",
    "models": "Frozen networks in one table",
    "overlap": "Near-duplicates between the images of a data set",
}
