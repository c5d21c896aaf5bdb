"""Reading what a search wrote into its folder. A damaged file is reported in one clear line."""

import contextlib
from pathlib import Path

from utilities.errors import UserError
from utilities.reading import Unreadable, parsing, read_records

TABLE = "trials.csv"
BEST = "best_parameters.yaml"


@contextlib.contextmanager
def undamaged(path: Path, way_out: str):
    """Context in which a file is read and parsed; any failure becomes a UserError that ends in `way_out`."""
    try:
        with parsing(path):
            yield
    except Unreadable as error:
        raise UserError(f"{path} is damaged ({error.reason}): {way_out}") from error


def read_table(folder: Path) -> list[dict]:
    """The rows of trials.csv, none if there is no such file. Raises UserError where it is damaged."""
    path = folder / TABLE
    if not path.exists():
        return []
    with undamaged(path, "move it away, the search writes it anew"):
        _, rows = read_records(path)
        for row in rows:
            value = row["value"] if row["state"] == "complete" else 0
            # a damaged row raises
            row["trial"], float(value)
    return rows
