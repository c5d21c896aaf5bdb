"""Reading what a search wrote into its folder. A damaged file is reported in one clear line."""

import contextlib
import csv
from pathlib import Path

import yaml

from utilities.errors import UserError

TABLE, BEST = "trials.csv", "best_parameters.yaml"


@contextlib.contextmanager
def undamaged(path: Path, way_out: str):
    """Context in which a file is read and parsed; any failure becomes a UserError that ends in `way_out`."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, yaml.YAMLError, csv.Error) as error:
        raise UserError(f"{path} is damaged ({' '.join(str(error).split())[:160]}): {way_out}") from error


def read_table(folder: Path) -> list[dict]:
    """The rows of trials.csv, none where there is no such file. Raises UserError where it is damaged."""
    path = folder / TABLE
    if not path.exists():
        return []
    with undamaged(path, "move it away, the search writes it anew"), open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, strict=True))
        for row in rows:
            row["trial"], float(row["value"] if row["state"] == "complete" else 0)
    return rows
